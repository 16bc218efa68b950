"""The completer: responses advance the send queue. IBA 9.7.3, 9.7.5, 9.7.6.

A response acknowledges all work before its PSN. If that includes a READ or atomic whose own
response never came, that was lost: an implied NAK (IBA 9.7.5.1.2), and the queue goes back to it.
Responses that no work waits for are dropped.
"""

from rdmawire.errors import MemoryFault, PageFault
from rdmawire.ib import retransmit
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import Response
from rdmawire.ib.rx_parser import Arrival, Drop
from rdmawire.ib.send_queue import Wqe
from rdmawire.verbs.enums import SUCCESS, QPState, WCStatus
from rdmawire.verbs.profile import Bug
from rdmawire.verbs.wr import ATOMIC_SIZE, Answer
from rdmawire.wire import serial
from rdmawire.wire.ib import AETH, CREDITS, NO_CREDITS, Ack
from rdmawire.wire.opcode import Opcode, Operation, Part, Service, operation_of

# Enum members compared with each response: an attribute lookup takes 70 ns.
_ACK, _READ, _ATOMIC = Ack.ACK, Answer.READ, Answer.ATOMIC
_FIRST_OR_ONLY = (Part.FIRST, Part.ONLY)
_LAST_OR_ONLY = (Part.LAST, Part.ONLY)


def complete(qp: QueuePair, response: Arrival) -> None:
    """Process one response."""
    queue = qp.sq
    aeth: AETH | None = response.extended[0] if response.extended else None
    if not serial.in_window(response.psn, queue.unacked_psn, queue.in_flight):
        _stale(qp, response, aeth)
    elif aeth is None or aeth.ack == _ACK:
        _answered(qp, response, aeth)
    else:
        _refused(qp, response, aeth)
    qp.wake()


def _refused(qp: QueuePair, response: Arrival, aeth: AETH) -> None:
    """Handle a NAK. In a packet other than an Acknowledge it is a bad response. IBA 9.7.5.2."""
    refusal = qp.device.rules.refusals.get(aeth.ack)
    if operation_of(response.flow.bth.opcode) != Operation.ACKNOWLEDGE:
        refusal = _bad_response
    if refusal is not None and settle(qp, response.psn):
        refusal(qp, aeth.value)


def _bad_response(qp: QueuePair, _: int) -> None:
    wqe = qp.sq.oldest()
    if wqe is not None:
        retransmit.fail(qp, wqe, WCStatus.BAD_RESP_ERR)


def _stale(qp: QueuePair, response: Arrival, aeth: AETH | None) -> None:
    """Take credits from a repeated ACK, or drop a stale response. IBA 9.7.5.1.2, 9.7.7.2.4.

    An unsolicited ACK covers no READ or atomic, so its PSN may be older than that of the last
    ACK: it counts if it grants more credits than are known. A NAK has no credits, and a ghost ACK,
    of a packet that was not sent, has no effect.
    """
    if Bug.OLD_ACK_BREAKS_READ in qp.device.profile.bugs:
        _break_off(qp, response)
    old = serial.is_before(response.psn, qp.sq.unacked_psn)
    repeated = serial.add(response.psn, 1) == qp.sq.unacked_psn
    if old and aeth is not None and aeth.ack == _ACK and (repeated or _tells_more(qp, aeth)):
        _take_credits(qp, aeth)
    else:
        qp.device.drops[Drop.STALE] += 1


def _break_off(qp: QueuePair, response: Arrival) -> None:
    """Note an ACK between the responses to a READ: ``Bug.OLD_ACK_BREAKS_READ``."""
    wqe = qp.sq.oldest()
    if wqe is not None and wqe.answered and response.flow.bth.opcode == Opcode.RC_ACKNOWLEDGE:
        qp.sq.broken = True


def _answered(qp: QueuePair, response: Arrival, aeth: AETH | None) -> None:
    if aeth is not None:
        _take_credits(qp, aeth)
    qp.device.rules.responses[response.flow.bth.opcode](qp, response)


def _take_credits(qp: QueuePair, aeth: AETH) -> None:
    """Update the credit limit from the AETH of an ACK. IBA 9.7.7.2."""
    if aeth.value == NO_CREDITS:
        qp.credit_limit = None
    else:
        qp.credit_limit = serial.add(aeth.msn, CREDITS[aeth.value])


def _tells_more(qp: QueuePair, aeth: AETH) -> bool:
    """Whether an ACK grants more credits than are known; credits are never taken back."""
    if qp.credit_limit is None or aeth.value == NO_CREDITS:
        return False
    return serial.is_before(qp.credit_limit, serial.add(aeth.msn, CREDITS[aeth.value]))


def settle(qp: QueuePair, psn: int) -> bool:
    """Acknowledge all before ``psn``. Return ``False`` if a response before ``psn`` is missing.

    If one is missing, the queue goes back to it: an implied NAK.
    """
    queue = qp.sq
    before = queue.unacked_psn
    _settle_whole(qp, serial.span(before, psn))
    while (wqe := queue.oldest()) is not None:
        if wqe.status is not None:
            queue.finish(wqe, wqe.status)
        elif not _settled(qp, wqe, psn):
            break
        qp.retire()
    if queue.unacked_psn != before:
        _moved(qp)
    if wqe is None or queue.unacked_psn == psn:
        return True
    retransmit.implied_nak(qp)
    return False


def _moved(qp: QueuePair) -> None:
    """Restart the timers: a response advanced the queue."""
    qp.retry_state.restart()
    if qp.governor is not None:
        qp.governor.acknowledged()
    if qp.state is QPState.SQD:
        qp.notice_drained()


def _settle_whole(qp: QueuePair, packets: int) -> None:
    """Complete the messages that lie within ``packets`` PSNs: the usual case.

    Work that needs more than an ACK, or was sent in part, is left to the caller.
    """
    queue = qp.sq
    sent, done = queue.sent, 0
    while sent:
        wqe = sent[0]
        end = done + wqe.unacked
        if end > packets or wqe.verb.takes_resource or wqe.status is not None:
            break
        done = end
        sent.popleft()
        qp.complete_send(wqe, SUCCESS)
    queue.pass_by(done)


def _settled(qp: QueuePair, wqe: Wqe, psn: int) -> bool:
    """Acknowledge the oldest work up to ``psn``; whether it is complete."""
    queue = qp.sq
    ahead = serial.span(queue.unacked_psn, psn)
    if not ahead or wqe.verb.takes_resource:
        return False
    left = wqe.unacked
    queue.acknowledge(wqe, min(left, ahead))
    if left <= ahead:
        queue.finish(wqe, SUCCESS)
    return left <= ahead


def _acknowledged(qp: QueuePair, response: Arrival) -> None:
    if Bug.ACK_COMPLETES_READ in qp.device.profile.bugs:
        _complete_unanswered(qp, response)
    settle(qp, serial.add(response.psn, 1))


def _complete_unanswered(qp: QueuePair, response: Arrival) -> None:
    """Take an ACK for the last response to a READ or atomic: ``Bug.ACK_COMPLETES_READ``."""
    wqe = qp.sq.oldest() if settle(qp, response.psn) else None
    if wqe is not None and wqe.verb.takes_resource and wqe.last_psn == response.psn:
        _place(qp, wqe, 0, b"")


def read_responded(qp: QueuePair, response: Arrival) -> None:
    """Process a response to a READ, FLUSH or ATOMIC WRITE."""
    wqe = _awaiting(qp, response, _READ)
    if wqe is None:
        return
    if qp.sq.broken and not _begins_anew(qp, wqe, response):
        return
    left = wqe.packets - wqe.answered
    wanted = min(wqe.length - wqe.answered * qp.mtu, qp.mtu) if wqe.places else 0
    if (left == 1) is not _ends(response) or len(response.payload) != wanted:
        retransmit.fail(qp, wqe, WCStatus.BAD_RESP_ERR)
        return
    _place(qp, wqe, wqe.answered * qp.mtu, response.payload)


def _begins_anew(qp: QueuePair, wqe: Wqe, response: Arrival) -> bool:
    """Whether a response begins a READ or part of one; else end it, as a bug in Linux does."""
    qp.sq.broken = False
    if response.flow.shape.part in _FIRST_OR_ONLY:
        return True
    retransmit.fail(qp, wqe, SUCCESS)
    qp.fail()
    return False


def _ends(response: Arrival) -> bool:
    """Whether a response is the last of a READ.

    A resumed READ begins again with a FIRST, where the response to the original READ has a MIDDLE
    that may still arrive. Both are accepted.
    """
    return response.flow.shape.part in _LAST_OR_ONLY


def _atomic_responded(qp: QueuePair, response: Arrival) -> None:
    wqe = _awaiting(qp, response, _ATOMIC)
    if wqe is None:
        return
    original: int = response.extended[1].origremdt
    _place(qp, wqe, 0, original.to_bytes(ATOMIC_SIZE, "little"))


def _awaiting(qp: QueuePair, response: Arrival, answer: Answer) -> Wqe | None:
    """The oldest work, if ``response`` is its next response."""
    if not settle(qp, response.psn):
        return None
    wqe = qp.sq.oldest()
    if wqe is not None and wqe.verb.answer is not answer:
        retransmit.fail(qp, wqe, WCStatus.BAD_RESP_ERR)
        return None
    return wqe


def _place(qp: QueuePair, wqe: Wqe, offset: int, data: bytes) -> None:
    """Write a response to local memory; the last one completes the work."""
    if data:
        try:
            wqe.sink.write(offset, data)
        except PageFault as fault:
            retransmit.discard_response(qp, fault.ready)
            return
        except MemoryFault:
            retransmit.fail(qp, wqe, WCStatus.LOC_PROT_ERR)
            return
    count_responses(qp, wqe, 1)


def count_responses(qp: QueuePair, wqe: Wqe, packets: int) -> None:
    """Count ``packets`` more responses to the oldest work as placed; the last one completes it."""
    wqe.answered += packets
    qp.sq.acknowledge(wqe, packets)
    if wqe.answered == wqe.packets:
        qp.sq.finish(wqe, SUCCESS)
        qp.retire()
        if qp.retry_state.in_rnr_wait:
            settle(qp, qp.sq.unacked_psn)  # a local error behind it waits for no RNR timer
    _moved(qp)


_BY_OPERATION: dict[Operation, Response] = {
    Operation.ACKNOWLEDGE: _acknowledged,
    Operation.ATOMIC_ACKNOWLEDGE: _atomic_responded,
    Operation.RDMA_READ_RESPONSE_FIRST: read_responded,
    Operation.RDMA_READ_RESPONSE_MIDDLE: read_responded,
    Operation.RDMA_READ_RESPONSE_LAST: read_responded,
    Operation.RDMA_READ_RESPONSE_ONLY: read_responded,
}
RESPONSES: dict[int, Response] = {
    service << 5 | operation: function
    for service in (Service.RC, Service.XRC)
    for operation, function in _BY_OPERATION.items()
}
"""Handlers of responses, by opcode."""
