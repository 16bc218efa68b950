"""DDP and RDMAP: headers and payload of DDP segments. RFC 5041, RFC 5040, RFC 7306.

DDP says which tagged buffer or which queue the payload goes to. The bytes that it reserves for
its ULP (RsvdULP) are declared in RDMAP's tables: one byte between the control field and the rest
of a tagged header, five of an untagged one.

One table, :data:`SHAPES`, gives the buffer model, the queue, the header after DDP's and the
payload of each opcode's segments.
"""

from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import NamedTuple

from rdmawire.errors import WireError
from rdmawire.wire.header import Header, Meaning, bits, choice, flag, group, raw
from rdmawire.wire.layout import Placed
from rdmawire.wire.show import BYTES, DIGITS, HEX, PRESENCE
from rdmawire.wire.terminate import (
    TerminateControl,
    TerminatedAtomicRequest,
    TerminatedLength,
    TerminatedReadRequest,
    TerminatedSegment,
    TerminatedTagged,
    TerminatedUntagged,
    is_mirrored,
    mirrored,
)

DDP_VERSION = 1
"""The version of DDP in use. RFC 5041, 4.1."""


class DDPControl(
    Header, clause="RFC 5041, 4.1", wireshark="iwarp_ddp.control_field", label="ddp", show=PRESENCE
):
    """DDP control field: ``t`` tagged buffer model, ``l`` last segment of its message."""

    t: int = flag("iwarp_ddp.tagged_flag")
    l: int = flag("iwarp_ddp.last_flag")  # noqa: E741 - the standard's name
    rsvd: int = bits(4, "iwarp_ddp.rsvd", HEX)
    dv: int = bits(2, "iwarp_ddp.dv", default=DDP_VERSION)


class TaggedHeader(
    Header, clause="RFC 5041, 4.2", wireshark="iwarp_ddp.tagged", label="ddp_tagged", show=PRESENCE
):
    """The end of a tagged header: which buffer, and where in it the payload goes."""

    stag: int = bits(32, "iwarp_ddp.stag", HEX)
    to: int = bits(64, "iwarp_ddp.tagged_offset", HEX)


class UntaggedHeader(
    Header,
    clause="RFC 5041, 4.3",
    wireshark="iwarp_ddp.untagged",
    label="ddp_untagged",
    show=PRESENCE,
):
    """The end of an untagged header: which message of which queue, and where in it."""

    qn: int = bits(32, "iwarp_ddp.qn")
    msn: int = bits(32, "iwarp_ddp.msn")
    mo: int = bits(32, "iwarp_ddp.mo")


VERSION = 1
"""The version of RDMAP in use. RFC 5040, 4.1."""


class RDMAPOpcode(IntEnum):
    """Opcodes. RFC 5040, 4.1; from 8 on RFC 7306, 4.1."""

    RDMA_WRITE = 0x0
    RDMA_READ_REQUEST = 0x1
    RDMA_READ_RESPONSE = 0x2
    SEND = 0x3
    SEND_WITH_INVALIDATE = 0x4
    SEND_WITH_SE = 0x5
    SEND_WITH_SE_AND_INVALIDATE = 0x6
    TERMINATE = 0x7
    IMMEDIATE_DATA = 0x8
    IMMEDIATE_DATA_WITH_SE = 0x9
    ATOMIC_REQUEST = 0xA
    ATOMIC_RESPONSE = 0xB


def opcode_word(opcode: int) -> str:
    """The opcode's name; ``RESERVED`` for a reserved one."""
    return RDMAPOpcode(opcode).name if opcode in SHAPES else "RESERVED"


class Queue(IntEnum):
    """Queue numbers of untagged segments. RFC 5040, 4.1; the last one RFC 7306, 4.1."""

    SEND = 0
    REQUEST = 1
    TERMINATE = 2
    ATOMIC_RESPONSE = 3


_CONTROL = "iwarp_rdma.control_field"


class Control(Header, abstract=True):
    """RDMAP control field, with what stands in DDP's bytes for its ULP (RsvdULP)."""

    rv: int = bits(2, "iwarp_rdma.version", default=VERSION)
    rsv: int = bits(2, "iwarp_rdma.rsv", HEX)
    opcode: int = bits(4, "iwarp_rdma.opcode", HEX, enum=RDMAPOpcode, words=opcode_word)


class RDMAPControl(
    Control, clause="RFC 5040, 4.1", wireshark=_CONTROL, label="rdmap", show=PRESENCE
):
    """RDMAP control field of tagged segments."""


class RDMAPControlReserved(
    Control, clause="RFC 5040, 4.1", wireshark=_CONTROL, label="rdmap_untagged", show=PRESENCE
):
    """RDMAP control field of untagged segments that invalidate nothing."""

    rsvdulp: int = group("iwarp_ddp.rsvdulp", "rv", ..., "reserved", show=DIGITS)
    reserved: int = bits(32, "iwarp_rdma.reserved", DIGITS)


class RDMAPControlInvalidate(
    Control, clause="RFC 5040, 4.1", wireshark=_CONTROL, label="rdmap_invalidate", show=PRESENCE
):
    """RDMAP control field of untagged segments, with the STag to invalidate."""

    rsvdulp: int = group("iwarp_ddp.rsvdulp", "rv", ..., "invalidate_stag", show=DIGITS)
    invalidate_stag: int = bits(32, "iwarp_rdma.inval_stag")


class ReadRequestHeader(
    Header,
    clause="RFC 5040, 4.4",
    wireshark="iwarp_rdma.rr",
    label="rdmap_read_request",
    show=PRESENCE,
):
    """RDMA Read Request header: what to read, and where the response puts it."""

    sink_stag: int = bits(32, "iwarp_rdma.sinkstag", HEX)
    sink_to: int = bits(64, "iwarp_rdma.sinkto", HEX)
    rdma_read_message_size: int = bits(32, "iwarp_rdma.rdmardsz")
    source_stag: int = bits(32, "iwarp_rdma.srcstag", HEX)
    source_to: int = bits(64, "iwarp_rdma.srcto", HEX)


class ImmediateData(Header, clause="RFC 7306, 6.2", label="rdmap_immediate"):
    """Immediate Data, handed to the ULP as it is."""

    immediate_data: bytes = raw(8, "", BYTES)


class AtomicOpcode(IntEnum):
    """Atomic Operations. RFC 7306, 5.2.1."""

    FETCH_ADD = 0
    SWAP = 1
    CMP_SWAP = 2


_DATA = {
    AtomicOpcode.FETCH_ADD: Meaning("iwarp_rdma.atomic.add_data"),
    **dict.fromkeys((1, 2), Meaning("iwarp_rdma.atomic.swap_data")),
}
_MASK = {
    AtomicOpcode.FETCH_ADD: Meaning("iwarp_rdma.atomic.add_mask", HEX),
    **dict.fromkeys((1, 2), Meaning("iwarp_rdma.atomic.swap_mask", HEX)),
}


class AtomicRequestHeader(Header, clause="RFC 7306, 5.2.1", label="rdmap_atomic_request"):
    """Atomic Request: which 64 bits, what to add or swap in, and what to compare."""

    reserved: int = bits(28, "iwarp_rdma.atomic.reserved")
    aopcode: int = bits(4, "iwarp_rdma.atomic.opcode", enum=AtomicOpcode)
    request_identifier: int = bits(32, "iwarp_rdma.atomic.request_identifier")
    remote_stag: int = bits(32, "iwarp_rdma.atomic.remote_stag")
    remote_to: int = bits(64, "iwarp_rdma.atomic.remote_tagged_offset")
    data: int = choice(64, "aopcode", _DATA)
    mask: int = choice(64, "aopcode", _MASK, "", HEX)
    compare_data: int = bits(64, "iwarp_rdma.atomic.compare_data")
    compare_mask: int = bits(64, "iwarp_rdma.atomic.compare_mask", HEX)


class AtomicResponseHeader(Header, clause="RFC 7306, 5.2.2", label="rdmap_atomic_response"):
    """Atomic Response: what stood in memory before."""

    original_request_identifier: int = bits(32, "iwarp_rdma.atomic.original_request_identifier")
    original_remote_data: int = bits(64, "iwarp_rdma.atomic.original_remote_data_value")


class Payload(Enum):
    """Payload allowed after the headers of a segment."""

    NONE = "nothing"
    ANY = "payload"
    TERMINATED = "the headers that its control field announces"


class Shape(NamedTuple):
    """Layout of the segments of one opcode: a row of :data:`SHAPES`.

    ``queue`` is ``None`` for the tagged buffer model. ``whole`` means that a message is always
    one segment; ``header`` follows DDP's own.
    """

    queue: Queue | None
    control: type[Control] = RDMAPControlReserved
    header: type[Header] | None = None
    payload: Payload = Payload.ANY
    whole: bool = False

    @property
    def tagged(self) -> bool:
        """Whether the segments use the tagged buffer model."""
        return self.queue is None

    @property
    def size(self) -> int:
        """Size of all headers in bytes."""
        rest = TaggedHeader.SIZE if self.tagged else UntaggedHeader.SIZE
        own = self.header.SIZE if self.header else 0
        return DDPControl.SIZE + self.control.SIZE + rest + own


def _whole(queue: Queue, header: type[Header], payload: Payload = Payload.NONE) -> Shape:
    return Shape(queue, RDMAPControlReserved, header, payload, True)


SHAPES: dict[int, Shape] = {
    RDMAPOpcode.RDMA_WRITE: Shape(None, RDMAPControl),
    RDMAPOpcode.RDMA_READ_REQUEST: _whole(Queue.REQUEST, ReadRequestHeader),
    RDMAPOpcode.RDMA_READ_RESPONSE: Shape(None, RDMAPControl),
    RDMAPOpcode.SEND: Shape(Queue.SEND),
    RDMAPOpcode.SEND_WITH_INVALIDATE: Shape(Queue.SEND, RDMAPControlInvalidate),
    RDMAPOpcode.SEND_WITH_SE: Shape(Queue.SEND),
    RDMAPOpcode.SEND_WITH_SE_AND_INVALIDATE: Shape(Queue.SEND, RDMAPControlInvalidate),
    RDMAPOpcode.TERMINATE: _whole(Queue.TERMINATE, TerminateControl, Payload.TERMINATED),
    RDMAPOpcode.IMMEDIATE_DATA: _whole(Queue.SEND, ImmediateData),
    RDMAPOpcode.IMMEDIATE_DATA_WITH_SE: _whole(Queue.SEND, ImmediateData),
    RDMAPOpcode.ATOMIC_REQUEST: _whole(Queue.REQUEST, AtomicRequestHeader),
    RDMAPOpcode.ATOMIC_RESPONSE: _whole(Queue.ATOMIC_RESPONSE, AtomicResponseHeader),
}
"""Opcode to shape. RFC 5040 and RFC 7306, sections 4.1 and 4.2. Other opcodes are reserved."""


def layout(ulpdu: bytes, start: int = 0, end: int | None = None) -> Iterator[Placed]:
    """Yield each piece of the DDP segment from ``start`` to ``end`` (bytes) with its offset.

    Headers are tables, the payload is plain bytes; together they are the complete segment. Raises
    :class:`WireError` at the end, with the offset, if the segment breaks a rule of DDP or RDMAP, or
    ends inside a header.
    """
    segment = ulpdu[:end]
    offset = start
    found: list[Header] = []
    for table in _headers(segment, start):
        piece = table.parse(segment, offset)
        yield offset, piece
        found.append(piece)
        offset += piece.SIZE
    if isinstance(found[-1], TerminateControl):
        for at, piece in _quoted(segment, offset, found[-1]):
            yield at, piece
            offset = at + piece.SIZE
    if offset < len(segment):
        yield offset, segment[offset:]
    check(found, len(segment) - offset, start)


def _headers(segment: bytes, start: int) -> Iterator[type[Header]]:
    """Select the tables at the start of a segment by its first two bytes."""
    yield DDPControl
    if len(segment) < start + 2:
        yield RDMAPControl
        return
    shape = SHAPES.get(segment[start + 1] & 15)
    if segment[start] & 0x80:
        yield from (RDMAPControl, TaggedHeader)
    else:
        yield RDMAPControlReserved if shape is None or shape.tagged else shape.control
        yield UntaggedHeader
    if shape is not None and shape.header is not None:
        yield shape.header


_Table = tuple[int, Header]

_TERMINATED_REQUESTS: dict[int, type[Header]] = {
    RDMAPOpcode.RDMA_READ_REQUEST: TerminatedReadRequest,
    RDMAPOpcode.ATOMIC_REQUEST: TerminatedAtomicRequest,
}


def _quoted(segment: bytes, offset: int, control: TerminateControl) -> Iterator[_Table]:
    """Yield the headers that a Terminate quotes, also if its control field is mirrored."""
    meant = mirrored(control)
    if is_mirrored(control) and _fits(segment, offset, meant):
        return _terminated(segment, offset, meant)
    return _terminated(segment, offset, control)


def _fits(segment: bytes, offset: int, control: TerminateControl) -> bool:
    """Whether the bytes at ``offset`` are exactly the headers that this control field announces."""
    try:
        pieces = [piece for _, piece in _terminated(segment, offset, control)]
    except WireError:
        return False
    whole = offset + sum(piece.SIZE for piece in pieces) == len(segment)
    return whole and all(
        (piece.dv, piece.rv) == (DDP_VERSION, VERSION)
        for piece in pieces
        if isinstance(piece, TerminatedSegment)
    )


def _terminated(segment: bytes, offset: int, control: TerminateControl) -> Iterator[_Table]:
    """Yield the headers that a Terminate quotes. RFC 5040, 4.8."""
    opcode: int = RDMAPOpcode.RDMA_READ_REQUEST
    if control.m or control.d:
        # The length must be present with the DDP header, and valid if M is set.
        yield offset, TerminatedLength.parse(segment, offset)
        offset += TerminatedLength.SIZE
    if control.d:
        # Only the T bit of the header itself selects one of the two tables.
        tagged = offset < len(segment) and segment[offset] & 0x80
        table = TerminatedTagged if tagged else TerminatedUntagged
        header = table.parse(segment, offset)
        yield offset, header
        offset, opcode = offset + table.SIZE, header.opcode
    if control.r and opcode in _TERMINATED_REQUESTS:
        yield offset, _TERMINATED_REQUESTS[opcode].parse(segment, offset)


def check(headers: list[Header], payload: int, start: int = 0) -> None:
    """Raise :class:`WireError` if headers in wire order and ``payload`` bytes are no valid segment.

    ``start`` is the offset of the first header, for the error's offset.
    """
    ddp, control, rest = headers[0], headers[1], headers[2]
    assert isinstance(ddp, DDPControl)
    assert isinstance(control, Control)
    if ddp.dv != DDP_VERSION:
        raise WireError(f"DDP version {ddp.dv}, only 1 is defined (RFC 5041, 4.1)", start)
    if control.rv != VERSION:
        raise WireError(f"RDMAP version {control.rv}, only 1 is defined (RFC 5040, 4.1)", start + 1)
    shape = SHAPES.get(control.opcode)
    if shape is None:
        raise WireError(f"RDMAP opcode 0x{control.opcode:x} is reserved (RFC 7306, 4.1)", start + 1)
    if reason := _misfit(shape, ddp, rest, payload):
        raise WireError(f"{opcode_word(control.opcode)} {reason}", start)


_MODELS = ("untagged", "tagged")


def _misfit(shape: Shape, ddp: DDPControl, rest: Header, payload: int) -> str:
    """Return the reason why a segment does not fit its opcode; empty if it fits."""
    if shape.tagged != bool(ddp.t):
        model, found = _MODELS[shape.tagged], _MODELS[ddp.t]
        return f"uses the {model} buffer model, found {found} (RFC 5040, 4.1)"
    if isinstance(rest, UntaggedHeader) and rest.qn != shape.queue:
        return f"goes on queue {shape.queue}, found {rest.qn} (RFC 5040, 4.1)"
    if shape.payload is Payload.NONE and payload:
        return f"carries nothing after its header, found {payload} bytes"
    return ""


def segment(opcode: int, payload: bytes = b"", *headers: Header, **fields: int) -> bytes:
    """Build a DDP segment: the headers of its opcode, then ``headers``, then payload.

    ``fields`` are rows of the DDP header and the RDMAP control field; the default is the opcode's
    value in a message of one segment. Raises :class:`WireError` for reserved opcodes, unknown
    fields and values that do not fit.
    """
    shape = SHAPES.get(opcode)
    if shape is None:
        raise WireError(f"opcode {opcode:#x} is reserved (RFC 5040, 4.1)")
    rest: type[Header] = TaggedHeader if shape.tagged else UntaggedHeader
    given = {"t": int(shape.tagged), "l": 1, "opcode": opcode, "qn": shape.queue or 0, **fields}
    pieces = []
    for table in (DDPControl, shape.control, rest):
        names = [row.name for row in table.rows if row.name in given]
        pieces.append(table(**{name: given.pop(name) for name in names}).build())
    if unknown := given.keys() - {"qn"}:
        raise WireError(f"{opcode_word(opcode)} has no field {min(unknown)!r}")
    return b"".join([*pieces, *(header.build() for header in headers), payload])
