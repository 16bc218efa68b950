"""The step of management datagrams: their pieces, and transfers put together."""

from collections.abc import Hashable, Mapping

from rdmawire.analysis import derived
from rdmawire.analysis.node import Extra, Node
from rdmawire.analysis.walk import Following, Walk
from rdmawire.wire import mad, sa
from rdmawire.wire.header import Header
from rdmawire.wire.layout import Piece, joined
from rdmawire.wire.mad import MAD
from rdmawire.wire.rmpp import RMPP
from rdmawire.wire.sa import SAHeader


def management(walk: Walk) -> Following:
    """A management datagram; behind a transfer's last segment, what all of them bring."""
    start, first = walk.offset, len(walk.nodes)
    for offset, piece in mad.layout(walk.data, start, walk.end):
        node = _node(piece, offset)
        walk.nodes.append(node)
        walk.offset = offset + len(node.octets)
    _reassemble(walk, start, walk.nodes[first:])
    return None


def _node(piece: Piece, offset: int, *, reassembled: bool = False) -> Node:
    octets = joined(piece)
    if isinstance(piece, bytes):
        extras = (Extra(derived.PAYLOAD, octets),)
        return Node("octets", offset, octets, extras=extras, reassembled=reassembled)
    return Node(type(piece).label, offset, octets, piece, reassembled=reassembled)


def _reassemble(walk: Walk, start: int, nodes: list[Node]) -> None:
    heads = {type(node.header): node.header for node in nodes}
    common, subnet = heads.get(MAD), heads.get(SAHeader)
    if not isinstance(common, MAD) or not isinstance(subnet, SAHeader) or _is_alone(heads):
        return
    key = _ends(walk), common.mgmt_class, common.transaction_id
    data = walk.session.rmpp.feed(key, walk.data[start : walk.end])
    if data is None:
        return
    for offset, piece in sa.records(
        common.attribute_id, subnet.attribute_offset, data, common.method
    ):
        walk.nodes.append(_node(piece, offset, reassembled=True))


def _is_alone(heads: Mapping[type, Header | None]) -> bool:
    """Whether a segment is a whole transfer: its records stand in place."""
    rmpp = heads.get(RMPP)
    return isinstance(rmpp, RMPP) and bool(rmpp.first and rmpp.last)


def _ends(walk: Walk) -> Hashable:
    """Who talks with whom, in either direction."""
    network = walk.network
    if network is not None:
        return frozenset((network.src, network.dst))
    route = walk.nodes[0].header
    return frozenset((getattr(route, "slid", 0), getattr(route, "dlid", 0)))
