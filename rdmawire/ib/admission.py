"""Whether a queue pair accepts packets of a flow: service, support, partition and peer. IBA 9.6.1.

The result is kept with the flow, so these tests run once for each head of a packet, not for each
packet.
"""

from typing import Final

from rdmawire.ib.device import pkeys_match
from rdmawire.ib.path_migration import is_on_alternate
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import PacketCheck
from rdmawire.ib.rx_parser import Drop, Flow
from rdmawire.wire.opcode import Opcode, operation_of

_CNP = int(Opcode.CNP)


def refused(qp: QueuePair, flow: Flow) -> Drop | None:
    """Return why packets of this flow are not for the queue pair, or ``None``."""
    for reason, broken in qp.device.rules.packet_checks:
        if broken(qp, flow):
            return reason
    return None


def other_service(qp: QueuePair, flow: Flow) -> bool:
    """The opcode belongs to another service, or to packets of the other direction."""
    opcode, shape, service = flow.opcode, flow.shape, qp.service
    if opcode == _CNP:
        return not service.connected
    if shape.service is not service.wire:
        return True
    if shape.response:
        return not (service.reliable and service.sends)
    return opcode not in qp.device.rules.requests[qp.type] and not flow.malformed


def not_answered(qp: QueuePair, flow: Flow) -> bool:
    """A request that the device does not support, or drops as malformed. IBA 9.7.4.1."""
    device = qp.device
    if flow.malformed:
        return not (device.rules.requests[qp.type] and device.profile.naks_malformed_requests)
    unsupported = device.profile.unsupported
    return bool(unsupported) and operation_of(flow.opcode) in unsupported


def other_partition(qp: QueuePair, flow: Flow) -> bool:
    """The P_Key matches none of the queue pair's. IBA 10.9.3, 10.9.4.

    Packets on the alternate path may have that path's P_Key (IBA 17.2.8.1.3).
    """
    pkey = flow.bth.pkey
    if qp.pkey_index_of(pkey) is not None:
        return False
    alternate = qp.device.pkey_at(qp.attributes.alt_pkey_index)
    return not (pkeys_match(alternate, pkey) and is_on_alternate(qp, flow))


def other_peer(qp: QueuePair, flow: Flow) -> bool:
    """The packet is not from the peer of a connected queue pair. IBA 9.6.1.2.3."""
    if not qp.service.connected:
        return False
    return flow.way_back not in qp.ways_to_peer


PACKET_CHECKS: Final[tuple[tuple[Drop, PacketCheck], ...]] = (
    (Drop.QP_TYPE, other_service),
    (Drop.MALFORMED, not_answered),
    (Drop.PKEY, other_partition),
    (Drop.PEER, other_peer),
)
"""Reasons to drop a packet, each with its test, in the order of the standard."""
