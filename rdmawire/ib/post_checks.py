"""Checks of the arguments of verbs, before anything changes: posted work, and objects.

Keys and addresses in posted work are not checked: the adapter checks them on use, and the work
completes with an error. ibv_post_send(3), ibv_post_recv(3).
"""

from collections.abc import Mapping, Sequence
from errno import EFAULT, EINVAL, ENOMEM
from itertools import takewhile
from operator import itemgetter
from typing import Final

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.ib.device import GSI_QPN, Device
from rdmawire.ib.encapsulation import check_medium
from rdmawire.ib.qp import IN_XRC_DOMAINS, QPInit, QueuePair
from rdmawire.ib.requester import EXTENDED_HEADERS
from rdmawire.ib.rules import ExtendedHeader, PostCheck
from rdmawire.ib.service import SERVICES, ServiceType
from rdmawire.memory.fast_reg import FastRegistration
from rdmawire.memory.mw import Bind, MemoryWindow
from rdmawire.memory.region import Region
from rdmawire.terminal import describe
from rdmawire.validate import (
    check_int,
    check_type,
)
from rdmawire.verbs.ah import check_address
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.qp_attr import QPCap, check_cap
from rdmawire.verbs.srq import SharedReceiveQueue, SRQType, XRCReceiver
from rdmawire.verbs.wr import (
    ATOMIC_SIZE,
    FENCE,
    INLINE,
    SIGNALED,
    SOLICITED,
    VERBS,
    WRONG_KIND,
    BindMW,
    Local,
    RecvWR,
    RegMR,
    SendFlags,
    SendOpcode,
    SendWR,
    Verb,
    check_receive,
    check_sges,
    posted_sges,
)
from rdmawire.wire.header import Header
from rdmawire.wire.ib import DETH, IETH
from rdmawire.wire.opcode import Operation


def check_send(qp: QueuePair, wr: SendWR) -> SendWR:
    """Check work, and return it as it is queued: its SGEs copied, or its inline bytes.

    Raises ``VerbsError`` for work that the queue pair does not accept.
    """
    if not qp.state_rules.post_send:
        raise VerbsError(f"QP {qp.qp_num:#x} is in {qp.state.name}: sends need RTS", EINVAL)
    try:
        if wr.sges.__class__ is not tuple:
            wr = wr._replace(sges=posted_sges(wr.sges))
        for check in qp.post_checks.get(wr.opcode, _NOT_HERE):
            check(qp, wr)
    except WRONG_KIND as error:
        raise VerbsError(f"no send work: {describe(wr)}: {error}", EINVAL) from error
    if qp.send_slots.held >= qp.cap.max_send_wr and qp.free_sends < 1:
        raise VerbsError(_full_of_sends(qp), ENOMEM)
    if wr.flags & INLINE and wr.sges:
        return _copied(qp, wr)
    return wr


def enqueue_short(qp: QueuePair, work: Sequence[SendWR]) -> int:
    """Queue SENDs, WRITEs and READs of one valid SGE each; return how many.

    Their flags, SGEs and numbers must be those that :func:`check_send` accepts. The state, the
    opcode and the free slots are checked here: it ends at the first that must be refused.
    """
    if not qp.state_rules.post_send or qp.cap.max_send_sge < 1:
        return 0
    free = qp.cap.max_send_wr - qp.send_slots.held
    if free < len(work):
        free = qp.free_sends
    checks = qp.post_checks
    for count, wr in enumerate(work):
        if count >= free or wr.opcode not in checks:
            return count
        qp.enqueue_send(wr)
    return len(work)


def enqueue_receives(qp: QueuePair, work: Sequence[RecvWR]) -> int:
    """Queue receives with valid SGEs; return how many.

    What :func:`check_recv` checks besides the SGEs is checked here: it ends at the first that must
    be refused.
    """
    if not qp.state_rules.post_recv or qp.srq is not None or not qp.service.receives:
        return 0
    free, most = qp.cap.max_recv_wr - qp.recv_slots.held, qp.cap.max_recv_sge
    if free < len(work):
        free = qp.free_receives
    if len(work) > free or not _all_fit(work, most):
        work = list(takewhile(lambda wr: len(wr.sges) <= most, work[: max(free, 0)]))
    qp.enqueue_receives(work)
    return len(work)


def _all_fit(work: Sequence[RecvWR], most: int) -> bool:
    """Whether no receive has more than ``most`` SGEs."""
    for wr in work:  # noqa: SIM110  all() of a generator takes twice as long for one receive
        if len(wr.sges) > most:
            return False
    return True


def _full_of_sends(qp: QueuePair) -> str:
    """The error text for a full send queue: the cause, and how to free slots."""
    under_way, slots = len(qp.sq), qp.send_slots
    silent = slots.held - under_way - slots.unpolled()
    reason = f"QP {qp.qp_num:#x} holds {qp.cap.max_send_wr} sends already (max_send_wr)"
    if slots.unpolled():
        done = f"{slots.unpolled()} completions and {silent} unsignalled sends hold slots"
        return f"{reason}: poll the CQ, {done}"
    if silent:
        return f"{reason}: {silent} unsignalled sends hold slots until one behind them is polled"
    return f"{reason}: {under_way} are under way"


def _copied(qp: QueuePair, wr: SendWR) -> SendWR:
    """Inline work with the bytes of its SGEs, which the CPU reads: no key is checked.

    Raises ``VerbsError`` EFAULT for unmapped memory, as a read by the caller would fault.
    """
    read = qp.device.space.read
    try:
        data = b"".join(read(address, length) for address, length, _ in wr.sges if length)
    except MemoryFault as fault:
        raise VerbsError(f"inline data cannot be read: {fault}", EFAULT) from fault
    return wr._replace(sges=(), inline=data)


def check_recv(qp: QueuePair, wr: RecvWR) -> RecvWR:
    """Return the receive as queued. Raises ``VerbsError`` if the queue pair does not accept it."""
    if not qp.service.receives or qp.srq is not None:
        raise VerbsError(f"QP {qp.qp_num:#x} has no receive queue of its own", EINVAL)
    if not qp.state_rules.post_recv:
        state = qp.state.name
        raise VerbsError(f"QP {qp.qp_num:#x} is in {state}: receives need INIT or later", EINVAL)
    wr = check_receive(wr, qp.cap.max_recv_sge)
    if qp.recv_slots.held >= qp.cap.max_recv_wr and qp.free_receives < 1:
        done = qp.recv_slots.unpolled()
        raise VerbsError(
            f"QP {qp.qp_num:#x} holds {qp.cap.max_recv_wr} receives already (max_recv_wr)"
            + (f": poll the CQ, {done} of them are done" if done else ""),
            ENOMEM,
        )
    return wr


def _name(wr: SendWR) -> str:
    return SendOpcode(wr.opcode).name if wr.opcode in VERBS else f"opcode {describe(wr.opcode)}"


def _refuse(qp: QueuePair, wr: SendWR) -> None:
    raise VerbsError(f"{_name(wr)} is not for queue pairs of type {qp.type.name}", EINVAL)


class _Usage:
    """The flags, memory and objects that one opcode in one service uses; others are refused.

    ``flags`` are the send flags in use; ``unused`` names the unused fields for memory and objects.
    Unused numbers are ignored, as in the unions of ibv_send_wr.
    """

    def __init__(self, flags: int, unused: tuple[str, ...]) -> None:
        self.misfits = ~flags
        self.unused = unused
        self.check = self._check_nothing if "sges" in unused else self._check_memory
        rare = sorted({*unused, "inline"})
        self.rare_flags = self.misfits | INLINE
        self.rare = itemgetter(*map(SendWR._fields.index, rare))
        self.nothing = tuple(SendWR._field_defaults[name] for name in rare)

    def _check_nothing(self, qp: QueuePair, wr: SendWR) -> None:
        """Raises ``VerbsError`` EINVAL for unused fields, memory included."""
        if wr.flags & self.rare_flags or self.rare(wr) != self.nothing:
            self._check_use(qp, wr)

    def _check_memory(self, qp: QueuePair, wr: SendWR) -> None:
        """Raises ``VerbsError`` EINVAL for unused fields, and for invalid SGEs."""
        if wr.flags & self.rare_flags or self.rare(wr) != self.nothing:
            self._check_use(qp, wr)
            if wr.inline or wr.flags & INLINE:
                _check_inline(qp, wr)
                return
        check_sges(wr.sges, qp.cap.max_send_sge)

    def _check_use(self, qp: QueuePair, wr: SendWR) -> None:
        _check_flags(qp, wr, wr.flags & self.misfits)
        _check_unused(qp, wr, self.unused)


def _check_flags(qp: QueuePair, wr: SendWR, misfits: int) -> None:
    if misfits & ~_ALL_FLAGS:
        known = ", ".join(f"{flag.value} {flag.name}" for flag in SendFlags)
        raise VerbsError(f"send flags {describe(wr.flags)}: there are only {known}", EINVAL)
    if misfits:
        names = ", ".join(str(flag.name) for flag in SendFlags if flag & misfits)
        reason = f"{names} means nothing for {_name(wr)} on a queue pair of {qp.type.name}"
        raise VerbsError(f"send flags {describe(wr.flags)}: {reason}", EINVAL)


def _check_unused(qp: QueuePair, wr: SendWR, unused: tuple[str, ...]) -> None:
    for name in unused:
        value: object = getattr(wr, name)
        if value or value == 0:  # ``None`` and empty values count as absent
            raise VerbsError(f"{_name(wr)} on {qp.type.name} uses no {name}", EINVAL)


_ALL_FLAGS: Final = sum(flag.value for flag in SendFlags)


def _flags_for(service: ServiceType, verb: Verb) -> int:
    """The send flags that apply to this work. ibv_post_send(3), IBA 10.8.3.3, 9.2.3.

    A LOCAL_INV may be fenced in every service (IBA 10.6.5.1).
    """
    fenced = service.reliable or verb.ends_use
    solicits = verb.takes_receive and service.wire is not None
    sends = verb.local is Local.SOURCE
    return SIGNALED | FENCE * fenced | SOLICITED * solicits | INLINE * sends


def _check_inline(qp: QueuePair, wr: SendWR) -> None:
    """Check inline data: ``inline``, or the memory that ``sges`` name."""
    if not wr.flags & INLINE:
        raise VerbsError(f"{len(wr.inline)} bytes inline without SendFlags.INLINE", EINVAL)
    check_type("inline", wr.inline, bytes)
    check_sges(wr.sges, qp.cap.max_send_sge)  # before lengths are summed
    if wr.inline and wr.sges:
        raise VerbsError("inline and sges are both given: use one of them", EINVAL)
    found = _length(wr)
    if found > qp.cap.max_inline_data:
        raise VerbsError(f"{found} bytes inline, max_inline_data {qp.cap.max_inline_data}", EINVAL)


def _length(wr: SendWR) -> int:
    """Length in bytes of local memory, or of inline data."""
    return len(wr.inline) or sum(length for _, length, _ in wr.sges)


class _Fits:
    """Checks that values fit their header fields."""

    def __init__(self, widths: dict[str, int]) -> None:
        self.places = [(SendWR._fields.index(name), bits) for name, bits in widths.items()]

    def __call__(self, _: QueuePair, wr: SendWR) -> None:
        for place, bits in self.places:
            value: object = wr[place]
            if not isinstance(value, int) or value >> bits:
                name = SendWR._fields[place]
                raise VerbsError(f"{name} {describe(value)} does not fit {bits} bits", EINVAL)


def _check_eight(_: QueuePair, wr: SendWR) -> None:
    """Atomics read and write eight bytes. IBA 9.4.5, A19.3."""
    length = _length(wr)
    if length != ATOMIC_SIZE:
        raise VerbsError(f"{_name(wr)} is of {ATOMIC_SIZE} bytes, found {length}", EINVAL)


def _check_handle(qp: QueuePair, wr: SendWR) -> None:
    if wr.ah is None:
        raise VerbsError("a datagram needs an address handle", EINVAL)
    if wr.pkey_index is not None:
        _check_pkey_index(qp, wr.pkey_index)
    if (wr.ah, wr.remote_qpn, wr.pkey_index) not in qp.templates:
        check_address(wr.ah, qp.device.profile)
        check_medium(wr.ah, qp.device.medium)


def _check_pkey_index(qp: QueuePair, index: int) -> None:
    """Queue pair 1 sends in any partition of the port, others in their own. IBA 10.9."""
    if qp.qp_num != GSI_QPN:
        raise VerbsError(f"QP {qp.qp_num:#x} has a P_Key of its own: no pkey_index", EINVAL)
    check_int("pkey_index", index, 0, qp.device.profile.pkey_tbl_len - 1)


def _check_bind(_: QueuePair, wr: SendWR) -> None:
    if wr.bind is not None:
        check_type("bind", wr.bind, BindMW)
        check_type("window", wr.bind.window, MemoryWindow)
        check_type("bind", wr.bind.bind, Bind)
        if wr.bind.region is not None:
            check_type("region", wr.bind.region, Region)


def _check_registration(_: QueuePair, wr: SendWR) -> None:
    if wr.reg is not None:
        check_type("reg", wr.reg, RegMR)
        for name, value, kind in zip(RegMR._fields, wr.reg, _OF_REGISTRATION, strict=True):
            check_type(name, value, kind)


_OF_REGISTRATION = (Region, FastRegistration)


def _check_known(qp: QueuePair, wr: SendWR) -> None:
    """Raises ``VerbsError`` for work that the device does not support."""
    if qp.verb_table[wr.opcode].only in qp.device.profile.unsupported:
        _refuse(qp, wr)


_LATE = (Operation.FLUSH, Operation.ATOMIC_WRITE)
"""Operations of annex A19, which a device may lack."""


def checks_of(
    service: ServiceType,
    opcode: int,
    verb: Verb,
    rows: Mapping[type[Header], ExtendedHeader] = EXTENDED_HEADERS,
) -> tuple[PostCheck, ...]:
    """The checks of one work request opcode in one service, in order.

    ``verb`` is how the work is done, ``rows`` how its extended transport headers are filled.
    """
    outbound = service.outbound.get(opcode)
    headers = outbound.headers if outbound else ()
    widths = {name: bits for h in headers for name, bits in rows[h].widths.items()}
    return (
        *((_check_known,) if verb.only in _LATE else ()),
        _Usage(_flags_for(service, verb), _unused(verb, headers, opcode)).check,
        *((_Fits(widths),) if widths else ()),
        *((_check_eight,) if opcode in _OF_EIGHT else ()),
        *((_check_handle,) if DETH in headers else ()),
        *_LOCAL_RULES.get(opcode, ()),
    )


def _unused(verb: Verb, headers: tuple[type[Header], ...], opcode: int) -> tuple[str, ...]:
    """The fields for memory and objects that this work does not use."""
    used = {
        "sges": verb.local is not Local.NONE,
        "inline": verb.local is Local.SOURCE,
        "ah": DETH in headers,
        "bind": opcode == SendOpcode.BIND_MW,
        "reg": opcode == SendOpcode.REG_MR,
        "pkey_index": DETH in headers,
    }
    return tuple(name for name, uses in used.items() if not uses)


_OF_EIGHT = (
    SendOpcode.ATOMIC_CMP_AND_SWP,
    SendOpcode.ATOMIC_FETCH_AND_ADD,
    SendOpcode.ATOMIC_WRITE,
)

_LOCAL_RULES: dict[int, tuple[PostCheck, ...]] = {
    SendOpcode.BIND_MW: (_check_bind,),
    SendOpcode.REG_MR: (_check_registration,),
    SendOpcode.LOCAL_INV: (_Fits({**EXTENDED_HEADERS[IETH].widths}),),
}
"""Checks of local work, by opcode."""

_NOT_HERE: tuple[PostCheck, ...] = (_refuse,)

POST_CHECKS: dict[QPType, dict[int, tuple[PostCheck, ...]]] = {
    kind: {op: checks_of(service, op, VERBS[op]) for op in service.verbs} if service.sends else {}
    for kind, service in SERVICES.items()
}
"""Checks of send work, by queue pair type and opcode; other opcodes are refused."""


# Objects given to verbs.


def check_qp(device: Device[QueuePair], qp: QueuePair) -> None:
    """Check that the queue pair exists and was not destroyed."""
    if not isinstance(qp, QueuePair) or device.qps.get(qp.qp_num) is not qp:
        raise _foreign("QP", qp)


def check_cq(device: Device[QueuePair], cq: CompletionQueue) -> None:
    """Check that the completion queue exists and was not destroyed."""
    if not isinstance(cq, CompletionQueue) or device.cqs.get(cq.number) is not cq:
        raise _foreign("CQ", cq)


def check_srq(device: Device[QueuePair], srq: SharedReceiveQueue) -> None:
    """Check that the SRQ exists and was not destroyed."""
    if not isinstance(srq, SharedReceiveQueue) or device.srqs.get(srq.number) is not srq:
        raise _foreign("SRQ", srq)


def check_receiver(device: Device[QueuePair], xrc: XRCReceiver | None) -> None:
    """Check the CQ and domain of an XRC SRQ; ``None`` for other SRQs."""
    if xrc is not None:
        check_type("xrc", xrc, XRCReceiver)
        device.xrcds.check(xrc.domain)
        check_cq(device, xrc.cq)


def check_init(device: Device[QueuePair], kind: QPType, wants: QPInit) -> None:
    """Check the objects and limits of a new queue pair of type ``kind``."""
    check_type("qp_init_attr", wants, QPInit)
    check_type("cap", wants.cap, QPCap)
    own = wants.srq is None and device.rules.services[kind].receives
    check_cap(wants.cap if own else wants.cap._replace(**_NO_RECEIVES), device.profile)
    device.memory.check_domain(wants.pd)
    check_cq(device, wants.send_cq)
    check_cq(device, wants.recv_cq)
    if wants.srq is not None:
        _check_shared(device, kind, wants.srq)
    check_int("xrc_domain", wants.xrc_domain)
    if kind in IN_XRC_DOMAINS:
        device.xrcds.check(wants.xrc_domain)


_NO_RECEIVES = {"max_recv_wr": 0, "max_recv_sge": 0}
"""Limits ignored for a queue pair without its own receive queue. ibv_create_qp(3)."""


def _check_shared(device: Device[QueuePair], kind: QPType, srq: SharedReceiveQueue) -> None:
    """Check that this type may receive from the SRQ. IBA 10.2.9, A14; ibv_create_qp(3)."""
    check_srq(device, srq)
    if not device.rules.services[kind].receives:
        raise VerbsError(f"{kind.name} queue pairs receive nothing, and have no SRQ", EINVAL)
    if srq.type is SRQType.XRC:
        raise VerbsError(f"SRQ {srq.number} is for XRC: messages name it, not queue pairs", EINVAL)


def _foreign(label: str, found: object) -> VerbsError:
    number = getattr(found, "qp_num" if isinstance(found, QueuePair) else "number", None)
    name = describe(found) if number is None else f"{label} {number:#x}"
    return VerbsError(f"{name} is no {label} of this adapter, or was destroyed", EINVAL)
