"""Application side of queues in memory: posts WQEs and polls CQEs.

These are the steps of a GPU kernel or a driver, in the required order. The adapter's side is in
:mod:`rdmawire.ib.doorbell`; both use the layout of :mod:`rdmawire.verbs.wqe`.
"""

from collections import deque
from errno import EINVAL, ENOMEM
from typing import Protocol

from rdmawire.errors import VerbsError
from rdmawire.validate import check_int
from rdmawire.verbs.enums import QPType, WorkCompletion
from rdmawire.verbs.wqe import (
    BLOCK_SIZE,
    CONSUMER_INDEXES,
    CQE,
    INDEXES,
    MAX_BLOCKS,
    CQDoorbellRecord,
    Doorbell,
    DoorbellRecord,
    DoorbellType,
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


def blocks_of(size: int) -> int:
    """The blocks of a ring of ``size`` bytes. ``VerbsError`` EINVAL for an invalid size."""
    check_int("ring size", size, BLOCK_SIZE, MAX_BLOCKS * BLOCK_SIZE)
    if size & (size - 1):
        raise VerbsError(f"ring size {size} is no power of two", EINVAL)
    return size // BLOCK_SIZE
