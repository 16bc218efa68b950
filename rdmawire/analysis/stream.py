"""The step of TCP: the segment in its connection, and what it completes of an iWARP stream."""

from rdmawire.analysis import checksum, derived, iwarp
from rdmawire.analysis.mpa_stream import Result
from rdmawire.analysis.node import Node
from rdmawire.analysis.walk import Following, Walk
from rdmawire.errors import WireError
from rdmawire.wire.checksum import tcp_checksum
from rdmawire.wire.inet import TCP


def tcp(walk: Walk) -> Following:
    """TCP: its options, its checksum, its place in the connection, and iWARP inside."""
    start = walk.offset
    header = walk.take(TCP)
    node = walk.nodes[-1]
    size = header.data_offset * 4
    if size < TCP.SIZE:
        raise WireError(f"TCP.data_offset {header.data_offset}: at least 5", start)
    walk.need(size - TCP.SIZE, "TCP options")
    _check(walk, header, start)
    if size > TCP.SIZE:
        walk.take_octets("tcp options", size - TCP.SIZE, derived.TCP_OPTIONS)
    _payload(walk, header, node)
    return None


def _check(walk: Walk, header: TCP, start: int) -> None:
    if walk.short or walk.network is None or not walk.ends_known:
        walk.leave(checksum.TCP, walk.nodes[-1])
        return
    expected = tcp_checksum(walk.network, walk.data[start : walk.end])
    walk.check(checksum.TCP, header.checksum, expected)


def _payload(walk: Walk, header: TCP, node: Node) -> None:
    payload = walk.data[walk.offset : walk.end]
    length = len(payload) + walk.missing
    source, destination = (walk.network.src, walk.network.dst) if walk.network else (b"", b"")
    result = walk.session.streams.segment(source, destination, header, payload, length)
    _number(node, result, length)
    if payload:
        node.add(derived.TCP_PAYLOAD, payload)
    if result.arrival.connection.upper.agreement.known:
        iwarp.events(walk, result.events, payload)
    else:
        walk.take_data()


def _number(node: Node, result: Result, length: int) -> None:
    """The connection and the place in it, in Wireshark's numbers."""
    arrival = result.arrival
    node.add(derived.TCP_STREAM, arrival.connection.stream)
    node.add(derived.TCP_LENGTH, length)
    node.add(derived.TCP_SEQ, arrival.seq)
    node.add(derived.TCP_NEXT_SEQ, arrival.nxtseq)
    node.add(derived.TCP_ACK, arrival.ack)
