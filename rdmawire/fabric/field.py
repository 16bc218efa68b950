"""Read and write fields of frames by name.

Names are those of the wire's tables, such as ``bth.psn``, and of filters, such as
``infiniband.bth.psn``.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final, Self, cast

from rdmawire.decode import PROTOCOLS, Checksum, Protocols, opcodes_of, outline, walk_frame
from rdmawire.decode.checksum import HeaderSum, InvariantCRC, TransportSum
from rdmawire.errors import FabricError, WireError
from rdmawire.snapshot import shared
from rdmawire.validate import Integer
from rdmawire.wire.field_registry import HeaderField, Value, both, find, unknown
from rdmawire.wire.field_registry import names as field_names
from rdmawire.wire.header import Group, Header
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.inet import PFC, Ethernet, MACControlOpcode, Pause
from rdmawire.wire.layout import Piece
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from rdmawire.wire.tables import IWARP, cached_by_tables, tables_of

_OF_FRAME: Final = ("frame.number", "frame.len", "frame.length")
"""Fields of the frame, not of a header: its number on its link (from 1), and its size in bytes."""
_NOT_ON_LINKS: Final = frozenset(tables_of("erf", *IWARP))
"""Headers that captures may have, but frames on a link do not."""


def names() -> Iterator[str]:
    """Names of all fields that a frame on a link can have."""
    yield from _OF_FRAME
    yield from (name for name in field_names() if _here(name))


def _here(name: str) -> list[HeaderField]:
    return [one for one in find(name) if one.table not in _NOT_ON_LINKS]


class FieldName(str):
    """The name of fields with the ``fields`` themselves; ``by_table`` has them by header.

    Frames are read by it also outside of :func:`~rdmawire.wire.tables.known_headers`.
    :class:`FabricError` for an unknown name.
    """

    __slots__ = ("by_table", "fields")
    __deepcopy__ = shared

    fields: Sequence[HeaderField]
    by_table: "_ByTable"

    def __new__(cls, name: str) -> Self:
        if isinstance(name, cls):
            return name
        found = super().__new__(cls, name)
        found.fields, found.by_table = _named(name), _by_table(name)
        return found


def named(name: str) -> Sequence[HeaderField]:
    """Fields with this name; none if it is of the frame; :class:`FabricError` if unknown."""
    return name.fields if isinstance(name, FieldName) else _named(name)


@cached_by_tables
def _named(name: str) -> Sequence[HeaderField]:
    if name in _OF_FRAME:
        return ()
    if found := _here(name):
        return found
    if elsewhere := find(name):
        raise FabricError(f"{name}: no frame on a link has the header {elsewhere[0].table.label}")
    if name.startswith("frame."):
        raise FabricError(f"{name}: of the frame itself there are {', '.join(_OF_FRAME[:2])}")
    raise FabricError(unknown(name))


_ByTable = Mapping[type[Header], list[HeaderField]]


@cached_by_tables
def _by_table(name: str) -> _ByTable:
    found: dict[type[Header], list[HeaderField]] = {}
    for one in _named(name):
        found.setdefault(one.table, []).append(one)
    return found


def check_value(name: str, value: object) -> None:
    """Raise :class:`FabricError` for a value that the field with this name cannot hold."""
    fields = named(name)
    wrong = [_misfit(one, value) for one in fields]
    if wrong and all(wrong):
        raise FabricError(f"{name}: {wrong[0]}")
    if several := both(fields):
        raise FabricError(f"{name} is {several}: name one of them")


def _misfit(one: HeaderField, value: Any) -> str:
    """Why a value does not fit a field under one of its names; empty if it fits."""
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


def usual_name(name: str) -> FieldName:
    """Name of the field in the wire's tables; ``name`` itself if it has several meanings."""
    found = named(name)
    fields = {one.name for one in found}
    plain = all(one.own or one.is_plain for one in found)
    return FieldName(fields.pop() if plain and len(fields) == 1 else name)


_LINK: Final = (Ethernet, MACControlOpcode, Pause, PFC)
"""Headers that remain readable if the transport packet is damaged."""


class Fields:
    """The fields of one frame, whose number on its link is ``number``.

    ``protocols`` say what carries what. A frame with a damaged transport packet has only the fields
    of its link headers.
    """

    __slots__ = ("_headers", "_protocols", "data", "number", "packet")

    def __init__(self, data: bytes, number: int = 0, protocols: Protocols = PROTOCOLS) -> None:
        self.data = data
        self.number = number
        self._protocols = protocols
        self._headers, self.packet = outline(data, protocols)
        if self.packet is None and any(table is BTH for _, table in self._headers):
            self._headers = tuple(each for each in self._headers if each[1] in _LINK)

    def get(self, name: str) -> Value | None:
        """The value of a field in the innermost header that has it; ``None`` if none has."""
        if name in _OF_FRAME:
            return self._of_frame(name)
        found = self._find(name)
        return None if found is None else found[2][0].value_in(found[1])

    def _of_frame(self, name: str) -> int:
        return self.number if name == "frame.number" else len(self.data)

    def has(self, name: str, wanted: Container[object]) -> bool:
        """Whether the field exists and has one of these values; ``ip.addr`` is either of two.

        Only integers are looked up in a range, because it is searched linearly for other types.
        """
        if name in _OF_FRAME:
            return self._of_frame(name) in wanted
        found = self._find(name)
        if found is None:
            return False
        _, header, fields = found
        for field in fields:
            value = field.value_in(header)
            for one in value if isinstance(value, tuple) else (value,):
                if (isinstance(one, int) or not isinstance(wanted, range)) and one in wanted:
                    return True
        return False

    def _find(self, name: str) -> tuple[int, Header, list[HeaderField]] | None:
        """The innermost header that has a field with this name, its offset, and these fields."""
        fields = name.by_table if name.__class__ is FieldName else _by_table(name)
        for offset, table in reversed(self._headers):
            if table in fields:
                header = table.parse(self.data, offset)
                if here := [one for one in fields[table] if one.is_in(header)]:
                    return offset, header, here
        return None

    @property
    def payload(self) -> bytes:
        """The payload of the transport packet, without pad; empty if there is no such packet."""
        frame = self._frame(self.data)
        return b"" if frame is None else bytes(frame.packet.payload)

    def rewritten(self, name: str, value: Value, *, seal: bool) -> bytes:
        """Return the frame with a new value in the innermost header with this field, if any.

        ``seal`` recomputes lengths, checksums and ICRC. If none of them is valid with the value, as
        in an IPv4 header with less than 20 bytes, they stay unchanged.
        """
        found = self._find(name)
        if found is None:
            return self.data
        offset, header, (one, *_) = found
        new = one.replaced(header, value).build()
        changed = self.data[:offset] + new + self.data[offset + len(new) :]
        return self._sealed(changed) if seal else changed

    def _sealed(self, changed: bytes) -> bytes:
        """Return other bytes in the same layout, with lengths, checksums and ICRC recomputed."""
        frame = self._frame(changed)
        if frame is None and all(table in _LINK for _, table in self._headers):
            return changed
        if frame is None:
            return self._recomputed(changed, (HeaderSum, TransportSum))
        try:
            return frame.seal().build()
        except WireError:
            return changed

    def icrc_renewed(self, changed: bytes) -> bytes:
        """Return other bytes in the same layout, with the ICRC and the UDP checksum recomputed.

        The bytes need not be valid. They stay unchanged if there is no ICRC.
        """
        if self.packet is None:
            return changed
        return self._recomputed(changed, (TransportSum, InvariantCRC))

    def _recomputed(self, changed: bytes, kinds: tuple[type[Checksum], ...]) -> bytes:
        new = bytearray(changed)
        for checksum in walk_frame(self.data, protocols=self._protocols).checksums:
            if isinstance(checksum, kinds):
                checksum.recompute(new, checksum.end)
        return bytes(new)

    def shortened(self, by: int) -> bytes:
        """Return the frame with ``by`` bytes less of payload, sealed; unchanged if impossible."""
        frame = self._frame(self.data)
        if frame is None:
            return self.data
        payload = frame.packet.payload
        try:
            packet = frame.packet.replace(
                payload=payload[: max(len(payload) - by, 0)], opcodes=opcodes_of(self._protocols)
            )
        except WireError:
            return self.data
        shorter = frame._replace(packet=packet)
        try:
            return shorter.seal().build()
        except WireError:
            return shorter.build()

    def _frame(self, data: bytes) -> Frame | None:
        """Parse the frame, or other bytes in the same layout, to rebuild it.

        ``None`` if it has no transport packet.
        """
        if self.packet is None:
            return None
        start, stop = self.packet.start, self.packet.stop
        padcnt = self.data[start + 1] >> 4 & 3  # of the layout, whatever ``data`` says
        pad = stop - padcnt
        pieces: list[Piece] = []
        at = 0
        for offset, table in self._headers:
            if offset > start:
                break
            if offset > at:
                pieces.append(data[at:offset])
            pieces.append(table.parse(data, offset))
            at = offset + table.SIZE
        extended = []
        for table in opcodes_of(self._protocols)[self.data[start]].headers:
            extended.append(table.parse(data, at))
            at += table.SIZE
        packet = Packet(cast(BTH, pieces.pop()), tuple(extended), data[at:pad], data[pad:stop])
        end = stop + ICRC.SIZE
        icrc = int.from_bytes(data[stop:end], "big")
        return Frame(tuple(pieces), packet, icrc, data[end:])
