"""Fields of frames by name: read and written.

Names are those of the wire's tables, such as ``bth.psn``, and of filters, such as
``infiniband.bth.psn``.
"""

from collections.abc import Container, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeVar, cast

from rdmawire.decode import Checksum, outline, walk_frame
from rdmawire.decode.checksum import HeaderSum, InvariantCRC, TransportSum
from rdmawire.errors import FabricError, WireError
from rdmawire.validate import Integer
from rdmawire.wire import roce
from rdmawire.wire.header import Group, Header
from rdmawire.wire.ib import BTH
from rdmawire.wire.inet import PFC, Ethernet, MACControlOpcode, Pause
from rdmawire.wire.layout import Piece, size
from rdmawire.wire.naming import Named, Value, looked_up, names_of
from rdmawire.wire.roce import Frame
from rdmawire.wire.tables import tables_of

PieceT = TypeVar("PieceT", bound=Piece)

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
        return Integer(0, most).problem(value) or _uneven(value, one.scale)
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


_LINK: Final = (Ethernet, MACControlOpcode, Pause, PFC)
"""Headers that a frame has whose transport packet is damaged."""


class Fields:
    """The fields of one frame, on the link that gave it ``number``.

    A frame with a damaged transport packet has only those of its link headers.
    """

    __slots__ = ("_headers", "data", "number", "packet")

    def __init__(self, data: bytes, number: int = 0) -> None:
        self.data = data
        self.number = number
        self._headers, self.packet = outline(data)
        if self.packet is None and any(table is BTH for _, table in self._headers):
            self._headers = tuple(each for each in self._headers if each[1] in _LINK)

    def get(self, name: str) -> Value | None:
        """The value of a field in the innermost header that has it; ``None`` if none has."""
        if name in _OF_FRAME:
            return self.number if name == "frame.number" else len(self.data)
        found = self._find(name)
        return None if found is None else found[1].value_in(found[2])

    def has(self, name: str, wanted: Container[object]) -> bool:
        """Whether the field exists and has one of these values.

        Only numbers are looked up in a range: it would be walked for anything else.
        """
        found = self.get(name)
        if found is None or (isinstance(wanted, range) and not isinstance(found, int)):
            return False
        return found in wanted

    def _find(self, name: str) -> tuple[int, Named, Header] | None:
        """The offset and header that a field is in, and which of the name's meanings it has."""
        fields = named(name)
        for offset, table in reversed(self._headers):
            for one in fields:
                if table is one.table:
                    header = table.parse(self.data, offset)
                    if one.is_in(header):
                        return offset, one, header
        return None

    def rewritten(self, name: str, value: Value, *, seal: bool) -> bytes:
        """The frame with another value in the innermost header with this field, if one has it.

        ``seal`` recomputes lengths, checksums and ICRC. Where no length or checksum is valid with
        the value, as in an IPv4 header with less than 20 bytes, they stay as they are.
        """
        found = self._find(name)
        if found is None:
            return self.data
        offset, one, header = found
        new = one.replaced(header, value).build()
        changed = self.data[:offset] + new + self.data[offset + len(new) :]
        return self._sealed(changed) if seal else changed

    def _sealed(self, changed: bytes) -> bytes:
        """Other bytes in the same layout, with lengths, checksums and ICRC recomputed."""
        if all(table in _LINK for _, table in self._headers):
            return changed
        frame = self._roce()
        if frame is None:
            return self._recomputed(changed, (HeaderSum, TransportSum, InvariantCRC))
        try:
            return _reread(frame, changed).seal().build()
        except WireError:
            return changed

    def icrc_renewed(self, changed: bytes) -> bytes:
        """Other bytes in the same layout, with the ICRC and the UDP checksum recomputed.

        The bytes need not have a meaning. They stay as they are where there is no ICRC.
        """
        if self.packet is None:
            return changed
        return self._recomputed(changed, (TransportSum, InvariantCRC))

    def _recomputed(self, changed: bytes, kinds: tuple[type[Checksum], ...]) -> bytes:
        new = bytearray(changed)
        for checksum in walk_frame(self.data).checksums:
            if isinstance(checksum, kinds):
                checksum.recompute(new, checksum.end)
        return bytes(new)

    def shortened(self, by: int) -> bytes:
        """The frame with ``by`` bytes less of payload, and all that fits; or as it is."""
        frame = self._roce()
        if frame is None:
            return self.data
        payload = frame.packet.payload
        try:
            packet = frame.packet.replace(payload=payload[: max(len(payload) - by, 0)])
        except WireError:
            return self.data
        shorter = frame._replace(packet=packet)
        try:
            return shorter.seal().build()
        except WireError:
            return shorter.build()

    def _roce(self) -> Frame | None:
        """The frame taken apart to be built anew, if it carries RoCE."""
        if self.packet is None:
            return None
        try:
            return roce.parse(self.data)
        except WireError:  # in a tunnel
            return None


def _reread(frame: Frame, data: bytes) -> Frame:
    """The frame with all values from other bytes that are laid out like it."""
    at = 0

    def read(piece: PieceT) -> PieceT:
        nonlocal at
        start, at = at, at + size(piece)
        new = data[start:at] if isinstance(piece, bytes) else type(piece).parse(data, start)
        return cast(PieceT, new)

    packet = frame.packet
    headers = tuple(read(piece) for piece in frame.headers)
    bth, extended = read(packet.bth), tuple(read(piece) for piece in packet.extended)
    parts = packet._replace(bth=bth, extended=extended, payload=read(packet.payload))
    return frame._replace(headers=headers, packet=parts)
