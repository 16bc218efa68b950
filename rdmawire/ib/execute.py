"""What requests do after the checks: write memory, complete receives, add pending responses.

The last steps of a request. Each moves the expected PSN only when its work is done, so after a
failure the failed request is still the expected one.
"""

from collections.abc import Callable

from rdmawire.errors import MemoryFault, OwnerGone, PageFault
from rdmawire.ib.checks import access_fault
from rdmawire.ib.encapsulation import grh_of
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import (
    NO_MESSAGE,
    NO_RECEIVE,
    AtomicResponse,
    InboundMessage,
    ReadResponse,
    Resource,
)
from rdmawire.ib.responses import keep, keep_all
from rdmawire.ib.rules import RequestRule
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import Fault
from rdmawire.memory import fast_reg
from rdmawire.memory.key import LOCAL_WRITE, REMOTE_READ, KeyFault
from rdmawire.verbs.enums import SUCCESS, WCFlags, WorkCompletion
from rdmawire.verbs.sge import NOTHING, Gather, Piece, gather, scatter
from rdmawire.verbs.wr import ATOMIC_SIZE
from rdmawire.wire import serial
from rdmawire.wire.ib import DETH, FETH, IETH, RETH, AtomicETH, ImmDt, Selectivity
from rdmawire.wire.serial import MODULUS

_new = tuple.__new__


def open_receive(qp: QueuePair, role: RequestRule, _: Arrival) -> Fault | None:
    """Start a SEND: its payload goes to the SGEs of its receive."""
    inbound = qp.inbound
    sink = gather(qp.device.keys, qp.recv_pd, inbound.recv.sges, LOCAL_WRITE)
    if isinstance(sink, KeyFault):
        return Fault.LOCAL
    inbound.incoming = InboundMessage(role.family, sink, sink.length)
    return None


def open_target(qp: QueuePair, role: RequestRule, _: Arrival) -> Fault | None:
    """Start a WRITE: its payload goes to the memory that its R_Key allows."""
    qp.counters.rx_write_requests += 1
    target = qp.inbound.target
    qp.inbound.incoming = InboundMessage(role.family, target, target.length)
    return None


def place_whole(qp: QueuePair, _: RequestRule, request: Arrival) -> Fault | None:
    """Write the payload of a one-packet SEND to the SGEs of its receive."""
    if qp.inbound.reads:
        _keep_under_receive(qp, len(request.payload))
    try:
        placed = scatter(qp.device.keys, qp.recv_pd, qp.inbound.recv.sges, request.payload)
    except MemoryFault as fault:
        return _unless_paged(fault, Fault.LOCAL)
    if placed is True:
        return None
    return Fault.TOO_LONG if placed is False else Fault.LOCAL


def _keep_under_receive(qp: QueuePair, length: int) -> None:
    """Keep for pending READs the ``length`` bytes of the receive in use that a SEND overwrites."""
    sink = gather(qp.device.keys, qp.recv_pd, qp.inbound.recv.sges, LOCAL_WRITE)
    if not isinstance(sink, KeyFault):
        keep(qp, sink, 0, min(length, sink.length))


def place(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Write the payload to memory."""
    incoming = qp.inbound.incoming
    payload = request.payload
    if payload:
        if qp.inbound.reads:
            keep(qp, incoming.sink, incoming.placed, len(payload))
        try:
            incoming.sink.write(incoming.placed, payload)
        except MemoryFault as fault:
            return _unless_paged(fault, _sink_fault(qp, role, incoming.sink))
        incoming.placed += len(payload)
    return None


def _unless_paged(error: MemoryFault, fault: Fault) -> Fault:
    """Return the fault of a failed access: that of ``error``, if it has one, else ``fault``."""
    if isinstance(error, OwnerGone):
        return Fault.OWNER_GONE
    return Fault.PAGE_FAULT if isinstance(error, PageFault) else fault


def _sink_fault(qp: QueuePair, role: RequestRule, sink: Piece | Gather) -> Fault:
    """The fault of a failed write: of the R_Key for a WRITE, else of the receive's L_Keys."""
    if role.access and isinstance(sink, Piece):
        return access_fault(qp, sink, role.access)
    return Fault.LOCAL


def advance(qp: QueuePair, _: RequestRule, request: Arrival) -> Fault | None:
    """Expect the next packet, and schedule an ACK if AckReq is set and the service acknowledges."""
    inbound = qp.inbound
    inbound.epsn = (inbound.epsn + 1) % MODULUS
    inbound.refused = False
    if request.ackreq & qp.ackreq:
        inbound.ack_due = True
        qp.device.ready[qp] = None
    return None


def invalidate(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Invalidate the R_Key in the request's IETH. IBA 9.4.1.1.1."""
    rkey: int = request.extended[role.places[IETH]].rkey
    grant = qp.device.keys.find(rkey)
    if qp.inbound.reads and grant is not None:
        keep_all(qp, grant)
    fault = fast_reg.invalidate(qp.device.keys, rkey, qp.pd, qp.qp_num)
    return None if fault is None else Fault.INVALIDATE


def finish_whole(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Finish a one-packet SEND: complete its receive."""
    qp.inbound.msn = (qp.inbound.msn + 1) % MODULUS
    if not _receipt(qp, role, request, len(request.payload)):
        return None
    return advance(qp, role, request)


def finish(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Finish a message: complete its receive, if it uses one."""
    inbound = qp.inbound
    inbound.msn = serial.add(inbound.msn, 1)
    if role.receipt is not None and not _receipt(qp, role, request, inbound.incoming.placed):
        return None
    inbound.incoming = NO_MESSAGE
    return advance(qp, role, request)


def _receipt(qp: QueuePair, role: RequestRule, request: Arrival, length: int) -> bool:
    """Complete the receive in use, with ``length`` bytes in it.

    Return ``False`` if the CQ is full: the completion is lost and the queue pair has failed, so the
    message must not be acknowledged.
    """
    inbound = qp.inbound
    wr_id = inbound.recv.wr_id
    inbound.recv = NO_RECEIVE
    fields: tuple[object, ...]
    if role.plain:
        number, peer, flags = qp.qp_num, qp.dest_qp, qp.receive_flags
        fields = (wr_id, SUCCESS, role.receipt, 0, length, 0, 0, number, peer, flags)
        fields += NO_DATAGRAM
    else:
        fields = (wr_id, SUCCESS, role.receipt, 0, length, *_from_headers(qp, role, request))
    if not qp.report_receive(_new(WorkCompletion, fields), request.flow.solicited):
        return False
    qp.counters.rdma_recvs += 1
    return True


NO_DATAGRAM = tuple(WorkCompletion(0)[10:])


def _from_headers(qp: QueuePair, role: RequestRule, request: Arrival) -> tuple[object, ...]:
    """The fields of a completion from ``imm_data`` on, filled from the packet's headers."""
    imm = inv = 0
    flags = qp.receive_flags
    places = role.places
    if ImmDt in places:
        imm = request.extended[places[ImmDt]].immdt
        flags |= _WITH_IMM
    elif IETH in places:
        inv = request.extended[role.places[IETH]].rkey
        flags |= _WITH_INV
    if DETH not in places:
        return (imm, inv, qp.qp_num, qp.dest_qp, flags, *NO_DATAGRAM)
    src_qp = request.extended[places[DETH]].srcqp
    pkey_index = qp.pkey_index_of(request.flow.bth.pkey)
    if request.flow.local:
        flags &= ~_GRH
    return (imm, inv, qp.qp_num, src_qp, flags, pkey_index, *request.flow.origin)


_GRH = WCFlags.GRH.value
_WITH_IMM, _WITH_INV = WCFlags.WITH_IMM.value, WCFlags.WITH_INV.value


def page_in(qp: QueuePair, _: RequestRule, __: Arrival) -> Fault | None:
    """Bring in the pages that a READ names, if page faults take time in the device's profile."""
    target = qp.inbound.target
    if not (qp.device.profile.page_fault_ns and target.length):
        return None
    try:
        target.memory.fault_in(target.address, target.length)
    except PageFault:
        return Fault.PAGE_FAULT
    except MemoryFault:
        return None  # sending the response fails in the same way, and a NAK is sent
    return None


def queue_read(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Queue the responses of a READ. Memory is read when they are sent, or before it changes."""
    qp.counters.rx_read_requests += 1
    target = qp.inbound.target
    packets = max(-(-target.length // qp.mtu), 1)
    answer = ReadResponse(request.psn, _next_msn(qp), packets, target)
    asked = request.extended[role.places[RETH]]
    opcode = request.flow.bth.opcode
    return _respond(qp, role, answer, Resource(opcode, request.psn, packets, target.length, asked))


def compare_swap(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Replace eight bytes by the swap data if they equal the compare data. IBA 9.4.5.1."""
    eth = request.extended[role.places[AtomicETH]]
    memory, address, *_ = qp.inbound.target
    return _atomic(qp, role, request, lambda: memory.compare_swap(address, eth.cmpdt, eth.swapdt))


def fetch_add(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Add the add data to the eight bytes in memory. IBA 9.4.5.2."""
    eth = request.extended[role.places[AtomicETH]]
    memory, address, *_ = qp.inbound.target
    return _atomic(qp, role, request, lambda: memory.fetch_add(address, eth.swapdt))


def _atomic(
    qp: QueuePair, role: RequestRule, request: Arrival, operation: Callable[[], int]
) -> Fault | None:
    """Execute an atomic once, and keep its original value for the response and for duplicates."""
    _keep_under_target(qp)
    try:
        original = operation()
    except MemoryFault as fault:
        return _unless_paged(fault, Fault.OPERATIONAL)
    qp.counters.rx_atomic_requests += 1
    answer = AtomicResponse(request.psn, _next_msn(qp), original)
    opcode, eth = request.flow.bth.opcode, request.extended[role.places[AtomicETH]]
    return _respond(qp, role, answer, Resource(opcode, request.psn, 1, ATOMIC_SIZE, eth, original))


def atomic_write(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Write eight bytes atomically; the response has no payload. IBA A19.3."""
    _keep_under_target(qp)
    try:
        qp.inbound.target.write(0, request.payload)
    except MemoryFault as fault:
        return _unless_paged(fault, Fault.OPERATIONAL)
    qp.counters.rx_atomic_requests += 1
    return _respond_empty(qp, role, request)


def _keep_under_target(qp: QueuePair) -> None:
    """Keep for pending READs the bytes that an atomic or ATOMIC WRITE is about to change."""
    if qp.inbound.reads:
        keep(qp, qp.inbound.target, 0, ATOMIC_SIZE)


def flush(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Make earlier writes visible or persistent; the response has no payload. IBA A19.4.

    Host memory needs no action. For GPU memory mapped by a BAR1, a read pushes earlier posted
    writes. A named range must be present; a complete region may have absent pages.
    """
    target = qp.inbound.target
    try:
        if request.extended[role.places[FETH]].sel == Selectivity.MEMORY_REGION:
            target.memory.push(target.address)
        elif target.length:
            target.read(0, 1)
    except MemoryFault as fault:
        return _unless_paged(fault, Fault.OPERATIONAL)
    return _respond_empty(qp, role, request)


def _respond_empty(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Queue a response without payload. A duplicate of the request is not executed again."""
    answer = ReadResponse(request.psn, _next_msn(qp), 1, NOTHING)
    asked = request.extended[role.places[RETH]]
    return _respond(qp, role, answer, Resource(request.flow.bth.opcode, request.psn, 1, 0, asked))


def _next_msn(qp: QueuePair) -> int:
    """The MSN after the current message. IBA 9.7.7.1."""
    return serial.add(qp.inbound.msn, 1)


def _respond(
    qp: QueuePair, role: RequestRule, answer: ReadResponse | AtomicResponse, resource: Resource
) -> Fault | None:
    """Queue ``answer`` in order, and keep ``resource`` for duplicates of the request."""
    inbound = qp.inbound
    inbound.settle()
    by_ack = qp.device.profile.acks_newest and role.access != REMOTE_READ
    inbound.move_past(resource.packets, by_ack=by_ack)
    inbound.msn = _next_msn(qp)
    inbound.refused = False
    inbound.remember(resource, qp.max_dest_rd_atomic)
    inbound.queue_response(answer)
    qp.wake()
    return None


def place_datagram(qp: QueuePair, _: RequestRule, request: Arrival) -> Fault | None:
    """Write forty bytes for the GRH (IBA A17.4.4), then the payload. IBA 11.4.1.2."""
    incoming = qp.inbound.incoming
    data = grh_of(request.flow.headers) + request.payload
    if len(data) > incoming.limit:
        return Fault.TOO_LONG
    try:
        incoming.sink.write(0, data)
    except MemoryFault as fault:
        return _unless_paged(fault, Fault.LOCAL)
    incoming.placed = len(data)
    return None


def finish_datagram(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Complete the receive of a datagram; the completion names the sender."""
    _receipt(qp, role, request, qp.inbound.incoming.placed)
    qp.inbound.incoming = NO_MESSAGE
    return None
