"""A GPU: its profile, its allocations, its pinned pages, and its memory as kernels see it."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from enum import Enum, auto
from errno import EINVAL, ENOMEM
from random import Random
from typing import Final, NamedTuple, Protocol

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.gpu.aperture import Aperture, PostedWrites
from rdmawire.memory.page import PAGE_2M, PAGE_64K, SparsePages
from rdmawire.terminal import describe
from rdmawire.validate import BytesLike, byte_count, check_int, check_range, check_time, check_type

MIB: Final = 1 << 20


class GpuProfile(NamedTuple):
    """A GPU model; sizes in bytes.

    ``page_size`` is the page size for peers: 4, 64 or 128 KiB. ``partitioned`` is true for
    MIG and vGPU, which have no persistent pages. ``max_visible_ns`` is the maximum time (ns) until
    kernels see a peer's write, if ``posts_writes``; ``None`` if only a flush or a read
    through BAR1 makes it visible. No vendor documents a bound; the default is a few times the
    latency of a write across PCIe.
    """

    name: str
    memory: int
    bar1: int
    compute_capability: tuple[int, int]
    bar1_reserved: int = MIB
    page_size: int = PAGE_64K
    partitioned: bool = False
    max_visible_ns: int | None = 5_000

    @property
    def posts_writes(self) -> bool:
        """Whether a peer's writes need a flush before kernels are sure to see them."""
        return self.compute_capability < (9, 0)


T4: Final = GpuProfile("T4", 15360 * MIB, 256 * MIB, (7, 5))
A100: Final = GpuProfile("A100", 81920 * MIB, 131072 * MIB, (8, 0))
H200: Final = GpuProfile("H200", 143771 * MIB, 262144 * MIB, (9, 0))


class FreeRanges:
    """Free ranges of addresses, sorted and not adjacent."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, start: int, length: int) -> None:
        self._starts = [start]
        self._ends = [start + length]

    def take(self, length: int) -> int | None:
        """Remove ``length`` bytes from the first free range that fits; ``None`` if none does."""
        for index, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
            if end - start >= length:
                self._shorten(index, start + length)
                return start
        return None

    def _shorten(self, index: int, start: int) -> None:
        if start == self._ends[index]:
            del self._starts[index], self._ends[index]
        else:
            self._starts[index] = start

    def give(self, start: int, length: int) -> None:
        """Free a range and merge it with its neighbours."""
        index = bisect_left(self._starts, start)
        end = start + length
        if index < len(self._starts) and self._starts[index] == end:
            end = self._ends[index]
            del self._starts[index], self._ends[index]
        if index and self._ends[index - 1] == start:
            self._ends[index - 1] = end
        else:
            self._starts.insert(index, start)
            self._ends.insert(index, end)

    @property
    def free_bytes(self) -> int:
        return sum(self._ends) - sum(self._starts)


BLOCK: Final = PAGE_2M
GRANULE: Final = 512
LARGE: Final = 1 << 20


class AllocationType(Enum):
    """CUDA function that allocates the memory."""

    DEVICE = auto()  # cudaMalloc
    VMM = auto()  # cuMemCreate with gpuDirectRDMACapable
    VMM_PLAIN = auto()  # cuMemCreate without
    MANAGED = auto()  # cudaMallocManaged

    @property
    def pinnable(self) -> bool:
        """Whether peers may pin its pages."""
        return self in (AllocationType.DEVICE, AllocationType.VMM)


class Allocation(NamedTuple):
    """``length`` bytes at a GPU address, which occupy ``extent`` bytes of memory."""

    address: int
    length: int
    extent: int
    type: AllocationType

    @property
    def end(self) -> int:
        return self.address + self.extent


class Heap:
    """The allocations of one GPU, at the addresses that cudaMalloc and cuMemCreate choose.

    Allocations of 1 MiB or more, and all of cuMemCreate, have 2 MiB blocks of their own. Smaller
    ones share blocks, aligned to 512 bytes. A released allocation is not reused before it is
    reclaimed: peers may still hold its pages.
    """

    def __init__(self, base: int, size: int) -> None:
        self._blocks = FreeRanges(base, size - size % BLOCK)
        self._shared: dict[int, FreeRanges] = {}
        self._live: dict[int, Allocation] = {}
        self._starts: list[int] = []

    def allocate(self, length: int, type_: AllocationType = AllocationType.DEVICE) -> Allocation:
        """Allocate ``length`` bytes.

        ``VerbsError`` ENOMEM if there is no room; EINVAL for zero bytes, and for cuMemCreate of
        a size that is no multiple of 2 MiB.
        """
        check_type("length", length, int)
        check_type("type", type_, AllocationType)
        vmm = type_ in (AllocationType.VMM, AllocationType.VMM_PLAIN)
        if length <= 0 or (vmm and length % BLOCK):
            raise VerbsError(
                f"{describe(length)} bytes of {type_.name} cannot be allocated", EINVAL
            )
        large = length >= LARGE or type_ is not AllocationType.DEVICE
        extent = length + -length % (BLOCK if large else GRANULE)
        address = self._blocks.take(extent) if large else self._small(extent)
        if address is None:
            raise VerbsError(f"no {describe(length)} bytes of GPU memory left", ENOMEM)
        allocation = self._live[address] = Allocation(address, length, extent, type_)
        insort(self._starts, address)
        return allocation

    def _small(self, extent: int) -> int | None:
        for granules in self._shared.values():
            address = granules.take(extent)
            if address is not None:
                return address
        block = self._blocks.take(BLOCK)
        if block is None:
            return None
        granules = self._shared[block] = FreeRanges(block, BLOCK)
        return granules.take(extent)

    def release(self, address: int) -> Allocation:
        """Release an allocation; ``VerbsError`` EINVAL if none begins at ``address``."""
        check_int("address", address)
        if address not in self._live:
            raise VerbsError(f"no allocation begins at {address:#x}", EINVAL)
        del self._starts[bisect_left(self._starts, address)]
        return self._live.pop(address)

    def reclaim(self, allocation: Allocation) -> None:
        """Free the memory of a released allocation."""
        block = allocation.address - allocation.address % BLOCK
        granules = self._shared.get(block)
        if granules is None:
            self._blocks.give(allocation.address, allocation.extent)
            return
        granules.give(allocation.address, allocation.extent)
        if granules.free_bytes == BLOCK:
            del self._shared[block]
            self._blocks.give(block, BLOCK)

    def overlapping(self, start: int, end: int) -> Iterator[Allocation]:
        """Live allocations that have bytes from ``start`` to ``end``, in order."""
        index = max(0, bisect_right(self._starts, start) - 1)
        while index < len(self._starts) and self._starts[index] < end:
            allocation = self._live[self._starts[index]]
            if allocation.end > start:
                yield allocation
            index += 1


class TableState(Enum):
    """Whether the pages of a table are still pinned."""

    LIVE = auto()
    REVOKING = auto()  # its free callback runs
    GONE = auto()


class PageTable:
    """Pinned pages of ``length`` bytes at a GPU address, with their bus addresses in BAR1.

    ``revoked`` is called when the owner frees the memory. Without it the table is persistent: the
    pages live until they are put.
    """

    __slots__ = ("_revoked", "address", "addresses", "gpu", "length", "mappings", "state")

    def __init__(
        self,
        gpu: "Gpu",
        address: int,
        addresses: tuple[int, ...],
        revoked: Callable[[], None] | None,
    ) -> None:
        self.gpu = gpu
        self.address = address
        self.addresses = addresses
        self.length = len(addresses) * gpu.page_size
        self.mappings = 0
        self.state = TableState.LIVE
        self._revoked = revoked

    @property
    def persistent(self) -> bool:
        return self._revoked is None

    @property
    def end(self) -> int:
        return self.address + self.length

    @property
    def pages(self) -> range:
        """GPU addresses of the pages."""
        return range(self.address, self.end, self.gpu.page_size)

    def revoke(self) -> None:
        """Notify the driver that pinned the pages that their owner freed them."""
        if self._revoked is not None:
            self.state = TableState.REVOKING
            self._revoked()
        self.state = TableState.GONE


class DmaMapping:
    """A page table mapped for one peer device; no other device may use it."""

    __slots__ = ("peer", "table")

    def __init__(self, table: PageTable, peer: object) -> None:
        self.table = table
        self.peer = peer
        table.mappings += 1


_MAX_COPY: Final = 1 << 32


class Holder(Protocol):
    """Keeps GPU memory alive after its owner freed it: a persistent table, or a dma-buf."""

    @property
    def address(self) -> int: ...

    @property
    def end(self) -> int: ...


class Gpu:
    """A GPU whose memory begins at GPU address ``base``, with BAR1 at bus address ``bus_base``.

    ``read`` and ``write`` are accesses of its kernels. A page lives while an allocation has bytes
    in it or a holder keeps it; when it ends, the drivers of peers that pinned it are called.
    The delays after which posted writes become visible are drawn from ``random``.
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
        posted = None
        if profile.posts_writes:
            posted = PostedWrites(self._memory.write, profile.max_visible_ns, random)
        self.aperture = Aperture(
            bus_base, profile.bar1, self._memory, reserved=profile.bar1_reserved, posted=posted
        )
        self._released: list[Allocation] = []  # but still held

    def allocate(self, length: int, type_: AllocationType = AllocationType.DEVICE) -> Allocation:
        """cudaMalloc, or the function of ``type_``; errors are those of :meth:`Heap.allocate`."""
        return self.heap.allocate(length, type_)

    def free(self, address: int) -> None:
        """cudaFree; ``VerbsError`` EINVAL if no allocation begins at ``address``.

        Page tables that are not persistent lose the pages that end with the allocation.
        """
        allocation = self.heap.release(address)
        for table in tuple(self.tables):
            if not table.persistent and self._dead(allocation, table):
                table.revoke()
                self.drop_table(table)
        self._released.append(allocation)
        self.reclaim()

    def _dead(self, allocation: Allocation, table: PageTable) -> bool:
        """Whether a page of the table contained bytes of this allocation only."""
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
        """Free the released allocations that no holder keeps."""
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
        """End a hold; memory that its owner has freed becomes free."""
        self.holders.remove(holder)
        self.reclaim()

    def resident(self, start: int, end: int) -> bool:
        """Whether every page has bytes of pinnable allocations only."""
        reached = start
        for allocation in self.heap.overlapping(start, end):
            if not allocation.type.pinnable or allocation.address >= reached + self.page_size:
                return False
            reached = allocation.end + -allocation.end % self.page_size
        return reached >= end

    def read(self, address: int, length: int, now: int | None = None) -> bytes:
        """Read ``length`` bytes as a kernel does at the time ``now`` (ns).

        Writes through BAR1 are seen if they became visible by then, or were flushed
        (:mod:`rdmawire.memory.gpu.aperture`). Without ``now`` the time is the latest that adapters
        and kernels passed to this GPU. ``MemoryFault`` for unallocated memory.
        """
        check_range(address, length)
        self.check(address, length)
        self._advance(now)
        return self._memory.read(address, length)

    def write(self, address: int, data: BytesLike, now: int | None = None) -> None:
        """Write ``data`` as a kernel does at the time ``now`` (ns); see :meth:`read`."""
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
        """Raise ``MemoryFault`` unless a kernel may access the complete range."""
        reached = address
        for allocation in self.heap.overlapping(address, address + length):
            if allocation.address > reached:
                break
            reached = allocation.end
        if reached < address + length or not 0 <= length <= _MAX_COPY:
            raise MemoryFault("illegal GPU address", reached, address + length - reached)

    def flush(self) -> None:
        """Make writes through BAR1 visible to kernels."""
        self.aperture.flush()

    @property
    def held(self) -> int:
        """Bytes of this process that the GPU's memory uses."""
        return self._memory.held


def _overlap(allocation: Allocation, holder: Holder) -> bool:
    return allocation.address < holder.end and holder.address < allocation.end
