"""One packet of the InfiniBand transport: from the BTH to the pad.

A :class:`Packet` holds only what the standard allows: the headers that its opcode requires,
a payload that the opcode allows, and a pad that fills it to a multiple of four bytes. This module
alone converts bytes to packets and back. The NIC checks the order of packets, payload lengths
against the path MTU, and queue pairs.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple, Self, TypeVar

from rdmawire.errors import WireError
from rdmawire.snapshot import shared
from rdmawire.wire.codec import fused
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH
from rdmawire.wire.layout import parts_as_declared
from rdmawire.wire.opcode import SHAPES, Part, Payload, Shape, is_vendor, opcode_word, service_of
from rdmawire.wire.show import byte_count
from rdmawire.wire.tables import tables_of

_H = TypeVar("_H", bound=Header)
Reader = Callable[..., tuple[Any, ...]]


class Layout(NamedTuple):
    """Layout after the BTH: the headers, their size in bytes, and the opcode's shape.

    A vendor's opcode has no shape: all bytes after its BTH are payload.
    """

    headers: tuple[type[Header], ...]
    size: int
    shape: Shape | None

    def __deepcopy__(self, _: object) -> Self:
        return self


class OpcodeTable(dict[int, Layout]):
    """The layouts of packets by opcode. Immutable; methods return changed copies.

    :data:`LAYOUTS` is the standard's. Adapters take a table in their rules, functions that parse
    packets take it as an argument; so a new extended transport header needs only a table of rows
    and an opcode::

        class TagETH(Header):
            tag: int = bits(32)

        opcodes = LAYOUTS.with_opcode(0x18, "RC_SEND_TAGGED", TagETH)
    """

    __deepcopy__ = shared

    def layout(self, opcode: int, offset: int | None = None) -> Layout:
        """Return the layout of an opcode; :class:`WireError` at ``offset`` for reserved ones."""
        try:
            return self[opcode]
        except (KeyError, TypeError):
            BTH(opcode=opcode).build()  # raises for an invalid opcode
            raise WireError(f"opcode 0x{opcode:02x} is reserved (IBA 9.2.1)", offset) from None

    def with_opcode(
        self,
        opcode: int,
        name: str,
        *headers: type[Header],
        part: Part = Part.ONLY,
        payload: Payload = Payload.ANY,
        response: bool = False,
    ) -> Self:
        """Return a copy in which packets of ``opcode`` (0 to 255) have ``headers`` after the BTH.

        The upper three bits of the opcode are its service. ``part`` is the packet's position in its
        message, ``payload`` the payload allowed. Raises :class:`WireError` for an invalid opcode.
        """
        BTH(opcode=opcode).build()
        labels = tuple(header.label for header in headers)
        shape = Shape(opcode, service_of(opcode), labels, part, payload, response, name)
        return type(self)({**self, opcode: _layout(shape, headers)})

    def name(self, opcode: int) -> str:
        """Return the name of an opcode; ``VENDOR`` or ``RESERVED`` for others."""
        found = self.get(opcode)
        return found.shape.name if found and found.shape else opcode_word(opcode)

    def reader(self, opcode: int) -> Reader | None:
        """Return the function that parses all headers after the BTH at once, or ``None``."""
        found = self.get(opcode)
        if found is None or not found.headers:
            return None
        if opcode not in self._readers:
            self._readers[opcode] = fused(*found.headers)
        return self._readers[opcode]

    @cached_property
    def _readers(self) -> dict[int, Reader]:
        return {}

    @cached_property
    def frame_readers(self) -> dict[int, tuple[Reader, int, int] | None]:
        """For :mod:`rdmawire.wire.roce`: the readers of frames of the most frequent form."""
        return {}


def _layout(shape: Shape, headers: tuple[type[Header], ...]) -> Layout:
    return Layout(headers, sum(header.SIZE for header in headers), shape)


_TABLES = {table.label: table for table in tables_of("ib")}

LAYOUTS: Final = OpcodeTable(
    {
        opcode: _layout(shape, tuple(_TABLES[label] for label in shape.headers))
        for opcode, shape in SHAPES.items()
    }
    | {opcode: Layout((), 0, None) for opcode in range(256) if is_vendor(opcode)}
)
"""The opcodes of the standard, and those of vendors, whose headers after the BTH are unknown."""


class Packet(NamedTuple):
    """A transport packet. ``extended`` are the headers after the BTH, in wire order."""

    bth: BTH
    extended: tuple[Header, ...] = ()
    payload: bytes = b""
    pad: bytes = b""

    def header(self, kind: type[_H]) -> _H | None:
        """The extended transport header of this type, or ``None``."""
        for header in self.extended:
            if type(header) is kind:
                return header
        return None

    @classmethod
    def make(
        cls,
        opcode: int,
        *extended: Header,
        payload: bytes = b"",
        **bth: int,
    ) -> "Packet":
        """Make a packet with these headers and this payload; pad and pad count are computed.

        ``bth`` are other fields of the BTH. Raises :class:`WireError` if the opcode requires other
        headers or another payload, or a value does not fit.
        """
        if "padcnt" in bth:
            raise TypeError("Packet.make works out BTH.padcnt from the payload: leave it out")
        return cls(BTH(opcode=opcode, **bth), extended, payload)._padded(LAYOUTS)

    def replace(
        self,
        *,
        bth: BTH | None = None,
        extended: tuple[Header, ...] | None = None,
        payload: bytes | None = None,
        opcodes: OpcodeTable = LAYOUTS,
    ) -> "Packet":
        """Return a copy with other parts; a new payload gets a new pad and pad count.

        Raises :class:`WireError` if the standard does not allow the packet.
        """
        packet = Packet(
            self.bth if bth is None else bth,
            self.extended if extended is None else tuple(extended),
            self.payload if payload is None else payload,
            self.pad if payload is None else b"",
        )
        if payload is not None:
            return packet._padded(opcodes)
        packet.check(opcodes)
        return packet

    @parts_as_declared
    def _padded(self, opcodes: OpcodeTable) -> "Packet":
        """Return the packet with the pad that its payload needs; vendors' packets get none."""
        payload = b"".join((self.payload,))
        padcnt = -len(payload) % 4 if opcodes.layout(self.bth.opcode).shape else 0
        packet = Packet(self.bth.replace(padcnt=padcnt), self.extended, payload, bytes(padcnt))
        packet.check(opcodes)
        return packet

    @classmethod
    def parse(
        cls,
        buffer: bytes,
        start: int = 0,
        end: int | None = None,
        opcodes: OpcodeTable = LAYOUTS,
    ) -> "Packet":
        """Parse the packet whose BTH is at ``start`` and whose pad ends at ``end`` (bytes).

        Raises :class:`WireError`, with the offset, if the standard does not allow the packet.
        """
        limit = len(buffer) if end is None else end
        bth = BTH.parse(buffer, start)
        headers, size, _ = opcodes.layout(bth.opcode, start)
        offset = start + BTH.SIZE
        if offset + size > limit:
            raise WireError(
                f"{opcodes.name(bth.opcode)} needs {size} bytes of headers after the BTH, "
                f"{max(limit - offset, 0)} are left",
                offset,
            )
        extended = []
        for header in headers:
            extended.append(header.parse(buffer, offset))
            offset += header.SIZE
        check_payload(bth, limit - offset, offset, opcodes)
        pad = limit - bth.padcnt
        return cls(bth, tuple(extended), bytes(buffer[offset:pad]), bytes(buffer[pad:limit]))

    @parts_as_declared
    def build(self) -> bytes:
        """Build the bytes from BTH to pad; :class:`WireError` naming a value that does not fit."""
        head = [header.build() for header in (self.bth, *self.extended)]
        return b"".join([*head, self.payload, self.pad])

    @parts_as_declared
    def check(self, opcodes: OpcodeTable = LAYOUTS) -> None:
        """Raise :class:`WireError` if the standard does not allow the packet."""
        self.build()
        wanted = opcodes.layout(self.bth.opcode)
        found = tuple(type(header) for header in self.extended)
        if found != wanted.headers:
            raise WireError(
                f"{opcodes.name(self.bth.opcode)} has {_names(wanted.headers)} after the BTH, "
                f"found {_names(found)}"
            )
        if len(self.pad) != self.bth.padcnt:
            said = byte_count(self.bth.padcnt)
            raise WireError(f"BTH.padcnt says {said} of pad, found {len(self.pad)}")
        check_payload(self.bth, len(self.payload) + len(self.pad), None, opcodes)


def check_payload(
    bth: BTH, length: int, offset: int | None = None, opcodes: OpcodeTable = LAYOUTS
) -> None:
    """Raise :class:`WireError` unless ``length`` bytes may follow the headers, pad included."""
    shape = opcodes[bth.opcode].shape
    if shape is None:
        allowed = bth.padcnt <= length
    else:
        allowed = bth.padcnt <= length and length % 4 == 0
        if shape.payload is not Payload.ANY:
            allowed = bth.padcnt == 0 and length == (8 if shape.payload is Payload.EIGHT else 0)
    if not allowed:
        raise WireError(_payload_reason(bth, length, opcodes), offset)


def _payload_reason(bth: BTH, length: int, opcodes: OpcodeTable) -> str:
    name = opcodes.name(bth.opcode)
    shape = opcodes[bth.opcode].shape
    if bth.padcnt > length:
        return f"BTH.padcnt {bth.padcnt} exceeds the {length} bytes that follow the headers"
    if shape is not None and shape.payload is not Payload.ANY:
        pad = f" and {bth.padcnt} of pad" if bth.padcnt else ""
        found = byte_count(length - bth.padcnt)
        return f"{name} carries {shape.payload.value} after its headers, found {found}{pad}"
    return f"payload and pad of {name} make {length} bytes, no multiple of four (IBA 9.2.5)"


def _names(headers: tuple[type[Header], ...]) -> str:
    return " ".join(header.__name__ for header in headers) or "no header"
