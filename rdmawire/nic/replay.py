"""Requests that come again: the peer lost our answer, or the network repeated the request.

IBA 9.7.5.1.4: SENDs and WRITEs are acknowledged again, READs read again, and of atomics the answer
is given again. A READ whose answer is under way begins again where the peer asks. What is no longer
remembered, or asks for something else than the first time, is dropped.
"""

from rdmawire.memory.access import REMOTE_ATOMIC, REMOTE_READ
from rdmawire.nic.gather import NOTHING
from rdmawire.nic.inbound import AtomicResponse, ReadResponse, Resource
from rdmawire.nic.profile import Bug
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.role import REQUEST, Role
from rdmawire.nic.unseal import Arrival, Drop
from rdmawire.wire import psn as serial
from rdmawire.wire.ib import RETH
from rdmawire.wire.opcode import Operation, operation_of


def replay(qp: QueuePair, role: Role, request: Arrival) -> None:
    """Answer a request that was done already, if it asks for what it asked for the first time."""
    resource = _remembered(qp, request.psn)
    if role.family is not REQUEST:
        _acknowledge(qp, request, resource)
        return
    answer = None if resource is None else _again(qp, role, request, resource)
    if resource is None or answer is None:
        qp.device.drops[Drop.FORGOTTEN] += 1
        return
    qp.inbound.owe_again(answer, resource)
    qp.wake()


def _acknowledge(qp: QueuePair, request: Arrival, resource: Resource | None) -> None:
    """Acknowledge a duplicate SEND or WRITE; drop one with the PSN of a READ or atomic."""
    profile = qp.device.profile
    if profile.validates_duplicates and resource is not None:
        qp.device.drops[Drop.FORGOTTEN] += 1
        return
    if profile.acks_newest:
        qp.inbound.acknowledge_newest()
    else:
        qp.inbound.acknowledge_again(request.psn)
    qp.wake()


def _remembered(qp: QueuePair, psn: int) -> Resource | None:
    """The READ or atomic that had this PSN: the latest, since PSNs come round again."""
    return next((r for r in reversed(qp.inbound.resources) if r.covers(psn)), None)


def _again(
    qp: QueuePair, role: Role, request: Arrival, resource: Resource
) -> ReadResponse | AtomicResponse | None:
    """The answer, if this asks for no more than was asked for the first time.

    Of a FLUSH or an ATOMIC WRITE the opcode alone is compared: nothing is done again, and Linux
    repeats them with an address of 0.
    """
    if request.flow.malformed:
        return None
    if role.access == REMOTE_ATOMIC:
        return _atomic_again(qp, role, request, resource)
    if resource.opcode != request.flow.bth.opcode:
        return None
    if role.access == REMOTE_READ:
        return _read_again(qp, role, request, resource)
    return ReadResponse(request.psn, qp.inbound.msn, 1, NOTHING)


def _atomic_again(
    qp: QueuePair, role: Role, request: Arrival, resource: Resource
) -> AtomicResponse | None:
    """The response of the first atomic, with its original value; ``None`` if it differs."""
    bugs = qp.device.profile.bugs
    original = resource.original
    if original is None:
        read = operation_of(resource.opcode) == Operation.RDMA_READ_REQUEST
        original = resource.asked.va if read and Bug.ATOMIC_FROM_READ in bugs else None
    elif Bug.ATOMIC_FROM_ANY not in bugs and not _is_same(qp, role, request, resource):
        return None
    return None if original is None else AtomicResponse(request.psn, qp.inbound.msn, original)


def _is_same(qp: QueuePair, role: Role, request: Arrival, resource: Resource) -> bool:
    """Whether an atomic is a duplicate of the first, with the same operands."""
    operands = request.extended[role.atomiceth] == resource.asked
    same = operands or not qp.device.profile.validates_duplicates
    return same and request.flow.bth.opcode == resource.opcode


def _read_again(
    qp: QueuePair, role: Role, request: Arrival, resource: Resource
) -> ReadResponse | None:
    """The octets from where the peer's came to an end, or from the start."""
    reth = request.extended[role.reth]
    skipped = serial.span(resource.psn, request.psn)
    profile = qp.device.profile
    if not reth.dmalen and Bug.EMPTY_READ_FORGOTTEN in profile.bugs:
        return None
    is_part = _is_rest if profile.validates_duplicates else _is_within
    if not is_part(reth, resource, skipped * qp.mtu) or not _allowed(qp, role, request):
        return None
    packets = max(-(-reth.dmalen // qp.mtu), 1)
    if packets > resource.packets - skipped and Bug.READ_GROWS not in profile.bugs:
        return None
    answer = ReadResponse(request.psn, qp.inbound.msn, packets, qp.inbound.target)
    answer.resumed = skipped > 0
    _grow(qp, serial.add(request.psn, packets))
    return answer


def _is_rest(reth: RETH, resource: Resource, skipped: int) -> bool:
    """Whether a READ names memory of the first one's, ``skipped`` bytes on. IBA 9.7.5.1.4."""
    first = resource.asked
    if not resource.length:
        return reth.dmalen == 0
    same = reth.rkey == first.rkey and reth.va == first.va + skipped
    return same and 0 < reth.dmalen <= resource.length - skipped


def _is_within(reth: RETH, resource: Resource, _: int) -> bool:
    """Whether a READ names memory of the first one's, wherever in it."""
    first = resource.asked
    inside = first.va <= reth.va and reth.va + reth.dmalen <= first.va + resource.length
    return inside and reth.rkey == first.rkey


def _grow(qp: QueuePair, end: int) -> None:
    """Expect the PSN behind a duplicate READ that is longer than the first: ``Bug.READ_GROWS``."""
    if serial.is_before(qp.inbound.epsn, end):
        qp.inbound.move_past(serial.span(qp.inbound.epsn, end))


def _allowed(qp: QueuePair, role: Role, request: Arrival) -> bool:
    """Whether the key allows it still; XRC's by the queue that this very packet names.

    A message that is coming in meanwhile goes on with the queue that it named.
    """
    named = qp.srq, qp.recv_cq, qp.pd, qp.recv_pd
    allowed = not any(step(qp, role, request) for step in role.again)
    qp.srq, qp.recv_cq, qp.pd, qp.recv_pd = named
    return allowed
