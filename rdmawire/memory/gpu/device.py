"""A GPU: its memory, its allocations, and who holds pages of them."""

from random import Random
from typing import Final, Protocol

from rdmawire.errors import MemoryFault
from rdmawire.memory.gpu.aperture import Aperture
from rdmawire.memory.gpu.heap import Allocation, Heap, Kind
from rdmawire.memory.gpu.profile import GpuProfile
from rdmawire.memory.gpu.table import PageTable
from rdmawire.memory.page import SparsePages
from rdmawire.validate import BytesLike, byte_count, check_range, check_time

_LARGEST_COPY: Final = 1 << 32


class Holder(Protocol):
    """Who keeps GPU memory alive after its owner freed it: persistent tables, dma-bufs."""

    @property
    def address(self) -> int: ...

    @property
    def end(self) -> int: ...


class Gpu:
    """A GPU with memory from ``base`` on and BAR1 at ``bus_base``.

    ``read`` and ``write`` are what its kernels do. A page is alive while an allocation has bytes
    in it or somebody holds it; when it dies, peers that pinned it are told. ``random`` draws
    the delays after which posted writes become visible.
    """

    def __init__(self, profile: GpuProfile, base: int, bus_base: int, random: Random) -> None:
        self.profile = profile
        self.base = base
        self.end = base + profile.memory
        self.page_size = profile.page_size
        self.heap = Heap(base, profile.memory)
        self.tables: list[PageTable] = []
        self.holders: list[Holder] = []
        self._memory = SparsePages(profile.page_size)
        self.aperture = Aperture(bus_base, profile, self._memory, random)
        self._released: list[Allocation] = []  # but held

    def allocate(self, length: int, kind: Kind = Kind.DEVICE) -> Allocation:
        """Memory as ``kind`` says; ``VerbsError`` EINVAL or ENOMEM."""
        return self.heap.allocate(length, kind)

    def free(self, address: int) -> None:
        """cudaFree; ``VerbsError`` EINVAL where no allocation begins.

        Pages that die with it are taken from those who pinned them, but for holders.
        """
        allocation = self.heap.release(address)
        for table in tuple(self.tables):
            if not table.persistent and self._dead(allocation, table):
                table.revoke()
                self.drop_table(table)
        self._released.append(allocation)
        self.reclaim()

    def _dead(self, allocation: Allocation, table: PageTable) -> bool:
        """Whether a page of the table had bytes of this allocation and has none of any now."""
        size = self.page_size
        first = max(table.address, allocation.address - allocation.address % size)
        last = min(table.end, allocation.end)
        return any(not self._used(page) for page in range(first, last, size))

    def _used(self, page: int) -> bool:
        return any(self.heap.overlapping(page, page + self.page_size))

    def drop_table(self, table: PageTable) -> None:
        """Unpin a table's pages."""
        self.tables.remove(table)
        self.aperture.unpin(table.pages)

    def reclaim(self) -> None:
        """Free what was released and is held no more."""
        for allocation in tuple(self._released):
            if not any(_overlap(allocation, holder) for holder in self.holders):
                self._released.remove(allocation)
                self.heap.reclaim(allocation)
                self._forget(allocation)

    def _forget(self, allocation: Allocation) -> None:
        size = self.page_size
        for page in self._memory.numbers(allocation.address, allocation.end):
            if not self._used(page * size):
                self._memory.drop(page)

    def hold(self, holder: Holder) -> None:
        """Keep the holder's range alive."""
        self.holders.append(holder)

    def unhold(self, holder: Holder) -> None:
        """Let go of it; what its owner freed meanwhile becomes free."""
        self.holders.remove(holder)
        self.reclaim()

    def resident(self, start: int, end: int) -> bool:
        """Whether every page has bytes of memory that peers may have, and none of other."""
        reached = start
        for allocation in self.heap.overlapping(start, end):
            if not allocation.kind.pinnable or allocation.address >= reached + self.page_size:
                return False
            reached = allocation.end + -allocation.end % self.page_size
        return reached >= end

    def read(self, address: int, length: int, now: int | None = None) -> bytes:
        """What a kernel reads at the time ``now`` (ns).

        Writes through BAR1 are seen if they became visible by then, or were flushed
        (:mod:`rdmawire.memory.gpu.aperture`). Without ``now`` the time is the latest that adapters
        and kernels passed to this GPU.
        """
        check_range(address, length)
        self.check(address, length)
        self._advance(now)
        return self._memory.read(address, length)

    def write(self, address: int, data: BytesLike, now: int | None = None) -> None:
        """What a kernel writes at the time ``now`` (ns), as with ``read``."""
        length = byte_count(data)
        check_range(address, length)
        self.check(address, length)
        self._advance(now)
        self._memory.write(address, data)

    def _advance(self, now: int | None) -> None:
        if now is not None:
            check_time(now)
            self.aperture.advance(now)

    def next_visible(self) -> int | None:
        """When the next posted write becomes visible to kernels by itself (ns), if any does.

        For programs that poll memory in virtual time. Asking changes nothing.
        """
        return self.aperture.next_visible()

    def check(self, address: int, length: int) -> None:
        """``MemoryFault`` where a kernel has no memory."""
        reached = address
        for allocation in self.heap.overlapping(address, address + length):
            if allocation.address > reached:
                break
            reached = allocation.end
        if reached < address + length or not 0 <= length <= _LARGEST_COPY:
            raise MemoryFault("illegal GPU address", reached, address + length - reached)

    def flush(self) -> None:
        """Let kernels see what was written through BAR1."""
        self.aperture.flush()

    @property
    def held(self) -> int:
        """Bytes that this GPU's memory costs."""
        return self._memory.held


def _overlap(allocation: Allocation, holder: Holder) -> bool:
    return allocation.address < holder.end and holder.address < allocation.end
