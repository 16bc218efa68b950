"""Retransmission and its limits: what a requester does when a response is an error or missing.

IBA 9.7.5.1.2 (implied NAK), 9.7.5.2 (NAK codes), 9.7.5.2.8 (RNR), 9.7.6.1.3 (ACK timeout). Each
retransmission uses one of the retries that are left; any progress restores all of them.
"""

from rdmawire.ib.path_migration import fail_over
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import Refusal
from rdmawire.ib.rx_parser import Drop
from rdmawire.ib.send_queue import Wqe
from rdmawire.verbs.enums import WCStatus
from rdmawire.wire.ib import Ack, Nak

NAK_STATUS: dict[int, WCStatus] = {
    Nak.INVALID_REQUEST: WCStatus.REM_INV_REQ_ERR,
    Nak.REMOTE_ACCESS_ERROR: WCStatus.REM_ACCESS_ERR,
    Nak.REMOTE_OPERATIONAL_ERROR: WCStatus.REM_OP_ERR,
    Nak.INVALID_RD_REQUEST: WCStatus.REM_INV_RD_REQ_ERR,
}
"""Completion status by NAK code, IBA 9.9.2.3. A reserved code is a bad response."""

ENDLESS_RNR_RETRY = 7
"""The ``rnr_retry`` without a limit. IBA 9.7.5.2.8."""


def fail(qp: QueuePair, wqe: Wqe, status: WCStatus) -> None:
    """Complete the oldest WQE with the error ``status``, and fail the queue pair."""
    qp.sq.finish(wqe, status)
    qp.retire()


def implied_nak(qp: QueuePair) -> None:
    """Handle an implied NAK: a response shows that an earlier one is missing. IBA 9.7.5.1.2."""
    if not _is_retrying(qp):
        qp.counters.implied_nak_seq_err += _retry_once(qp)


def _is_retrying(qp: QueuePair) -> bool:
    """Whether the queue pair is retransmitting, or will when its RNR wait ends."""
    return qp.retry_state.retrying or qp.retry_state.in_rnr_wait


def _retry_once(qp: QueuePair) -> bool:
    """Retransmit the request of a missing response, once until the queue advances.

    Packets in flight when the loss was detected report the same loss again. Return ``False`` if no
    retry was left.
    """
    if _is_retrying(qp):
        return True
    qp.retry_state.retrying = True
    return go_back(qp)


def go_back(qp: QueuePair) -> bool:
    """Retransmit all unacknowledged packets. Return ``False`` if no retry was left."""
    wqe = qp.sq.oldest()
    if wqe is None:
        return False
    if not qp.retry_state.retries:
        if not fail_over(qp):
            fail(qp, wqe, WCStatus.RETRY_EXC_ERR)
            return False
    elif qp.retry_state.retry_cnt != qp.device.profile.endless_retry_cnt:
        qp.retry_state.retries -= 1
    _send_again(qp)
    qp.counters.completer_retry_err += 1
    qp.retry_state.stop()
    qp.wake()
    return True


def _send_again(qp: QueuePair) -> None:
    """Retransmit from the oldest unacknowledged PSN."""
    qp.sq.go_back(qp.sq.unacked_psn)
    if qp.governor is not None:
        qp.governor.went_back()


def timed_out(qp: QueuePair) -> None:
    """Handle the timer: the RNR wait is over, or no ACK arrived.

    While a requester waits for its own pages, the timer has no effect: it has not sent all that the
    peer would acknowledge, or has discarded the response, and waits for an ACK again afterwards.
    """
    if qp.retry_state.in_rnr_wait:
        qp.retry_state.in_rnr_wait = False
        qp.wake()
    elif qp.page_wait.deadline is None:
        qp.retry_state.retrying = False
        qp.counters.local_ack_timeout_err += go_back(qp)


def discard_response(qp: QueuePair, ready: int) -> None:
    """Discard a response whose page is absent until ``ready`` (ns), and request it again then.

    Responses after it are discarded, too, and do not count as an implied NAK.
    """
    qp.device.drops[Drop.PAGE_FAULT] += 1
    qp.retry_state.retrying = True
    qp.page_wait.wait(ready, resend=True)


def paged_in(qp: QueuePair) -> None:
    """Resume sending when the pages that the requester waited for are present. Uses no retry."""
    if not qp.retry_state.in_rnr_wait:
        if qp.page_wait.resend and qp.sq.oldest() is not None:
            _send_again(qp)
        qp.retry_state.stop()
    qp.page_wait.resend = False
    qp.wake()


def _on_nak(qp: QueuePair, code: int) -> None:
    """Handle a NAK: retransmit after a PSN sequence error, else complete the WQE with an error."""
    if code == Nak.PSN_SEQUENCE_ERROR:
        qp.counters.rcvd_seq_err += 1
        qp.counters.packet_seq_err += _retry_once(qp)
        return
    wqe = qp.sq.oldest()
    if wqe is not None:
        fail(qp, wqe, NAK_STATUS.get(code, WCStatus.BAD_RESP_ERR))


def _on_rnr_nak(qp: QueuePair, timer: int) -> None:
    """Handle an RNR NAK: wait for the time of ``timer``, then retransmit. IBA 9.7.5.2.8.

    Another RNR NAK during the wait is a duplicate.
    """
    qp.counters.rcvd_rnr_err += 1
    wqe = qp.sq.oldest()
    if wqe is None or qp.retry_state.in_rnr_wait:
        return
    if not qp.retry_state.rnr_retries:
        fail(qp, wqe, WCStatus.RNR_RETRY_EXC_ERR)
        return
    if qp.retry_state.rnr_retry != ENDLESS_RNR_RETRY:
        qp.retry_state.rnr_retries -= 1
    qp.counters.rnr_nak_retry_err += 1
    _send_again(qp)
    qp.retry_state.start_rnr_timer(qp.device.profile.rnr_timer_ns[timer])


REFUSALS: dict[int, Refusal] = {
    Ack.RNR_NAK: _on_rnr_nak,
    Ack.NAK: _on_nak,
}
"""Handlers of AETH syndromes other than ACK; reserved ones are ignored."""
