"""Requests that come again: the peer lost our answer, or the network repeated the request.

IBA 9.7.5.1.4: SENDs and WRITEs are acknowledged again, READs read again, and of atomics the answer
is given again. A READ whose answer is under way begins again where the peer asks. What is no longer
remembered is dropped.
"""

from rdmawire.nic.gather import NOTHING
from rdmawire.nic.inbound import AtomicResponse, ReadResponse, Resource
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
    if resource is None or answer is None:
        qp.device.drops[Drop.FORGOTTEN] += 1
        return
    qp.inbound.owe_again(answer, resource)
    qp.wake()


def _remembered(qp: QueuePair, request: Arrival) -> Resource | None:
    """What was asked for the first time: the latest, since PSNs come round again."""
    for resource in reversed(qp.inbound.resources):
        if resource.covers(request.psn):
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
    if not 0 < length <= resource.length - skipped or not _allowed(qp, role, request):
        return None
    packets = -(-length // qp.mtu)
    answer = ReadResponse(request.psn, qp.inbound.msn, packets, qp.inbound.target)
    answer.resumed = skipped > 0
    return answer


def _allowed(qp: QueuePair, role: Role, request: Arrival) -> bool:
    """Whether the key allows it still; XRC's by the queue that this very packet names.

    A message that is coming in meanwhile goes on with the queue that it named.
    """
    named = qp.srq, qp.recv_cq, qp.pd, qp.recv_pd
    allowed = not any(step(qp, role, request) for step in role.again)
    qp.srq, qp.recv_cq, qp.pd, qp.recv_pd = named
    return allowed
