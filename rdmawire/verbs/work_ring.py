"""Application side of queues in memory: posts WQEs and polls CQEs.

These are the steps of a GPU kernel or a driver, in the required order. The adapter's side is in
:mod:`rdmawire.ib.doorbell`; both use the layout of :mod:`rdmawire.verbs.wqe`.
"""

from collections import deque
from collections.abc import Iterator
from errno import EINVAL, ENOMEM, EOPNOTSUPP
from typing import Any, NoReturn, Protocol

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.validate import check_int
from rdmawire.verbs.async_event import Sink
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import QPType, WorkCompletion
from rdmawire.verbs.sge import Piece
from rdmawire.verbs.wqe import (
    BLOCK_SIZE,
    CQE,
    INDEXES,
    MAX_BLOCKS,
    UNIT_SIZE,
    CQDoorbellRecord,
    Doorbell,
    DoorbellRecord,
    DoorbellType,
    WQEControl,
    build_cqe,
    build_recv,
    build_send,
    owner_of,
    parse_cqe,
)
from rdmawire.verbs.wr import RecvWR, SendWR


class Memory(Protocol):
    """Memory as a program sees it: a :class:`~rdmawire.memory.gpu.Gpu`, or an address space."""

    def read(self, address: int, length: int, /) -> bytes: ...

    def write(self, address: int, data: bytes, /) -> None: ...


class WorkRing:
    """The producer of a work queue of ``size`` bytes at ``address``.

    The doorbell record of its queue pair is at ``record``; all are addresses of ``memory``. With
    ``receives`` it is the receive queue. ``VerbsError`` EINVAL for an invalid size.
    """

    def __init__(  # noqa: PLR0917  what a driver is given of a queue
        self,
        memory: Memory,
        address: int,
        size: int,
        record: int,
        qpn: int,
        qp_type: QPType = QPType.RC,
        *,
        receives: bool = False,
    ) -> None:
        self.blocks = blocks_of(size)
        self.qpn = qpn
        self._memory = memory
        self._address = address
        self._record = record + (0 if receives else DoorbellRecord.SIZE // 2)
        self._qp_type = qp_type
        self._bell = Doorbell(
            type=DoorbellType.RECV if receives else DoorbellType.SEND, number=qpn
        ).build()
        self._next = 0  # index after the last WQE, not wrapped
        self._outstanding: deque[tuple[int, int]] = deque()  # index of a WQE, its blocks
        self._used = 0

    @property
    def index(self) -> int:
        """The index of the next WQE."""
        return self._next % INDEXES

    @property
    def free(self) -> int:
        """Number of free blocks."""
        return self.blocks - self._used

    def post(self, wr: SendWR | RecvWR) -> int:
        """Write a WQE. Return its index, which is the ``wr_id`` of its completion.

        The adapter fetches it after :meth:`publish`. ``VerbsError`` ENOMEM if the ring is full;
        other errors are those of :func:`~rdmawire.verbs.wqe.build_send`.
        """
        index = self.index
        if isinstance(wr, SendWR):
            wqe = build_send(wr, self.qpn, index, self._qp_type)
        else:
            wqe = build_recv(wr, self.qpn, index)
        blocks = -(-len(wqe) // BLOCK_SIZE)
        if blocks > self.free:
            reason = f"a WQE of {blocks} blocks, {self.free} of {self.blocks} are free: poll first"
            raise VerbsError(reason, ENOMEM)
        offset = index % self.blocks * BLOCK_SIZE
        head = wqe[: self.blocks * BLOCK_SIZE - offset]
        self._memory.write(self._address + offset, head)
        if len(head) < len(wqe):
            self._memory.write(self._address, wqe[len(head) :])
        self._outstanding.append((index, blocks))
        self._used += blocks
        self._next += blocks
        return index

    def publish(self) -> bytes:
        """Write the doorbell record. Return the doorbell to store to the adapter's page."""
        index = DoorbellRecord(send_index=self.index).build()[DoorbellRecord.SIZE // 2 :]
        self._memory.write(self._record, index)
        return self._bell

    def retire(self, wr_id: int) -> None:
        """Free the blocks of a completed WQE and of earlier ones."""
        if all(index != wr_id for index, _ in self._outstanding):
            return
        index = None
        while index != wr_id:
            index, blocks = self._outstanding.popleft()
            self._used -= blocks

    def reset(self) -> None:
        """Restart at block 0, as a queue pair does in RESET, and clear the record."""
        self._next = self._used = 0
        self._outstanding.clear()
        self.publish()


class CompletionRing:
    """The consumer of a completion queue of ``entries`` CQEs at ``address``.

    Its doorbell record is at ``record``; both are addresses of ``memory``.
    """

    def __init__(self, memory: Memory, address: int, entries: int, record: int) -> None:
        check_int("entries", entries, 1)
        self.entries = entries
        self._memory = memory
        self._address = address
        self._record = record
        self._next = 0

    def poll(self, num_entries: int = 1) -> list[WorkCompletion]:
        """Return at most ``num_entries`` of the oldest completions, and free their CQEs."""
        done: list[WorkCompletion] = []
        while len(done) < num_entries:
            offset = self._next % self.entries * CQE.SIZE
            cqe = CQE.parse(self._memory.read(self._address + offset, CQE.SIZE))
            if cqe.owner != owner_of(self._next, self.entries):
                break
            done.append(parse_cqe(cqe))
            self._next += 1
        if done:
            record = CQDoorbellRecord(consumer_index=self._next % CONSUMER_INDEXES)
            self._memory.write(self._record, record.build())
        return done


CONSUMER_INDEXES = 1 << 32
"""Number of consumer indexes; the last is followed by 0."""


def blocks_of(size: int) -> int:
    """The blocks of a ring of ``size`` bytes. ``VerbsError`` EINVAL for an invalid size."""
    check_int("ring size", size, BLOCK_SIZE, MAX_BLOCKS * BLOCK_SIZE)
    if size & (size - 1):
        raise VerbsError(f"ring size {size} is no power of two", EINVAL)
    return size // BLOCK_SIZE


# Adapter side.


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
