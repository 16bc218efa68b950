"""Before the first packet of work: what holds it back, and what it needs from here.

Work is begun in the order in which it was posted, and gets its PSNs then.
"""

from rdmawire.memory.access import LOCAL_WRITE
from rdmawire.memory.grant import KeyFault
from rdmawire.nic.completion import WCStatus
from rdmawire.nic.gather import Inline, gather
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.queue import Wqe
from rdmawire.nic.state import QPState
from rdmawire.nic.work import FENCE, INLINE, LONGEST_MESSAGE, Answer, Local
from rdmawire.wire import psn as serial


def held(qp: QueuePair, wqe: Wqe) -> bool:
    """Whether work must not be begun yet."""
    return qp.state is not QPState.RTS or qp.halted or _out_of_reads(qp, wqe) or _out_of_credits(qp)


def _out_of_reads(qp: QueuePair, wqe: Wqe) -> bool:
    """A fence waits for all READs and atomics (IBA 10.8.3.3); they wait for one another's room."""
    under_way = qp.sq.outstanding_reads
    if not under_way:
        return wqe.verb.takes_resource and not qp.max_rd_atomic
    if wqe.flags & FENCE:
        return True
    return wqe.verb.takes_resource and under_way >= qp.max_rd_atomic


def _out_of_credits(qp: QueuePair) -> bool:
    """Messages ahead of what the peer has receives for wait. IBA 9.7.7.2.5.

    With nothing under way one goes all the same, or a lost word of credits would stop all.
    """
    if qp.credit_limit is None or not qp.sq.in_flight:
        return False
    return serial.is_before(qp.credit_limit, serial.add(qp.sq.ssn, 1))


def begin(qp: QueuePair, wqe: Wqe) -> None:
    """Give work its PSNs and its memory; or the status that it ends with, and begin no other."""
    wqe.status = _prepare(qp, wqe)
    qp.sq.begin(wqe, _packets(qp, wqe))
    if wqe.status is not None:
        qp.halted = True


def _prepare(qp: QueuePair, wqe: Wqe) -> WCStatus | None:
    wr = wqe.wr
    if wqe.verb.local is Local.NONE:
        wqe.length = wr.length
        return None
    if wqe.flags & INLINE:
        wqe.source = Inline(wr.inline)
        wqe.length = wqe.source.length
    elif not _gathered(qp, wqe):
        return WCStatus.LOC_PROT_ERR
    longest = LONGEST_MESSAGE if qp.service.connected else qp.mtu
    return WCStatus.LOC_LEN_ERR if wqe.length > longest else None


def _gathered(qp: QueuePair, wqe: Wqe) -> bool:
    """Find the memory of work by its keys, if these allow what it does there."""
    sink = wqe.verb.local is Local.SINK
    memory = gather(qp.device.keys, qp.pd, wqe.wr.sges, LOCAL_WRITE if sink else 0)
    if isinstance(memory, KeyFault):
        return False
    wqe.length = memory.length
    if sink:
        wqe.sink = memory
    else:
        wqe.source = memory
    return True


def _packets(qp: QueuePair, wqe: Wqe) -> int:
    """How many PSNs work takes; what is not sent takes none."""
    if wqe.status is not None or wqe.verb.answer is Answer.NOTHING:
        return 0
    if wqe.verb.one_packet:
        return 1
    return max(-(-wqe.length // qp.mtu), 1)
