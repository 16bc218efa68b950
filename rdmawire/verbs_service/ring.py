"""Rings in shared memory: work from a library, completions to it.

The layouts are those of :mod:`rdmawire.verbs_service.protocol`. A library may write anything into
its rings at any time: positions and sizes are checked, and :class:`RingError` is raised for values
that no library writes.

The library uses acquire and release. Python has no such operations, but processors with total store
order (x86) need none: there a store becomes visible after all loads and stores before it, and loads
are done in order. On other ones (ARM) each counter is read before, and written after, a
:func:`fence`. A store followed by a load of what the other side stores needs one on all of them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from errno import EINVAL
from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl
from mmap import mmap
from threading import Lock
from time import time_ns
from typing import Final, Protocol

from rdmawire.errors import VerbsError
from rdmawire.verbs.async_event import Sink
from rdmawire.verbs.cq import CompletionQueue, check_cqe
from rdmawire.verbs.enums import NetworkType, WCFlags, WorkCompletion
from rdmawire.verbs.profile import Profile
from rdmawire.verbs.srq import SharedReceiveQueue
from rdmawire.verbs_service.protocol import (
    ARM_SOLICITED,
    ARMED,
    ASLEEP,
    COMPLETION,
    CONSUMED,
    HEAD,
    PRODUCED,
    RING_HEADER,
    TAIL,
    WORK_REQUEST,
    WORK_RING_BYTES,
)

_WORD: Final = 8
_COMPLETION: Final = COMPLETION.struct
_WITH_INV: Final = WCFlags.WITH_INV.value
_RECV: Final = 128
_PACKET_TYPES: Final = {
    NetworkType.IB: 0,
    NetworkType.ROCE_V1: 0,
    NetworkType.IPV6: 0b1001,
    NetworkType.IPV4: 0b1010,
}
"""Type of a datagram's packet (IBA A17.4.5.1), in ``sl`` of its completion, as mlx5 gives it.

Programs such as UCX find the sender's address by it; RoCE has no service level. Bit 3: the packet
had UDP; bits 2 to 0: its network header, 1 for IPv6, 2 for IPv4.
"""
_MIN_RECORD: Final = WORK_REQUEST.struct.size
_MASK: Final = WORK_RING_BYTES - 1
_NO_RECORDS: Final = RING_HEADER, 0
_MARGIN: Final = 4096
"""Bytes behind a work ring: a record at its end is read together with one SGE, also without any."""
MAX_BATCH: Final = 1 << 16
"""Maximum bytes of work records taken at once, so that one client does not hold up others."""


class RingError(Exception):
    """A ring has a record or counter that no library writes."""


_LOCK: Final = Lock()
_ORDERED = os.uname().machine in {"x86_64", "i386", "i686"}
"""Whether the processor has total store order."""


def fence() -> None:
    """Complete all loads and stores before later ones.

    With total store order the atomic operation of a lock does that. Elsewhere a lock only acquires
    and releases; the scheduler of Linux has a full barrier, which membarrier(2) relies on.
    """
    if not _ORDERED:
        os.sched_yield()
        return
    with _LOCK:
        pass


_SEALS: Final = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL


class SharedMemory:
    """``size`` bytes of memory with a descriptor for the other process.

    The size is sealed: in memory that the other process has truncated, an access would be a SIGBUS.
    """

    def __init__(self, name: str, size: int) -> None:
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size)
            fcntl(self.fd, F_ADD_SEALS, _SEALS)
            self.map = mmap(self.fd, size)
        except (OSError, ValueError):
            os.close(self.fd)
            raise
        self.words = memoryview(self.map)[:RING_HEADER].cast("Q")

    def take_fd(self) -> int:
        """Return the descriptor, which the caller closes."""
        fd, self.fd = self.fd, -1
        return fd

    def close(self) -> None:
        """Unmap the memory."""
        self.words.release()
        self.map.close()
        if self.fd >= 0:
            os.close(self.fd)


class WorkRing:
    """The ring through which the work requests of one context arrive.

    ``map`` has its bytes, records from :data:`RING_HEADER` on.
    """

    def __init__(self) -> None:
        self._memory = SharedMemory("rdmawire-work", RING_HEADER + WORK_RING_BYTES + _MARGIN)
        self.take_fd = self._memory.take_fd
        self.map = self._memory.map
        self._words = self._memory.words
        self._tail = 0
        try:
            self.doorbell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            self._memory.close()
            raise

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the ring's file, until its descriptor is taken."""
        status = os.fstat(self._memory.fd)
        return status.st_dev, status.st_ino

    @property
    def has_work(self) -> bool:
        """Whether there are records that were not taken."""
        return self._words[_HEAD] != self._tail

    def ready(self, skip: int = 0) -> tuple[int, int]:
        """Return the offset in ``map`` of the next records, and how many bytes of them there are.

        At most up to the end of the ring. ``skip`` bytes of records are passed over: with the size
        that an earlier call returned, these are the records at the start of the ring. Raises
        :class:`RingError` for an impossible ``head``.
        """
        tail = self._tail + skip
        size = self._words[_HEAD] - tail
        if not size:
            return _NO_RECORDS
        if not _ORDERED:
            fence()
        if not 0 < size <= WORK_RING_BYTES - skip or size % _WORD:
            raise RingError(f"head of the work ring is {size + skip} bytes after its tail")
        at = tail & _MASK
        left = WORK_RING_BYTES - at
        return RING_HEADER + at, min(left, size)

    def taken(self, size: int) -> None:
        """Give the space of ``size`` bytes of records back to the library."""
        self._tail += size
        if not _ORDERED:
            fence()
        self._words[_TAIL] = self._tail

    def sleep(self) -> None:
        """Have the library write to ``doorbell`` with its next work."""
        self._words[_ASLEEP] = 1

    def wake(self) -> None:
        """Have the library write to ``doorbell`` no more."""
        self._words[_ASLEEP] = 0

    def close(self) -> None:
        """Free the ring."""
        self._memory.close()
        os.close(self.doorbell)


_HEAD, _TAIL, _ASLEEP = HEAD // _WORD, TAIL // _WORD, ASLEEP // _WORD
_PRODUCED, _CONSUMED, _ARMED = PRODUCED // _WORD, CONSUMED // _WORD, ARMED // _WORD


class HasSrq(Protocol):
    """A queue pair that may receive from an SRQ."""

    srq: SharedReceiveQueue | None


class SrqHandles:
    """The handles of a context's shared receive queues, by their numbers in the engine."""

    def __init__(self, qps: Mapping[int, HasSrq]) -> None:
        self.handles: dict[int, int] = {}
        self._qps = qps

    def handle_for(self, qp_num: int) -> int:
        """The handle of the SRQ that a receive just completed was taken from, or 0.

        The SRQ of an XRC target is that of its present message.
        """
        qp = self._qps.get(qp_num)
        if qp is None or qp.srq is None:
            return 0
        return self.handles.get(qp.srq.number, 0)


class CompletionRing(CompletionQueue):
    """A completion queue whose completions go to a ring in shared memory at once.

    For the engine they are polled once they are in the ring: the library counts the slots of work
    queues itself, by what its application polls. ``srq_handles`` finds the SRQ of a receive.
    ``notify`` is called to report an event; without it none is reported.
    """

    __slots__ = (
        "_map",
        "_mask",
        "_memory",
        "_produced",
        "_reported",
        "_room_until",
        "_solicited",
        "_words",
        "entries",
        "notify",
        "srq_handles",
    )

    def __init__(
        self,
        srqs: SrqHandles,
        number: int,
        cqe: int,
        sink: Sink,
        *,
        profile: Profile,
        **channels: object,
    ) -> None:
        super().__init__(number, cqe, sink, profile=profile, **channels)  # type: ignore[arg-type]
        self.srq_handles = srqs
        self.notify: Callable[[], None] | None = None
        self._produced = self._reported = self._solicited = 0
        self._allocate(cqe)

    def _allocate(self, cqe: int) -> None:
        """Map an empty ring with room for ``cqe`` completions."""
        entries = 1 << max(cqe - 1, 1).bit_length()
        self._memory = SharedMemory("rdmawire-cq", RING_HEADER + entries * _COMPLETION.size)
        self.entries = entries
        self._map, self._words = self._memory.map, self._memory.words
        self._mask = self.entries - 1
        self._room_until = self._produced + cqe

    def take_fd(self) -> int:
        """Return the descriptor of the ring's memory, which the caller closes."""
        return self._memory.take_fd()

    def has_room(self, count: int) -> bool:
        """Whether ``count`` more completions fit, by what the library has consumed."""
        if self._produced + count <= self._room_until:
            return True
        self._room_until = self._room + self._consumed()
        return self._produced + count <= self._room_until

    def _consumed(self) -> int:
        """How many completions the library has consumed: its counter, within possible values."""
        produced = self._produced
        return min(max(self._words[_CONSUMED], produced - self._room), produced)

    def push(self, completion: WorkCompletion, now: int, solicited: bool = False) -> int:
        if self._produced >= self._room_until and not self.has_room(1):
            self._overrun()
            return 0
        produced = self._put(completion, time_ns())
        if not _ORDERED:
            fence()
        self._words[_PRODUCED] = self.polled = produced
        if self.notify is not None:
            self._notify(now, solicited or completion.status != 0)
        return produced

    def _notify(self, now: int, solicited: bool) -> None:
        """Report an event if the CQ is armed."""
        fence()
        if solicited:
            self._solicited = self._produced
        armed = self._words[_ARMED]
        if armed:
            self._armed, self._solicited_only = True, armed == ARM_SOLICITED
            self._tell(now, solicited)

    def notify_unpolled(self, consumed: int, now: int) -> None:
        """Report an event of a CQ that was armed when the library had consumed ``consumed``.

        Unless there was no later completion since the last event, or no solicited one if the CQ is
        armed for these. ``now`` is in ns.
        """
        armed = self._words[_ARMED]
        newest = self._solicited if armed == ARM_SOLICITED else self._produced
        known = max(consumed, self._reported)
        if armed and newest > known:
            self._armed, self._solicited_only = True, armed == ARM_SOLICITED
            self._waiting = max(self._waiting, newest - known)
            self._tell_or_wait(now)

    def _put(self, completion: WorkCompletion, timestamp: int) -> int:
        """Write one completion behind the others, and return its number."""
        (
            wr_id, status, opcode, vendor_err, byte_len, imm, rkey, qp_num, src_qp, flags,
            pkey_index, slid, sl, path_bits, _, _, network,
        ) = completion  # fmt: skip
        if flags & _WITH_INV:
            imm = rkey
        elif imm:
            imm = int.from_bytes(imm.to_bytes(4, "big"), "little")
        produced, srqs = self._produced, self.srq_handles
        _pack(
            self._map, RING_HEADER + (produced & self._mask) * _SIZE,
            wr_id, status, opcode, vendor_err, byte_len & 0xFFFF_FFFF, imm, qp_num, src_qp, flags,
            pkey_index, slid, sl | _PACKET_TYPES[network], path_bits, 0, timestamp,
            srqs.handle_for(qp_num) if opcode & _RECV and srqs.handles else 0, 0,
        )  # fmt: skip
        self._produced = produced + 1
        return produced + 1

    @property
    def room(self) -> int:
        if self.notify is not None:
            return 0
        left = self._room_until - self._produced
        if left < _FEW:
            self.has_room(self._room)
            left = self._room_until - self._produced
        return left

    def push_all(self, completions: Sequence[WorkCompletion]) -> range:
        first = self._produced + 1
        timestamp = time_ns()
        for completion in completions:
            self._put(completion, timestamp)
        if not _ORDERED:
            fence()
        self._words[_PRODUCED] = self.polled = self._produced
        return range(first, self._produced + 1)

    def _fire(self) -> None:
        self._armed = False
        self._reported = self._produced
        self._waiting = 0
        self._deadline = None
        self._words[_ARMED] = 0
        if self.notify is not None:
            self.notify()

    def resize(self, cqe: int) -> None:
        """Move the completions that were not consumed to a new ring for ``cqe`` of them.

        Counts go on where they were. ``VerbsError`` EINVAL as for other completion queues.
        """
        check_cqe(cqe, self._profile)
        consumed, produced = self._consumed(), self._produced
        if self.broken:
            raise VerbsError(f"CQ {self.number} overran", EINVAL)
        if cqe < produced - consumed:
            raise VerbsError(f"cqe {cqe} is less than the {produced - consumed} held", EINVAL)
        old, old_mask = self._memory, self._mask
        self._allocate(cqe)
        self._room, self._room_until = cqe, consumed + cqe
        for number in range(consumed, produced):
            start = RING_HEADER + (number & old_mask) * _SIZE
            to = RING_HEADER + (number & self._mask) * _SIZE
            self._map[to : to + _SIZE] = old.map[start : start + _SIZE]
        for word in (_PRODUCED, _CONSUMED, _ARMED):
            self._words[word] = old.words[word]
        self._words[_PRODUCED], self._words[_CONSUMED] = produced, consumed
        old.close()

    def close(self) -> None:
        """Free the ring."""
        self._memory.close()


_FEW: Final = 128
"""Number of free slots below which the counter of the library is read again."""
_pack = _COMPLETION.pack_into
_SIZE: Final = _COMPLETION.size
