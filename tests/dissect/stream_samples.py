"""iWARP connections of captures: the bytes of each end, and the same bytes in other segments."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rdmawire.capture import open_capture
from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.node import Node
from rdmawire.wire.header import Header
from rdmawire.wire.inet import TCP
from rdmawire.wire.mpa import FPDULength, Marker, MPAReply, MPARequest
from tools.make_captures.tcp import Conversation

Turn = tuple[int, bytes]
"""The end that sends (0: the client), and all its bytes until the other end sends."""

Pieces = list[tuple[int, bytes]]
"""Segments in the order of sending: where each begins in its turn, and its bytes."""


class Contents(NamedTuple):
    """What a dissection has of a start-up frame or an FPDU: headers, payload, status of the CRC."""

    headers: tuple[Header, ...]
    payload: tuple[bytes, ...]
    crc: tuple[object, ...]


def dissected(path: Path) -> list[Dissection]:
    with open_capture(path) as reader:
        return list(Dissector().capture(reader))


def tcp_of(frame: Dissection) -> TCP | None:
    return next((header for header in frame.headers() if isinstance(header, TCP)), None)


def connections(frames: list[Dissection]) -> Iterator[list[Dissection]]:
    """The frames of each connection that the client's SYN begins, one connection at a time."""
    found: dict[frozenset[int], list[list[Dissection]]] = {}
    for frame in frames:
        if tcp := tcp_of(frame):
            ends = found.setdefault(frozenset((tcp.srcport, tcp.dstport)), [])
            if tcp.syn and not tcp.ack:
                ends.append([])
            if ends:
                ends[-1].append(frame)
    for each in found.values():
        yield from each


def ways(frames: list[Dissection]) -> Iterator[tuple[int, TCP, Dissection]]:
    """The frames of a connection, each with the end that sends it."""
    client = tcp_of(frames[0])
    for frame in frames:
        tcp = tcp_of(frame)
        assert client is not None
        assert tcp is not None
        yield int(tcp.srcport != client.srcport), tcp, frame


def turns(frames: list[Dissection]) -> list[Turn]:
    """The bytes that the ends of a connection send, each once: from the segments, in any order."""
    sent, begin = [bytearray(), bytearray()], [0, 0]
    waiting: list[dict[int, bytes]] = [{}, {}]
    found: list[tuple[int, bytearray]] = []
    for way, tcp, frame in ways(frames):
        if tcp.syn:
            begin[way] = tcp.seq + 1
        waiting[way][(tcp.seq - begin[way]) % (1 << 32)] = payload_of(frame)
        news = _in_order(sent[way], waiting[way])
        if news and found and found[-1][0] == way:
            found[-1][1].extend(news)
        elif news:
            found.append((way, bytearray(news)))
    return [(way, bytes(data)) for way, data in found]


def _in_order(sent: bytearray, waiting: dict[int, bytes]) -> bytes:
    """Append the segments that follow in order, and return the bytes appended."""
    before = len(sent)
    for start in sorted(waiting):
        if start <= len(sent):
            sent += waiting.pop(start)[len(sent) - start :]
    return bytes(sent[before:])


def payload_of(frame: Dissection) -> bytes:
    values = [node.extra(generated.TCP_PAYLOAD) for node in frame.nodes]
    return next((value for value in values if isinstance(value, bytes)), b"")


def contents(frames: list[Dissection]) -> tuple[Counter[Contents], Counter[Contents]]:
    """The start-up frames and FPDUs in the dissections of a connection, for each way.

    Without their order: the nodes of a frame do not have their place in the stream.
    """
    found = Counter[Contents](), Counter[Contents]()
    for way, _, frame in ways(frames):
        found[way].update(map(_contents, _grouped(frame)))
    return found


_BEGINNINGS = (FPDULength, MPARequest, MPAReply)


def _grouped(frame: Dissection) -> list[list[Node]]:
    """The nodes of each start-up frame and of each FPDU."""
    groups: list[list[Node]] = []
    for node in frame.nodes:
        if isinstance(node.header, _BEGINNINGS):
            groups.append([node])
        elif groups:
            groups[-1].append(node)
    return groups


_NOT_OF_IT = {"segment", "stream", "trailer"}


def _contents(nodes: list[Node]) -> Contents:
    own = [node for node in nodes if node.name not in _NOT_OF_IT]
    values = [(extra.field, extra.value) for node in own for extra in node.extras]
    return Contents(
        tuple(n.header for n in own if n.header is not None and not isinstance(n.header, Marker)),
        tuple(n.data for n in own if n.header is None),
        tuple(value for field, value in values if field is generated.MPA_CRC_STATUS),
    )


def replayed(conversation: Conversation, sent: list[tuple[int, Pieces]]) -> list[Dissection]:
    """A new connection in which the same bytes are sent in these segments, dissected."""
    conversation.open()
    for way, pieces in sent:
        start = conversation.seq[way]
        for offset, data in pieces:
            conversation.say(way, data, seq=start + offset)
    conversation.close()
    dissector = Dissector()
    return [dissector.dissect(data) for data in conversation.frames]
