"""Events of an iWARP stream, as nodes of the frame that completes them.

An FPDU that lies in one segment has its nodes at their offsets in the frame. One that began in
an earlier segment is reassembled: its nodes are ``reassembled`` and count from its own start,
and the frame's part of it is a node of plain bytes.
"""

from collections.abc import Callable, Iterator
from typing import Any

from rdmawire.decode import By, Following
from rdmawire.dissect import generated
from rdmawire.dissect.dissection import terminate_words
from rdmawire.dissect.mpa_event import (
    CRCStatus,
    Event,
    Forgotten,
    Fpdu,
    Lost,
    NotIwarp,
    PartialFpdu,
    Skipped,
    StartUp,
)
from rdmawire.dissect.mpa_framing import Result
from rdmawire.dissect.node import Derived, Extra, Node
from rdmawire.dissect.walk import NodeWalk
from rdmawire.errors import WireError
from rdmawire.wire import rdmap
from rdmawire.wire.header import Header
from rdmawire.wire.inet import TCP
from rdmawire.wire.mpa import FPDU, FPDUCRC, FPDULength, Marker, MPAEnhanced, UnusedCRC
from rdmawire.wire.terminate import TerminateControl, is_mirrored, mirrored


def add_events(walk: NodeWalk, found: list[Event], payload: bytes) -> None:
    """Add nodes for the events of a segment with this payload, and for its other bytes."""
    base = walk.offset
    nodes: list[Node] = []
    for event in found:
        nodes += _NODES[type(event)](walk, event, base)
    for start, end in _gaps(found, len(payload)):
        data = payload[start:end]
        nodes.append(_bytes("segment", base + start, data))
    # Reassembled nodes count from their own start: keep them together, in stream order.
    nodes.sort(key=lambda node: (node.reassembled, 0 if node.reassembled else node.offset))
    walk.nodes += nodes
    walk.offset = walk.end


def _gaps(found: list[Event], length: int) -> Iterator[tuple[int, int]]:
    """Ranges of the payload that belong to no event that begins in it."""
    at = 0
    for event in found:
        begin = getattr(event, "begin", None)
        if begin is None:
            continue
        if at < begin:
            yield at, begin
        at = begin + len(event.data)  # type: ignore[union-attr]
    if at < length:
        yield at, length


def _bytes(name: str, offset: int, data: bytes, field: Derived = generated.SEGMENT) -> Node:
    return Node(name, offset, data, extras=(Extra(field, data),))


def _header(header: Header, offset: int) -> Node:
    return Node(type(header).label, offset, header.build(), header)


def _placed(
    event: StartUp | Fpdu | PartialFpdu, base: int, nodes: Iterator[Node]
) -> Iterator[Node]:
    """Move nodes whose offsets count from the event's start to their offsets in the frame."""
    where = _where(event, base)
    for node in nodes:
        node.reassembled = event.begin is None
        node.offset += where
        yield node


def _where(event: StartUp | Fpdu | PartialFpdu, base: int) -> int:
    """The frame offset at which an event begins; 0 if it is reassembled."""
    return 0 if event.begin is None else base + event.begin


def _start_up(_: NodeWalk, event: StartUp, base: int) -> Iterator[Node]:
    return _placed(event, base, _start_up_nodes(event))


def _start_up_nodes(event: StartUp) -> Iterator[Node]:
    head = _header(event.header, 0)
    yield head
    offset, private = len(head.data), event.private_data
    if private:
        head.add(generated.PRIVATE_DATA, private)
    if event.enhanced is not None:
        yield _header(event.enhanced, offset)
        offset, private = offset + MPAEnhanced.SIZE, private[MPAEnhanced.SIZE :]
    if private:
        yield _bytes("private data", offset, private, generated.PAYLOAD)


def _fpdu(walk: NodeWalk, event: Fpdu, base: int) -> Iterator[Node]:
    fpdu, end = event.fpdu, len(event.data)
    nodes = [*_framing(fpdu, end), *_pad(fpdu), _crc(walk, event)]
    pieces: list[Node] = []
    try:
        pieces.extend(_segment(fpdu, fpdu.ulpdu))
    except WireError as error:
        _complain(walk, fpdu, _where(event, base), error)
        pieces.extend(_rest(fpdu, sum(len(node.data) for node in pieces)))
    nodes += pieces
    return _placed(event, base, iter(sorted(nodes, key=_offset)))


def _rest(fpdu: FPDU, done: int) -> Iterator[Node]:
    """The bytes of the ULPDU after the first ``done``, which cannot be parsed."""
    if done < len(fpdu.ulpdu):
        yield _bytes("rest", fpdu.offset_of(FPDULength.SIZE + done), fpdu.ulpdu[done:])


def _offset(node: Node) -> int:
    return node.offset


def _framing(fpdu: FPDU, end: int) -> Iterator[Node]:
    """The fields that MPA adds to a DDP segment: length and Markers, up to byte ``end``."""
    yield _header(FPDULength(len(fpdu.ulpdu)), fpdu.header)
    for offset, marker in fpdu.markers:
        if offset + Marker.SIZE <= end:
            yield _header(marker, offset)


def _pad(fpdu: FPDU) -> Iterator[Node]:
    if fpdu.pad:
        at = fpdu.offset_of(FPDULength.SIZE + len(fpdu.ulpdu))
        yield _bytes("pad", at, fpdu.pad, generated.MPA_PAD)


def _crc(walk: NodeWalk, event: Fpdu) -> Node:
    """The CRC, checked if CRCs are in use."""
    fpdu, at = event.fpdu, len(event.data) - FPDUCRC.SIZE
    if event.crc is CRCStatus.ABSENT:
        node = _header(UnusedCRC(fpdu.crc), at)
        walk.leave(generated.MPA_CRC, node)
    else:
        node = _header(FPDUCRC(fpdu.crc), at)
        walk.dissection.checks.append(generated.MPA_CRC.judge(node, fpdu.crc, fpdu.expected))
    return node


def _segment(fpdu: FPDU, ulpdu: bytes, payload: str = "payload") -> Iterator[Node]:
    """The DDP segment of an FPDU, as far as ``ulpdu`` contains it; ``payload`` names its payload.

    :class:`WireError`, with the offset in the ULPDU, after the nodes that precede the error.
    """
    quoted = False
    for at, piece in rdmap.layout(ulpdu):
        offset = fpdu.offset_of(FPDULength.SIZE + at)
        if isinstance(piece, TerminateControl):
            yield _terminate(piece, offset)
            quoted = True
        elif isinstance(piece, Header):
            yield _header(piece, offset)
        elif quoted:
            yield _bytes("quoted", offset, piece, generated.PAYLOAD)
        else:
            yield _payload(payload, offset, piece)


def _complain(walk: NodeWalk, fpdu: FPDU, where: int, error: WireError) -> None:
    """Note an error in the DDP segment of an FPDU that begins at frame offset ``where``."""
    at = fpdu.offset_of(FPDULength.SIZE + (error.offset or 0))
    walk.note(error.reason, offset=where + at)


def _terminate(control: TerminateControl, offset: int) -> Node:
    """The control field of a Terminate, and its meaning if its bits are in the order of siw."""
    node = _header(control, offset)
    if is_mirrored(control):
        meant = mirrored(control)
        flags = " ".join(name.upper() for name in ("m", "d", "r") if getattr(meant, name))
        said = f"{terminate_words(meant)}, flags {flags}"
        node.add(generated.TERMINATE_NOTE, f"bits mirrored, as siw writes it: {said}")
    return node


def _payload(name: str, offset: int, data: bytes) -> Node:
    node = _bytes(name, offset, data, generated.PAYLOAD)
    node.add(generated.DATA, data)
    node.add(generated.DATA_LENGTH, len(data))
    return node


def _truncated(walk: NodeWalk, event: PartialFpdu, base: int) -> Iterator[Node]:
    """The complete headers, then the captured part of the payload or of the next header."""
    fpdu, kept = event.fpdu, len(event.data)
    ulpdu = fpdu.ulpdu_before(kept)
    length, *markers = _framing(fpdu, kept)
    pieces = _so_far(walk, fpdu, _where(event, base), ulpdu)
    done = sum(len(node.data) for node in pieces)
    if done < len(ulpdu):
        pieces.append(_bytes("truncated", fpdu.offset_of(FPDULength.SIZE + done), ulpdu[done:]))
    length.add(generated.MPA_NOTE, _kept(event, len(fpdu.ulpdu), pieces))
    nodes = [length, *markers, *pieces, *_after(event, len(ulpdu), markers)]
    return _placed(event, base, iter(sorted(nodes, key=_offset)))


def _after(event: PartialFpdu, ulpdu: int, markers: list[Node]) -> Iterator[Node]:
    """Bytes after ``ulpdu`` bytes of the ULPDU other than Markers: pad, CRC, part of a Marker."""
    start = event.fpdu.offset_of(FPDULength.SIZE + ulpdu - 1) + 1
    for end in [*(node.offset for node in markers if node.offset >= start), len(event.data)]:
        if start < end:
            yield _bytes("truncated", start, event.data[start:end])
        start = end + Marker.SIZE


def _so_far(walk: NodeWalk, fpdu: FPDU, where: int, ulpdu: bytes) -> list[Node]:
    """Return the complete headers of a truncated FPDU's DDP segment, and the payload so far."""
    nodes: list[Node] = []
    try:
        nodes.extend(_segment(fpdu, ulpdu, "truncated"))
    except WireError as error:
        # A truncated header is due to the capture; an invalid one is due to the sender.
        if (error.offset or 0) < sum(len(node.data) for node in nodes):
            _complain(walk, fpdu, where, error)
    return nodes


def _kept(event: PartialFpdu, ulpdu: int, pieces: list[Node]) -> str:
    """The captured size of a truncated FPDU and, if all headers are complete, of its payload."""
    said = f"{len(event.data)} of {event.size} bytes of an FPDU"
    last = pieces[-1] if pieces else None
    if last is not None and any(extra.field is generated.DATA for extra in last.extras):
        payload = ulpdu - sum(len(node.data) for node in pieces[:-1])
        said += f", {len(last.data)} of {payload} of its payload"
    return f"{said}: the rest was never captured"


def _lost(_: NodeWalk, event: Lost, base: int) -> Iterator[Node]:
    yield _note(base, f"{event.length} bytes of the stream were never captured")


def _skipped(_: NodeWalk, event: Skipped, base: int) -> Iterator[Node]:
    yield _note(base, f"{event.length} bytes passed over: unknown where in them FPDUs begin")


def _forgotten(_: NodeWalk, event: Forgotten, base: int) -> Iterator[Node]:
    yield _note(base, f"an FPDU of {event.length} bytes was let go: too many streams at once")


def _not_iwarp(_: NodeWalk, __: NotIwarp, ___: int) -> Iterator[Node]:
    return iter(())


def _note(offset: int, text: str) -> Node:
    return Node("stream", offset, b"", extras=(Extra(generated.MPA_NOTE, text),))


_NODES: dict[type, Callable[[NodeWalk, Any, int], Iterator[Node]]] = {
    StartUp: _start_up,
    Fpdu: _fpdu,
    PartialFpdu: _truncated,
    Lost: _lost,
    Skipped: _skipped,
    Forgotten: _forgotten,
    NotIwarp: _not_iwarp,
}
"""The nodes of each event type."""


def add_segment(walk: NodeWalk, tcp: TCP) -> Following:
    """Add a TCP segment to its connection, and nodes for the events it completes."""
    node = walk.nodes[-2 if tcp.data_offset * 4 > TCP.SIZE else -1]
    payload = walk.data[walk.offset : walk.end]
    length = len(payload) + walk.missing
    result = walk.session.streams.segment(*walk.hosts, tcp, payload, length)
    _number(node, result, length)
    if payload:
        node.add(generated.TCP_PAYLOAD, payload)
    following = By.TCP, tcp.dstport
    if following in walk.protocols:
        return following
    if result.arrival.connection.upper.agreement.known:
        add_events(walk, result.events, payload)
    else:
        walk.take_payload()
    return None


def _number(node: Node, result: Result, length: int) -> None:
    """Number the connection and the stream position as Wireshark does."""
    arrival = result.arrival
    node.add(generated.TCP_STREAM, arrival.connection.stream)
    node.add(generated.TCP_LENGTH, length)
    node.add(generated.TCP_SEQ, arrival.seq)
    node.add(generated.TCP_NEXT_SEQ, arrival.nxtseq)
    node.add(generated.TCP_ACK, arrival.ack)
