"""Steps of the IBA transport: the BTH, what its opcode calls for, the ICRC, and MADs inside."""

from collections.abc import Hashable, Mapping

from rdmawire.dissect import checksums, generated
from rdmawire.dissect.node import Extra, Node
from rdmawire.dissect.walk import By, Following, Walk
from rdmawire.errors import WireError
from rdmawire.wire import mad, sa
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.icrc import icrc_headers_twice
from rdmawire.wire.layout import Piece, joined
from rdmawire.wire.mad import MAD, MANAGEMENT_QPS
from rdmawire.wire.opcode import SHAPES, Opcode, Service
from rdmawire.wire.packet import check_payload, layout
from rdmawire.wire.rmpp import RMPP
from rdmawire.wire.sa import SAHeader


def transport(walk: Walk) -> Following:
    """One transport packet, from the BTH to the ICRC."""
    start = walk.offset
    bth = walk.take(BTH)
    _expect_icrc(walk, start, bth.opcode)
    tables, _, shape = layout(bth.opcode)
    for table in tables:
        walk.take(table)
    if shape is None:
        walk.take_bytes("vendor", walk.left, generated.VENDOR)
        return None
    if not walk.short:
        check_payload(bth, walk.left, walk.offset)
    return _payload(walk, bth)


def _expect_icrc(walk: Walk, bth: int, opcode: int) -> None:
    """The ICRC is checked last, and also where the headers do not parse."""
    if walk.short:
        walk.leave(checksums.ICRC, walk.nodes[-1])
        return
    if walk.left < ICRC.SIZE:
        raise WireError(f"no room for the ICRC: {walk.left} bytes follow the BTH")
    walk.end -= ICRC.SIZE
    end, icrc = walk.end, walk.icrc
    if opcode == Opcode.RC_FLUSH:
        walk.owe_crc(
            ICRC, end, checksums.ICRC, lambda: _icrc_of_flush(walk, bth, end, icrc(bth, end))
        )
    else:
        walk.owe_crc(ICRC, end, checksums.ICRC, lambda: icrc(bth, end))


def _icrc_of_flush(walk: Walk, bth: int, end: int, standard: int) -> int:
    """The ICRC that a FLUSH should have: the ``standard`` one, or Linux's if that is there."""
    linux = icrc_headers_twice(standard, walk.data[bth:end])
    if ICRC.parse(walk.data, end).crc != linux:
        return standard
    walk.nodes[-1].add(generated.ICRC_NOTE, "good by rxe's rule for FLUSH")
    return linux


def _payload(walk: Walk, bth: BTH) -> Following:
    service = SHAPES[bth.opcode].service
    if walk.short or service is not Service.UD or bth.destqp not in MANAGEMENT_QPS:
        walk.take_data(0 if walk.short else bth.padcnt)
        return None
    if bth.padcnt:
        walk.owe("pad", walk.end - bth.padcnt, walk.end, generated.PAD)
        walk.end -= bth.padcnt
    return By.MAD, 0


def management(walk: Walk) -> Following:
    """A management datagram; behind a transfer's last segment, what all of them bring."""
    start, first = walk.offset, len(walk.nodes)
    for offset, piece in mad.layout(walk.data, start, walk.end):
        node = _node(piece, offset)
        walk.nodes.append(node)
        walk.offset = offset + len(node.data)
    _reassemble(walk, start, walk.nodes[first:])
    return None


def _node(piece: Piece, offset: int, *, reassembled: bool = False) -> Node:
    data = joined(piece)
    if isinstance(piece, bytes):
        extras = (Extra(generated.PAYLOAD, data),)
        return Node("bytes", offset, data, extras=extras, reassembled=reassembled)
    return Node(type(piece).label, offset, data, piece, reassembled=reassembled)


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
