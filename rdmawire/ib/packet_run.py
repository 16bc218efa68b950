"""Runs of packets with the same head, which are processed in one loop.

Frames that arrive together are often of one flow: middle packets of a WRITE, responses of a READ.
:data:`RUNS` has a loop for some request rules, by their steps, and :func:`run_for` chooses the one
of a flow. A loop does what the steps do for each packet, and updates state and counters once, at
its end. It ends before the first packet that is not the next of the run, or for which a step could
return a fault: that packet is processed alone. So a rule with another step, a READ response with
another handler, and a queue pair that examines each packet have no runs.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from struct import Struct

from isal.isal_zlib import crc32

from rdmawire.errors import MemoryFault
from rdmawire.ib import completer
from rdmawire.ib.execute import NO_DATAGRAM
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder import REQUESTS
from rdmawire.ib.responder_state import NO_RECEIVE
from rdmawire.ib.responses import keep
from rdmawire.ib.rules import IDLE, RequestRule, Step
from rdmawire.ib.rx_parser import Flow, Run
from rdmawire.ib.tx_template import ACKREQ, pack_word
from rdmawire.memory.key import LOCAL_WRITE, REMOTE_WRITE
from rdmawire.memory.region import Region
from rdmawire.verbs.enums import SUCCESS, QPState, QPType, WorkCompletion
from rdmawire.verbs.sge import Gather, Piece, write_run
from rdmawire.verbs.wr import Answer
from rdmawire.wire import serial
from rdmawire.wire.icrc import RESIDUE
from rdmawire.wire.opcode import Opcode, Part
from rdmawire.wire.serial import MODULUS

Way = tuple[QueuePair, RequestRule | None]
"""A queue pair that accepts a packet, and the row of the request (``None`` for a response)."""


def run_for(flow: Flow, ways: tuple[Way, ...]) -> Run | None:
    """Return the loop for packets of ``flow``, or ``None``: they are processed one by one."""
    if len(ways) != 1 or flow.marked:
        return None
    qp, role = ways[0]
    run = None if role is None else RUNS.get(role.steps)
    if run is take_writes:
        return run
    if flow.layout.read is not None:  # immediate data: the steps are those without it
        return None
    if role is not None:
        return run
    standard = qp.device.rules.responses.get(flow.opcode) is completer.read_responded
    return take_read_responses if standard and flow.shape.part is Part.MIDDLE else None


def take_middles(flow: Flow, frames: Sequence[bytes], start: int) -> int:
    """Process middle packets of a SEND or WRITE from ``start`` on; return how many."""
    qp, role = flow.ways[0]
    inbound = qp.inbound
    incoming = inbound.incoming
    if not _is_full(qp, flow) or incoming.family is not role.family or _examines(qp, flow):
        return 0
    count = min((incoming.limit - incoming.placed) // qp.mtu, len(frames) - start)
    if inbound.reads:
        keep(qp, incoming.sink, incoming.placed, count * qp.mtu)
    psns = serial.numbers(inbound.epsn, count)
    taken = _place(flow, frames, start, psns, incoming.sink, incoming.placed)
    if taken:
        incoming.placed += taken * qp.mtu
        inbound.epsn = serial.add(inbound.epsn, taken)
        inbound.refused = False
    return taken


def take_read_responses(flow: Flow, frames: Sequence[bytes], start: int) -> int:
    """Process middle READ responses from ``start`` on; return how many."""
    qp, _ = flow.ways[0]
    queue = qp.sq
    if not (queue.sent and _is_full(qp, flow)) or queue.broken:
        return 0
    wqe = queue.sent[0]
    if wqe.status is not None or wqe.verb.answer is not Answer.READ or not wqe.places:
        return 0
    count = min(wqe.packets - wqe.answered - 1, queue.in_flight, len(frames) - start)
    psns = serial.numbers(queue.unacked_psn, max(count, 0))
    taken = _place(flow, frames, start, psns, wqe.sink, wqe.answered * qp.mtu)
    if taken:
        completer.count_responses(qp, wqe, taken)
        qp.wake()
    return taken


def take_sends(flow: Flow, frames: Sequence[bytes], start: int) -> int:
    """Process SENDs of one packet from ``start`` on; return how many.

    Only for receives of the queue pair's own queue, with room for their completions, which no
    counter counts, and not while READs are pending: they may need the bytes that a SEND
    overwrites.
    """
    qp, role = flow.ways[0]
    inbound = qp.inbound
    busy = inbound.incoming.family is not IDLE or inbound.recv is not NO_RECEIVE or inbound.reads
    busy = busy or qp.completed is not None
    if busy or qp.srq is not None or qp.migrating or not qp.takes_packets or _examines(qp, flow):
        return 0
    length = flow.layout.pad - flow.layout.payload
    count = min(len(qp.rq), qp.recv_cq.room, len(frames) - start)
    if not 0 < length <= qp.mtu or count <= 0:
        return 0
    taken, ackreq = _place_sends(flow, frames, start, count, qp)
    if taken:
        _receive_sends(qp, role, taken, length)
        if ackreq & qp.ackreq:
            inbound.ack_due = True
            qp.wake()
    return taken


def _place_sends(
    flow: Flow, frames: Sequence[bytes], start: int, count: int, qp: QueuePair
) -> tuple[int, int]:
    """Write at most ``count`` SENDs to their receives; return how many, and their AckReq bits."""
    _, word, payload, pad, end, crc = flow.layout
    head, length = frames[start][:word], pad - payload
    check, pd = qp.device.keys.check, qp.recv_pd
    taken = asked = 0
    psns = serial.numbers(qp.inbound.epsn, count)
    for psn, frame, recv in zip(psns, islice(frames, start, None), qp.rq, strict=False):
        if frame.__class__ is not bytes or len(frame) != end or len(recv.sges) != 1:
            break
        (found,) = _read_word(frame, word)
        wrong = found % MODULUS != psn or frame[:word] != head
        if wrong or crc32(frame[word:], crc) != RESIDUE:
            break
        address, size, lkey = recv.sges[0]
        granted = check(lkey, pd, address, size, LOCAL_WRITE)
        if size < length or granted.__class__ is not Region or not granted.is_plain:
            break
        try:
            granted.write(address, frame[payload:pad])
        except MemoryFault:
            break
        asked |= found & ACKREQ
        taken += 1
    return taken, asked


def _receive_sends(qp: QueuePair, role: RequestRule, count: int, length: int) -> None:
    """Complete ``count`` receives of ``length`` bytes, and expect the next packet."""
    inbound = qp.inbound
    inbound.msn = serial.add(inbound.msn, count)
    inbound.epsn = serial.add(inbound.epsn, count)
    inbound.refused = False
    more: tuple[object, ...] = (
        SUCCESS,
        role.receipt,
        0,
        length,
        0,
        0,
        qp.qp_num,
        qp.dest_qp,
        qp.receive_flags,
    )
    more += NO_DATAGRAM
    popleft = qp.rq.popleft
    done = [_new(WorkCompletion, (popleft().wr_id, *more)) for _ in range(count)]
    cq = qp.recv_cq
    qp.recv_slots.reports[cq].extend(cq.push_all(done))
    qp.counters.rdma_recvs += count


def take_writes(flow: Flow, frames: Sequence[bytes], start: int) -> int:
    """Process WRITEs of one packet from ``start`` on; return how many.

    Not while READs are pending, which may need the bytes that a WRITE overwrites.
    """
    qp, role = flow.ways[0]
    inbound = qp.inbound
    busy = inbound.incoming.family is not IDLE or inbound.reads or qp.migrating
    if busy or role.access & ~qp.access or not qp.takes_packets or _examines(qp, flow):
        return 0
    if not 0 < flow.layout.pad - flow.layout.payload <= qp.mtu:
        return 0
    taken, ackreq = _place_writes(flow, frames, start, qp)
    if taken:
        qp.counters.rx_write_requests += taken
        inbound.msn = serial.add(inbound.msn, taken)
        inbound.epsn = serial.add(inbound.epsn, taken)
        inbound.refused = False
        if ackreq & qp.ackreq:
            inbound.ack_due = True
            qp.wake()
    return taken


def _place_writes(
    flow: Flow, frames: Sequence[bytes], start: int, qp: QueuePair
) -> tuple[int, int]:
    """Write the payloads of WRITEs; return how many, and their AckReq bits."""
    read, word, payload, pad, end, crc = flow.layout
    assert read is not None  # there is a RETH
    head, length, reth = frames[start][:word], pad - payload, word + 4
    check, pd, qpn = qp.device.keys.check, qp.pd, qp.qp_num
    taken = asked = 0
    psns = serial.numbers(qp.inbound.epsn, len(frames) - start)
    for psn, frame in zip(psns, islice(frames, start, None), strict=False):
        if frame.__class__ is not bytes or len(frame) != end:
            break
        (found,) = _read_word(frame, word)
        wrong = found % MODULUS != psn or frame[:word] != head
        if wrong or crc32(frame[word:], crc) != RESIDUE:
            break
        (header,) = read(frame, reth)
        va = header.va
        granted = check(header.rkey, pd, va, length, REMOTE_WRITE, qpn)
        if header.dmalen != length or granted.__class__ is not Region or not granted.is_plain:
            break
        try:
            granted.write(va, frame[payload:pad])
        except MemoryFault:
            break
        asked |= found & ACKREQ
        taken += 1
    return taken, asked


_new = tuple.__new__
_read_word = Struct(">I").unpack_from


def _is_full(qp: QueuePair, flow: Flow) -> bool:
    """Whether the queue pair accepts packets without examining their path, and these are full."""
    _, _, payload, pad, _, _ = flow.layout
    return qp.takes_packets and pad - payload == qp.mtu and not qp.migrating


def _examines(qp: QueuePair, flow: Flow) -> bool:
    """Whether a request tells the queue pair something new about its peer."""
    first = qp.state is QPState.RTR and not qp.established
    return first or flow.encapsulation != qp.request_encapsulation


def _place(  # noqa: PLR0917  once for each run
    flow: Flow,
    frames: Sequence[bytes],
    start: int,
    psns: Iterable[int],
    sink: Piece | Gather,
    offset: int,
) -> int:
    """Write payloads from ``offset`` on, while frames have these PSNs; return how many."""
    _, word, payload, pad, end, crc = flow.layout
    head = frames[start][:word]
    first, last = payload - word, pad - word
    payloads: list[memoryview] = []
    for psn, frame in zip(psns, islice(frames, start, None), strict=False):
        if frame.__class__ is not bytes or len(frame) != end:
            break  # the caller processes this frame alone, and reports the error
        rest = memoryview(frame)[word:]
        if frame[:payload] != head + pack_word(psn) or crc32(rest, crc) != RESIDUE:
            break
        payloads.append(rest[first:last])
    # The caller processes a packet whose payload cannot be written alone, and reacts to the fault.
    return write_run(sink, offset, payloads)


def _middles(kind: QPType, *opcodes: Opcode) -> dict[tuple[Step, ...], Run]:
    return {REQUESTS[kind][opcode].steps: take_middles for opcode in opcodes}


RUNS: dict[tuple[Step, ...], Run] = {
    **_middles(QPType.RC, Opcode.RC_SEND_MIDDLE, Opcode.RC_RDMA_WRITE_MIDDLE),
    **_middles(QPType.UC, Opcode.UC_SEND_MIDDLE, Opcode.UC_RDMA_WRITE_MIDDLE),
    REQUESTS[QPType.RC][Opcode.RC_SEND_ONLY].steps: take_sends,
    REQUESTS[QPType.RC][Opcode.RC_RDMA_WRITE_ONLY].steps: take_writes,
    REQUESTS[QPType.UC][Opcode.UC_RDMA_WRITE_ONLY].steps: take_writes,
    REQUESTS[QPType.UC][Opcode.UC_SEND_ONLY].steps: take_sends,
}
"""The loops of request rules, by the steps of the rule."""
