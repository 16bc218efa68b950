"""The checks of a request, each named by what it checks, in the standard's order. IBA 9.7.4, 9.8.

Every check is a step: it gets the queue pair, the row of the request's opcode and the request, and
returns a :class:`~rdmawire.ib.service.Fault` or ``None``. Some store a result in ``qp.inbound`` for
later steps.
"""

from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import NO_MESSAGE, NO_RECEIVE
from rdmawire.ib.rules import SEND, RequestRule
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import Fault
from rdmawire.memory.key import FLUSH_GLOBAL, FLUSH_PERSISTENT, Access, KeyFault
from rdmawire.verbs.async_event import Denied
from rdmawire.verbs.sge import NOTHING, Piece, piece
from rdmawire.verbs.wr import ATOMIC_SIZE, LONGEST_MESSAGE
from rdmawire.wire import serial
from rdmawire.wire.ib import DETH, FETH, RETH, XRCETH, Placement, Selectivity


def check_psn_and_op_seq(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Check that the PSN is the expected one, and that the opcode may follow the last one.

    IBA 9.7.4.1.2 and 9.7.4.1.3: a message begins only between messages, and continues as it began.
    """
    inbound = qp.inbound
    if request.psn != inbound.epsn:
        behind = serial.distance(inbound.epsn, request.psn) < 0
        return Fault.DUPLICATE if behind else Fault.SEQUENCE
    return None if inbound.incoming.family is role.follows else Fault.OP_SEQUENCE


def check_psn_gap(qp: QueuePair, _: RequestRule, request: Arrival) -> Fault | None:
    """On services without ACKs, a gap in PSNs discards the message in progress. IBA 9.8.2.2.2."""
    if request.psn != qp.inbound.epsn:
        qp.counters.out_of_sequence += 1
        qp.inbound.skip_to(request.psn)
    return None


def check_op_seq(qp: QueuePair, role: RequestRule, _: Arrival) -> Fault | None:
    """A message continues as it began; a new one replaces the one in progress. IBA 9.8.2.2.1."""
    if role.begins:
        qp.inbound.incoming = NO_MESSAGE
    return None if qp.inbound.incoming.family is role.follows else Fault.OP_SEQUENCE


def check_op_valid(qp: QueuePair, role: RequestRule, _: Arrival) -> Fault | None:
    """The access flags of the queue pair allow the operation. IBA 9.7.4.1.4, 11.2.5.2."""
    return Fault.OP_VALID if role.access & ~qp.access else None


def check_shape(qp: QueuePair, _: RequestRule, request: Arrival) -> Fault | None:
    """The opcode is not reserved, and the operation allows a payload. IBA 9.7.4.1.4, 9.7.4.1.6."""
    if request.flow.malformed:
        return (
            Fault.LENGTH if request.flow.bth.opcode in qp.device.rules.opcodes else Fault.OP_VALID
        )
    return None


def check_xrcsrq(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Select the SRQ that the packet names; it must be in the same XRC domain. IBA A14.

    All packets of a message name the same SRQ, so its receive completes on the right one.
    """
    srq = qp.device.srqs.get(request.extended[role.places[XRCETH]].xrcsrq)
    if srq is None or srq.xrc is None or srq.xrc.domain != qp.xrc_domain:
        return Fault.OP_VALID
    if not role.begins and srq is not qp.srq:
        return Fault.OP_VALID
    qp.srq, qp.recv_cq = srq, srq.xrc.cq
    qp.pd = qp.recv_pd = srq.pd
    return None


def check_resource(qp: QueuePair, _: RequestRule, __: Arrival) -> Fault | None:
    """Take a receive for the message, unless a discarded message left one."""
    inbound = qp.inbound
    if inbound.recv is NO_RECEIVE:
        recv = qp.take_receive()
        if recv is None:
            return Fault.NOT_READY
        inbound.recv = recv
    return None


def check_rd_atomic(qp: QueuePair, _: RequestRule, __: Arrival) -> Fault | None:
    """The READs and atomics in progress are within the agreed limit. IBA 9.7.4.1.5.

    Replayed responses do not count: a peer that has all responses may send new requests while the
    network still delivers duplicates of old ones.
    """
    agreed = qp.max_dest_rd_atomic
    most = agreed + qp.device.profile.reads_beyond if agreed else 0
    return None if qp.inbound.owes_fewer(most) else Fault.RESOURCES


def check_length(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """First and middle packets are full, last ones neither empty nor too long. IBA 9.7.4.1.6."""
    length = len(request.payload)
    fits = length <= qp.mtu and (length or role.begins) if role.ends else length == qp.mtu
    if fits or (role.family is SEND and not qp.device.profile.checks_send_lengths):
        return None
    return Fault.LENGTH


def check_dmalen(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """RETH.dmalen equals an only packet's payload, exceeds a first one's, and is at most 2**31."""
    dmalen: int = request.extended[role.places[RETH]].dmalen
    length = len(request.payload)
    if dmalen == length:
        fits = role.ends or qp.device.profile.first_may_fit
    else:
        fits = length < dmalen and not role.ends
    return check_max_dmalen(qp, role, request) if fits else Fault.LENGTH


def check_max_dmalen(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """RETH.dmalen is at most 2**31 bytes. IBA 9.7.4.1.6."""
    asked: int = request.extended[role.places[RETH]].dmalen
    if asked <= LONGEST_MESSAGE or not qp.device.profile.limits_dmalen:
        return None
    return Fault.LENGTH


def check_message_length(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """The payload fits the length that the RETH announced, or the receive."""
    incoming = qp.inbound.incoming
    end = incoming.placed + len(request.payload)
    if end > incoming.limit:
        return role.family.too_long
    if role.ends and role.family.exact and end != incoming.limit:
        return Fault.LENGTH
    return None


def check_rkey(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """The R_Key allows access to all announced bytes; it is not checked if there are none."""
    reth = request.extended[role.places[RETH]]
    if not reth.dmalen:
        qp.inbound.target = NOTHING
        return None
    return _grant(qp, reth.rkey, reth.va, reth.dmalen, role.access)


def check_atomic_rkey(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """The R_Key allows access to eight bytes, aligned to eight. IBA 9.4.5, 9.7.4.1.4.

    The address in the region is aligned too: a zero-based window may begin at any offset in it.
    """
    header = request.extended[-1]  # AtomicETH or RETH
    if header.va % ATOMIC_SIZE:
        return Fault.MISALIGNED
    fault = _grant(qp, header.rkey, header.va, ATOMIC_SIZE, role.access)
    if fault is not None:
        return fault
    memory, va, *_ = qp.inbound.target
    return Fault.MISALIGNED if memory.place(va) % ATOMIC_SIZE else None


def check_flush_rkey(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """The R_Key allows the FLUSH; for a complete region no range is checked. IBA A19.4."""
    feth, reth = request.extended[role.places[FETH]], request.extended[role.places[RETH]]
    needed = sum(right for bit, right in _PLACEMENT_RIGHTS if feth.plt & bit)
    if not needed or needed & ~qp.access or feth.sel > max(Selectivity):
        return Fault.OP_VALID
    va, length = reth.va, reth.dmalen
    region = qp.device.keys.find(reth.rkey)
    if feth.sel == Selectivity.MEMORY_REGION and region is not None:
        va, length = region.iova, region.length
    return _grant(qp, reth.rkey, va, length, needed)


_PLACEMENT_RIGHTS = (
    (Placement.GLOBAL_VISIBILITY, FLUSH_GLOBAL),
    (Placement.PERSISTENCE, FLUSH_PERSISTENT),
)


def _grant(qp: QueuePair, rkey: int, va: int, length: int, access: int) -> Fault | None:
    granted = qp.device.keys.check(rkey, qp.pd, va, length, access, qp.qp_num)
    if isinstance(granted, KeyFault):
        qp.inbound.denied = Denied(rkey, va, length, Access(access), granted)
        return Fault.RKEY
    qp.inbound.target = piece(granted, va, length)
    return None


def access_fault(qp: QueuePair, target: Piece, access: int) -> Fault:
    """The fault of ``target``, whose access failed after its key had passed the check.

    An R_Key must allow every access made with it. After an invalidation, deregistration, new bind,
    or revocation of GPU memory it no longer does: Remote Access Error (IBA 9.7.4.1, 9.9.3, 10.6.5).
    If the key is still valid, its pages are missing: Remote Operational Error. ``access`` are the
    rights that were checked.
    """
    if target.holds:
        return Fault.OPERATIONAL
    _, va, length, _, key = target
    found = qp.device.keys.check(key, qp.pd, va, length, access, qp.qp_num)
    # A key that was changed refuses requests already in progress, even if it is valid again.
    reason = found if isinstance(found, KeyFault) else KeyFault.INVALIDATED
    qp.inbound.denied = Denied(key, va, length, Access(access), reason)
    return Fault.RKEY


def check_qkey(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """The Q_Key equals the queue pair's. IBA 9.6.1.4.1."""
    return None if request.extended[role.places[DETH]].qkey == qp.qkey else Fault.QKEY
