"""Records, the frames of a capture file, and the interfaces that they were captured on."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, NoReturn, Self

from rdmawire.errors import UnrepresentableError
from rdmawire.units import SECOND
from rdmawire.validate import byte_count, check_int

MAX_RECORD = 262_144
"""Maximum bytes of a record, libpcap's MAXIMUM_SNAPLEN: tools write no longer ones."""

_MIB = 1 << 20

# Link types whose frames may be longer than MAX_RECORD; libpcap and Wireshark read these lengths.
_LONGER = {
    231: 128 * _MIB,  # D-Bus
    249: 128 * _MIB,  # USBPcap
    279: 8 * _MIB,  # Elektrobit high speed capture and replay
}


class LinkType(IntEnum):
    """Link types of RDMA captures; ``meaning`` describes the start of a record in one line."""

    meaning: str

    def __new__(cls, number: int, meaning: str = "") -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        member.meaning = meaning
        return member

    NULL = 0, "BSD loopback: four bytes of address family in the host's byte order, then IP"
    ETHERNET = 1, "Ethernet frame without preamble and usually without its checksum"
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
    """Return the maximum bytes of a record of this link type."""
    return _LONGER.get(link_type, MAX_RECORD)


def max_bytes(link_type: int, snap_length: int) -> int:
    """Return the maximum bytes of a record in a file with this snap length (0: no limit)."""
    longest = longest_record(link_type)
    return min(snap_length, longest) if snap_length else longest


Options = tuple[tuple[int, bytes], ...]
"""Codes and values of pcapng options, in the order of the file."""
COMMENT = 1
"""The code of a comment, opt_comment of pcapng; its value is UTF-8."""

RecordSpan = tuple[bytes, int, int]
"""A buffer, and where in it the captured bytes of a record start and end."""


class Record(NamedTuple):
    """One frame of a capture.

    ``data`` are the captured bytes, ``length`` is how many there were on the wire (Wireshark:
    ``frame.cap_len`` and ``frame.len``); a file may claim that it captured more than there were.
    ``time_ns`` is in ns since 1970-01-01 UTC, rounded down where the file has a finer resolution;
    0 where it has no time, as in simple packets of pcapng. ``interface`` is an index into
    ``interfaces`` of the reader. ``options`` are pcapng's, as code and value; numbers in the
    values are little-endian whatever the byte order of the file.
    """

    data: bytes
    time_ns: int
    length: int
    link_type: int
    interface: int = 0
    options: Options = ()

    @property
    def comments(self) -> tuple[str, ...]:
        """The comments among the options; bytes that are not UTF-8 are replaced."""
        return tuple(
            text.decode(errors="replace") for code, text in self.options if code == COMMENT
        )


class RecordLayout(NamedTuple):
    """Offsets in the bytes of a built record.

    A time is two words of four bytes, of the NumPy type ``word`` (``<u4`` or ``>u4``): a number of
    ``unit`` ticks, and the remaining ticks. ``time`` is the offset of the first word, ``data``
    that of the frame.
    """

    word: str
    time: int
    unit: int
    data: int


def refuse(record: Record, max_size: int, first_ns: int, last_ns: int) -> NoReturn:
    """Raise :class:`UnrepresentableError` naming what of a record does not fit into a file.

    The file takes ``max_size`` bytes (:func:`max_bytes`) and times from ``first_ns`` to
    ``last_ns``.
    """
    size = byte_count(record.data, "Record.data", UnrepresentableError)
    if size > max_size:
        raise UnrepresentableError(
            f"Record.data: {size} bytes do not fit, the snap length allows {max_size}"
        )
    check_int("Record.time_ns", record.time_ns, first_ns, last_ns, UnrepresentableError)
    check_int("Record.length", record.length, 0, 0xFFFF_FFFF, UnrepresentableError)
    raise AssertionError(f"{record!r} fits, yet was refused")


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface that frames were captured on.

    ``snap_length`` is the number of bytes kept of a frame, 0 for no limit. ``resolution`` is in
    units of time per second, a power of ten or of two. ``offset_seconds`` is added to times of the
    file. ``options`` are those of pcapng without an attribute here, as in records.
    """

    link_type: int = LinkType.ETHERNET
    snap_length: int = MAX_RECORD
    name: str = ""
    description: str = ""
    resolution: int = 1_000_000
    offset_seconds: int = 0
    options: Options = ()

    def time_ns(self, ticks: int) -> int:
        """Convert a time of the file to ns since 1970, rounded down."""
        return ticks * SECOND // self.resolution + self.offset_seconds * SECOND

    def ticks(self, time_ns: int) -> int:
        """Return the time of the file that reads back as ``time_ns``, or the last one before it."""
        after = -(-(time_ns - self.offset_seconds * SECOND) * self.resolution // SECOND)
        return after if self.time_ns(after) == time_ns else after - 1
