"""Where GPU memory is given out, as cudaMalloc and cuMemCreate do it.

Allocations of 1 MiB and more, and all of cuMemCreate, have 2 MiB blocks of their own. Smaller
ones share blocks, 512 bytes apart or a multiple of that.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from enum import Enum, auto
from errno import EINVAL, ENOMEM
from typing import Final, NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.memory.page import PAGE_2M
from rdmawire.terminal import describe
from rdmawire.validate import check_int, check_type


class FreeRanges:
    """Ranges that do not touch one another, in order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, start: int, length: int) -> None:
        self._starts = [start]
        self._ends = [start + length]

    def take(self, length: int) -> int | None:
        """The first place for ``length`` bytes, which is then in use."""
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
        """Free a range, which joins its neighbours."""
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
    def bytes(self) -> int:
        return sum(self._ends) - sum(self._starts)


BLOCK: Final = PAGE_2M
GRANULE: Final = 512
LARGE: Final = 1 << 20


class Kind(Enum):
    """How memory was asked for."""

    DEVICE = auto()  # cudaMalloc
    VMM = auto()  # cuMemCreate with gpuDirectRDMACapable
    VMM_PLAIN = auto()  # cuMemCreate without
    MANAGED = auto()  # cudaMallocManaged

    @property
    def pinnable(self) -> bool:
        """Whether peers may be given its pages."""
        return self in (Kind.DEVICE, Kind.VMM)


class Allocation(NamedTuple):
    """``length`` bytes at a GPU address; ``extent`` bytes are taken for them."""

    address: int
    length: int
    extent: int
    kind: Kind

    @property
    def end(self) -> int:
        return self.address + self.extent


class Heap:
    """The allocations of one GPU.

    What is released is no longer live but cannot be given out again before it is reclaimed: peers
    may still hold its pages.
    """

    def __init__(self, base: int, size: int) -> None:
        self._blocks = FreeRanges(base, size - size % BLOCK)
        self._shared: dict[int, FreeRanges] = {}
        self._live: dict[int, Allocation] = {}
        self._starts: list[int] = []

    def allocate(self, length: int, kind: Kind = Kind.DEVICE) -> Allocation:
        """``VerbsError`` ENOMEM for no room; EINVAL for nothing, or half blocks of cuMemCreate."""
        check_type("length", length, int)
        check_type("kind", kind, Kind)
        vmm = kind in (Kind.VMM, Kind.VMM_PLAIN)
        if length <= 0 or (vmm and length % BLOCK):
            raise VerbsError(f"{describe(length)} bytes of {kind.name} cannot be allocated", EINVAL)
        large = length >= LARGE or kind is not Kind.DEVICE
        extent = length + -length % (BLOCK if large else GRANULE)
        address = self._blocks.take(extent) if large else self._small(extent)
        if address is None:
            raise VerbsError(f"no {describe(length)} bytes of GPU memory left", ENOMEM)
        allocation = self._live[address] = Allocation(address, length, extent, kind)
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
        """End an allocation; ``VerbsError`` EINVAL where none begins."""
        check_int("address", address)
        if address not in self._live:
            raise VerbsError(f"no allocation begins at {address:#x}", EINVAL)
        del self._starts[bisect_left(self._starts, address)]
        return self._live.pop(address)

    def reclaim(self, allocation: Allocation) -> None:
        """Make the memory of a released allocation free."""
        block = allocation.address - allocation.address % BLOCK
        granules = self._shared.get(block)
        if granules is None:
            self._blocks.give(allocation.address, allocation.extent)
            return
        granules.give(allocation.address, allocation.extent)
        if granules.bytes == BLOCK:
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
