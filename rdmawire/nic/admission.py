"""Whether a packet is one for this queue pair: header validation, IBA 9.6.1."""

from collections.abc import Callable

from rdmawire.nic.path import gids_of
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.responder import ROLES
from rdmawire.nic.unseal import Drop, Flow
from rdmawire.wire.opcode import Opcode, operation_of


def refused(qp: QueuePair, flow: Flow) -> Drop | None:
    """Why packets of this flow are not for the queue pair, if so."""
    return next((reason for reason, broken in _RULES if broken(qp, flow)), None)


def _other_service(qp: QueuePair, flow: Flow) -> bool:
    """The opcode's service is another, or it has no such packets in this direction."""
    if flow.bth.opcode == Opcode.CNP:
        return not qp.service.connected
    if flow.shape.service is not qp.service.wire:
        return True
    if flow.shape.response:
        return not (qp.service.reliable and qp.service.sends)
    return flow.bth.opcode not in ROLES[qp.type] and not flow.malformed


def _not_answered(qp: QueuePair, flow: Flow) -> bool:
    """A request that the device does not support, or drops as malformed. IBA 9.7.4.1."""
    answers = ROLES[qp.type] and qp.device.profile.naks_malformed_requests
    if flow.malformed:
        return not answers
    unsupported = qp.device.profile.unsupported
    return bool(unsupported) and operation_of(flow.bth.opcode) in unsupported


def _other_partition(qp: QueuePair, flow: Flow) -> bool:
    """The P_Key matches none of the queue pair's. IBA 10.9.3, 10.9.4."""
    return qp.pkey_index_of(flow.bth.pkey) is None


def _other_peer(qp: QueuePair, flow: Flow) -> bool:
    """A connected queue pair hears its peer alone, on either path. IBA 9.6.1.2.3."""
    if not qp.service.connected:
        return False
    source, destination = gids_of(flow.headers)
    return (destination, source) not in qp.ways_to_peer


_RULES: tuple[tuple[Drop, Callable[[QueuePair, Flow], bool]], ...] = (
    (Drop.QP_TYPE, _other_service),
    (Drop.MALFORMED, _not_answered),
    (Drop.PKEY, _other_partition),
    (Drop.PEER, _other_peer),
)
"""What must not hold, in the standard's order."""
