"""What the extended headers of a request say: one maker for each header table. IBA 5.2."""

from collections.abc import Callable

from rdmawire.memory.page import LAST_ADDRESS
from rdmawire.nic.profile import Bug
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.queue import Wqe
from rdmawire.nic.work import SendOpcode, SendWR
from rdmawire.wire.header import Header
from rdmawire.wire.ib import DETH, FETH, IETH, RETH, XRCETH, AtomicETH, ImmDt

OWN_QKEY = 1 << 31
"""A Q_Key with this bit stands for the queue pair's own. IBA 10.2.5."""

_Maker = Callable[[QueuePair, Wqe], Header]


def _reth(qp: QueuePair, wqe: Wqe) -> Header:
    """A READ goes on where its responses stopped: IBA 9.7.3.1.

    Past the last address, which only a peer with no memory there can make it do, it wraps.
    """
    done = wqe.answered * qp.mtu
    if wqe.wr.opcode is SendOpcode.ATOMIC_WRITE and _forgets_address(qp, wqe):
        return RETH(0, wqe.wr.rkey, wqe.length)
    return RETH(wqe.wr.remote_address + done & LAST_ADDRESS, wqe.wr.rkey, wqe.length - done)


def _forgets_address(qp: QueuePair, wqe: Wqe) -> bool:
    """Whether work is retransmitted without its address: ``Bug.ATOMIC_WRITE_FORGETS``."""
    return wqe.most_sent > 0 and Bug.ATOMIC_WRITE_FORGETS in qp.device.profile.bugs


def _atomiceth(_: QueuePair, wqe: Wqe) -> Header:
    wr = wqe.wr
    return AtomicETH(wr.remote_address, wr.rkey, *_OPERANDS[wr.opcode](wr))


_OPERANDS: dict[SendOpcode, Callable[[SendWR], tuple[int, int]]] = {
    SendOpcode.ATOMIC_CMP_AND_SWP: lambda wr: (wr.swap, wr.compare_add),
    SendOpcode.ATOMIC_FETCH_AND_ADD: lambda wr: (wr.compare_add, 0),
}
"""What stands as swap (or add) data and as compare data. IBA 5.2.8."""


def _deth(qp: QueuePair, wqe: Wqe) -> Header:
    qkey = wqe.wr.remote_qkey
    return DETH(qkey=qp.qkey if qkey & OWN_QKEY else qkey, srcqp=qp.number)


_MAKERS: dict[type[Header], _Maker] = {
    RETH: _reth,
    AtomicETH: _atomiceth,
    DETH: _deth,
    XRCETH: lambda _, wqe: XRCETH(xrcsrq=wqe.wr.remote_srqn),
    ImmDt: lambda _, wqe: ImmDt(wqe.wr.imm_data),
    IETH: lambda _, wqe: IETH(wqe.wr.invalidate_rkey),
    FETH: lambda _, wqe: FETH(sel=wqe.wr.selectivity, plt=wqe.wr.placement),
}


def extended(headers: tuple[type[Header], ...], qp: QueuePair, wqe: Wqe) -> bytes:
    """The octets of these headers, for this work."""
    return b"".join(_MAKERS[header](qp, wqe).build() for header in headers)
