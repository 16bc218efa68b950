"""Requests that come again: the peer lost our answer, or the network repeated the request.

IBA 9.7.5.1.4: SENDs and WRITEs are acknowledged again, READs read again, and of atomics the answer
is given again. What is no longer remembered is dropped.
"""

from rdmawire.nic.check import check_rkey
from rdmawire.nic.gather import NOTHING
from rdmawire.nic.inbound import Acknowledge, Answer, AtomicResponse, ReadResponse, Resource
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.role import REQUEST, Role
from rdmawire.nic.unseal import Arrival, Drop
from rdmawire.wire import psn as serial


def replay(qp: QueuePair, role: Role, request: Arrival) -> None:
    """Answer a request that was done already."""
    if role.family is not REQUEST:
        qp.owe_ack()
        return
    resource = _remembered(qp, request)
    answer = None if resource is None else _again(qp, role, request, resource)
    if answer is None or _is_owed(qp, answer):
        qp.device.drops[Drop.FORGOTTEN] += 1
        return
    qp.inbound.settle()
    qp.inbound.owe(answer)
    qp.wake()


def _remembered(qp: QueuePair, request: Arrival) -> Resource | None:
    for resource in qp.inbound.resources:
        if serial.in_window(request.psn, resource.psn, resource.packets):
            return resource if resource.opcode == request.flow.bth.opcode else None
    return None


def _again(
    qp: QueuePair, role: Role, request: Arrival, resource: Resource
) -> ReadResponse | AtomicResponse | None:
    """The answer, if this asks for no more than was asked for the first time."""
    if resource.original is not None:
        return AtomicResponse(request.psn, qp.inbound.msn, resource.original)
    if not resource.length:
        return ReadResponse(request.psn, qp.inbound.msn, 1, NOTHING)
    return _read_again(qp, role, request, resource)


def _read_again(
    qp: QueuePair, role: Role, request: Arrival, resource: Resource
) -> ReadResponse | AtomicResponse | None:
    """The octets from where the peer's came to an end, or from the start."""
    length: int = request.extended[role.reth].dmalen
    skipped = serial.span(resource.psn, request.psn) * qp.mtu
    if not 0 < length <= resource.length - skipped or check_rkey(qp, role, request):
        return None
    packets = -(-length // qp.mtu)
    answer = ReadResponse(request.psn, qp.inbound.msn, packets, qp.inbound.target)
    answer.resumed = skipped > 0
    return answer


def _is_owed(qp: QueuePair, answer: Answer) -> bool:
    """Whether the same answer waits already, or there are as many as were agreed upon."""
    owed = qp.inbound.owed
    waiting = any(other.psn == answer.psn and not _begun(other) for other in owed)
    return waiting or qp.inbound.answers_owed() >= qp.max_dest_rd_atomic


def _begun(answer: Answer) -> bool:
    return isinstance(answer, Acknowledge) or (isinstance(answer, ReadResponse) and answer.sent > 0)
