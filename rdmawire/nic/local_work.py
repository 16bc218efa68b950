"""Work that needs no packet: windows are bound, regions registered and keys invalidated, in turn.

IBA 10.8.3 (Bind Memory Window, Local Invalidate, Fast Register Physical MR).
"""

from collections.abc import Callable

from rdmawire.errors import VerbsError
from rdmawire.memory import fast, mw
from rdmawire.nic.completion import WCStatus
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.queue import Wqe
from rdmawire.nic.work import SendOpcode, SendWR


def do(qp: QueuePair, wqe: Wqe) -> None:
    """Do it; its status says how it went, and an error lets no other work begin."""
    wqe.status = _WORK[wqe.wr.opcode](qp, wqe.wr)
    if wqe.status is not WCStatus.SUCCESS:
        qp.halted = True


def _bind(qp: QueuePair, wr: SendWR) -> WCStatus:
    if wr.bind is None:
        return WCStatus.MW_BIND_ERR
    window, region, bind = wr.bind
    wanted = bind._replace(qpn=qp.number, pd=qp.pd)
    try:
        mw.bind_window(qp.device.keys, window, region, wanted)
    except VerbsError:
        return WCStatus.MW_BIND_ERR
    return WCStatus.SUCCESS


def _register(qp: QueuePair, wr: SendWR) -> WCStatus:
    """The region is of the queue pair's own domain, and free. IBA 10.6.4."""
    refused = qp.device.profile.memory_management_error
    if wr.reg is None or wr.reg.region.pd is not qp.pd:
        return refused
    region, registration = wr.reg
    try:
        fast.register_pages(qp.device.keys, qp.device.space, region, registration)
    except VerbsError:
        return refused
    return WCStatus.SUCCESS


def _invalidate(qp: QueuePair, wr: SendWR) -> WCStatus:
    fault = fast.invalidate(qp.device.keys, wr.invalidate_rkey, qp.pd, qp.number)
    return WCStatus.SUCCESS if fault is None else qp.device.profile.memory_management_error


_WORK: dict[SendOpcode, Callable[[QueuePair, SendWR], WCStatus]] = {
    SendOpcode.BIND_MW: _bind,
    SendOpcode.REG_MR: _register,
    SendOpcode.LOCAL_INV: _invalidate,
}
"""What each kind of local work does."""
