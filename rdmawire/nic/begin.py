"""Before the first packet of work: what holds it back, and what it needs from here.

Work is begun in the order in which it was posted, and gets its PSNs then.
"""

from collections.abc import Callable

from rdmawire.memory.access import LOCAL_WRITE
from rdmawire.memory.grant import KeyFault
from rdmawire.nic.completion import WCStatus
from rdmawire.nic.gather import Inline, gather
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.queue import Wqe
from rdmawire.nic.work import FENCE, INLINE, LONGEST_MESSAGE, Local
from rdmawire.wire import psn as serial


def held(qp: QueuePair, wqe: Wqe) -> bool:
    """Whether work must not be begun yet."""
    queue = qp.sq
    if not qp.begins or qp.halted:
        return True
    in_flight = queue.in_flight
    if in_flight >= qp.packets_in_flight and qp.window_left(in_flight) <= 0:
        return True
    verb = wqe.verb
    if verb.ends_use and _in_use(qp, wqe):
        return True
    if (verb.takes_resource or queue.outstanding_reads) and _out_of_reads(qp, wqe):
        return True
    if (limit := qp.credit_limit) is None or not verb.takes_receive:
        return False
    # Out of credits, IBA 9.7.7.2.5. With nothing in flight one message goes all the same: else an
    # ACK with new credits that is lost would stop the queue for ever.
    return in_flight > 0 and serial.is_before(limit, queue.ssn + 1)


def _in_use(qp: QueuePair, wqe: Wqe) -> bool:
    """Behind a fence, a key is taken back when all work before is done. IBA 10.6.5.1."""
    fenced = wqe.flags & FENCE or qp.device.profile.local_inv_waits
    return bool(fenced) and any(before.status is None for before in qp.sq.sent)


def _out_of_reads(qp: QueuePair, wqe: Wqe) -> bool:
    """A fence waits for all READs and atomics (IBA 10.8.3.3); they wait for one another's room."""
    under_way = qp.sq.outstanding_reads
    if under_way and wqe.flags & FENCE:
        return True
    if not wqe.verb.takes_resource:
        return False
    return under_way >= qp.max_rd_atomic or _beyond_half(qp, wqe)


def _beyond_half(qp: QueuePair, wqe: Wqe) -> bool:
    """With a READ's responses, all in flight has to lie in one half of the circle. IBA 9.7.1.

    Else what is sent again would be ahead of what the peer expects.
    """
    room = serial.HALF - qp.sq.in_flight
    if room >= LONGEST_MESSAGE // qp.mtu:
        return False
    octets = sum(length for _, length, _ in wqe.wr.sges)
    return -(-octets // qp.mtu) > room


def begin(qp: QueuePair, wqe: Wqe) -> None:
    """Give work its memory and its PSNs; or the status that it ends with, and begin no other."""
    status = _PREPARE[wqe.verb.local](qp, wqe)
    if status is None:
        qp.sq.begin(wqe, packets_of(wqe, qp.mtu))
    else:
        fail(qp, wqe, status)
        qp.sq.begin(wqe, 0)


def fail(qp: QueuePair, wqe: Wqe, status: WCStatus) -> None:
    """The work ends with this in its turn, and no other begins."""
    wqe.status = status
    qp.halted = True


def _prepare_source(qp: QueuePair, wqe: Wqe) -> WCStatus | None:
    """Find what is to be sent."""
    if wqe.flags & INLINE:
        wqe.source = Inline(wqe.wr.inline)
    else:
        memory = gather(qp.device.keys, qp.pd, wqe.wr.sges, 0)
        if type(memory) is KeyFault:
            return WCStatus.LOC_PROT_ERR
        wqe.source = memory
    wqe.length = length = wqe.source.length
    if length <= qp.mtu or (qp.service.connected and length <= LONGEST_MESSAGE):
        return None
    return WCStatus.LOC_LEN_ERR


def _prepare_sink(qp: QueuePair, wqe: Wqe) -> WCStatus | None:
    """Find where the response goes."""
    memory = gather(qp.device.keys, qp.pd, wqe.wr.sges, LOCAL_WRITE)
    if isinstance(memory, KeyFault):
        return WCStatus.LOC_PROT_ERR
    wqe.sink = memory
    wqe.length = memory.length
    return None if memory.length <= LONGEST_MESSAGE else WCStatus.LOC_LEN_ERR


def _prepare_nothing(_: QueuePair, wqe: Wqe) -> WCStatus | None:
    """A FLUSH is for so many octets; work that is done here is for none, whatever it says."""
    wqe.length = wqe.wr.length if wqe.verb.only else 0
    return None


_PREPARE: dict[Local, Callable[[QueuePair, Wqe], WCStatus | None]] = {
    Local.SOURCE: _prepare_source,
    Local.SINK: _prepare_sink,
    Local.NONE: _prepare_nothing,
}
"""How work finds its local memory."""


def packets_of(wqe: Wqe, mtu: int) -> int:
    """How many PSNs work takes; what needs no packet takes none."""
    if wqe.length <= mtu or wqe.verb.one_packet:
        return wqe.verb.min_packets
    return -(-wqe.length // mtu)
