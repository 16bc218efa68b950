"""Reading pcapng: sections of blocks, each section with a byte order and interfaces of its own.

What the fast loop in ``_spans`` does not take is taken by ``_block``, a block at a time: other
blocks than enhanced packets, packets with options, packets that the buffer cuts, damage. Such
a packet is left in ``_packet`` while its span is the current one; ``_records`` looks there.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, NoReturn

from rdmawire.capture.record import (
    INTERFACE_NUMBERS,
    LENGTHS,
    MAX_OPTIONS,
    MAX_RECORD,
    PACKET_NUMBERS,
    PADS,
    SECOND,
    Clock,
    Interface,
    Options,
    Record,
    RecordLayout,
    Span,
    build_options,
    check_record,
    clock,
    described,
    description,
    max_bytes,
    parse_options,
)
from rdmawire.capture.source import BytesLike
from rdmawire.errors import CaptureError, UnrepresentableError
from rdmawire.validate import check_int, check_type

BYTE_ORDER = 0x1A2B3C4D
"""The number by which a section header tells its byte order."""

MAGIC = b"\n\r\r\n"
"""First four bytes of a file: the type of a section header, the same in both orders."""

LEAST = 12
"""Bytes of an empty block: type, total length, total length."""


class Block(IntEnum):
    """The types of block that matter here; all others are passed over."""

    SECTION = 0x0A0D0D0A
    INTERFACE = 1
    PACKET = 2  # obsolete, in files of old tools
    SIMPLE = 3
    ENHANCED = 6


MIN_OF: dict[int, int] = {
    Block.SECTION: 28,
    Block.INTERFACE: 20,
    Block.PACKET: 32,
    Block.SIMPLE: 16,
    Block.ENHANCED: 32,
}
"""Bytes of a block of this type without data and options."""

MAX_INTERFACES = 16 << 20
"""The most bytes that the interface descriptions of a file may take: they are all kept."""

# Of packet and enhanced blocks, bytes from the start to the data; of simple ones the same.
DATA = 28
SIMPLE_DATA = 12


class Layout:
    """The layouts in one byte order, ``<`` or ``>``; whole ones begin with type and length."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.word = Struct(f"{order}I")
        self.head = Struct(f"{order}II")
        self.section = Struct(f"{order}IIIHHq")  # byte order, major, minor, section length
        self.interface = Struct(f"{order}IIHHI")  # link type, reserved, snap length
        # interface, time (upper and lower half), captured length, length
        self.enhanced = Struct(f"{order}IIIIIII")
        self.packet = Struct(f"{order}IIHHIIII")  # after the interface: packets dropped
        self.simple = Struct(f"{order}III")  # length
        # Parts of an enhanced block: what is needed to pass it, and what to know it. The
        # second begins at the interface.
        self.span = Struct(f"{order}III8xI")
        self.known = Struct(f"{order}III4xI")


LAYOUTS = {order: Layout(order) for order in "<>"}
ORDERS = {LAYOUTS[order].word.pack(BYTE_ORDER): order for order in "<>"}
"""The byte order by the four bytes that tell it."""


class Packet(NamedTuple):
    """A packet that the fast loop left: where its data are, and the rest of its record."""

    start: int
    end: int
    time_ns: int
    length: int
    link_type: int
    interface: int
    options: Options


class PcapngParser:
    """Reads a pcapng file, of which the first byte stands at the place of ``bytes``."""

    format = "pcapng"

    def __init__(self, data: BytesLike) -> None:
        self.interfaces: list[Interface] = []
        self._bytes = data
        self._layout = LAYOUTS["<"]
        self._clocks: list[Clock] = []  # of this section's interfaces
        self._described = 0  # bytes of all interface descriptions
        self._bound = 0  # bytes that a block of this section may claim
        self._packet: Packet | None = None
        self._takers: dict[int, Callable[[int, int], Packet | None]] = {
            Block.INTERFACE: self._interface,
            Block.PACKET: self._obsolete,
            Block.SIMPLE: self._simple,
            Block.ENHANCED: self._enhanced,
        }
        self._block()
        self.spans = self._spans()
        self.records = self._records()

    def _spans(self) -> Iterator[Span]:
        """One generator frame and no call but ``unpack`` for packets without options."""
        data = self._bytes
        while data.need(1):
            self._packet = self._block()
            if self._packet is not None:
                yield data.buffer, self._packet.start, self._packet.end
                self._packet = None
            buffer, at = data.buffer, data.at
            size = len(buffer)
            last = size - 32
            declared = len(self._clocks)
            fields = self._layout.span.unpack_from
            word = self._layout.word.unpack_from
            while at <= last:
                kind, total, interface, captured = fields(buffer, at)
                after = at + total
                if (
                    kind != 6
                    or total != captured + 35 & ~3
                    or after > size
                    or captured > MAX_RECORD
                    or interface >= declared
                    or word(buffer, after - 4)[0] != total
                ):
                    break
                start = at + 28
                yield buffer, start, start + captured
                at = after
            data.at = at

    def _records(self) -> Iterator[Record]:
        """The spans, with what their blocks say."""
        new = tuple.__new__
        for buffer, start, end in self.spans:
            packet = self._packet
            if packet is not None:
                yield new(Record, (buffer[start:end], *packet[2:]))
                continue
            number, high, low, length = self._layout.known.unpack_from(buffer, start - 20)
            link_type, interface, multiplier, divisor, offset_ns, _ = self._clocks[number]
            time_ns = (high << 32 | low) * multiplier // divisor + offset_ns
            yield new(Record, (buffer[start:end], time_ns, length, link_type, interface, ()))

    def _block(self) -> Packet | None:
        """Take the next block; the packet, if it is one."""
        kind, total = self._head()
        if kind == Block.SECTION:
            self._section()
        taker = self._takers.get(kind)
        if taker is None:
            self._pass(kind, total)
            return None
        self._hold(kind, total)
        at = self._bytes.at
        packet = taker(at, at + total - 4)
        self._bytes.at = at + total
        return packet

    def _head(self) -> tuple[int, int]:
        """Type and total length of the block that follows."""
        data = self._bytes
        if (left := data.need(LEAST)) < LEAST:
            raise data.damage(f"a pcapng block takes at least {LEAST} bytes, {left} are there")
        at = data.at
        if data.buffer[at : at + 4] == MAGIC:
            self._turn(data.buffer[at + 8 : at + 12])
        kind, total = self._layout.head.unpack_from(data.buffer, at)
        least = MIN_OF.get(kind, LEAST)
        if total % 4 or total < least:
            raise data.damage(
                f"{_name(kind)} claims a length of {total} bytes,"
                f" multiples of 4 from {least} on are allowed"
            )
        return kind, total

    def _turn(self, magic: bytes) -> None:
        """Read on in the byte order that a section header tells."""
        order = ORDERS.get(magic)
        if order is None:
            known = " and ".join(known.hex(" ") for known in ORDERS)
            raise self._bytes.damage(
                f"a section header tells its byte order by {magic.hex(' ')}, known are {known}",
                self._bytes.at + 8,
            )
        self._layout = LAYOUTS[order]

    def _pass(self, kind: int, total: int) -> None:
        """Pass over a block without keeping it."""
        data, offset = self._bytes, self._bytes.offset
        passed = data.skip(total - 4)
        passed += min(data.need(4), 4) if passed == total - 4 else 0
        if passed < total:
            raise CaptureError(f"{data.name}: {_cut(kind, total, passed)}", offset)
        self._check_end(kind, total, data.at)
        data.at += 4

    def _hold(self, kind: int, total: int) -> None:
        """Have the block that follows stand whole in the buffer."""
        data = self._bytes
        bound = MAX_OPTIONS if kind == Block.INTERFACE else self._bound
        if total > bound:
            raise data.damage(f"{_name(kind)} claims {total} bytes, {bound} are allowed")
        left = data.need(total)
        if left < total:
            raise data.damage(_cut(kind, total, left))
        self._check_end(kind, total, data.at + total - 4)

    def _check_end(self, kind: int, total: int, at: int) -> None:
        """A block's total length stands at its end, too."""
        (again,) = self._layout.word.unpack_from(self._bytes.buffer, at)
        if again != total:
            raise self._bytes.damage(
                f"{_name(kind)} of {total} bytes claims {again} at its end", at
            )

    def _section(self) -> None:
        """Begin a section: its interfaces are counted from 0 again."""
        data = self._bytes
        least = MIN_OF[Block.SECTION]
        if (left := data.need(least)) < least:
            raise data.damage(f"a section header takes {least} bytes, {left} are there")
        values = self._layout.section.unpack_from(data.buffer, data.at)
        major, minor = values[3:5]
        if major != 1:
            raise data.damage(f"pcapng version {major}.{minor}, known is 1", data.at + 12)
        self._clocks = []
        self._bound = MAX_OPTIONS

    def _interface(self, start: int, end: int) -> None:
        """Take an interface description."""
        self._described += end + 4 - start
        if self._described > MAX_INTERFACES:
            raise self._bytes.damage(
                f"interface descriptions of more than {MAX_INTERFACES} bytes in all"
            )
        layout = self._layout
        _, _, link_type, _, snap_length = layout.interface.unpack_from(self._bytes.buffer, start)
        options = parse_options(self._bytes, start + 16, end, layout.order, INTERFACE_NUMBERS)
        for code, value in options:
            if len(value) != LENGTHS.get(code, len(value)):
                raise self._bytes.damage(
                    f"option {code} of an interface has {len(value)} bytes,"
                    f" {LENGTHS[code]} are allowed"
                )
        interface = described(link_type, snap_length, options)
        self._clocks.append(clock(interface, len(self.interfaces)))
        self.interfaces.append(interface)
        self._bound = max(self._bound, DATA + self._clocks[-1].longest + MAX_OPTIONS)

    def _enhanced(self, start: int, end: int) -> Packet:
        """Take an enhanced packet."""
        fields = self._layout.enhanced.unpack_from(self._bytes.buffer, start)
        return self._packet_of(start, end, fields[2], fields[3:])

    def _obsolete(self, start: int, end: int) -> Packet:
        """Take a packet block, which counts dropped packets beside the interface."""
        fields = self._layout.packet.unpack_from(self._bytes.buffer, start)
        return self._packet_of(start, end, fields[2], fields[4:])

    def _packet_of(self, start: int, end: int, number: int, fields: tuple[int, ...]) -> Packet:
        """The packet of this interface; ``fields`` are time, captured length and length."""
        high, low, captured, length = fields
        clock = self._clock(number, start + 8)
        data = start + DATA
        self._check_captured(captured, min(clock.longest, end - data), start + 20)
        after = data + (captured + 3 & ~3)
        options = parse_options(self._bytes, after, end, self._layout.order, PACKET_NUMBERS)
        time_ns = (high << 32 | low) * clock.multiplier // clock.divisor + clock.offset_ns
        return Packet(data, data + captured, time_ns, length, *clock[:2], options)

    def _simple(self, start: int, end: int) -> Packet:
        """Take a simple packet: of the section's first interface, cut at its snap length."""
        (_, _, length) = self._layout.simple.unpack_from(self._bytes.buffer, start)
        clock = self._clock(0, start)
        snap_length = self.interfaces[clock.interface].snap_length
        captured = min(length, snap_length) if snap_length else length
        data = start + SIMPLE_DATA
        self._check_captured(captured, min(clock.longest, end - data), start + 8)
        return Packet(data, data + captured, 0, length, *clock[:2], ())

    def _clock(self, number: int, at: int) -> Clock:
        """The clock of an interface of this section."""
        if number < len(self._clocks):
            return self._clocks[number]
        raise self._bytes.damage(
            f"a packet of interface {number}, {len(self._clocks)} are declared in its section", at
        )

    def _check_captured(self, captured: int, allowed: int, at: int) -> None:
        if captured > allowed:
            raise self._bytes.damage(
                f"a packet claims {captured} captured bytes, {allowed} are allowed here", at
            )


def _name(kind: int) -> str:
    """A block in words."""
    try:
        return f"{Block(kind).name.lower()} block"
    except ValueError:
        return f"block of type {kind:#x}"


def _cut(kind: int, total: int, left: int) -> str:
    return f"{_name(kind)} promises {total} bytes, {left} are there"


class Route(NamedTuple):
    """Where a record goes: the number of an interface of the file, and what it takes.

    ``plain``: its times are nanoseconds since 1970 as they are.
    """

    number: int
    most: int
    plain: bool
    interface: Interface


class PcapngBuilder:
    """Builds the bytes of a pcapng file; those not taken away yet are ``pending``.

    A record goes to the interface that it names, if that has been added and is of its link
    type. For others an interface is added, one for each pair of interface and link type that
    the records name: like ``usual``, with their link type.
    """

    format = "pcapng"

    def __init__(self, order: str, usual: Interface) -> None:
        self.pending = bytearray()
        self.interfaces: list[Interface] = []
        self._layout = LAYOUTS[order]
        self._enhanced = self._layout.enhanced.pack
        self._word = self._layout.word.pack
        self._usual = usual
        self.record_layout = RecordLayout(f"{order}u4", 12, 1 << 32, 28)
        self._described = 0
        self._routes: dict[tuple[int, int], Route] = {}
        size = MIN_OF[Block.SECTION]
        head = self._layout.section.pack(Block.SECTION, size, BYTE_ORDER, 1, 0, -1)
        self.pending += head + self._word(size)

    def add(self, interface: Interface) -> int:
        """Declare an interface; its number."""
        check_type("interfaces", interface, Interface, CaptureError)
        number = len(self.interfaces)
        self._declare(interface, (number, interface.link_type))
        return number

    def _declare(self, interface: Interface, key: tuple[int, int]) -> Route:
        """Declare an interface, and have the records of this interface and link type go there."""
        block = self._description(interface)
        most = max_bytes(interface.link_type, interface.snap_length)
        plain = interface.resolution == SECOND and interface.offset_seconds == 0
        described = self._described + len(block)
        check_int(
            "interfaces: bytes of their descriptions",
            described,
            0,
            MAX_INTERFACES,
            UnrepresentableError,
        )
        route = Route(len(self.interfaces), most, plain, interface)
        self._described = described
        self.pending += block
        self.interfaces.append(interface)
        self._routes[key] = route
        return route

    def _description(self, interface: Interface) -> bytes:
        """The block that declares the interface."""
        check_int("Interface.link_type", interface.link_type, 0, 0xFFFF, UnrepresentableError)
        check_int(
            "Interface.snap_length", interface.snap_length, 0, 0xFFFF_FFFF, UnrepresentableError
        )
        layout = self._layout
        options = build_options(description(interface), layout.order, INTERFACE_NUMBERS)
        size = MIN_OF[Block.INTERFACE] + len(options)
        fields = (Block.INTERFACE, size, interface.link_type, 0, interface.snap_length)
        return layout.interface.pack(*fields) + options + self._word(size)

    def record(self, record: Record) -> None:
        """Build a record; :class:`CaptureError` naming what does not fit."""
        data, time_ns, length, link_type, interface, options = record
        route = self._routes.get((interface, link_type)) or self._new_route(record)
        captured = len(data)
        if captured > route.most:
            self._refuse(record, route)
        list_ = build_options(options, self._layout.order, PACKET_NUMBERS) if options else b""
        size = 32 + (captured + 3 & ~3) + len(list_)
        try:
            ticks = time_ns if route.plain else route.interface.ticks(time_ns)
            head = self._enhanced(
                6, size, route.number, ticks >> 32, ticks & 0xFFFF_FFFF, captured, length
            )
            self.pending += b"".join((head, data, PADS[captured & 3], list_, self._word(size)))
        except (struct.error, TypeError):
            self._refuse(record, route)

    def _new_route(self, record: Record) -> Route:
        """An interface for records like this."""
        interface = replace(self._usual, link_type=record.link_type)
        return self._declare(interface, (record.interface, record.link_type))

    def _refuse(self, record: Record, route: Route) -> NoReturn:
        """Say what does not fit."""
        clock = route.interface
        check_record(record, route.most, clock.time_ns(0), clock.time_ns((1 << 64) - 1))
        raise AssertionError(f"{record!r} fits, yet was refused")
