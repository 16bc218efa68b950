"""Pending responses of a responder become frames, in order. IBA 9.7.5.

READ responses are read from memory when they are sent. If the key no longer allows that, or the
pages are missing, a NAK is sent instead and the connection ends, unless a copy was kept.

Requests after a READ are executed at once. Before one of them changes memory of a pending READ, the
old bytes are copied to the responses concerned, also to those already sent: the peer may request
them again. So a READ sees memory as it was in its turn, however late its responses are sent; IBA
10.8.3.3 requires that only after a fence.
"""

from bisect import bisect_right
from typing import Final

from rdmawire.errors import MemoryBusy, MemoryFault, OwnerGone, PageFault
from rdmawire.ib.checks import access_fault
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import (
    Acknowledge,
    Answer,
    AtomicResponse,
    ReadResponse,
    Resource,
)
from rdmawire.ib.rules import REQUEST, ExtendedHeader, RequestRule
from rdmawire.ib.rx_parser import Arrival, Drop
from rdmawire.ib.tx_template import append_middles
from rdmawire.memory.key import REMOTE_ATOMIC, REMOTE_READ, Footprint, Grant
from rdmawire.verbs.profile import Bug
from rdmawire.verbs.sge import NOTHING, Gather, Piece, read_run
from rdmawire.wire import serial
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, CREDITS, NO_CREDITS, RETH, Ack, AtomicAckETH, AtomicETH, Nak
from rdmawire.wire.opcode import Operation, operation_of

_ACK: Final = Ack.ACK
_ACKNOWLEDGE: Final = Operation.ACKNOWLEDGE
# For code that runs for every response: the attribute lookup takes longer.


def answer(qp: QueuePair, frames: list[bytes], room: int) -> None:
    """Append responses, until there are ``room`` frames or none is pending.

    A READ of memory that is being copied gets an RNR NAK: the peer retransmits it.
    """
    pending = qp.inbound.pending
    if qp.inbound.cnps_due:
        _notify(qp, frames, room)
    while pending and len(frames) < room:
        first = pending[0]
        if isinstance(first, ReadResponse):
            try:
                if not _read(qp, first, frames, room):
                    continue
            except MemoryBusy:
                frames.append(_acknowledge(qp, _not_ready(qp, first)))
            qp.inbound.reads -= 1
        elif isinstance(first, AtomicResponse):
            frames.append(_atomic(qp, first))
        else:
            frames.append(_acknowledge(qp, first))
        pending.popleft()
    if qp.inbound.ack_due and len(frames) < room:
        frames.append(_acknowledge(qp, qp.inbound.take_ack()))


def _notify(qp: QueuePair, frames: list[bytes], room: int) -> None:
    """Send CNPs that are due ahead of all other frames, so that the peer slows down early."""
    while qp.inbound.cnps_due and qp.notifier is not None and len(frames) < room:
        qp.inbound.cnps_due -= 1
        frames.append(qp.notifier.frame())


def _read(qp: QueuePair, pending: ReadResponse, frames: list[bytes], room: int) -> bool:
    """Append response packets of a READ, up to ``room`` frames. Return whether it is complete."""
    try:
        while pending.sent < pending.packets and len(frames) < room:
            if pending.sent and (run := min(pending.unchanged_middles, room - len(frames))) > 0:
                _middles(qp, pending, frames, run)
            else:
                frames.append(_response(qp, pending))
                pending.sent += 1
    except MemoryBusy:
        raise
    except MemoryFault as fault:
        if pending.replayed or isinstance(fault, PageFault | OwnerGone):
            qp.device.drops[Drop.FORGOTTEN] += 1
            return True
        _break_off(qp, pending)
        return False
    return pending.sent == pending.packets


def _not_ready(qp: QueuePair, pending: ReadResponse) -> Acknowledge:
    """Return the RNR NAK with which the peer retransmits the rest of a READ later."""
    psn = serial.add(pending.psn, pending.sent)
    return Acknowledge(psn, serial.add(pending.msn, -1), Ack.RNR_NAK, qp.min_rnr_timer)


def _middles(qp: QueuePair, pending: ReadResponse, frames: list[bytes], count: int) -> None:
    """Append ``count`` middle packets of a READ."""
    mtu, before = qp.mtu, len(frames)
    head = qp.response_template.head(qp.service.base | _MIDDLE, mtu)
    psns = serial.numbers(serial.add(pending.psn, pending.sent), count)
    try:
        payloads = read_run(pending.target, pending.sent * mtu, mtu, count)
        append_middles(frames, head, psns, payloads)
    finally:
        pending.sent += len(frames) - before


def _break_off(qp: QueuePair, pending: ReadResponse) -> None:
    """Send a NAK in place of a response whose memory cannot be read, and end the queue pair."""
    psn = serial.add(pending.psn, pending.sent)
    fault = access_fault(qp, pending.target, REMOTE_READ)
    reaction = qp.service.reactions[fault]
    if reaction.notice is not None:
        qp.report_request(reaction.notice, psn, fault)
    qp.fail()
    qp.inbound.fall_silent()
    if reaction.nak is not None:
        qp.inbound.pending.append(Acknowledge(psn, qp.inbound.msn, Ack.NAK, reaction.nak))


def _response(qp: QueuePair, pending: ReadResponse) -> bytes:
    """Build the next response packet of a READ."""
    opcode = _place(qp, pending)
    data = pending.payload(qp.mtu)
    more = b"" if opcode is _MIDDLE else _extended(AETH, qp, pending)
    return _frame(qp, opcode, serial.add(pending.psn, pending.sent), more, data)


def _place(qp: QueuePair, pending: ReadResponse) -> Operation:
    """The position of a response packet among those of its READ."""
    last = pending.sent == pending.packets - 1
    first = pending.sent == 0 and not (pending.resumed and qp.device.profile.resumed_reads_go_on)
    return _PLACES[first, last]


_MIDDLE = Operation.RDMA_READ_RESPONSE_MIDDLE
_PLACES = {
    (True, True): Operation.RDMA_READ_RESPONSE_ONLY,
    (True, False): Operation.RDMA_READ_RESPONSE_FIRST,
    (False, False): _MIDDLE,
    (False, True): Operation.RDMA_READ_RESPONSE_LAST,
}


def _acknowledge(qp: QueuePair, pending: Acknowledge) -> bytes:
    if pending.ack is not _ACK:
        _count_refusal(qp, pending)
    return _frame(qp, _ACKNOWLEDGE, pending.psn, _extended(AETH, qp, pending))


def _count_refusal(qp: QueuePair, pending: Acknowledge) -> None:
    """Count a NAK or RNR NAK."""
    if pending.ack is Ack.RNR_NAK:
        qp.counters.send_rnr_err += 1
    elif pending.value == Nak.PSN_SEQUENCE_ERROR:
        qp.counters.out_of_seq_request += 1


def _atomic(qp: QueuePair, pending: AtomicResponse) -> bytes:
    more = _extended(AETH, qp, pending) + _extended(AtomicAckETH, qp, pending)
    return _frame(qp, Operation.ATOMIC_ACKNOWLEDGE, pending.psn, more)


def _extended(table: type[Header], qp: QueuePair, answer: Answer) -> bytes:
    """Build an extended transport header of a response."""
    return qp.device.rules.headers[table].make(qp, answer).build()


def _aeth(qp: QueuePair, answer: Answer) -> Header:
    """The AETH of a response: with the syndrome of a NAK, or else an ACK and the credits."""
    if answer.__class__ is Acknowledge and answer.ack is not _ACK:
        return AETH(0, answer.ack, answer.value, answer.msn)
    return AETH(0, _ACK, _credits(qp), answer.msn)


def _atomicacketh(_: QueuePair, answer: AtomicResponse) -> Header:
    return AtomicAckETH(answer.original)


RESPONSE_HEADERS: dict[type[Header], ExtendedHeader] = {
    AETH: ExtendedHeader(_aeth, {}),
    AtomicAckETH: ExtendedHeader(_atomicacketh, {}),
}
"""How each extended transport header of responses is filled."""


def _credits(qp: QueuePair) -> int:
    """The credit count for the receives that are left, rounded down to an encodable value."""
    if not qp.grants_credits:
        return NO_CREDITS
    qp.inbound.starved = not qp.rq
    return bisect_right(CREDITS, len(qp.rq)) - 1


def _frame(
    qp: QueuePair, operation: Operation, psn: int, more: bytes, data: bytes | memoryview = b""
) -> bytes:
    return qp.response_template.frame(qp.service.base | operation, psn, more, data)


def replay(qp: QueuePair, role: RequestRule, request: Arrival) -> None:
    """Answer a duplicate request, if it matches the original one."""
    resource = _remembered(qp, request.psn)
    if role.family is not REQUEST:
        _acknowledge_duplicate(qp, request, resource)
        return
    answer = None if resource is None else _again(qp, role, request, resource)
    if resource is None or answer is None:
        qp.device.drops[Drop.FORGOTTEN] += 1
        return
    qp.inbound.owe_again(answer, resource, qp.mtu)
    qp.wake()


def _acknowledge_duplicate(qp: QueuePair, request: Arrival, resource: Resource | None) -> None:
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
    """The latest READ or atomic with this PSN: PSNs wrap around."""
    return next((r for r in reversed(qp.inbound.resources) if r.covers(psn)), None)


def _again(
    qp: QueuePair, role: RequestRule, request: Arrival, resource: Resource
) -> ReadResponse | AtomicResponse | None:
    """Return the response to a duplicate that requests no more than the original, else ``None``.

    Of a FLUSH or an ATOMIC WRITE the opcode alone is compared: nothing is executed again, and Linux
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
    qp: QueuePair, role: RequestRule, request: Arrival, resource: Resource
) -> AtomicResponse | None:
    """The response of the original atomic, with its value; ``None`` if the duplicate differs."""
    bugs = qp.device.profile.bugs
    original = resource.original
    if original is None:
        read = operation_of(resource.opcode) == Operation.RDMA_READ_REQUEST
        original = resource.asked.va if read and Bug.ATOMIC_FROM_READ in bugs else None
    elif Bug.ATOMIC_FROM_ANY not in bugs and not _is_same(qp, role, request, resource):
        return None
    return None if original is None else AtomicResponse(request.psn, qp.inbound.msn, original)


def _is_same(qp: QueuePair, role: RequestRule, request: Arrival, resource: Resource) -> bool:
    """Whether an atomic has the same operation and operands as the original."""
    operands = request.extended[role.places[AtomicETH]] == resource.asked
    same = operands or not qp.device.profile.validates_duplicates
    return same and request.flow.bth.opcode == resource.opcode


def _read_again(
    qp: QueuePair, role: RequestRule, request: Arrival, resource: Resource
) -> ReadResponse | None:
    """Return the response to a duplicate READ, from its start or from a later packet on."""
    reth = request.extended[role.places[RETH]]
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
    """Whether a READ names the original's memory from ``skipped`` bytes on. IBA 9.7.5.1.4."""
    first = resource.asked
    if not resource.length:
        return reth.dmalen == 0
    same = reth.rkey == first.rkey and reth.va == first.va + skipped
    return same and 0 < reth.dmalen <= resource.length - skipped


def _is_within(reth: RETH, resource: Resource, _: int) -> bool:
    """Whether a READ names memory within the original's."""
    first = resource.asked
    inside = first.va <= reth.va and reth.va + reth.dmalen <= first.va + resource.length
    return inside and reth.rkey == first.rkey


def _grow(qp: QueuePair, end: int) -> None:
    """Expect the PSN after a duplicate READ that is longer than the first: ``Bug.READ_GROWS``."""
    if serial.is_before(qp.inbound.epsn, end):
        qp.inbound.move_past(serial.span(qp.inbound.epsn, end))


def _allowed(qp: QueuePair, role: RequestRule, request: Arrival) -> bool:
    """Whether the key still allows the access; an XRC packet names the queue whose domain counts.

    A message in progress keeps the queue that its own packets named.
    """
    named = qp.srq, qp.recv_cq, qp.pd, qp.recv_pd
    allowed = not any(step(qp, role, request) for step in role.again)
    qp.srq, qp.recv_cq, qp.pd, qp.recv_pd = named
    return allowed


# Copies of memory for pending READs.

MAX_KEPT = 16 << 20
"""Limit of bytes kept for pending READs of one queue pair. Responses beyond it have the memory as
it is when they are sent, as the standard allows."""


def keep(qp: QueuePair, memory: Piece | Gather, offset: int, length: int) -> None:
    """Keep for pending READs ``length`` bytes of ``memory`` at ``offset``, before they change."""
    room = _room(qp)
    for change in memory.footprints(offset, length):
        for read in _pending(qp):
            room -= _keep(read, change, qp.mtu, room)


def keep_all(qp: QueuePair, grant: Grant) -> None:
    """Keep for pending READs all memory that they read by this key, before it is invalidated."""
    room = _room(qp) * qp.mtu
    for read in _pending(qp):
        target = read.target
        if target.memory is grant and target.length <= room and read.whole is None:
            room -= target.length
            try:
                read.whole = bytes(target.read(0, target.length))
            except MemoryFault:
                continue  # already inaccessible: sending the response ends in a NAK


def _pending(qp: QueuePair) -> list[ReadResponse]:
    """The READs with responses still to send."""
    return [answer for answer in qp.inbound.pending if isinstance(answer, ReadResponse)]


def _room(qp: QueuePair) -> int:
    """How many more responses may be kept."""
    return MAX_KEPT // qp.mtu - sum(read.packets_kept(qp.mtu) for read in _pending(qp))


def _keep(read: ReadResponse, change: Footprint, mtu: int, room: int) -> int:
    """Keep at most ``room`` responses that ``change`` overwrites. Return how many were kept."""
    touched = _touched(read, change, mtu)
    taken = 0
    for index in touched:
        if taken >= room:
            return taken
        taken += read.keep(index, mtu)
    read.all_kept |= touched == range(read.packets)
    return taken


def _touched(read: ReadResponse, change: Footprint, mtu: int) -> range:
    """Indices of the responses of a READ that ``change`` overwrites."""
    target = read.target
    if read.all_kept or read.whole is not None:
        return range(0)
    own = target.memory.footprint(target.address, target.length)
    start, end = own.shared(change)
    if start >= end:
        return range(0)
    return range((start - own.start) // mtu, -(-(end - own.start) // mtu))
