"""The pcapng format: sections of blocks, each section with its byte order and interfaces.

https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/; sections below are those of the draft.

The parser's fast loop handles enhanced packets without options; ``_block`` handles one block of
another type: other block types, packets with options, packets across two buffers, damage. Such a
packet is left in ``_packet`` while its span is the current one; ``_records`` looks there.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from itertools import repeat
from math import gcd
from struct import Struct
from typing import NamedTuple, NoReturn

from rdmawire.capture.io import ChunkBuffer
from rdmawire.capture.record import (
    MAX_RECORD,
    Interface,
    Options,
    Record,
    RecordLayout,
    RecordSpan,
    longest_record,
    max_bytes,
    refuse,
)
from rdmawire.errors import CaptureError, UnrepresentableError
from rdmawire.units import SECOND
from rdmawire.validate import byte_count, check_int, check_type

MAGIC = b"\n\r\r\n"
"""First four bytes of a file: the type of a section header, the same in both byte orders."""
_BYTE_ORDER = 0x1A2B3C4D
"""The number that shows the byte order of a section. Section 4.1."""
_MIN_BLOCK = 12
"""Bytes of an empty block: type, total length, total length. Section 3.1."""


class BlockType(IntEnum):
    """The types of block that are read; all others are skipped."""

    SECTION = 0x0A0D0D0A
    INTERFACE = 1
    PACKET = 2  # obsolete, in files of old tools
    SIMPLE = 3
    ENHANCED = 6


_MIN_BYTES: dict[int, int] = {
    BlockType.SECTION: 28,
    BlockType.INTERFACE: 20,
    BlockType.PACKET: 32,
    BlockType.SIMPLE: 16,
    BlockType.ENHANCED: 32,
}
"""Bytes of a block of this type without data and options."""

_MAX_INTERFACES = 16 << 20
"""Bytes that all interface descriptions of a file may have together: they are kept."""
_DATA, _SIMPLE_DATA = 28, 12
"""Offset of the data in packet and enhanced blocks, and in simple ones."""


class _Structs:
    """The fixed parts of blocks, with type and length, in one byte order, ``<`` or ``>``."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.word = Struct(f"{order}I")
        self.start = Struct(f"{order}II")
        self.section = Struct(f"{order}IIIHHq")  # byte order, major, minor, section length
        self.interface = Struct(f"{order}IIHHI")  # link type, reserved, snap length
        # interface, time (upper and lower half), captured length, length
        self.enhanced = Struct(f"{order}IIIIIII")
        self.packet = Struct(f"{order}IIHHIIII")  # after the interface: packets dropped
        self.simple = Struct(f"{order}III")  # length
        # Parts of an enhanced block, for spans and, from its interface on, for records.
        self.span = Struct(f"{order}III8xI")
        self.record = Struct(f"{order}III4xI")


_STRUCTS = {order: _Structs(order) for order in "<>"}
_ORDERS = {_STRUCTS[order].word.pack(_BYTE_ORDER): order for order in "<>"}


# Options. Section 3.5.

_END = 0
_MAX_OPTIONS = 1 << 20
"""Bytes that the options of one block may have."""
_PADS = (b"", b"\0\0\0", b"\0\0", b"\0")
"""Padding to a multiple of four bytes, by the length of the data modulo four."""

# Numbers in option values: by option code, their offset and size in bytes. A custom option begins
# with the number of the enterprise that defines it.
_CUSTOM = dict.fromkeys((2988, 2989, 19372, 19373), (0, 4))
PACKET_NUMBERS = {
    2: (0, 4),  # flags
    4: (0, 8),  # dropped packets
    5: (0, 8),  # packet identifier
    6: (0, 4),  # queue
    7: (1, 8),  # verdict, after the byte with its type
    **_CUSTOM,
}
INTERFACE_NUMBERS = {
    8: (0, 8),  # speed
    14: (0, 8),  # seconds to add to times
    **_CUSTOM,
}
_OPTION = {"<": Struct("<HH"), ">": Struct(">HH")}


def parse_options(
    file: ChunkBuffer, start: int, end: int, order: str, numbers: Mapping[int, tuple[int, int]]
) -> Options:
    """Return the options between two indexes of the buffer, a multiple of four bytes apart.

    Numbers in their values are converted to little-endian. Raises :class:`CaptureError` if an
    option is longer than its block.
    """
    unpack = _OPTION[order].unpack_from
    options = []
    while start < end:
        code, length = unpack(file.buffer, start)
        if code == _END:
            break
        left = end - start - 4
        if length > left:
            raise file.damage(
                f"option {code} claims {length} bytes, its block has {left} left", start
            )
        value = file.buffer[start + 4 : start + 4 + length]
        options.append((code, _swap(value, code, order, numbers)))
        start += 4 + (length + 3 & ~3)
    return tuple(options)


def build_options(
    options: Iterable[tuple[int, bytes]], order: str, numbers: Mapping[int, tuple[int, int]]
) -> bytes:
    """Build a list of options with its end mark; no bytes for no options.

    Raises :class:`CaptureError` for an option that cannot be written.
    """
    parts = [_option(code, value, order, numbers) for code, value in options]
    if not parts:
        return b""
    size = sum(map(len, parts)) + 4
    if size > _MAX_OPTIONS:
        raise CaptureError(f"options: {size} bytes in one block, {_MAX_OPTIONS} are allowed")
    return b"".join([*parts, bytes(4)])


def _option(code: int, value: bytes, order: str, numbers: Mapping[int, tuple[int, int]]) -> bytes:
    check_int("options: the code", code, 1, 0xFFFF, CaptureError)
    size = byte_count(value, f"options: the value of option {code}", CaptureError)
    check_int(f"options: the length of option {code}", size, 0, 0xFFFF, CaptureError)
    swapped = _swap(value, code, order, numbers)
    return _OPTION[order].pack(code, size) + swapped + _PADS[size % 4]


def _swap(value: bytes, code: int, order: str, numbers: Mapping[int, tuple[int, int]]) -> bytes:
    """Convert the number in a value between this byte order and little-endian."""
    if order == "<" or code not in numbers:
        return value
    at, width = numbers[code]
    end = at + width
    if len(value) < end:
        return value
    return value[:at] + value[at:end][::-1] + value[end:]


# Interface descriptions. Section 4.2.

_NAME, _DESCRIPTION, _RESOLUTION, _OFFSET = 2, 3, 9, 14
_ATTRIBUTES = {
    _NAME: "name",
    _DESCRIPTION: "description",
    _RESOLUTION: "resolution",
    _OFFSET: "offset_seconds",
}
_SIZES = {_RESOLUTION: 1, _OFFSET: 8}
"""Bytes of options of fixed size."""
_MAX_OFFSET = (1 << 63) - 1


class InterfaceClock(NamedTuple):
    """Times and limits of an interface, for its records.

    A time in ns since 1970 is ``ticks * multiplier // divisor + offset_ns``. ``longest`` is the
    number of bytes that a record may have.
    """

    link_type: int
    interface: int
    multiplier: int
    divisor: int
    offset_ns: int
    longest: int

    def time_ns(self, ticks: int) -> int:
        """Convert a time of the file to ns since 1970."""
        return ticks * self.multiplier // self.divisor + self.offset_ns


def interface_clock(interface: Interface, index: int) -> InterfaceClock:
    """Return the clock of an interface with this index."""
    common = gcd(SECOND, interface.resolution)
    return InterfaceClock(
        interface.link_type,
        index,
        SECOND // common,
        interface.resolution // common,
        interface.offset_seconds * SECOND,
        longest_record(interface.link_type),
    )


def parse_interface(link_type: int, snap_length: int, options: Options) -> Interface:
    """Return the interface that a block describes."""
    values = dict(options)
    resolution = values.get(_RESOLUTION, b"\x06")[0]
    return Interface(
        link_type,
        snap_length,
        values.get(_NAME, b"").decode(errors="replace"),
        values.get(_DESCRIPTION, b"").decode(errors="replace"),
        (2 if resolution & 0x80 else 10) ** (resolution & 0x7F),
        int.from_bytes(values.get(_OFFSET, b""), "little", signed=True),
        tuple(option for option in options if option[0] not in _ATTRIBUTES),
    )


def interface_options(interface: Interface) -> Options:
    """Return the options that describe an interface.

    Raises :class:`CaptureError` for an attribute that cannot be written.
    """
    for code, _ in interface.options:
        if code in _ATTRIBUTES:
            raise CaptureError(f"Interface.options: {code} is what {_ATTRIBUTES[code]} is for")
    offset = interface.offset_seconds
    name = "Interface.offset_seconds"
    check_int(name, offset, -_MAX_OFFSET, _MAX_OFFSET, UnrepresentableError)
    options = (
        (_NAME, _encoded("name", interface.name)),
        (_DESCRIPTION, _encoded("description", interface.description)),
        (_RESOLUTION, bytes([_resolution_byte(interface.resolution)])),
        (_OFFSET, offset.to_bytes(8, "little", signed=True) if offset else b""),
    )
    return tuple(option for option in options if option[1]) + interface.options


def _encoded(name: str, text: str) -> bytes:
    check_type(f"Interface.{name}", text, str, CaptureError)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CaptureError(f"Interface.{name}: {text!r} cannot be UTF-8") from error


def _resolution_byte(resolution: int) -> int:
    """Return the value of if_tsresol: an exponent of ten, or of two with the upper bit set."""
    for base, mark in ((10, 0), (2, 0x80)):
        for exponent in range(128):
            if isinstance(resolution, int) and base**exponent == resolution:
                return mark | exponent
    raise CaptureError(
        f"Interface.resolution: {resolution!r} units per second, powers of ten and of two"
        " with exponents up to 127 are allowed"
    )


# Reading.


class _Packet(NamedTuple):
    """A packet that the fast loop does not take: where its data are, and the rest of its record."""

    start: int
    end: int
    time_ns: int
    length: int
    link_type: int
    interface: int
    options: Options


class PacketRun(NamedTuple):
    """Consecutive packets in one buffer: where the captured bytes of each start and end.

    ``packet`` is that of a run of one packet which has options, is no enhanced packet block, or was
    not completely in the buffer. For other runs it is ``None``: before the captured bytes are the
    number of the interface, the upper and the lower half of the time, the captured length and the
    length, five words in the byte ``order`` (``<`` or ``>``). ``clocks`` are those of the
    interfaces that the section has so far.
    """

    buffer: bytes
    starts: list[int]
    ends: list[int]
    packet: _Packet | None
    order: str
    clocks: list[InterfaceClock]

    def records(self) -> Iterator[Record]:
        """Yield the records of the packets."""
        if self.packet is not None:
            yield Record(self.buffer[self.packet.start : self.packet.end], *self.packet[2:])
            return
        fields = _STRUCTS[self.order].record.unpack_from
        for start, end in zip(self.starts, self.ends, strict=True):
            number, high, low, length = fields(self.buffer, start - 20)
            clock = self.clocks[number]
            time_ns, data = clock.time_ns(high << 32 | low), self.buffer[start:end]
            yield Record(data, time_ns, length, clock.link_type, clock.interface)


class PcapngParser:
    """Reads a pcapng file, from its first byte on."""

    format = "pcapng"

    def __init__(self, file: ChunkBuffer) -> None:
        self.interfaces: list[Interface] = []
        self._file = file
        self._structs = _STRUCTS["<"]
        self._clocks: list[InterfaceClock] = []  # of this section's interfaces
        self._described = 0  # bytes of all interface descriptions
        self._max_block = 0  # bytes that a block of this section may claim
        self._packet: _Packet | None = None
        self._parsers: dict[int, Callable[[int, int], _Packet | None]] = {
            BlockType.INTERFACE: self._interface,
            BlockType.PACKET: self._obsolete,
            BlockType.SIMPLE: self._simple,
            BlockType.ENHANCED: self._enhanced,
        }
        self._block()
        self.runs = self._runs()
        self.spans = self._spans()
        self.records = self._records()

    def _spans(self) -> Iterator[RecordSpan]:
        for run in self.runs:
            self._packet = run.packet
            yield from zip(repeat(run.buffer), run.starts, run.ends)

    def _runs(self) -> Iterator[PacketRun]:
        """Yield the packets; no call but ``unpack`` and ``append`` for those without options."""
        file = self._file
        while file.need(1):
            packet = self._block()
            if packet is not None:
                yield self._run([packet.start], [packet.end], packet)
            starts: list[int] = []
            ends: list[int] = []
            buffer, at = file.buffer, file.at
            size = len(buffer)
            last = size - 32
            declared = len(self._clocks)
            fields = self._structs.span.unpack_from
            word = self._structs.word.unpack_from
            while at <= last:
                block_type, total, interface, captured = fields(buffer, at)
                after = at + total
                if (
                    block_type != 6
                    or total != captured + 35 & ~3
                    or after > size
                    or captured > MAX_RECORD
                    or interface >= declared
                    or word(buffer, after - 4)[0] != total
                ):
                    break
                starts.append(at + _DATA)
                ends.append(at + _DATA + captured)
                at = after
            file.at = at
            if starts:
                yield self._run(starts, ends)

    def _run(self, starts: list[int], ends: list[int], packet: _Packet | None = None) -> PacketRun:
        order = self._structs.order
        return PacketRun(self._file.buffer, starts, ends, packet, order, self._clocks)

    def _records(self) -> Iterator[Record]:
        """Yield the spans with the other fields of their blocks."""
        new = tuple.__new__
        for buffer, start, end in self.spans:
            packet = self._packet
            if packet is not None:
                yield new(Record, (buffer[start:end], *packet[2:]))
                continue
            number, high, low, length = self._structs.record.unpack_from(buffer, start - 20)
            link_type, interface, multiplier, divisor, offset_ns, _ = self._clocks[number]
            time_ns = (high << 32 | low) * multiplier // divisor + offset_ns
            yield new(Record, (buffer[start:end], time_ns, length, link_type, interface, ()))

    def _block(self) -> _Packet | None:
        """Read the next block; return its packet if it has one."""
        block_type, total = self._block_start()
        if block_type == BlockType.SECTION:
            self._section()
        parse = self._parsers.get(block_type)
        if parse is None:
            self._skip(block_type, total)
            return None
        self._load(block_type, total)
        at = self._file.at
        packet = parse(at, at + total - 4)
        self._file.at = at + total
        return packet

    def _block_start(self) -> tuple[int, int]:
        """Return the type and the total length of the next block."""
        file = self._file
        if (left := file.need(_MIN_BLOCK)) < _MIN_BLOCK:
            raise file.damage(f"a pcapng block takes at least {_MIN_BLOCK} bytes, {left} are there")
        at = file.at
        if file.buffer[at : at + 4] == MAGIC:
            self._set_byte_order(file.buffer[at + 8 : at + 12])
        block_type, total = self._structs.start.unpack_from(file.buffer, at)
        least = _MIN_BYTES.get(block_type, _MIN_BLOCK)
        if total % 4 or total < least:
            raise file.damage(
                f"{_name(block_type)} claims a length of {total} bytes,"
                f" multiples of 4 from {least} on are allowed"
            )
        return block_type, total

    def _set_byte_order(self, magic: bytes) -> None:
        """Continue in the byte order that a section header shows."""
        order = _ORDERS.get(magic)
        if order is None:
            known = " and ".join(known.hex(" ") for known in _ORDERS)
            raise self._file.damage(
                f"a section header shows its byte order by {magic.hex(' ')}, known are {known}",
                self._file.at + 8,
            )
        self._structs = _STRUCTS[order]

    def _skip(self, block_type: int, total: int) -> None:
        """Skip a block without keeping it."""
        file, offset = self._file, self._file.offset
        skipped = file.skip(total - 4)
        skipped += min(file.need(4), 4) if skipped == total - 4 else 0
        if skipped < total:
            raise CaptureError(f"{file.name}: {_truncated(block_type, total, skipped)}", offset)
        self._check_end(block_type, total, file.at)
        file.at += 4

    def _load(self, block_type: int, total: int) -> None:
        """Load the next block into the buffer."""
        file = self._file
        allowed = _MAX_OPTIONS if block_type == BlockType.INTERFACE else self._max_block
        if total > allowed:
            raise file.damage(f"{_name(block_type)} claims {total} bytes, {allowed} are allowed")
        left = file.need(total)
        if left < total:
            raise file.damage(_truncated(block_type, total, left))
        self._check_end(block_type, total, file.at + total - 4)

    def _check_end(self, block_type: int, total: int, at: int) -> None:
        """Check the total length at the end of a block."""
        (again,) = self._structs.word.unpack_from(self._file.buffer, at)
        if again != total:
            raise self._file.damage(
                f"{_name(block_type)} of {total} bytes claims {again} at its end", at
            )

    def _section(self) -> None:
        """Begin a section: its interfaces are counted from 0 again."""
        file = self._file
        least = _MIN_BYTES[BlockType.SECTION]
        if (left := file.need(least)) < least:
            raise file.damage(f"a section header takes {least} bytes, {left} are there")
        values = self._structs.section.unpack_from(file.buffer, file.at)
        major, minor = values[3:5]
        if major != 1:
            raise file.damage(f"pcapng version {major}.{minor}, known is 1", file.at + 12)
        self._clocks = []
        self._max_block = _MAX_OPTIONS

    def _interface(self, start: int, end: int) -> None:
        """Parse an interface description."""
        self._described += end + 4 - start
        if self._described > _MAX_INTERFACES:
            raise self._file.damage(
                f"interface descriptions of more than {_MAX_INTERFACES} bytes in all"
            )
        structs = self._structs
        _, _, link_type, _, snap_length = structs.interface.unpack_from(self._file.buffer, start)
        options = parse_options(self._file, start + 16, end, structs.order, INTERFACE_NUMBERS)
        for code, value in options:
            if len(value) != _SIZES.get(code, len(value)):
                raise self._file.damage(
                    f"option {code} of an interface has {len(value)} bytes,"
                    f" {_SIZES[code]} are allowed"
                )
        interface = parse_interface(link_type, snap_length, options)
        self._clocks.append(interface_clock(interface, len(self.interfaces)))
        self.interfaces.append(interface)
        self._max_block = max(self._max_block, _DATA + self._clocks[-1].longest + _MAX_OPTIONS)

    def _enhanced(self, start: int, end: int) -> _Packet:
        """Parse an enhanced packet block. Section 4.3."""
        fields = self._structs.enhanced.unpack_from(self._file.buffer, start)
        return self._packet_of(start, end, fields[2], fields[3:])

    def _obsolete(self, start: int, end: int) -> _Packet:
        """Parse a packet block, which has a count of dropped packets beside the interface."""
        fields = self._structs.packet.unpack_from(self._file.buffer, start)
        return self._packet_of(start, end, fields[2], fields[4:])

    def _packet_of(self, start: int, end: int, number: int, fields: tuple[int, ...]) -> _Packet:
        """Return a packet; ``fields`` are its time (two halves), captured length and length."""
        high, low, captured, length = fields
        clock = self._clock(number, start + 8)
        data = start + _DATA
        self._check_captured(captured, min(clock.longest, end - data), start + 20)
        after = data + (captured + 3 & ~3)
        options = parse_options(self._file, after, end, self._structs.order, PACKET_NUMBERS)
        time_ns = clock.time_ns(high << 32 | low)
        return _Packet(data, data + captured, time_ns, length, *clock[:2], options)

    def _simple(self, start: int, end: int) -> _Packet:
        """Parse a simple packet: of the section's first interface, cut at its snap length."""
        (_, _, length) = self._structs.simple.unpack_from(self._file.buffer, start)
        clock = self._clock(0, start)
        snap_length = self.interfaces[clock.interface].snap_length
        captured = min(length, snap_length) if snap_length else length
        data = start + _SIMPLE_DATA
        self._check_captured(captured, min(clock.longest, end - data), start + 8)
        return _Packet(data, data + captured, 0, length, *clock[:2], ())

    def _clock(self, number: int, at: int) -> InterfaceClock:
        """Return the clock of an interface of this section."""
        if number < len(self._clocks):
            return self._clocks[number]
        raise self._file.damage(
            f"a packet of interface {number}, {len(self._clocks)} are declared in its section", at
        )

    def _check_captured(self, captured: int, allowed: int, at: int) -> None:
        if captured > allowed:
            raise self._file.damage(
                f"a packet claims {captured} captured bytes, {allowed} are allowed here", at
            )


def _name(block_type: int) -> str:
    """Return the name of a block in errors."""
    try:
        return f"{BlockType(block_type).name.lower()} block"
    except ValueError:
        return f"block of type {block_type:#x}"


def _truncated(block_type: int, total: int, left: int) -> str:
    return f"{_name(block_type)} claims {total} bytes, {left} are there"


# Writing.


class _Target(NamedTuple):
    """An interface of the file that records go to: its number, and its limit of bytes.

    ``is_plain``: its times are ns since 1970.
    """

    number: int
    max_bytes: int
    is_plain: bool
    interface: Interface


class PcapngBuilder:
    """Builds a pcapng file; ``pending`` are the bytes that were not taken yet.

    A record goes to the interface that it names, if that has been added and has its link type.
    For other records an interface is added, one for each pair of interface and link type that they
    name: like ``default``, with their link type.
    """

    format = "pcapng"

    def __init__(self, order: str, default: Interface) -> None:
        self.pending = bytearray()
        self.interfaces: list[Interface] = []
        self._structs = _STRUCTS[order]
        self._enhanced = self._structs.enhanced.pack
        self._word = self._structs.word.pack
        self._default = default
        self.record_layout = RecordLayout(f"{order}u4", 12, 1 << 32, _DATA)
        self._described = 0
        self._targets: dict[tuple[int, int], _Target] = {}
        size = _MIN_BYTES[BlockType.SECTION]
        start = self._structs.section.pack(BlockType.SECTION, size, _BYTE_ORDER, 1, 0, -1)
        self.pending += start + self._word(size)

    def add(self, interface: Interface) -> int:
        """Declare an interface and return its number; raises :class:`CaptureError`."""
        check_type("interfaces", interface, Interface, CaptureError)
        number = len(self.interfaces)
        return self._declare(interface, (number, interface.link_type)).number

    def _declare(self, interface: Interface, key: tuple[int, int]) -> _Target:
        """Declare an interface for records that name this interface and link type."""
        block = self._description(interface)
        described = self._described + len(block)
        name = "interfaces: bytes of their descriptions"
        check_int(name, described, 0, _MAX_INTERFACES, UnrepresentableError)
        limit = max_bytes(interface.link_type, interface.snap_length)
        is_plain = interface.resolution == SECOND and interface.offset_seconds == 0
        target = _Target(len(self.interfaces), limit, is_plain, interface)
        self._described = described
        self.pending += block
        self.interfaces.append(interface)
        self._targets[key] = target
        return target

    def _description(self, interface: Interface) -> bytes:
        """Build the block that declares an interface."""
        link_type, snap_length = interface.link_type, interface.snap_length
        check_int("Interface.link_type", link_type, 0, 0xFFFF, UnrepresentableError)
        check_int("Interface.snap_length", snap_length, 0, 0xFFFF_FFFF, UnrepresentableError)
        structs = self._structs
        options = build_options(interface_options(interface), structs.order, INTERFACE_NUMBERS)
        size = _MIN_BYTES[BlockType.INTERFACE] + len(options)
        fields = (BlockType.INTERFACE, size, link_type, 0, snap_length)
        return structs.interface.pack(*fields) + options + self._word(size)

    def record(self, record: Record) -> None:
        """Build a record; raises :class:`CaptureError` naming what does not fit."""
        data, time_ns, length, link_type, interface, options = record
        target = self._targets.get((interface, link_type)) or self._declare(
            replace(self._default, link_type=link_type), (interface, link_type)
        )
        captured = len(data)
        if captured > target.max_bytes:
            self._refuse(record, target)
        list_ = build_options(options, self._structs.order, PACKET_NUMBERS) if options else b""
        size = 32 + (captured + 3 & ~3) + len(list_)
        try:
            ticks = time_ns if target.is_plain else target.interface.ticks(time_ns)
            start = self._enhanced(
                6, size, target.number, ticks >> 32, ticks & 0xFFFF_FFFF, captured, length
            )
            self.pending += b"".join((start, data, _PADS[captured & 3], list_, self._word(size)))
        except (struct.error, TypeError):
            self._refuse(record, target)

    def _refuse(self, record: Record, target: _Target) -> NoReturn:
        first, last = target.interface.time_ns(0), target.interface.time_ns((1 << 64) - 1)
        refuse(record, target.max_bytes, first, last)
