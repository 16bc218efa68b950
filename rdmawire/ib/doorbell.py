"""Work queues in memory, as the adapter sees them: doorbells, fetched WQEs, written CQEs.

A doorbell names a queue, whose doorbell record has the producer's index. The WQEs up to that index
are fetched, checked as posted work is, and queued in the same send or receive queue. The contents
of the memory are not trusted:

- an invalid WQE completes with ``LOC_QP_OP_ERR``, in order, and fails the queue pair;
- so does a WQE with an impossible index or length (later WQEs cannot be found, and no more are
  fetched until the queue pair is reset);
- a record that goes back or beyond the ring, and memory that cannot be read, fail the queue pair
  with the event ``QPFatal``;
- doorbells of queues that do not exist, or that may not be posted to, are discarded and counted.
"""

from collections.abc import Callable, Iterator
from errno import EINVAL, EOPNOTSUPP
from typing import Any, NoReturn

from rdmawire.errors import MemoryFault, VerbsError, WireError
from rdmawire.ib.device import Device
from rdmawire.ib.post_checks import check_recv, check_send
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.send_queue import Wqe
from rdmawire.memory.key import LOCAL_READ, LOCAL_WRITE, Access, ProtectionDomain
from rdmawire.validate import check_int, check_type
from rdmawire.verbs.async_event import Sink
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.sge import Piece, gather
from rdmawire.verbs.work_ring import blocks_of
from rdmawire.verbs.wqe import (
    BLOCK_SIZE,
    CONSUMER_INDEXES,
    CQE,
    INDEXES,
    UNIT_SIZE,
    CQDoorbellRecord,
    Doorbell,
    DoorbellRecord,
    DoorbellType,
    WQEControl,
    build_cqe,
    owner_of,
    parse_cqe,
    parse_recv,
    parse_send,
)
from rdmawire.verbs.wr import Answer, Local, RecvWR, SendOpcode, SendWR, Sge, Verb, check_sges

_INVALID = Verb(WCOpcode.SEND, local=Local.INVALID, answer=Answer.NOTHING)
"""An invalid WQE: it completes with an error, in order."""


class RingOverrun(Exception):
    """The producer's index went back, or beyond the ring."""


class QueueRing:
    """A ring of WQEs; ``fetched`` is the index after the last fetched one.

    In a ``broken`` ring the next WQE cannot be found; it is not read any more.
    """

    __slots__ = ("_record", "_ring", "blocks", "broken", "fetched")

    def __init__(self, ring: Piece, record: Piece) -> None:
        self.blocks = blocks_of(ring.length)
        self._ring = ring
        self._record = record
        self.reset()

    def reset(self) -> None:
        """Restart at block 0."""
        self.fetched = 0
        self.broken = False

    def take(self, row: str) -> Iterator[tuple[int, bytes]]:
        """Yield each new WQE with its index; empty bytes for one of invalid length.

        ``row`` is that of the doorbell record. ``MemoryFault`` if the memory cannot be read.
        """
        record = DoorbellRecord.parse(bytes(self._record.read(0, DoorbellRecord.SIZE)))
        ready = (getattr(record, row) - self.fetched) % INDEXES
        if ready > self.blocks:
            raise RingOverrun
        while ready and not self.broken:
            index = self.fetched
            wqe = self._read(index, BLOCK_SIZE)
            control = WQEControl.parse(wqe)
            size = control.units * UNIT_SIZE
            blocks = -(-size // BLOCK_SIZE)
            if control.wqe_index != index or not 0 < blocks <= ready:
                self.broken = True
                yield index, b""
                return
            self.fetched = (index + blocks) % INDEXES
            ready -= blocks
            yield index, wqe[:size] if blocks == 1 else self._read(index, size)

    def _read(self, index: int, size: int) -> bytes:
        """Read ``size`` bytes from block ``index`` on, wrapping at the end of the ring."""
        offset = index % self.blocks * BLOCK_SIZE
        head = min(size, self._ring.length - offset)
        data = bytes(self._ring.read(offset, head))
        return data if head == size else data + bytes(self._ring.read(0, size - head))


class MemoryCompletionQueue(CompletionQueue):
    """A completion queue whose CQEs are written to ``ring``; ``record`` is its doorbell record.

    It overruns if its consumer's index leaves no room, and if the memory cannot be written.
    """

    __slots__ = ("_pushed", "_record", "_ring", "_size", "_taken")

    def __init__(
        self, ring: Piece, record: Piece, number: int, cqe: int, sink: Sink, **more: Any
    ) -> None:
        """``more`` are further arguments of :class:`CompletionQueue`."""
        self._pushed = self._taken = 0
        self._ring, self._record, self._size = ring, record, cqe
        super().__init__(number, cqe, sink, **more)
        for index in range(cqe):
            ring.write(index * CQE.SIZE, CQE().build())  # not written yet: the owner bit is 0
        record.write(0, CQDoorbellRecord().build())
        record.read(0, 1)  # so that in GPU memory it does not become visible after the first poll

    @property
    def polled(self) -> int:
        """Number of consumed completions, from the doorbell record if that is valid."""
        try:
            record = CQDoorbellRecord.parse(bytes(self._record.read(0, CQDoorbellRecord.SIZE)))
        except MemoryFault:
            return self._taken
        taken = self._taken + (record.consumer_index - self._taken) % CONSUMER_INDEXES
        if taken <= self._pushed:
            self._taken = taken
        return self._taken

    @polled.setter
    def polled(self, count: int) -> None:
        self._taken = count

    def __len__(self) -> int:
        return self._pushed - self.polled

    @property
    def room(self) -> int:
        """0: completions are written one by one."""
        return 0

    def push(self, completion: WorkCompletion, now: int, solicited: bool = False) -> int:
        if self.broken or (self._pushed - self._taken >= self._size and len(self) >= self._size):
            self._overrun()
            return 0
        index = self._pushed
        try:
            cqe = build_cqe(completion, owner_of(index, self._size))
            self._ring.write(index % self._size * CQE.SIZE, cqe)
        except MemoryFault:
            self._overrun()
            return 0
        self._pushed += 1
        if self._armed:
            self._tell(now, solicited or completion.status != 0)
        return self._pushed

    def poll(self, most: int) -> list[WorkCompletion]:
        """Return at most ``most`` of the oldest completions, as a program polling the ring does."""
        check_int("num_entries", most)
        first = self.polled
        try:
            count = min(most, self._pushed - first)
            done = [parse_cqe(self._read(first + index)) for index in range(count)]
            consumed = CQDoorbellRecord(consumer_index=(first + count) % CONSUMER_INDEXES)
            self._record.write(0, consumed.build())
        except MemoryFault:
            self._overrun()
            return []
        return done

    def _read(self, index: int) -> CQE:
        return CQE.parse(bytes(self._ring.read(index % self._size * CQE.SIZE, CQE.SIZE)))

    def resize(self, cqe: int) -> NoReturn:  # noqa: ARG002
        """``VerbsError`` EOPNOTSUPP: the size is that of the memory."""
        raise VerbsError(f"CQ {self.number} is in memory and keeps its size", EOPNOTSUPP)


def queue_memory(  # noqa: PLR0917
    device: Device[QueuePair],
    pd: ProtectionDomain | None,
    name: str,
    sge: Sge,
    access: int,
    align: int,
) -> Piece:
    """Return the memory of a queue. ``pd`` is its domain; with ``None``, that of the key.

    ``VerbsError`` EINVAL for an invalid key, range or alignment, and for on-demand regions: an
    adapter must not wait for their pages.
    """
    check_type(name, sge, Sge)
    check_sges((sge,), 1)
    grant = device.keys.find(sge.lkey)
    domain = pd if pd is not None or grant is None else grant.pd
    found = None if domain is None else gather(device.keys, domain, (sge,), access)
    if not isinstance(found, Piece):
        reason = "no memory" if found is None or not sge.length else getattr(found, "name", found)
        raise VerbsError(f"{name}: {sge}: {reason}", EINVAL)
    if found.memory.access & Access.ON_DEMAND:
        raise VerbsError(f"{name}: region {sge.lkey:#x} is on demand: pin it", EINVAL)
    if sge.address % align:
        raise VerbsError(f"{name}: {sge.address:#x} is not aligned to {align} bytes", EINVAL)
    return found


def work_rings(
    device: Device[QueuePair],
    init: QPInit,
    sq_buffer: Sge | None,
    rq_buffer: Sge | None,
    doorbell_record: Sge | None,
) -> tuple[QueueRing | None, QueueRing | None]:
    """Return the rings of a queue pair's queues in memory, and clear their doorbell record.

    ``VerbsError`` EINVAL for buffers without a record, a record without buffers, and memory that
    :func:`queue_memory` refuses.
    """
    if doorbell_record is None:
        if sq_buffer is not None or rq_buffer is not None:
            raise VerbsError("sq_buffer and rq_buffer need a doorbell_record", EINVAL)
        return None, None
    if sq_buffer is None and rq_buffer is None:
        raise VerbsError("a doorbell_record needs an sq_buffer or rq_buffer", EINVAL)
    record = _record(device, init.pd, doorbell_record)

    def ring(name: str, sge: Sge | None, size: str) -> QueueRing | None:
        if sge is None:
            return None
        memory = queue_memory(device, init.pd, name, sge, LOCAL_READ, BLOCK_SIZE)
        found, room = QueueRing(memory, record), getattr(init.cap, size)
        if found.blocks > room:
            raise VerbsError(f"{name} holds {found.blocks} WQEs, {size} is {room}", EINVAL)
        return found

    if rq_buffer is not None and init.srq is not None:
        raise VerbsError("a queue pair with an SRQ has no receive queue for rq_buffer", EINVAL)
    send = ring("sq_buffer", sq_buffer, "max_send_wr")
    receive = ring("rq_buffer", rq_buffer, "max_recv_wr")
    record.write(0, DoorbellRecord().build())
    record.read(0, 1)  # so that in GPU memory it does not become visible after the first WQEs
    return send, receive


def _record(device: Device[QueuePair], pd: ProtectionDomain | None, sge: Sge) -> Piece:
    size = DoorbellRecord.SIZE
    record = queue_memory(device, pd, "doorbell_record", sge, LOCAL_WRITE, size)
    if record.length != size:
        raise VerbsError(f"doorbell_record has {record.length} bytes, not {size}", EINVAL)
    return record


def completion_memory(
    device: Device[QueuePair], cqe: int, buffer: Sge | None, record: Sge | None
) -> tuple[Piece, Piece]:
    """The ring and the doorbell record of a completion queue for ``cqe`` completions.

    ``VerbsError`` EINVAL for one without the other, for a ring of another size, for a size that is
    no power of two, and for memory that :func:`queue_memory` refuses.
    """
    if buffer is None or record is None:
        raise VerbsError("cq_buffer and doorbell_record are given together", EINVAL)
    ring = queue_memory(device, None, "cq_buffer", buffer, LOCAL_WRITE, CQE.SIZE)
    if ring.length != cqe * CQE.SIZE or cqe & (cqe - 1):
        reason = f"{cqe} CQEs of {CQE.SIZE} bytes, and their number a power of two"
        raise VerbsError(f"cq_buffer has {ring.length} bytes: it must have {reason}", EINVAL)
    return ring, _record(device, None, record)


class Doorbells:
    """The queues of one adapter that are in memory, and the handling of doorbells.

    ``discarded`` counts the doorbells that named no queue which accepts work.
    """

    def __init__(self, device: Device[QueuePair]) -> None:
        self.discarded = 0
        self._device = device
        self._sends: dict[int, QueueRing] = {}
        self._receives: dict[int, QueueRing] = {}

    def add(self, qpn: int, send: QueueRing | None, receive: QueueRing | None) -> None:
        """Take work for a queue pair from these rings."""
        if send is not None:
            self._sends[qpn] = send
        if receive is not None:
            self._receives[qpn] = receive

    def remove(self, qpn: int) -> None:
        """Forget the buffers of a queue pair."""
        self._sends.pop(qpn, None)
        self._receives.pop(qpn, None)

    def reset(self, qpn: int) -> None:
        """Restart at the first blocks: the queue pair is in RESET."""
        for rings in (self._sends, self._receives):
            if qpn in rings:
                rings[qpn].reset()

    def ring(self, doorbell: bytes) -> None:
        """Execute a doorbell. Invalid bytes raise no error."""
        bell = Doorbell.parse(doorbell) if len(doorbell) == Doorbell.SIZE else Doorbell()
        action = _ACTIONS.get(bell.type)
        if action is None or not action(self, bell.number):
            self.discarded += 1

    def _send(self, qpn: int) -> bool:
        """Queue the new work of a send queue; ``False`` if it may not be posted now."""
        qp, ring = self._device.qps.get(qpn), self._sends.get(qpn)
        if qp is None or ring is None or not qp.state_rules.post_send:
            return False
        return self._take(qp, ring, "send_index", self._take_send)

    def _receive(self, qpn: int) -> bool:
        """Queue the new receives of a receive queue; ``False`` if they may not be posted now."""
        qp, ring = self._device.qps.get(qpn), self._receives.get(qpn)
        if qp is None or ring is None or not qp.state_rules.post_recv:
            return False
        return self._take(qp, ring, "recv_index", self._take_receive)

    @staticmethod
    def _take(
        qp: QueuePair, ring: QueueRing, row: str, take: Callable[[QueuePair, int, bytes], None]
    ) -> bool:
        if ring.broken:
            return False
        try:
            for index, wqe in ring.take(row):
                take(qp, index, wqe)
        except (MemoryFault, RingOverrun):
            ring.broken = True
            qp.lose()
        return True

    def _take_send(self, qp: QueuePair, index: int, wqe: bytes) -> None:
        if qp.free_sends < 1:
            raise RingOverrun
        try:
            _check_border(qp, wqe)
            wr = check_send(qp, parse_send(wqe, qp.type, self._device.keys.find))
        except (VerbsError, WireError):
            post_invalid(qp, index)
        else:
            qp.enqueue_send(wr)

    def _take_receive(self, qp: QueuePair, index: int, wqe: bytes) -> None:
        if qp.free_receives < 1:
            raise RingOverrun
        try:
            _check_border(qp, wqe)
            wr = check_recv(qp, parse_recv(wqe))
        except (VerbsError, WireError):
            post_invalid_receive(qp, index)
        else:
            qp.enqueue_recv(wr)

    def _arm(self, number: int) -> bool:
        return self._request(number, solicited_only=False)

    def _arm_solicited(self, number: int) -> bool:
        return self._request(number, solicited_only=True)

    def _request(self, number: int, *, solicited_only: bool) -> bool:
        cq = self._device.cqs.get(number)
        if cq is not None:
            cq.req_notify(solicited_only)
        return cq is not None


_ACTIONS: dict[int, Callable[[Doorbells, int], bool]] = {
    DoorbellType.SEND: Doorbells._send,
    DoorbellType.RECV: Doorbells._receive,
    DoorbellType.ARM: Doorbells._arm,
    DoorbellType.ARM_SOLICITED: Doorbells._arm_solicited,
}
"""Handlers of doorbells, by type; they return ``False`` if the queue accepts no work."""


def _check_border(qp: QueuePair, wqe: bytes) -> None:
    """``WireError`` for a WQE that is empty, and for one of another queue pair."""
    if WQEControl.parse(wqe).qpn != qp.qp_num:
        raise WireError(f"a WQE of another queue pair in the queue of {qp.qp_num:#x}")


def post_invalid(qp: QueuePair, wr_id: int) -> None:
    """Queue an invalid WQE: it completes with an error, in order.

    In a state in which sends are not posted it completes at once, and the state stays the same:
    IBA 11.4.1.1.
    """
    wr = SendWR(SendOpcode.SEND, wr_id=wr_id)
    if not qp.state_rules.post_send:
        qp.send_slots.held += 1
        qp.complete_send(Wqe(wr, qp.verb_table), WCStatus.LOC_QP_OP_ERR)
        return
    qp.enqueue_send(wr)
    if not qp.state_rules.flush_send:
        qp.sq.posted[-1].verb = _INVALID


def post_invalid_receive(qp: QueuePair, wr_id: int) -> None:
    """Complete an invalid receive with an error, after the receives before it are flushed."""
    slots = qp.recv_slots if qp.srq is None else qp.srq.slots
    slots.held += 1  # as its completion frees one
    qp.lose()
    qp.complete_receive(RecvWR(wr_id=wr_id), WCStatus.LOC_QP_OP_ERR)
