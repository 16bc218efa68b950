"""Changes by ibv_modify_qp(3), once they were checked: actions on entering a state.

The valid transitions, with their attributes, are in :mod:`rdmawire.verbs.qp_attr`. Transitions into
an error that the application did not request are in :mod:`rdmawire.ib.qp`.
"""

from collections.abc import Callable

from rdmawire.ib.encapsulation import PLAIN
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.scheduler import limit_rate
from rdmawire.verbs.enums import QPState
from rdmawire.verbs.profile import Bug
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask, merged


def modify(qp: QueuePair, new: QPAttributes, mask: QPAttrMask, state: QPState) -> None:
    """Set checked attributes, and enter a checked state."""
    qp.attributes = merged(qp.attributes, new, mask)
    if state is QPState.SQD and qp.state is not QPState.SQD:
        notify = new.en_sqd_async_notify if mask & QPAttrMask.EN_SQD_ASYNC_NOTIFY else False
        qp.attributes = qp.attributes._replace(en_sqd_async_notify=notify)
    bits = int(mask)
    qp.take_attributes(bits)
    if bits & _RATE_LIMIT:
        limit_rate(qp)
    if bits & _COUNTS:
        qp.retry_state.reset_retries()
    if bits & _RQ_PSN:
        _expect(qp, new.rq_psn)
    if bits & _SQ_PSN:
        qp.sq.reset(new.sq_psn)
    if state is QPState.ERR:
        qp.fail()
    elif state is not qp.state:
        _ENTRIES.get(state, QueuePair.enter)(qp, state)


# As numbers: an operation of a flag takes much longer.
_RATE_LIMIT = QPAttrMask.RATE_LIMIT.value
_COUNTS = (QPAttrMask.RETRY_CNT | QPAttrMask.RNR_RETRY).value
_RQ_PSN = QPAttrMask.RQ_PSN.value
_SQ_PSN = QPAttrMask.SQ_PSN.value


def _expect(qp: QueuePair, psn: int) -> None:
    """Reset the responder, with this PSN expected."""
    qp.inbound.reset(psn, keeps_ack=Bug.ACK_PSN_KEPT in qp.device.profile.bugs)


def _enter_reset(qp: QueuePair, state: QPState) -> None:
    """Discard all work and all negotiated values. IBA 10.3.1.1."""
    qp.retry_state.clear()
    qp.page_wait.stop()
    if qp.governor is not None:
        qp.governor.went_back()
    qp.sq.reset(0)
    qp.rq.clear()
    qp.give_up_receive()
    qp.send_slots.clear()
    qp.recv_slots.clear()
    _expect(qp, 0)
    qp.credit_limit = None
    qp.unasked = qp.ask_after
    qp.halted = qp.established = False
    qp.attributes = QPAttributes(cap=qp.cap)
    limit_rate(qp)
    qp.answer_in(PLAIN)
    qp.enter(state)


def _enter_rts(qp: QueuePair, state: QPState) -> None:
    """Resume work, after SQE and SQD too. IBA 10.3.1.5, 10.3.1.6."""
    qp.enter(state)
    qp.retry_state.reset_retries()
    qp.halted = False
    qp.wake()


def _enter_sqd(qp: QueuePair, state: QPState) -> None:
    """Start no more work; when the work in flight is complete, an event is reported."""
    qp.enter(state)
    qp.drained = False
    qp.notice_drained()


_ENTRIES: dict[QPState, Callable[[QueuePair, QPState], None]] = {
    QPState.RESET: _enter_reset,
    QPState.RTS: _enter_rts,
    QPState.SQD: _enter_sqd,
}
"""Actions on entering a state."""
