"""An interface that frames were captured on, and how it counts time."""

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from rdmawire.capture.linktype import MAX_RECORD, LinkType, longest_record
from rdmawire.capture.misfit import check_number
from rdmawire.capture.option import Options
from rdmawire.errors import CaptureError

SECOND = 1_000_000_000
"""Nanoseconds."""

_NAME, _DESCRIPTION, _RESOLUTION, _OFFSET = 2, 3, 9, 14
_ATTRIBUTES = {
    _NAME: "name",
    _DESCRIPTION: "description",
    _RESOLUTION: "resolution",
    _OFFSET: "offset_seconds",
}
_LATEST = (1 << 63) - 1
LENGTHS = {_RESOLUTION: 1, _OFFSET: 8}
"""Octets that these options of an interface have."""


@dataclass(frozen=True, slots=True)
class Interface:
    """Where frames were captured.

    ``snap_length``: the most octets of a frame that were kept, 0 for no limit. ``resolution``:
    units of time per second, a power of ten or of two. ``offset_seconds``: what is added to
    times of the file. ``options``: those of pcapng that no attribute stands for, as in records.
    """

    link_type: int = LinkType.ETHERNET
    snap_length: int = MAX_RECORD
    name: str = ""
    description: str = ""
    resolution: int = 1_000_000
    offset_seconds: int = 0
    options: Options = ()

    def time_ns(self, ticks: int) -> int:
        """Nanoseconds since 1970 for a time of the file, rounded down."""
        return ticks * SECOND // self.resolution + self.offset_seconds * SECOND

    def ticks(self, time_ns: int) -> int:
        """The time of the file that reads back as this one, or else as the last one before."""
        after = -(-(time_ns - self.offset_seconds * SECOND) * self.resolution // SECOND)
        return after if self.time_ns(after) == time_ns else after - 1


class Clock(NamedTuple):
    """What records need of their interface.

    Nanoseconds since 1970 are ``ticks * multiplier // divisor + offset_ns``. ``longest``: the
    most octets that a record may have.
    """

    link_type: int
    interface: int
    multiplier: int
    divisor: int
    offset_ns: int
    longest: int


def clock(interface: Interface, index: int) -> Clock:
    """The clock of the interface with this index."""
    common = gcd(SECOND, interface.resolution)
    return Clock(
        interface.link_type,
        index,
        SECOND // common,
        interface.resolution // common,
        interface.offset_seconds * SECOND,
        longest_record(interface.link_type),
    )


def described(link_type: int, snap_length: int, options: Options) -> Interface:
    """The interface that a file describes thus."""
    said = dict(options)
    return Interface(
        link_type,
        snap_length,
        said.get(_NAME, b"").decode(errors="replace"),
        said.get(_DESCRIPTION, b"").decode(errors="replace"),
        _resolution(said.get(_RESOLUTION, b"\x06")[0]),
        int.from_bytes(said.get(_OFFSET, b""), "little", signed=True),
        tuple(option for option in options if option[0] not in _ATTRIBUTES),
    )


def description(interface: Interface) -> Options:
    """The options that describe the interface in a file."""
    for code, _ in interface.options:
        if code in _ATTRIBUTES:
            raise CaptureError(f"Interface.options: {code} is what {_ATTRIBUTES[code]} is for")
    check_number("Interface.offset_seconds", interface.offset_seconds, _LATEST, -_LATEST)
    offset = interface.offset_seconds.to_bytes(8, "little", signed=True)
    said = (
        (_NAME, _octets("name", interface.name)),
        (_DESCRIPTION, _octets("description", interface.description)),
        (_RESOLUTION, bytes([_resolution_octet(interface.resolution)])),
        (_OFFSET, offset if interface.offset_seconds else b""),
    )
    return tuple(option for option in said if option[1]) + interface.options


def _octets(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise CaptureError(f"Interface.{name}: text is needed, found {text!r}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CaptureError(f"Interface.{name}: {text!r} cannot be UTF-8") from error


def _resolution_octet(resolution: int) -> int:
    """The value of if_tsresol: an exponent of ten, or of two with the upper bit set."""
    for base, mark in ((10, 0), (2, 0x80)):
        for exponent in range(128):
            if isinstance(resolution, int) and base**exponent == resolution:
                return mark | exponent
    raise CaptureError(
        f"Interface.resolution: {resolution!r} units per second, powers of ten and of two"
        " with exponents up to 127 are allowed"
    )


def _resolution(octet: int) -> int:
    """Units per second for a value of if_tsresol."""
    exponent = octet & 0x7F
    return 1 << exponent if octet & 0x80 else 10**exponent
