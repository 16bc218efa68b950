"""What is checked when work is posted, before anything changes. ibv_post_send(3), ibv_post_recv(3).

Keys and addresses are not: an adapter finds out when it comes to them, and the work ends in error.
"""

from collections.abc import Callable
from errno import EINVAL, ENOMEM

from rdmawire.errors import VerbsError
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.service import SERVICES, ServiceType
from rdmawire.nic.state import QPState, QPType
from rdmawire.nic.work import ATOMIC_SIZE, INLINE, VERBS, Local, RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire.header import Header
from rdmawire.wire.ib import DETH, FETH, IETH, RETH, XRCETH, AtomicETH, ImmDt


def check_send(qp: QueuePair, wr: SendWR) -> None:
    """``VerbsError`` for work that the queue pair does not take; says what was found."""
    if not qp.takes_sends:
        raise VerbsError(f"QP {qp.number:#x} is in {qp.state.name}: sends need RTS", EINVAL)
    rules = RULES[qp.type].get(wr.opcode)
    if rules is None:
        raise VerbsError(f"{_name(wr)} is not for queue pairs of type {qp.type.name}", EINVAL)
    for rule in rules:
        rule(qp, wr)


def check_recv(qp: QueuePair, wr: RecvWR) -> None:
    """``VerbsError`` for a receive that the queue pair does not take."""
    if not qp.service.receives or qp.srq is not None:
        raise VerbsError(f"QP {qp.number:#x} has no receive queue of its own", EINVAL)
    if qp.state is QPState.RESET:
        raise VerbsError(f"QP {qp.number:#x} is in RESET: receives need INIT or later", EINVAL)
    _check_sges(wr.sges, qp.cap.max_recv_sge)
    if len(qp.rq) >= qp.cap.max_recv_wr:
        raise VerbsError(
            f"QP {qp.number:#x} holds {qp.cap.max_recv_wr} receives already (max_recv_wr)", ENOMEM
        )


def _name(wr: SendWR) -> str:
    return SendOpcode(wr.opcode).name if wr.opcode in VERBS else f"opcode {wr.opcode!r}"


def _check_room(qp: QueuePair, _: SendWR) -> None:
    if len(qp.sq) >= qp.cap.max_send_wr:
        raise VerbsError(
            f"QP {qp.number:#x} holds {qp.cap.max_send_wr} sends already (max_send_wr)", ENOMEM
        )


def _check_memory(qp: QueuePair, wr: SendWR) -> None:
    if wr.flags & INLINE:
        _check_inline(qp, wr)
    else:
        _check_sges(wr.sges, qp.cap.max_send_sge)


def _check_inline(qp: QueuePair, wr: SendWR) -> None:
    if VERBS[wr.opcode].local is not Local.SOURCE:
        raise VerbsError(f"{_name(wr)} sends nothing that could stand inline", EINVAL)
    if len(wr.inline) > qp.cap.max_inline_data:
        found = len(wr.inline)
        raise VerbsError(f"{found} octets inline, max_inline_data {qp.cap.max_inline_data}", EINVAL)


def _check_sges(sges: tuple[Sge, ...], most: int) -> None:
    if len(sges) > most:
        raise VerbsError(f"{len(sges)} pieces of memory, at most {most} are allowed", EINVAL)
    for place, (address, length, _) in enumerate(sges):
        if not 0 <= length < 1 << 32 or not 0 <= address < 1 << 64:
            raise VerbsError(f"SGE {place}: {length} octets at {address:#x}, no such range", EINVAL)


class _Fits:
    """Checks that fields fit the headers that they travel in."""

    def __init__(self, widths: dict[str, int]) -> None:
        self.widths = widths

    def __call__(self, _: QueuePair, wr: SendWR) -> None:
        for name, bits in self.widths.items():
            value = getattr(wr, name)
            if not 0 <= value < 1 << bits:
                raise VerbsError(f"{name} {value} does not fit {bits} bits", EINVAL)


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
    length = len(wr.inline) if wr.flags & INLINE else sum(sge.length for sge in wr.sges)
    if length != ATOMIC_SIZE:
        raise VerbsError(f"{_name(wr)} is of {ATOMIC_SIZE} octets, found {length}", EINVAL)


def _check_handle(_: QueuePair, wr: SendWR) -> None:
    if wr.ah is None:
        raise VerbsError("a datagram needs an address handle", EINVAL)


_Rule = Callable[[QueuePair, SendWR], None]


def _rules(service: ServiceType, opcode: SendOpcode) -> tuple[_Rule, ...]:
    """What one kind of work must pass in one service, in this order."""
    outbound = service.outbound.get(opcode)
    headers = outbound.layouts[outbound.only].headers if outbound else ()
    widths = {name: bits for h in headers for name, bits in _WIDTHS[h].items()}
    return (
        _check_room,
        _check_memory,
        *((_Fits(widths),) if widths else ()),
        *((_check_eight,) if opcode in _OF_EIGHT else ()),
        *((_check_handle,) if DETH in headers else ()),
    )


_OF_EIGHT = (
    SendOpcode.ATOMIC_CMP_AND_SWP,
    SendOpcode.ATOMIC_FETCH_AND_ADD,
    SendOpcode.ATOMIC_WRITE,
)

RULES: dict[QPType, dict[SendOpcode, tuple[_Rule, ...]]] = {
    kind: {op: _rules(service, op) for op in service.verbs} if service.sends else {}
    for kind, service in SERVICES.items()
}
"""What send work must pass, by queue pair type and opcode; what is not here is refused."""
