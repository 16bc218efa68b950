"""An address space: mappings that do not overlap, and accesses across them."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from errno import EEXIST, EINVAL, ENOMEM
from typing import Final, NamedTuple, Protocol

from rdmawire.errors import MemoryFault, VerbsError
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
    """``size`` bytes from ``base``; both are multiples of ``page_size``, else EINVAL."""

    pinnable = False  # whether a region may be made of it as of host memory
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
        """``MemoryFault`` if the mapping refuses this access."""

    @abstractmethod
    def read(self, address: int, length: int) -> bytes: ...

    @abstractmethod
    def write(self, address: int, data: BytesLike) -> None: ...

    def post(
        self,
        address: int,
        data: BytesLike,
        initiator: Initiator | None,  # noqa: ARG002  most mappings keep no write waiting
        relaxed: bool,  # noqa: ARG002
    ) -> None:
        """Write as ``initiator`` does by DMA; ``relaxed`` may overtake its earlier writes."""
        self.write(address, data)

    def lend(self, address: int, length: int) -> memoryview | None:  # noqa: ARG002
        """These bytes themselves, inside one page; ``None`` where each access must come here.

        What is lent once may be kept and written as long as its pages are pinned.
        """
        return None


def check_page_size(page_size: int) -> None:
    """``VerbsError`` EINVAL for pages that hosts do not have."""
    if not isinstance(page_size, int) or page_size not in HOST_PAGE_SIZES:
        raise VerbsError(f"host pages of {describe(page_size)}, not of {HOST_PAGE_SIZES}", EINVAL)


class HostMemory(Mapping):
    """Sparse host memory; ``page_size`` is what the host pins and faults in, 4 KiB or 2 MiB."""

    pinnable = True

    def __init__(
        self, base: int, size: int, page_size: int = PAGE_4K, *, read_only: bool = False
    ) -> None:
        check_page_size(page_size)
        super().__init__(base, size, page_size)
        self.read_only = read_only
        # Kept in larger pieces than it is paged in: fewer packets meet a border.
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
    """MMIO of an adapter: every write rings, nothing can be read.

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
    """``MemoryFault`` unless an atomic operation may use this address (IBA 9.4.5)."""
    if address % ATOMIC_SIZE:
        raise MemoryFault(f"atomic operation not aligned to {ATOMIC_SIZE}", address, ATOMIC_SIZE)


def added(old: bytes | memoryview, value: int) -> tuple[int, bytes]:
    """The number in eight bytes, and the bytes of its sum with ``value``.

    Numbers stand in memory in the host's byte order, here little-endian as on x86.
    """
    number = int.from_bytes(old, "little")
    return number, ((number + value) & LAST_ADDRESS).to_bytes(ATOMIC_SIZE, "little")


class AddressSpace:
    """Bus addresses, which for host memory are virtual addresses as well.

    Accesses cross mapping and page borders. One that meets no mapping, or one that refuses, is a
    ``MemoryFault`` that says where, and nothing was written.
    """

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._mappings: list[Mapping] = []
        self._watchers: list[Watcher] = []
        self._next = _FIRST_FREE

    @property
    def mappings(self) -> tuple[Mapping, ...]:
        """What is mapped, by address."""
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
        """Take a mapping out; ``VerbsError`` EINVAL if it is not mapped.

        Regions with pinned pages keep these; regions on demand lose them.
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
        """Host memory of ``size`` bytes or more, mapped at a free, page-aligned address.

        Unmapped bytes lie on both sides, so that stray accesses fault. ENOMEM where 64 bits of
        address do not suffice.
        """
        check_type("size", size, int)
        check_page_size(page_size)
        if size > LAST_ADDRESS - self._next - 2 * _GUARD:
            raise VerbsError(f"no {describe(size)} bytes of addresses left", ENOMEM)
        mapping = HostMemory(self.free_address(size), size + -size % page_size, page_size)
        self.map(mapping)
        self._next = mapping.end
        return mapping

    def free_address(self, size: int) -> int:
        """An address from which ``size`` bytes are free, 2 MiB or more from what is mapped."""
        base = self._next - self._next % -PAGE_2M + _GUARD
        for mapping in self._mappings[max(0, bisect_right(self._bases, base) - 1) :]:
            if mapping.base < base + size + _GUARD and base < mapping.end + _GUARD:
                base = mapping.end - mapping.end % -PAGE_2M + _GUARD
        return base

    def mapping_at(self, address: int) -> Mapping | None:
        """What is mapped there, if anything is."""
        index = bisect_right(self._bases, address) - 1
        if index < 0 or address >= self._mappings[index].end:
            return None
        return self._mappings[index]

    def spans(self, address: int, length: int) -> Iterator[Span]:
        """The range, mapping by mapping; ``MemoryFault`` at the first byte without one."""
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
        """Add to eight aligned bytes (little-endian); returns what was there."""
        check_type("address", address, int)
        check_type("value", value, int)
        check_aligned(address)
        old, new = added(self.read(address, ATOMIC_SIZE), value)
        self.write(address, new)
        return old

    def compare_swap(self, address: int, compare: int, swap: int) -> int:
        """Put ``swap`` into eight aligned bytes if they hold ``compare``; returns what was there.

        Memory that cannot be written faults whether or not the comparison holds.
        """
        for name, number in (("address", address), ("compare", compare), ("swap", swap)):
            check_type(name, number, int)
        check_aligned(address)
        self._admitted(address, ATOMIC_SIZE, writing=True)
        old = int.from_bytes(self.read(address, ATOMIC_SIZE), "little")
        if old == compare:
            self.write(address, (swap & LAST_ADDRESS).to_bytes(ATOMIC_SIZE, "little"))
        return old
