"""What is checked when work is posted, before anything changes. ibv_post_send(3), ibv_post_recv(3).

Keys and addresses are not: an adapter finds out when it comes to them, and the work ends in error.
"""

from collections.abc import Callable
from errno import EINVAL, ENOMEM

from rdmawire.errors import VerbsError
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.state import QPState
from rdmawire.nic.work import (
    ATOMIC_SIZE,
    VERBS,
    Answer,
    Local,
    RecvWR,
    SendFlags,
    SendOpcode,
    SendWR,
    Sge,
)

_SENDING = frozenset({QPState.RTS, QPState.SQD, QPState.SQE, QPState.ERR})


def check_send(qp: QueuePair, wr: SendWR) -> None:
    """``VerbsError`` for work that the queue pair does not take; says what was found."""
    for rule in _SEND_RULES:
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


def _check_state(qp: QueuePair, _: SendWR) -> None:
    if qp.state not in _SENDING:
        raise VerbsError(f"QP {qp.number:#x} is in {qp.state.name}: sends need RTS", EINVAL)


def _check_opcode(qp: QueuePair, wr: SendWR) -> None:
    if not qp.service.sends or wr.opcode not in qp.service.verbs:
        raise VerbsError(f"{_name(wr)} is not for queue pairs of type {qp.type.name}", EINVAL)


def _name(wr: SendWR) -> str:
    return SendOpcode(wr.opcode).name if wr.opcode in VERBS else f"opcode {wr.opcode!r}"


def _check_room(qp: QueuePair, _: SendWR) -> None:
    if len(qp.sq) >= qp.cap.max_send_wr:
        raise VerbsError(
            f"QP {qp.number:#x} holds {qp.cap.max_send_wr} sends already (max_send_wr)", ENOMEM
        )


def _check_memory(qp: QueuePair, wr: SendWR) -> None:
    if wr.flags & SendFlags.INLINE:
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


def _check_remote(_: QueuePair, wr: SendWR) -> None:
    for name, bits in _WIDTHS.items():
        value = getattr(wr, name)
        if not 0 <= value < 1 << bits:
            raise VerbsError(f"{name} {value} does not fit {bits} bits", EINVAL)


_WIDTHS = {
    "remote_address": 64,
    "rkey": 32,
    "imm_data": 32,
    "invalidate_rkey": 32,
    "compare_add": 64,
    "swap": 64,
    "remote_qpn": 24,
    "remote_qkey": 32,
    "remote_srqn": 24,
    "placement": 4,
    "selectivity": 2,
    "length": 32,
}
"""Fields of a work request that travel, and how many bits they have there."""


def _check_atomic(_: QueuePair, wr: SendWR) -> None:
    """Atomics take eight octets, and give eight. IBA 9.4.5, A19.3."""
    verb = VERBS[wr.opcode]
    if verb.answer is not Answer.ATOMIC and wr.opcode is not SendOpcode.ATOMIC_WRITE:
        return
    length = len(wr.inline) if wr.flags & SendFlags.INLINE else sum(s.length for s in wr.sges)
    if length != ATOMIC_SIZE:
        raise VerbsError(f"{_name(wr)} is of {ATOMIC_SIZE} octets, found {length}", EINVAL)


def _check_handle(qp: QueuePair, wr: SendWR) -> None:
    if qp.service.grh and wr.ah is None:
        raise VerbsError("a datagram needs an address handle", EINVAL)


_SEND_RULES: tuple[Callable[[QueuePair, SendWR], None], ...] = (
    _check_state,
    _check_opcode,
    _check_room,
    _check_memory,
    _check_remote,
    _check_atomic,
    _check_handle,
)
"""What send work must pass, in this order."""
