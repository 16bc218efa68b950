"""The answers that a responder owes become frames, in order. IBA 9.7.5.

READ responses are read from memory when they are sent, unless a request behind the READ changed it:
then they are what was kept (:mod:`rdmawire.nic.snapshot`). If the key no longer allows that, or the
pages are missing, a NAK takes their place and the connection ends; but what the peer had in full
before is forgotten.
"""

from bisect import bisect_right

from rdmawire.errors import MemoryFault, PageFault
from rdmawire.memory.access import REMOTE_READ
from rdmawire.nic.check import access_fault
from rdmawire.nic.inbound import Acknowledge, AtomicResponse, ReadResponse
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.unseal import Drop
from rdmawire.wire import psn as serial
from rdmawire.wire.ib import AETH, CREDITS, NO_CREDITS, Ack, AtomicAckETH, Nak
from rdmawire.wire.opcode import Operation


def answer(qp: QueuePair, frames: list[bytes], room: int) -> None:
    """Append answers, until there are ``room`` frames or none is owed."""
    owed = qp.inbound.owed
    if qp.inbound.cnps_due:
        _notify(qp, frames, room)
    while owed and len(frames) < room:
        first = owed[0]
        if isinstance(first, ReadResponse):
            if not _read(qp, first, frames, room):
                continue
            qp.inbound.reads -= 1
        elif isinstance(first, AtomicResponse):
            frames.append(_atomic(qp, first))
        else:
            frames.append(_acknowledge(qp, first))
        owed.popleft()
    if qp.inbound.ack_due and len(frames) < room:
        frames.append(_acknowledge(qp, qp.inbound.take_ack()))


def _notify(qp: QueuePair, frames: list[bytes], room: int) -> None:
    """The CNPs that are owed, before all else: the sooner the peer hears, the better."""
    while qp.inbound.cnps_due and qp.notifier is not None and len(frames) < room:
        qp.inbound.cnps_due -= 1
        frames.append(qp.notifier.frame(qp))


def _read(qp: QueuePair, owed: ReadResponse, frames: list[bytes], room: int) -> bool:
    """Response packets of a READ, as many as there is room for; whether nothing more is owed."""
    try:
        while owed.sent < owed.packets and len(frames) < room:
            frames.append(_response(qp, owed))
            owed.sent += 1
    except MemoryFault as fault:
        if owed.replayed or isinstance(fault, PageFault):
            qp.device.drops[Drop.FORGOTTEN] += 1
            return True
        _break_off(qp, owed)
        return False
    return owed.sent == owed.packets


def _break_off(qp: QueuePair, owed: ReadResponse) -> None:
    """The memory cannot be read any more: a NAK takes the response's place, and all else ends."""
    psn = serial.add(owed.psn, owed.sent)
    fault = access_fault(qp, owed.target, REMOTE_READ)
    reaction = qp.service.reactions[fault]
    if reaction.notice is not None:
        qp.device.events.append(reaction.notice.of(qp, psn, fault))
    qp.fail()
    qp.inbound.fall_silent()
    if reaction.nak is not None:
        qp.inbound.parting = True
        qp.inbound.owed.append(Acknowledge(psn, qp.inbound.msn, Ack.NAK, reaction.nak))


def _response(qp: QueuePair, owed: ReadResponse) -> bytes:
    """The next response packet of a READ."""
    opcode = _place(qp, owed)
    octets = owed.payload(qp.mtu)
    more = b"" if opcode is _MIDDLE else _aeth(qp, owed.msn)
    return _frame(qp, opcode, serial.add(owed.psn, owed.sent), more, octets)


def _place(qp: QueuePair, owed: ReadResponse) -> Operation:
    """Where a response stands among those to its READ."""
    last = owed.sent == owed.packets - 1
    first = owed.sent == 0 and not (owed.resumed and qp.device.profile.resumed_reads_go_on)
    return _PLACES[first, last]


_MIDDLE = Operation.RDMA_READ_RESPONSE_MIDDLE
_PLACES = {
    (True, True): Operation.RDMA_READ_RESPONSE_ONLY,
    (True, False): Operation.RDMA_READ_RESPONSE_FIRST,
    (False, False): _MIDDLE,
    (False, True): Operation.RDMA_READ_RESPONSE_LAST,
}


def _acknowledge(qp: QueuePair, owed: Acknowledge) -> bytes:
    value = _credits(qp) if owed.ack is Ack.ACK else _refusal(qp, owed)
    aeth = AETH(ack=owed.ack, value=value, msn=owed.msn).build()
    return _frame(qp, Operation.ACKNOWLEDGE, owed.psn, aeth)


def _refusal(qp: QueuePair, owed: Acknowledge) -> int:
    """The code of a NAK or the timer of an RNR NAK, which is counted."""
    if owed.ack is Ack.RNR_NAK:
        qp.counters.send_rnr_err += 1
    elif owed.value == Nak.PSN_SEQUENCE_ERROR:
        qp.counters.out_of_seq_request += 1
    return owed.value


def _atomic(qp: QueuePair, owed: AtomicResponse) -> bytes:
    more = _aeth(qp, owed.msn) + AtomicAckETH(owed.original).build()
    return _frame(qp, Operation.ATOMIC_ACKNOWLEDGE, owed.psn, more)


def _aeth(qp: QueuePair, msn: int) -> bytes:
    """An AETH that acknowledges what was done."""
    return AETH(ack=Ack.ACK, value=_credits(qp), msn=msn).build()


def _credits(qp: QueuePair) -> int:
    """The credit count for the receives that are left: the greatest that promises no more."""
    if qp.srq is not None or not qp.device.profile.end_to_end_credits:
        return NO_CREDITS
    qp.inbound.starved = not qp.rq
    return bisect_right(CREDITS, len(qp.rq)) - 1


def _frame(
    qp: QueuePair, operation: Operation, psn: int, more: bytes, octets: bytes | memoryview = b""
) -> bytes:
    return qp.response_seal.frame(qp.service.base | operation, psn, more, octets)
