"""Fields of frames by name: read and written.

Names are those of the wire's tables, such as ``bth.psn``, and of filters, such as
``infiniband.bth.psn``.
"""

from collections.abc import Container, Iterator, Sequence
from functools import cache
from typing import Any, Final, cast

from rdmawire.bound import Whole
from rdmawire.errors import WireError
from rdmawire.fabric.errors import FabricError
from rdmawire.wire import mad, roce
from rdmawire.wire.checksum import udp_checksum
from rdmawire.wire.header import Group, Header
from rdmawire.wire.ib import BTH, GRH, ICRC
from rdmawire.wire.inet import (
    PFC,
    UDP,
    Ethernet,
    EtherType,
    IPv4,
    IPv6,
    MACControl,
    MACControlOpcode,
    Pause,
)
from rdmawire.wire.layout import Piece, joined, size
from rdmawire.wire.naming import Named, Value, looked_up, names_of
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame, ends_of, icrc_of
from rdmawire.wire.tables import tables_of

MODULES: Final = ("inet", "ib", "mad", "cm", "cm_request", "ip_cm")

_OF_FRAME: Final = ("frame.number", "frame.length")
"""Not of a header: the number of the frame on its link, from 1 on, and its bytes."""


@cache
def _tables() -> dict[str, type[Header]]:
    return {table.label: table for module in MODULES for table in tables_of(module)}


@cache
def _names() -> dict[str, list[Named]]:
    return names_of(_tables().values())


def names() -> Iterator[str]:
    """Every name of every field that there is."""
    yield from _OF_FRAME
    yield from _names()


def check_name(name: str) -> None:
    """:class:`FabricError` unless there is a header, from Ethernet to a MAD's, with this field."""
    named(name)


def named(name: str) -> Sequence[Named]:
    """The fields with this name; none if it is the frame's; else as above."""
    if name in _OF_FRAME:
        return ()
    found = looked_up(_names(), name)
    if found:
        return found
    label = name.partition(".")[0]
    table = _tables().get(label)
    if table is None:
        raise FabricError(f"{name!r}: {label!r} is not one of {', '.join(sorted(_tables()))}")
    raise FabricError(f"{name!r}: {label} has {', '.join(row.name for row in table.rows)}")


def check_value(name: str, value: object) -> None:
    """:class:`FabricError` for what no header could hold in the field with this name."""
    wrong = [_misfit(one, value) for one in named(name)]
    if wrong and all(wrong):
        raise FabricError(f"{name}: {wrong[0]}")


def _misfit(one: Named, value: Any) -> str:
    """Why a value does not fit a field under one of its names; nothing if it does."""
    if isinstance(one.row, Group) or (one.scale > 1 and not one.row.is_bytes):
        most = ((1 << one.row.width) - 1) * one.scale
        return Whole(0, most).wrong(value) or _uneven(value, one.scale)
    try:
        one.replaced(one.table(), value).build()
    except WireError as error:
        return error.reason
    return ""


def _uneven(value: int, scale: int) -> str:
    return f"{value} is no multiple of {scale}" if value % scale else ""


def usual_name(name: str) -> str:
    """The tables' name for what a name stands for, where that is one field, whatever it means."""
    found = named(name)
    fields = {one.name for one in found}
    plain = all(one.own or one.is_plain for one in found)
    return fields.pop() if plain and len(fields) == 1 else name


def _management(packet: Packet) -> Iterator[Piece]:
    """The pieces of a management datagram, if that is what a packet carries. IBA 13.4."""
    data = packet.payload
    if packet.bth.destqp not in mad.MANAGEMENT_QPS or len(data) != mad.SIZE:
        return
    read = 0
    try:
        for _, piece in mad.layout(data):
            yield piece
            read += size(piece)
    except WireError:
        yield data[read:]


_CONTROL: Final[dict[int, type[Header]]] = {MACControl.PAUSE: Pause, MACControl.PFC: PFC}
"""What stands behind the opcode of a MAC control frame."""


def _link_pieces(data: bytes) -> Iterator[Header]:
    """The headers of a frame that carries no transport packet: pauses have more than Ethernet's."""
    if len(data) < Ethernet.SIZE:
        return
    ethernet, read = Ethernet.parse(data), Ethernet.SIZE
    yield ethernet
    if ethernet.type != EtherType.MAC_CONTROL or len(data) < read + MACControlOpcode.SIZE:
        return
    control = MACControlOpcode.parse(data, read)
    yield control
    table, read = _CONTROL.get(control.opcode), read + MACControlOpcode.SIZE
    if table is not None and len(data) >= read + table.SIZE:
        yield table.parse(data, read)


def _sealed(frame: Frame) -> Frame:
    """The frame with lengths, checksums and ICRC that fit, if there are any that do."""
    try:
        return frame.seal()
    except WireError:
        return frame


class Fields:
    """The headers of one frame. Without a transport packet: Ethernet's, and those of a pause."""

    __slots__ = ("data", "frame", "number", "pieces")

    def __init__(self, data: bytes, number: int = 0) -> None:
        self.data = data
        self.number = number
        self.frame: Frame | None = None
        self.pieces: tuple[Piece, ...] = ()
        try:
            self.frame = frame = roce.parse(data)
            packet = frame.packet
            self.pieces = (*frame.headers, packet.bth, *packet.extended, *_management(packet))
        except WireError:
            self.pieces = tuple(_link_pieces(data))

    def get(self, name: str) -> Value | None:
        """What a field holds, in the innermost header that has it; ``None`` if none has."""
        if name in _OF_FRAME:
            return self.number if name == "frame.number" else len(self.data)
        place = self._place(name)
        return None if place is None else place[1].value_in(place[2])

    def has(self, name: str, wanted: Container[object]) -> bool:
        """Whether a field is there and holds one of these values.

        A range is asked about numbers alone: it would be walked for anything else.
        """
        found = self.get(name)
        if found is None or (isinstance(wanted, range) and not isinstance(found, int)):
            return False
        return found in wanted

    def _place(self, name: str) -> tuple[int, Named, Header] | None:
        """In which piece a field is, and under which of the meanings of its name."""
        fields = named(name)
        for index in range(len(self.pieces) - 1, -1, -1):
            piece = self.pieces[index]
            for one in fields:
                if type(piece) is one.table and one.is_in(piece):
                    return index, one, piece
        return None

    @property
    def transport(self) -> range:
        """Where the bytes from the BTH to the pad stand; nowhere if there is no BTH."""
        if self.frame is None:
            return range(0)
        end = len(self.data) - ICRC.SIZE - len(self.frame.trailer)
        return range(end - len(self.frame.packet.build()), end)

    def rewritten(self, name: str, value: Value, *, seal: bool) -> bytes:
        """The frame with another value in the innermost header with this field, if one has it.

        With ``seal``, lengths, checksums and ICRC fit again; where nothing could fit such a value,
        as behind an IPv4 header that is shorter than any, they stay as they are.
        """
        place = self._place(name)
        if place is None:
            return self.data
        index, one, header = place
        pieces = list(self.pieces)
        pieces[index] = one.replaced(header, value)
        return self._with(tuple(pieces), seal=seal)

    def _with(self, pieces: tuple[Piece, ...], *, seal: bool) -> bytes:
        frame = self.frame
        if frame is None:
            return joined(*pieces) + self.data[sum(map(size, pieces)) :]
        end = len(frame.headers)
        behind = end + 1 + len(frame.packet.extended)
        bth, *extended = cast(list[Header], list(pieces[end:behind]))
        payload = joined(*pieces[behind:]) or frame.packet.payload
        packet = frame.packet._replace(
            bth=cast(BTH, bth), extended=tuple(extended), payload=payload
        )
        changed = frame._replace(headers=pieces[:end], packet=packet)
        return (_sealed(changed) if seal else changed).build()

    def icrc_renewed(self, data: bytes) -> bytes:
        """Other bytes in the same layout, with the ICRC and the UDP checksum that fit them.

        They need not have a meaning. As they are, where this frame carries no packet, or none of
        which there is an ICRC.
        """
        if self.frame is None:
            return data
        bth, end = self.transport.start, self.transport.stop
        try:
            crc = ICRC(icrc_of(data, self._network, bth, end)).build()
        except WireError:
            return data
        headers = tuple(self._with_checksum(piece, data[bth:end] + crc) for piece in self._before)
        return joined(*headers) + data[bth:end] + crc + data[end + ICRC.SIZE :]

    def shortened(self, by: int) -> bytes:
        """The frame with so many bytes of payload less, and all that fits; or as it is."""
        frame = self.frame
        if frame is None:
            return self.data
        payload = frame.packet.payload
        try:
            packet = frame.packet.replace(payload=payload[: max(len(payload) - by, 0)])
        except WireError:
            return self.data
        return _sealed(frame._replace(packet=packet)).build()

    @property
    def _before(self) -> tuple[Piece, ...]:
        """The headers before the BTH."""
        return () if self.frame is None else self.frame.headers

    @property
    def _network(self) -> int:
        """Where the innermost IP header or GRH begins."""
        before = self._before
        last = max(i for i, piece in enumerate(before) if isinstance(piece, IPv4 | IPv6 | GRH))
        return len(joined(*before[:last]))

    def _with_checksum(self, piece: Piece, data: bytes) -> Piece:
        """UDP's checksum over these bytes, where there is one."""
        if not isinstance(piece, UDP) or not piece.checksum:
            return piece
        return piece.replace(checksum=udp_checksum(ends_of(self._before), piece.build() + data))
