"""What happens in an iWARP stream, as nodes of the frame that completes it.

An FPDU that lies in one segment has its nodes at their offsets in the frame. One that began in
an earlier segment is put together: its nodes are ``reassembled`` and count from its own start,
and the frame's part of it is a node of plain octets.
"""

from collections.abc import Callable, Iterator
from typing import Any

from rdmawire.analysis import checksum, derived
from rdmawire.analysis.mpa_event import (
    CRCStatus,
    Event,
    Fpdu,
    Lost,
    NotIwarp,
    Skipped,
    StartUp,
    Torn,
)
from rdmawire.analysis.node import Derived, Extra, Node
from rdmawire.analysis.saying import terminate_words
from rdmawire.analysis.walk import Walk
from rdmawire.errors import WireError
from rdmawire.wire import rdmap
from rdmawire.wire.header import Header
from rdmawire.wire.mpa import FPDUCRC, FPDULength, MPAEnhanced, UnusedCRC
from rdmawire.wire.terminate import TerminateControl, is_mirrored, mirrored


def events(walk: Walk, found: list[Event], payload: bytes) -> None:
    """Nodes for what a segment with this payload brought, and for its other octets."""
    base = walk.offset
    nodes: list[Node] = []
    for event in found:
        nodes += _NODES[type(event)](walk, event, base)
    for start, end in _gaps(found, len(payload)):
        octets = payload[start:end]
        nodes.append(_octets("segment", base + start, octets, derived.SEGMENT))
    nodes.sort(key=lambda node: (node.reassembled, node.offset))
    walk.nodes += nodes
    walk.offset = walk.end


def _gaps(found: list[Event], length: int) -> Iterator[tuple[int, int]]:
    """Where the payload holds octets of no event that begins in it."""
    at = 0
    for event in found:
        begin = getattr(event, "begin", None)
        if begin is None:
            continue
        if at < begin:
            yield at, begin
        at = begin + len(event.octets)  # type: ignore[union-attr]
    if at < length:
        yield at, length


def _octets(name: str, offset: int, octets: bytes, field: Derived) -> Node:
    return Node(name, offset, octets, extras=(Extra(field, octets),))


def _header(header: Header, offset: int) -> Node:
    return Node(type(header).label, offset, header.build(), header)


def _placed(event: StartUp | Fpdu | Torn, base: int, nodes: Iterator[Node]) -> Iterator[Node]:
    """Nodes whose offsets count from the event's start, put where it stands in the frame."""
    for node in nodes:
        node.reassembled = event.begin is None
        node.offset += base + event.begin if event.begin is not None else 0
        yield node


def _start_up(_: Walk, event: StartUp, base: int) -> Iterator[Node]:
    return _placed(event, base, _start_up_nodes(event))


def _start_up_nodes(event: StartUp) -> Iterator[Node]:
    head = _header(event.header, 0)
    yield head
    offset, private = len(head.octets), event.private_data
    if private:
        head.add(derived.PRIVATE_DATA, private)
    if event.enhanced is not None:
        yield _header(event.enhanced, offset)
        offset, private = offset + MPAEnhanced.SIZE, private[MPAEnhanced.SIZE :]
    if private:
        yield _octets("private data", offset, private, derived.PAYLOAD)


def _fpdu(walk: Walk, event: Fpdu, base: int) -> Iterator[Node]:
    nodes = [*_framing(walk, event), *_segment(walk, event, base)]
    return _placed(event, base, iter(sorted(nodes, key=lambda node: node.offset)))


def _framing(walk: Walk, event: Fpdu) -> Iterator[Node]:
    """What MPA puts around and into a DDP segment: length, Markers, pad and CRC."""
    fpdu = event.fpdu
    yield _header(FPDULength(len(fpdu.ulpdu)), fpdu.header)
    for offset, marker in fpdu.markers:
        yield _header(marker, offset)
    pad = fpdu.offset_of(FPDULength.SIZE + len(fpdu.ulpdu))
    if fpdu.pad:
        yield _octets("pad", pad, fpdu.pad, derived.MPA_PAD)
    at = len(event.octets) - FPDUCRC.SIZE
    if event.crc is CRCStatus.ABSENT:
        node = _header(UnusedCRC(fpdu.crc), at)
        walk.leave(checksum.MPA_CRC, node)
    else:
        node = _header(FPDUCRC(fpdu.crc), at)
        walk.dissection.checks.append(checksum.MPA_CRC.judge(node, fpdu.crc, fpdu.expected))
    yield node


def _segment(walk: Walk, event: Fpdu, base: int) -> Iterator[Node]:
    """The DDP segment inside an FPDU."""
    fpdu = event.fpdu
    where = base + event.begin if event.begin is not None else 0
    quoted = False
    try:
        for at, piece in rdmap.layout(fpdu.ulpdu):
            offset = fpdu.offset_of(FPDULength.SIZE + at)
            if isinstance(piece, TerminateControl):
                yield _terminate(piece, offset)
                quoted = True
            elif isinstance(piece, Header):
                yield _header(piece, offset)
            elif quoted:
                yield _octets("quoted", offset, piece, derived.PAYLOAD)
            else:
                yield _payload(piece, offset)
    except WireError as error:
        at = fpdu.offset_of(FPDULength.SIZE + (error.offset or 0))
        walk.complain(error.reason, offset=where + at)


def _terminate(control: TerminateControl, offset: int) -> Node:
    """The control field of a Terminate, and what it means if it is written as siw does."""
    node = _header(control, offset)
    if is_mirrored(control):
        meant = mirrored(control)
        flags = " ".join(name.upper() for name in ("m", "d", "r") if getattr(meant, name))
        said = f"{terminate_words(meant)}, flags {flags}"
        node.add(derived.TERMINATE_NOTE, f"bits mirrored, as siw writes it: {said}")
    return node


def _payload(octets: bytes, offset: int) -> Node:
    node = _octets("payload", offset, octets, derived.PAYLOAD)
    node.add(derived.DATA, octets)
    node.add(derived.DATA_LENGTH, len(octets))
    return node


def _torn(_: Walk, event: Torn, base: int) -> Iterator[Node]:
    node = _octets("torn", 0, event.octets, derived.SEGMENT)
    note = f"{len(event.octets)} of {event.size} octets of an FPDU: the rest was never captured"
    node.add(derived.MPA_NOTE, note)
    return _placed(event, base, iter((node,)))


def _lost(_: Walk, event: Lost, base: int) -> Iterator[Node]:
    yield _note(base, f"{event.length} octets of the stream were never captured")


def _skipped(_: Walk, event: Skipped, base: int) -> Iterator[Node]:
    yield _note(base, f"{event.length} octets passed over: unknown where in them FPDUs begin")


def _not_iwarp(_: Walk, __: NotIwarp, ___: int) -> Iterator[Node]:
    return iter(())


def _note(offset: int, text: str) -> Node:
    return Node("stream", offset, b"", extras=(Extra(derived.MPA_NOTE, text),))


_NODES: dict[type, Callable[[Walk, Any, int], Iterator[Node]]] = {
    StartUp: _start_up,
    Fpdu: _fpdu,
    Torn: _torn,
    Lost: _lost,
    Skipped: _skipped,
    NotIwarp: _not_iwarp,
}
"""What each kind of event looks like."""
