"""A record: one frame as a capture file keeps it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import gcd
from struct import Struct
from typing import NamedTuple, Self

from rdmawire.capture.source import BytesLike
from rdmawire.errors import CaptureError, UnrepresentableError
from rdmawire.validate import byte_count, check_int, check_type

MAX_RECORD = 262_144
"""The most bytes a record may have, libpcap's MAXIMUM_SNAPLEN: tools write no longer ones."""

_MIB = 1 << 20

# Link types whose frames are longer than MAX_RECORD by their nature; libpcap and Wireshark
# read these lengths too.
_LONGER = {
    231: 128 * _MIB,  # D-Bus
    249: 128 * _MIB,  # USBPcap
    279: 8 * _MIB,  # Elektrobit high speed capture and replay
}


class LinkType(IntEnum):
    """Link types of RDMA captures; ``meaning`` says in a line what a record begins with."""

    meaning: str

    def __new__(cls, number: int, meaning: str = "") -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        member.meaning = meaning
        return member

    NULL = 0, "BSD loopback: four bytes of address family in the host's byte order, then IP"
    ETHERNET = 1, "Ethernet frame without preamble and, as a rule, without its checksum"
    RAW_BSD = 12, "IPv4 or IPv6 packet, as some systems number RAW"
    RAW_OPENBSD = 14, "IPv4 or IPv6 packet, as OpenBSD numbers RAW"
    RAW = 101, "IPv4 or IPv6 packet, told apart by the version in its first byte"
    LINUX_SLL = 113, "Linux cooked capture, 16 bytes: what a capture on all interfaces gives"
    ERF = 197, "Endace extensible record, as InfiniBand capture cards write"
    IPV4 = 228, "IPv4 packet"
    IPV6 = 229, "IPv6 packet"
    INFINIBAND = 247, "InfiniBand packet beginning with its LRH"
    LINUX_SLL2 = 276, "Linux cooked capture, version 2, 20 bytes: names the interface"


def longest_record(link_type: int) -> int:
    """The most bytes that a record of this link type may have."""
    return _LONGER.get(link_type, MAX_RECORD)


Options = tuple[tuple[int, bytes], ...]
"""Numbers of options with their values, in the order of the file."""

END = 0
COMMENT = 1
MAX_OPTIONS = 1 << 20
"""The most bytes that the options of one block may take."""

PADS = (b"", b"\0\0\0", b"\0\0", b"\0")
"""What fills a value up to a multiple of four bytes, by its length modulo four."""

# A custom option begins with the number of the enterprise that defines it.
_CUSTOM = dict.fromkeys((2988, 2989, 19372, 19373), (0, 4))
# Number of the option: at which byte of the value a number stands, and how many it has.
PACKET_NUMBERS = {
    2: (0, 4),  # flags
    4: (0, 8),  # dropped packets
    5: (0, 8),  # packet identifier
    6: (0, 4),  # queue
    7: (1, 8),  # verdict, after the byte that says whose
    **_CUSTOM,
}
INTERFACE_NUMBERS = {
    8: (0, 8),  # speed
    14: (0, 8),  # seconds to add to times
    **_CUSTOM,
}

_HEADS = {"<": Struct("<HH"), ">": Struct(">HH")}


def parse_options(
    data: BytesLike, start: int, end: int, order: str, numbers: Mapping[int, tuple[int, int]]
) -> Options:
    """The options between two places of the buffer, which are a multiple of four apart."""
    head = _HEADS[order].unpack_from
    options = []
    while start < end:
        code, length = head(data.buffer, start)
        if code == END:
            break
        if length > end - start - 4:
            raise _runs_over(data, start, code, length, end - start - 4)
        value = data.buffer[start + 4 : start + 4 + length]
        options.append((code, _swapped(value, code, order, numbers)))
        start += 4 + (length + 3 & ~3)
    return tuple(options)


def _runs_over(data: BytesLike, start: int, code: int, length: int, left: int) -> CaptureError:
    return data.damage(f"option {code} claims {length} bytes, its block has {left} left", start)


def build_options(
    options: Iterable[tuple[int, bytes]], order: str, numbers: Mapping[int, tuple[int, int]]
) -> bytes:
    """The list with the mark at its end; nothing at all for no options."""
    parts = [_option(code, value, order, numbers) for code, value in options]
    if not parts:
        return b""
    size = sum(map(len, parts)) + 4
    if size > MAX_OPTIONS:
        raise CaptureError(f"options: {size} bytes in one block, {MAX_OPTIONS} are allowed")
    return b"".join([*parts, bytes(4)])


def _option(code: int, value: bytes, order: str, numbers: Mapping[int, tuple[int, int]]) -> bytes:
    check_int("options: the code", code, 1, 0xFFFF, CaptureError)
    size = byte_count(value, f"options: the value of option {code}", CaptureError)
    check_int(f"options: the length of option {code}", size, 0, 0xFFFF, CaptureError)
    swapped = _swapped(value, code, order, numbers)
    return _HEADS[order].pack(code, len(value)) + swapped + PADS[len(value) % 4]


def _swapped(value: bytes, code: int, order: str, numbers: Mapping[int, tuple[int, int]]) -> bytes:
    """The value with the number in it turned from this byte order to little-endian, or back."""
    if order == "<" or code not in numbers:
        return value
    at, width = numbers[code]
    end = at + width
    if len(value) < end:
        return value
    return value[:at] + value[at:end][::-1] + value[end:]


Span = tuple[bytes, int, int]
"""A buffer, and where in it the captured bytes of a record start and end."""


class Record(NamedTuple):
    """One frame of a capture.

    ``data`` are the captured bytes, ``length`` is how many there were on the wire (Wireshark:
    ``frame.cap_len`` and ``frame.len``); a file may say that it captured more than there were.
    ``time_ns`` are nanoseconds since 1970-01-01 UTC, rounded down where the file counts finer;
    0 where it gives none, as in simple packets of pcapng. ``interface`` is an index into
    ``interfaces`` of the reader. ``options`` are pcapng's, as number and value; numbers in the
    values are little-endian whichever byte order the file has.
    """

    data: bytes
    time_ns: int
    length: int
    link_type: int
    interface: int = 0
    options: Options = ()

    @property
    def comments(self) -> tuple[str, ...]:
        """The comments among the options; bytes that are no UTF-8 are replaced."""
        return tuple(
            text.decode(errors="replace") for code, text in self.options if code == COMMENT
        )


class RecordLayout(NamedTuple):
    """Where things stand in the bytes of a built record.

    A time is two words of four bytes, by NumPy's name ``<u4`` or ``>u4``: how many ``unit`` of
    ticks, and the ticks that are left. ``time`` is where they begin, ``data`` where the frame does.
    """

    word: str
    time: int
    unit: int
    data: int


def check_record(record: Record, max_size: int, first_ns: int, last_ns: int) -> None:
    """Raise :class:`UnrepresentableError` for a record that a file cannot hold.

    That is one with more than ``max_size`` bytes (:func:`max_bytes`), or with a time that is not
    from ``first_ns`` to ``last_ns``.
    """
    size = byte_count(record.data, "Record.data", UnrepresentableError)
    if size > max_size:
        raise UnrepresentableError(
            f"Record.data: {size} bytes do not fit, the snap length allows {max_size}"
        )
    check_int("Record.time_ns", record.time_ns, first_ns, last_ns, UnrepresentableError)
    check_int("Record.length", record.length, 0, 0xFFFF_FFFF, UnrepresentableError)


def max_bytes(link_type: int, snap_length: int) -> int:
    """The most bytes that a record may have in a file with this snap length (0: no limit)."""
    longest = longest_record(link_type)
    return min(snap_length, longest) if snap_length else longest


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
"""Bytes that these options of an interface have."""


@dataclass(frozen=True, slots=True)
class Interface:
    """Where frames were captured.

    ``snap_length``: the most bytes of a frame that were kept, 0 for no limit. ``resolution``:
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
    most bytes that a record may have.
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
    seconds = interface.offset_seconds
    check_int("Interface.offset_seconds", seconds, -_LATEST, _LATEST, UnrepresentableError)
    offset = seconds.to_bytes(8, "little", signed=True)
    said = (
        (_NAME, _bytes("name", interface.name)),
        (_DESCRIPTION, _bytes("description", interface.description)),
        (_RESOLUTION, bytes([_resolution_byte(interface.resolution)])),
        (_OFFSET, offset if seconds else b""),
    )
    return tuple(option for option in said if option[1]) + interface.options


def _bytes(name: str, text: str) -> bytes:
    check_type(f"Interface.{name}", text, str, CaptureError)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CaptureError(f"Interface.{name}: {text!r} cannot be UTF-8") from error


def _resolution_byte(resolution: int) -> int:
    """The value of if_tsresol: an exponent of ten, or of two with the upper bit set."""
    for base, mark in ((10, 0), (2, 0x80)):
        for exponent in range(128):
            if isinstance(resolution, int) and base**exponent == resolution:
                return mark | exponent
    raise CaptureError(
        f"Interface.resolution: {resolution!r} units per second, powers of ten and of two"
        " with exponents up to 127 are allowed"
    )


def _resolution(byte: int) -> int:
    """Units per second for a value of if_tsresol."""
    exponent = byte & 0x7F
    return 1 << exponent if byte & 0x80 else 10**exponent
