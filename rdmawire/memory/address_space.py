"""An address space: mappings that do not overlap, and accesses across them."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from errno import EEXIST, EINVAL, ENOMEM
from typing import Final, NamedTuple, Protocol

from rdmawire.errors import MemoryBusy, MemoryFault, VerbsError
from rdmawire.memory.page import (
    LAST_ADDRESS,
    PAGE_2M,
    PAGE_4K,
    PAGE_64K,
    Path,
    SparsePages,
)
from rdmawire.terminal import describe
from rdmawire.validate import BytesLike, byte_count, check_range, check_type

HOST_PAGE_SIZES: Final = (PAGE_4K, PAGE_2M)
_RECORDED_RINGS: Final = 4096


class Initiator(Protocol):
    """A device that reads and writes on the bus; ``now`` is its time (ns)."""

    now: int


class Mapping(ABC):
    """``size`` bytes from ``base``; ``VerbsError`` EINVAL unless both are page-aligned."""

    pinnable = False  # whether it can be registered as host memory
    path = Path.HOST

    def __init__(self, base: int, size: int, page_size: int = PAGE_4K) -> None:
        check_type("base", base, int)
        check_type("size", size, int)
        if base < 0 or size <= 0 or base + size > LAST_ADDRESS + 1:
            raise VerbsError(
                f"mapping of {describe(size)} bytes at {describe(base)} is outside 64 bits", EINVAL
            )
        if (base | size) % page_size:
            raise VerbsError(f"mapping of {size} at {base:#x} is not of {page_size} pages", EINVAL)
        self.base = base
        self.size = size
        self.end = base + size
        self.page_size = page_size

    @abstractmethod
    def admit(self, address: int, length: int, *, writing: bool) -> None:
        """Raise ``MemoryFault`` if the mapping refuses this access."""

    @abstractmethod
    def read(self, address: int, length: int) -> bytes: ...

    @abstractmethod
    def write(self, address: int, data: BytesLike) -> None: ...

    def post(
        self,
        address: int,
        data: BytesLike,
        initiator: Initiator | None,  # noqa: ARG002  most mappings do not queue writes
        relaxed: bool,  # noqa: ARG002
    ) -> None:
        """Write as ``initiator`` does by DMA; a ``relaxed`` write may overtake its earlier ones."""
        self.write(address, data)

    def lend(self, address: int, length: int) -> memoryview | None:  # noqa: ARG002
        """Return a view of bytes in one page; ``None`` if each access must use the mapping.

        The view may be kept and written while its pages are pinned.
        """
        return None


def check_page_size(page_size: int) -> None:
    """``VerbsError`` EINVAL for a page size that hosts do not support."""
    if not isinstance(page_size, int) or page_size not in HOST_PAGE_SIZES:
        raise VerbsError(f"host pages of {describe(page_size)}, not of {HOST_PAGE_SIZES}", EINVAL)


class HostMemory(Mapping):
    """Sparse host memory, pinned and paged in units of ``page_size`` (4 KiB or 2 MiB)."""

    pinnable = True

    def __init__(
        self, base: int, size: int, page_size: int = PAGE_4K, *, read_only: bool = False
    ) -> None:
        check_page_size(page_size)
        super().__init__(base, size, page_size)
        self.read_only = read_only
        # Storage pages are larger than ``page_size``: fewer packets cross a page border.
        self.pages = SparsePages(max(page_size, PAGE_64K))

    def admit(self, address: int, length: int, *, writing: bool) -> None:
        if writing and self.read_only:
            raise MemoryFault("read-only memory", address, length)

    def read(self, address: int, length: int) -> bytes:
        return self.pages.read(address, length)

    def write(self, address: int, data: BytesLike) -> None:
        self.pages.write(address, data)

    def lend(self, address: int, length: int) -> memoryview | None:
        pages = self.pages
        page = None if self.read_only else pages.find(address >> pages.shift)
        at = address & pages.mask
        return None if page is None else page[at : at + length]


class DoorbellPage(Mapping):
    """MMIO of an adapter: every write rings a doorbell, reads are refused.

    ``ring(offset, data)`` is called for each write. Without it the last few thousand writes are
    kept in ``rings``.
    """

    def __init__(self, base: int, ring: Callable[[int, bytes], None] | None = None) -> None:
        super().__init__(base, PAGE_4K)
        self.rings: deque[tuple[int, bytes]] = deque(maxlen=_RECORDED_RINGS)
        self._ring = ring or self._record

    def _record(self, offset: int, data: bytes) -> None:
        self.rings.append((offset, data))

    def admit(self, address: int, length: int, *, writing: bool) -> None:
        if not writing:
            raise MemoryFault("write-only doorbell page", address, length)

    def read(self, address: int, length: int) -> bytes:
        raise MemoryFault("write-only doorbell page", address, length)

    def write(self, address: int, data: BytesLike) -> None:
        self._ring(address - self.base, bytes(data))


ATOMIC_SIZE: Final = 8
_FIRST_FREE: Final = 0x10000000
_GUARD: Final = PAGE_2M

Watcher = Callable[[int, int], None]


class Span(NamedTuple):
    """A range inside one mapping."""

    mapping: Mapping
    address: int
    length: int


def check_aligned(address: int) -> None:
    """Raise ``MemoryFault`` unless the address is aligned for an atomic operation (IBA 9.4.5)."""
    if address % ATOMIC_SIZE:
        raise MemoryFault(f"atomic operation not aligned to {ATOMIC_SIZE}", address, ATOMIC_SIZE)


def added(old: bytes | memoryview, value: int) -> tuple[int, bytes]:
    """Return the number in eight bytes, and the bytes of its sum with ``value``.

    Numbers are in the host's byte order, here little-endian as on x86.
    """
    number = int.from_bytes(old, "little")
    return number, ((number + value) & LAST_ADDRESS).to_bytes(ATOMIC_SIZE, "little")


def swapped(old: bytes | memoryview, compare: int, swap: int) -> tuple[int, bytes]:
    """Return the number in eight bytes, and the bytes of ``swap`` if it equals ``compare``.

    Else the bytes as they are. The byte order is that of :func:`added`.
    """
    number = int.from_bytes(old, "little")
    new = swap & LAST_ADDRESS if number == compare else number
    return number, new.to_bytes(ATOMIC_SIZE, "little")


def write_result(write: Callable[[int, bytes], object], address: int, new: bytes) -> None:
    """Write the result of an atomic operation to ``address``, by the method ``write`` of memory.

    If the write raises ``MemoryBusy``, the memory gets the result later: the operation is complete,
    and must not be done again.
    """
    try:
        write(address, new)
    except MemoryBusy:
        return


class AddressSpace:
    """Bus addresses, which for host memory are virtual addresses as well.

    Accesses may cross mapping and page borders. An unmapped or refused access raises a
    ``MemoryFault`` with the address, and writes nothing.
    """

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._mappings: list[Mapping] = []
        self._watchers: list[Watcher] = []
        self._next = _FIRST_FREE

    @property
    def mappings(self) -> tuple[Mapping, ...]:
        """Mappings, sorted by address."""
        return tuple(self._mappings)

    def map(self, mapping: Mapping) -> None:
        """Add a mapping; ``VerbsError`` EEXIST where it overlaps another."""
        check_type("mapping", mapping, Mapping)
        index = bisect_right(self._bases, mapping.base)
        for other in self._mappings[max(0, index - 1) : index + 1]:
            if other.base < mapping.end and mapping.base < other.end:
                raise VerbsError(f"{mapping.base:#x} is in use from {other.base:#x}", EEXIST)
        self._bases.insert(index, mapping.base)
        self._mappings.insert(index, mapping)

    def unmap(self, mapping: Mapping) -> None:
        """Remove a mapping; ``VerbsError`` EINVAL if it is not mapped.

        Regions with pinned pages keep them; on-demand regions lose them.
        """
        check_type("mapping", mapping, Mapping)
        if mapping not in self._mappings:
            raise VerbsError(f"no such mapping at {mapping.base:#x}", EINVAL)
        index = self._mappings.index(mapping)
        del self._bases[index], self._mappings[index]
        for watcher in tuple(self._watchers):
            watcher(mapping.base, mapping.end)

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher(start, end)`` when that range is unmapped."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.remove(watcher)

    def allocate(self, size: int, page_size: int = PAGE_4K) -> HostMemory:
        """Map ``size`` bytes or more of host memory at a free, page-aligned address.

        The bytes on both sides are unmapped, so that stray accesses fault. ``VerbsError`` ENOMEM if
        the 64-bit address space is exhausted, EINVAL for a size below one.
        """
        check_type("size", size, int)
        if size < 1:
            raise VerbsError(f"size: {describe(size)} is not a number of bytes from 1 on", EINVAL)
        check_page_size(page_size)
        if size > LAST_ADDRESS - self._next - 2 * _GUARD:
            raise VerbsError(f"no {describe(size)} bytes of addresses left", ENOMEM)
        mapping = HostMemory(self.free_address(size), size + -size % page_size, page_size)
        self.map(mapping)
        self._next = mapping.end
        return mapping

    def free_address(self, size: int) -> int:
        """Return an address with ``size`` free bytes, 2 MiB or more from every mapping."""
        base = self._next - self._next % -PAGE_2M + _GUARD
        for mapping in self._mappings[max(0, bisect_right(self._bases, base) - 1) :]:
            if mapping.base < base + size + _GUARD and base < mapping.end + _GUARD:
                base = mapping.end - mapping.end % -PAGE_2M + _GUARD
        return base

    def mapping_at(self, address: int) -> Mapping | None:
        """The mapping at an address, if there is one."""
        index = bisect_right(self._bases, address) - 1
        if index < 0 or address >= self._mappings[index].end:
            return None
        return self._mappings[index]

    def spans(self, address: int, length: int) -> Iterator[Span]:
        """Split the range by mapping; ``MemoryFault`` at the first unmapped byte."""
        end = address + length
        while address < end:
            mapping = self.mapping_at(address)
            if mapping is None:
                raise MemoryFault("unmapped address", address, end - address)
            size = min(end, mapping.end) - address
            yield Span(mapping, address, size)
            address += size

    def _admitted(self, address: int, length: int, *, writing: bool) -> list[Span]:
        spans = list(self.spans(address, length))
        for mapping, start, size in spans:
            mapping.admit(start, size, writing=writing)
        return spans

    def read(self, address: int, length: int) -> bytes:
        check_range(address, length)
        spans = self._admitted(address, length, writing=False)
        return b"".join(mapping.read(start, size) for mapping, start, size in spans)

    def write(self, address: int, data: BytesLike) -> None:
        length = byte_count(data)
        check_range(address, length)
        spans = self._admitted(address, length, writing=True)
        if len(spans) == 1:
            spans[0].mapping.write(address, data)
            return
        source = memoryview(data)
        for mapping, start, size in spans:
            mapping.write(start, source[start - address : start - address + size])

    def fetch_add(self, address: int, value: int) -> int:
        """Add to eight aligned bytes (little-endian); return the previous value."""
        check_type("address", address, int)
        check_type("value", value, int)
        check_aligned(address)
        old, new = added(self.read(address, ATOMIC_SIZE), value)
        self.write(address, new)
        return old

    def compare_swap(self, address: int, compare: int, swap: int) -> int:
        """Write ``swap`` to eight aligned bytes equal to ``compare``; return the previous value.

        Memory that is not writable faults even if the comparison fails.
        """
        for name, number in (("address", address), ("compare", compare), ("swap", swap)):
            check_type(name, number, int)
        check_aligned(address)
        self._admitted(address, ATOMIC_SIZE, writing=True)
        old = int.from_bytes(self.read(address, ATOMIC_SIZE), "little")
        if old == compare:
            self.write(address, (swap & LAST_ADDRESS).to_bytes(ATOMIC_SIZE, "little"))
        return old
