"""The requester: send work becomes request packets. IBA 9.7.1 to 9.7.3, 9.8.

It takes the work at the front of ``posted``, gives it PSNs, and sends its packets until a limit is
reached. A local error completes the work in order. It never sees a response: the completer moves
the queue, and the requester reads it.
"""

from collections.abc import Callable

from isal.isal_zlib import crc32

from rdmawire.errors import MemoryFault, PageFault, VerbsError
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import ExtendedHeader
from rdmawire.ib.send_queue import NO_PSN, Wqe
from rdmawire.ib.service import Outbound
from rdmawire.ib.tx_template import PADS, HeaderTemplate, TxTemplate, append_middles, pack_word
from rdmawire.memory import fast_reg, mw
from rdmawire.memory.key import LOCAL_WRITE, KeyFault
from rdmawire.memory.page import LAST_ADDRESS
from rdmawire.memory.region import Region
from rdmawire.verbs.enums import SUCCESS, WCStatus
from rdmawire.verbs.profile import Bug
from rdmawire.verbs.sge import Inline, Piece, gather, read_run
from rdmawire.verbs.wr import FENCE, INLINE, LONGEST_MESSAGE, Answer, Local, SendOpcode, SendWR
from rdmawire.wire import serial
from rdmawire.wire.header import Header
from rdmawire.wire.ib import DETH, FETH, IETH, RETH, XRCETH, AtomicETH, ImmDt
from rdmawire.wire.inet import Ethernet


def held(qp: QueuePair, wqe: Wqe) -> bool:
    """Whether work must not be started yet."""
    queue = qp.sq
    if not qp.begins or qp.halted:
        return True
    in_flight = queue.in_flight
    if in_flight and qp.local is not None and qp.local.may_send(wqe.wr.opcode):
        return True  # when all responses are here, it may need no packets
    if in_flight >= qp.packets_in_flight and qp.window_left(in_flight) <= 0:
        return True
    verb = wqe.verb
    if verb.ends_use and _in_use(qp, wqe):
        return True
    if (verb.takes_resource or queue.outstanding_reads) and _out_of_reads(qp, wqe):
        return True
    if (limit := qp.credit_limit) is None or not verb.takes_receive:
        return False
    # Out of credits, IBA 9.7.7.2.5. With nothing in flight one message is sent anyway: else the
    # loss of an ACK with new credits would stop the queue for ever.
    return in_flight > 0 and serial.is_before(limit, queue.ssn + 1)


def _in_use(qp: QueuePair, wqe: Wqe) -> bool:
    """Whether a fenced invalidation must wait for earlier work. IBA 10.6.5.1."""
    fenced = wqe.flags & FENCE or qp.device.profile.local_inv_waits
    return bool(fenced) and any(before.status is None for before in qp.sq.sent)


def _out_of_reads(qp: QueuePair, wqe: Wqe) -> bool:
    """Whether work waits for READs and atomics: after a fence (IBA 10.8.3.3), or at their limit."""
    under_way = qp.sq.outstanding_reads
    if under_way and wqe.flags & FENCE:
        return True
    if not wqe.verb.takes_resource:
        return False
    return under_way >= qp.max_rd_atomic or _beyond_half(qp, wqe)


def _beyond_half(qp: QueuePair, wqe: Wqe) -> bool:
    """Whether a READ's responses would leave over half of the PSN range in flight. IBA 9.7.1.

    Beyond that, retransmitted PSNs would be ahead of the PSN that the peer expects.
    """
    room = serial.HALF - qp.sq.in_flight
    if room >= LONGEST_MESSAGE // qp.mtu:
        return False
    size = sum(length for _, length, _ in wqe.wr.sges)
    return -(-size // qp.mtu) > room


def begin(qp: QueuePair, wqe: Wqe) -> None:
    """Find the memory of work and give it PSNs; or set its error status and start no other work."""
    status = _PREPARE[wqe.verb.local](qp, wqe)
    if status is None:
        qp.sq.begin(wqe, packets_of(wqe, qp.mtu))
    else:
        fail(qp, wqe, status)
        qp.sq.begin(wqe, 0)


def fail(qp: QueuePair, wqe: Wqe, status: WCStatus) -> None:
    """End the work with ``status``, in order, and start no other."""
    wqe.status = status
    qp.halted = True


def _prepare_source(qp: QueuePair, wqe: Wqe) -> WCStatus | None:
    """Find the memory or inline data to send."""
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
    """Find the memory that the response is written to."""
    memory = gather(qp.device.keys, qp.pd, wqe.wr.sges, LOCAL_WRITE)
    if isinstance(memory, KeyFault):
        return WCStatus.LOC_PROT_ERR
    wqe.sink = memory
    wqe.length = memory.length
    return None if memory.length <= LONGEST_MESSAGE else WCStatus.LOC_LEN_ERR


def _prepare_nothing(_: QueuePair, wqe: Wqe) -> WCStatus | None:
    """Take the length of a FLUSH from its work request; local work has length 0."""
    wqe.length = wqe.wr.length if wqe.verb.only else 0
    return None


_PREPARE: dict[Local, Callable[[QueuePair, Wqe], WCStatus | None]] = {
    Local.SOURCE: _prepare_source,
    Local.SINK: _prepare_sink,
    Local.NONE: _prepare_nothing,
    Local.INVALID: lambda _, __: WCStatus.LOC_QP_OP_ERR,
}
"""How each type of work finds its local memory."""


def packets_of(wqe: Wqe, mtu: int) -> int:
    """How many PSNs work uses; 0 if it needs no packet."""
    if wqe.length <= mtu or wqe.verb.one_packet:
        return wqe.verb.min_packets
    return -(-wqe.length // mtu)


def do_local_work(qp: QueuePair, wqe: Wqe) -> None:
    """Do work that needs no packet, and set its status; after an error no other work starts."""
    wqe.status = _WORK[wqe.wr.opcode](qp, wqe.wr)
    if wqe.status is not WCStatus.SUCCESS:
        qp.halted = True


def _bind(qp: QueuePair, wr: SendWR) -> WCStatus:
    if wr.bind is None:
        return WCStatus.MW_BIND_ERR
    window, region, bind = wr.bind
    wanted = bind._replace(qpn=qp.qp_num, pd=qp.pd)
    try:
        mw.bind_window(qp.device.keys, window, region, wanted)
    except VerbsError:
        return WCStatus.MW_BIND_ERR
    return WCStatus.SUCCESS


def _register(qp: QueuePair, wr: SendWR) -> WCStatus:
    """Register pages; the region must be free and in the queue pair's domain. IBA 10.6.4."""
    refused = qp.device.profile.memory_management_error
    if wr.reg is None or wr.reg.region.pd is not qp.pd:
        return refused
    region, registration = wr.reg
    try:
        fast_reg.register_pages(qp.device.keys, qp.device.space, region, registration)
    except VerbsError:
        return refused
    return WCStatus.SUCCESS


def _invalidate(qp: QueuePair, wr: SendWR) -> WCStatus:
    fault = fast_reg.invalidate(qp.device.keys, wr.invalidate_rkey, qp.pd, qp.qp_num)
    return WCStatus.SUCCESS if fault is None else qp.device.profile.memory_management_error


_WORK: dict[int, Callable[[QueuePair, SendWR], WCStatus]] = {
    SendOpcode.BIND_MW: _bind,
    SendOpcode.REG_MR: _register,
    SendOpcode.LOCAL_INV: _invalidate,
}
"""Handlers of local work, by opcode."""


OWN_QKEY = 1 << 31
"""The bit of a ``remote_qkey`` that selects the queue pair's own Q_Key. IBA 10.2.5."""


def _reth(qp: QueuePair, wqe: Wqe) -> Header:
    """Build the RETH; a retransmitted READ resumes after its last response: IBA 9.7.3.1.

    The address wraps at 2**64, which only happens if the peer has no memory there.
    """
    done = wqe.answered * qp.mtu
    if wqe.wr.opcode is SendOpcode.ATOMIC_WRITE and _forgets_address(qp, wqe):
        return RETH(0, wqe.wr.rkey, wqe.length)
    return RETH(wqe.wr.remote_address + done & LAST_ADDRESS, wqe.wr.rkey, wqe.length - done)


def _forgets_address(qp: QueuePair, wqe: Wqe) -> bool:
    """Whether work is retransmitted without its address: ``Bug.ATOMIC_WRITE_FORGETS``."""
    return wqe.max_sent > 0 and Bug.ATOMIC_WRITE_FORGETS in qp.device.profile.bugs


def _atomiceth(_: QueuePair, wqe: Wqe) -> Header:
    wr = wqe.wr
    return AtomicETH(wr.remote_address, wr.rkey, *OPERANDS[wr.opcode](wr))


OPERANDS: dict[int, Callable[[SendWR], tuple[int, int]]] = {
    SendOpcode.ATOMIC_CMP_AND_SWP: lambda wr: (wr.swap, wr.compare_add),
    SendOpcode.ATOMIC_FETCH_AND_ADD: lambda wr: (wr.compare_add, 0),
}
"""Swap (or add) data and compare data. IBA 5.2.8."""


def _deth(qp: QueuePair, wqe: Wqe) -> Header:
    qkey = wqe.wr.remote_qkey
    return DETH(qkey=qp.qkey if qkey & OWN_QKEY else qkey, srcqp=qp.qp_num)


EXTENDED_HEADERS: dict[type[Header], ExtendedHeader] = {
    RETH: ExtendedHeader(_reth, {"remote_address": 64, "rkey": 32}),
    AtomicETH: ExtendedHeader(
        _atomiceth, {"remote_address": 64, "rkey": 32, "compare_add": 64, "swap": 64}
    ),
    DETH: ExtendedHeader(_deth, {"remote_qpn": 24, "remote_qkey": 32}),
    XRCETH: ExtendedHeader.of(XRCETH, xrcsrq="remote_srqn"),
    ImmDt: ExtendedHeader.of(ImmDt, immdt="imm_data"),
    IETH: ExtendedHeader.of(IETH, rkey="invalidate_rkey"),
    FETH: ExtendedHeader(
        lambda _, wqe: FETH(sel=wqe.wr.selectivity, plt=wqe.wr.placement),
        {"placement": 4, "selectivity": 2, "length": 32},
    ),
}
"""How each extended transport header of requests is filled. The fields of a datagram's path and the
length of a FLUSH are checked with another header of the same packet."""


def extended(headers: tuple[type[Header], ...], qp: QueuePair, wqe: Wqe) -> bytes:
    """The bytes of ``headers`` for this work."""
    rows = qp.device.rules.headers
    return b"".join([rows[header].make(qp, wqe).build() for header in headers])


def send(qp: QueuePair, frames: list[bytes], room: int) -> None:
    """Append request frames to ``frames``, until it has ``room`` frames or no work can be sent."""
    queue = qp.sq
    posted = queue.posted
    while posted and len(frames) < room:
        wqe = posted[0]
        if wqe.psn == NO_PSN:
            if qp.local is not None and not queue.sent and qp.local.send_posted():
                continue
            if qp.local is None and _short_messages(qp, wqe, frames, room - len(frames)):
                continue
            if held(qp, wqe):
                break
            begin(qp, wqe)
        if wqe.status is None and not _done(qp, wqe, frames, room):
            break
        queue.sent.append(posted.popleft())
    qp.retire()
    qp.retry_state.start_ack_timer()


def _short_messages(qp: QueuePair, first: Wqe, frames: list[bytes], room: int) -> int:
    """Send new messages of one packet, with no extended header or a RETH, in one loop.

    Return how many: at most ``room``, from the work ``first`` on. The loop does what :func:`begin`
    and :func:`_message` do. It ends before work that must wait, or that may end with an error.
    """
    queue, service, verb, sges = qp.sq, qp.service, first.verb, first.wr.sges
    if len(sges) != 1 or sges[0][1] > qp.mtu:
        return 0
    plain = verb.answer is _ACK and verb.local is _SOURCE and not verb.ends_use
    if not (plain and service.connected and service.reliable and qp.begins) or qp.halted:
        return 0
    opcodes = service.outbound[first.wr.opcode]
    count = min(room, qp.window_left(queue.in_flight), _credits_left(qp, first))
    if opcodes.headers and not _has_reth(qp, opcodes):
        return 0
    if queue.outstanding_reads or count <= 0:
        return 0
    sent = _append_short(qp, first, opcodes, frames, count)
    if sent:
        queue.move_short(sent)
        qp.unasked = qp.ask_after
    return sent


def _has_reth(qp: QueuePair, opcodes: Outbound) -> bool:
    """Whether the only extended header is a RETH that is made as usual."""
    return opcodes.headers == _RETH and qp.device.rules.headers[RETH] is EXTENDED_HEADERS[RETH]


_RETH = (RETH,)
_ACK, _SOURCE = Answer.ACK, Local.SOURCE  # attribute lookups of enums take long


def _credits_left(qp: QueuePair, wqe: Wqe) -> int:
    """How many messages like this work the credits allow."""
    if (limit := qp.credit_limit) is None or not wqe.verb.takes_receive:
        return serial.HALF
    left = serial.span(qp.sq.ssn, limit)
    return left if left < serial.HALF else 0


def _append_short(
    qp: QueuePair, first: Wqe, opcodes: Outbound, frames: list[bytes], count: int
) -> int:
    """Append the frames of at most ``count`` messages like ``first``; return how many."""
    opcode, verb = first.wr.opcode, first.verb  # an invalid WQE in memory has another verb
    only, has_reth, more = opcodes.only, bool(opcodes.headers), b""
    reth, new_header = RETH.SIZE if has_reth else 0, _new_header
    ackreq, append, size_and_se = qp.ackreq, frames.append, (-1, 0)
    check, pd, mtu, head_of = qp.device.keys.check, qp.pd, qp.mtu, qp.request_template.head
    psns, before = serial.numbers(qp.sq.next_psn, count), len(frames)
    for psn, wqe in zip(psns, qp.sq.posted, strict=False):
        wr = wqe.wr
        new = wqe.psn == NO_PSN and wr.opcode == opcode and wqe.verb is verb
        if not new or wqe.status is not None or wqe.flags & INLINE or len(wr.sges) != 1:
            break
        address, length, lkey = wr.sges[0]
        granted = check(lkey, pd, address, length, 0)
        if not 0 < length <= mtu or granted.__class__ is not Region or not granted.is_plain:
            break
        try:
            payload = granted.read(address, length)
        except MemoryFault:
            break  # the caller sends it alone, and reacts to the fault
        wqe.source = _new(Piece, (granted, address, length, granted.generation, lkey))
        wqe.length, wqe.psn = length, psn
        if has_reth:
            header = new_header(RETH, (wr.remote_address, wr.rkey, length))
            more = header.build()
        if size_and_se != (length, wqe.se):
            size_and_se = length, wqe.se
            (head, crc), pad = head_of(only, reth + length, wqe.se), PADS[length & 3]
        tail = b"".join((pack_word(psn | ackreq), more, payload, pad))
        append(b"".join((head, tail, crc32(tail, crc).to_bytes(4, "little"))))
    return len(frames) - before


_new = tuple.__new__
_new_header: Callable[[type[RETH], tuple[int, ...]], RETH] = tuple.__new__  # type: ignore[assignment]


def _done(qp: QueuePair, wqe: Wqe, frames: list[bytes], room: int) -> bool:
    """Send packets of one WQE. Return whether all are sent, or an error prevents the rest."""
    try:
        senders = _SENDERS if qp.service.outbound else _RAW_SENDERS
        senders[wqe.verb.answer](qp, wqe, frames, room)
    except PageFault as fault:
        qp.page_wait.wait(fault.ready)
        return False
    except MemoryFault:
        fail(qp, wqe, WCStatus.LOC_PROT_ERR)
    if wqe.sent < wqe.packets:
        return wqe.status is not None
    if not qp.service.reliable and wqe.status is None:
        qp.sq.pass_by(wqe.packets)
        wqe.status = SUCCESS
    return True


def _message(qp: QueuePair, wqe: Wqe, frames: list[bytes], room: int) -> None:
    """Send packets of a SEND or WRITE."""
    service = qp.service
    opcodes = service.outbound[wqe.wr.opcode]
    template = qp.request_template if service.connected else qp.template_for(wqe.wr)
    if wqe.packets > 1:
        _packets(qp, wqe, opcodes, template, frames, room)
        return
    payload = wqe.source.read(0, wqe.length) if wqe.length else b""
    more = extended(opcodes.headers, qp, wqe) if opcodes.headers else b""
    qp.unasked = qp.ask_after
    qp.sq.advance(wqe, 1)
    frames.append(template.frame(opcodes.only, wqe.psn | qp.ackreq, more, payload, wqe.se))


def _packets(  # noqa: PLR0917  once a message
    qp: QueuePair, wqe: Wqe, opcodes: Outbound, template: TxTemplate, frames: list[bytes], room: int
) -> None:
    """Send packets of a message: middle packets in runs, others one by one."""
    last = wqe.packets - 1
    bare = not opcodes.layouts[opcodes.middle].headers  # XRC packets name their receive queue
    while wqe.sent <= last:
        left = min(room - len(frames), qp.window_at(wqe))
        if left <= 0:
            return
        run = min(left, last - wqe.sent, qp.unasked) if wqe.sent and bare else 0
        if run > 0:
            _middles(qp, wqe, template.head(opcodes.middle, qp.mtu), frames, run)
        else:
            frames.append(_packet(qp, wqe, opcodes, template))


def _middles(
    qp: QueuePair, wqe: Wqe, head: HeaderTemplate, frames: list[bytes], count: int
) -> None:
    """Send ``count`` full middle packets without AckReq."""
    before = len(frames)
    psns = serial.numbers(serial.add(wqe.psn, wqe.sent), count)
    try:
        payloads = read_run(wqe.source, wqe.sent * qp.mtu, qp.mtu, count)
        append_middles(frames, head, psns, payloads)
    finally:
        qp.sq.advance(wqe, len(frames) - before)
        qp.unasked -= len(frames) - before


def _packet(qp: QueuePair, wqe: Wqe, opcodes: Outbound, template: TxTemplate) -> bytes:
    """Build the next packet of a message."""
    index, last = wqe.sent, wqe.packets - 1
    ends = index == last
    opcode = opcodes.at(index, last)
    offset = index * qp.mtu
    length = min(qp.mtu, wqe.length - offset)
    payload = wqe.source.read(offset, length) if length else b""
    headers = opcodes.layouts[opcode].headers
    more = extended(headers, qp, wqe) if headers else b""
    word = serial.add(wqe.psn, index) | qp.ask(ends=ends)
    qp.sq.advance(wqe, 1)
    return template.frame(opcode, word, more, payload, wqe.se if ends else 0)


def _request(qp: QueuePair, wqe: Wqe, frames: list[bytes], _: int) -> None:
    """Send a READ, atomic or FLUSH: one packet that requests the responses still missing."""
    opcodes = qp.service.outbound[wqe.wr.opcode]
    payload = wqe.source.read(0, wqe.length) if wqe.verb.local is Local.SOURCE else b""
    more = extended(opcodes.headers, qp, wqe)
    word = serial.add(wqe.psn, wqe.answered) | qp.ask(ends=True)
    qp.sq.ask(wqe)
    qp.sq.advance(wqe, wqe.packets)
    frames.append(qp.request_template.request(opcodes.only, word, more, payload))


def _frame(qp: QueuePair, wqe: Wqe, frames: list[bytes], _: int) -> None:
    """Send a raw packet: the frame as it is in memory, if it has an Ethernet header."""
    if wqe.length < Ethernet.SIZE:
        fail(qp, wqe, WCStatus.LOC_LEN_ERR)
        return
    frames.append(bytes(wqe.source.read(0, wqe.length)))
    qp.sq.advance(wqe, 1)


_SENDERS: dict[Answer, Callable[[QueuePair, Wqe, list[bytes], int], None]] = {
    Answer.ACK: _message,
    Answer.READ: _request,
    Answer.ATOMIC: _request,
    Answer.NOTHING: lambda qp, wqe, _, __: do_local_work(qp, wqe),
}
_RAW_SENDERS = {Answer.ACK: _frame}
