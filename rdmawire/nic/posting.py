"""What is checked when work is posted, before anything changes. ibv_post_send(3), ibv_post_recv(3).

Keys and addresses are not: an adapter finds out when it comes to them, and the work ends in error.
"""

from collections.abc import Callable
from errno import EINVAL, ENOMEM

from rdmawire.errors import VerbsError
from rdmawire.memory.argument import check_kind
from rdmawire.memory.fast import FastRegistration
from rdmawire.memory.mw import Bind, MemoryWindow
from rdmawire.memory.region import Region
from rdmawire.nic.address import check_address
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.service import SERVICES, ServiceType
from rdmawire.nic.state import QPState, QPType
from rdmawire.nic.work import (
    ATOMIC_SIZE,
    INLINE,
    VERBS,
    WRONG_KIND,
    BindMW,
    Local,
    RecvWR,
    RegMR,
    SendOpcode,
    SendWR,
    check_receive,
    check_sges,
)
from rdmawire.screen import shown
from rdmawire.wire.header import Header
from rdmawire.wire.ib import DETH, FETH, IETH, RETH, XRCETH, AtomicETH, ImmDt


def check_send(qp: QueuePair, wr: SendWR) -> None:
    """``VerbsError`` for work that the queue pair does not take; says what was found."""
    if not qp.takes_sends:
        raise VerbsError(f"QP {qp.number:#x} is in {qp.state.name}: sends need RTS", EINVAL)
    try:
        for rule in RULES[qp.type].get(wr.opcode, _NOT_HERE):
            rule(qp, wr)
    except WRONG_KIND as error:
        raise VerbsError(f"no send work: {shown(wr)}: {error}", EINVAL) from error
    queue = qp.sq
    if len(queue.posted) + len(queue.sent) >= qp.cap.max_send_wr:
        raise VerbsError(
            f"QP {qp.number:#x} holds {qp.cap.max_send_wr} sends already (max_send_wr)", ENOMEM
        )


def check_recv(qp: QueuePair, wr: RecvWR) -> None:
    """``VerbsError`` for a receive that the queue pair does not take."""
    if not qp.service.receives or qp.srq is not None:
        raise VerbsError(f"QP {qp.number:#x} has no receive queue of its own", EINVAL)
    if qp.state is QPState.RESET:
        raise VerbsError(f"QP {qp.number:#x} is in RESET: receives need INIT or later", EINVAL)
    check_receive(wr, qp.cap.max_recv_sge)
    if len(qp.rq) >= qp.cap.max_recv_wr:
        raise VerbsError(
            f"QP {qp.number:#x} holds {qp.cap.max_recv_wr} receives already (max_recv_wr)", ENOMEM
        )


def _name(wr: SendWR) -> str:
    return SendOpcode(wr.opcode).name if wr.opcode in VERBS else f"opcode {shown(wr.opcode)}"


def _refuse(qp: QueuePair, wr: SendWR) -> None:
    raise VerbsError(f"{_name(wr)} is not for queue pairs of type {qp.type.name}", EINVAL)


def _check_memory(qp: QueuePair, wr: SendWR) -> None:
    if wr.flags & INLINE:
        _check_inline(qp, wr)
    elif wr.inline:
        raise VerbsError(f"{len(wr.inline)} octets inline without SendFlags.INLINE", EINVAL)
    else:
        check_sges(wr.sges, qp.cap.max_send_sge)


def _check_inline(qp: QueuePair, wr: SendWR) -> None:
    if VERBS[wr.opcode].local is not Local.SOURCE:
        raise VerbsError(f"{_name(wr)} sends nothing that could stand inline", EINVAL)
    check_kind("inline", wr.inline, bytes)
    if len(wr.inline) > qp.cap.max_inline_data:
        found = len(wr.inline)
        raise VerbsError(f"{found} octets inline, max_inline_data {qp.cap.max_inline_data}", EINVAL)


class _Fits:
    """Checks that fields fit the headers that they travel in."""

    def __init__(self, widths: dict[str, int]) -> None:
        self.widths = widths

    def __call__(self, _: QueuePair, wr: SendWR) -> None:
        for name, bits in self.widths.items():
            value = getattr(wr, name)
            if not isinstance(value, int) or value >> bits:
                raise VerbsError(f"{name} {shown(value)} does not fit {bits} bits", EINVAL)


_WIDTHS: dict[type[Header], dict[str, int]] = {
    RETH: {"remote_address": 64, "rkey": 32},
    AtomicETH: {"remote_address": 64, "rkey": 32, "compare_add": 64, "swap": 64},
    ImmDt: {"imm_data": 32},
    IETH: {"invalidate_rkey": 32},
    DETH: {"remote_qpn": 24, "remote_qkey": 32},
    XRCETH: {"remote_srqn": 24},
    FETH: {"placement": 4, "selectivity": 2, "length": 32},
}
"""The fields of a work request that stand in each header, and how many bits they have there."""


def _check_eight(_: QueuePair, wr: SendWR) -> None:
    """Atomics take eight octets, and give eight. IBA 9.4.5, A19.3."""
    length = len(wr.inline) if wr.flags & INLINE else sum(size for _, size, _ in wr.sges)
    if length != ATOMIC_SIZE:
        raise VerbsError(f"{_name(wr)} is of {ATOMIC_SIZE} octets, found {length}", EINVAL)


def _check_handle(qp: QueuePair, wr: SendWR) -> None:
    if wr.ah is None:
        raise VerbsError("a datagram needs an address handle", EINVAL)
    if (wr.ah, wr.remote_qpn) not in qp.seals:
        check_address(wr.ah, qp.device.profile)


def _check_bind(_: QueuePair, wr: SendWR) -> None:
    if wr.bind is not None:
        check_kind("bind", wr.bind, BindMW)
        check_kind("window", wr.bind.window, MemoryWindow)
        check_kind("bind", wr.bind.bind, Bind)
        if wr.bind.region is not None:
            check_kind("region", wr.bind.region, Region)


def _check_registration(_: QueuePair, wr: SendWR) -> None:
    if wr.reg is not None:
        check_kind("reg", wr.reg, RegMR)
        for name, value, kind in zip(RegMR._fields, wr.reg, _OF_REGISTRATION, strict=True):
            check_kind(name, value, kind)


_OF_REGISTRATION = (Region, FastRegistration)


_Rule = Callable[[QueuePair, SendWR], None]


def _rules(service: ServiceType, opcode: SendOpcode) -> tuple[_Rule, ...]:
    """What one kind of work must pass in one service, in this order."""
    outbound = service.outbound.get(opcode)
    headers = outbound.layouts[outbound.only].headers if outbound else ()
    widths = {name: bits for h in headers for name, bits in _WIDTHS[h].items()}
    return (
        _check_memory,
        *((_Fits(widths),) if widths else ()),
        *((_check_eight,) if opcode in _OF_EIGHT else ()),
        *((_check_handle,) if DETH in headers else ()),
        *_LOCAL_RULES.get(opcode, ()),
    )


_OF_EIGHT = (
    SendOpcode.ATOMIC_CMP_AND_SWP,
    SendOpcode.ATOMIC_FETCH_AND_ADD,
    SendOpcode.ATOMIC_WRITE,
)

_LOCAL_RULES: dict[SendOpcode, tuple[_Rule, ...]] = {
    SendOpcode.BIND_MW: (_check_bind,),
    SendOpcode.REG_MR: (_check_registration,),
    SendOpcode.LOCAL_INV: (_Fits(_WIDTHS[IETH]),),
}
"""What work must pass that stays here."""

_NOT_HERE: tuple[_Rule, ...] = (_refuse,)

RULES: dict[QPType, dict[SendOpcode, tuple[_Rule, ...]]] = {
    kind: {op: _rules(service, op) for op in service.verbs} if service.sends else {}
    for kind, service in SERVICES.items()
}
"""What send work must pass, by queue pair type and opcode; what is not here is refused."""
