"""Memory regions, IBA 10.6.

A region translates the addresses used with its keys (``iova``) into linear addresses of
its backing by adding a constant, and caches views of the backing's pages. So the
usual access is one lookup and one copy; all others use the backing. A region that
lost its pages has no view and no backing: accesses need no check for that.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from errno import EFAULT, EINVAL, ENOMEM
from typing import Final, Protocol

from rdmawire.errors import MemoryFault, PageFault, VerbsError
from rdmawire.memory.address_space import (
    ATOMIC_SIZE,
    AddressSpace,
    HostMemory,
    Initiator,
    Mapping,
    Span,
    added,
    check_aligned,
    swapped,
    write_result,
)
from rdmawire.memory.key import Access, Footprint, Grant, KeyFault, ProtectionDomain
from rdmawire.memory.page import PAGE_4K, PAGE_64K, DmaCounters, Path, split
from rdmawire.validate import BytesLike


class Owner(Protocol):
    """The region that uses a backing."""

    def forget(self) -> None:
        """Discard all views; new ones may be requested."""

    def invalidate(self) -> None:
        """The pages are permanently gone."""


class Backing(ABC):
    """Pages of ``page_size`` bytes at linear addresses."""

    page_size: int
    path: Path
    owner: Owner
    writable = True
    by_bus_address = False  # whether linear addresses are bus addresses
    faults = 0  # page faults
    copies = 0  # that each DMA costs
    peer: object = None  # the only adapter that may use it, if there is one
    initiator: Initiator | None = None  # bus initiator of writes
    relaxed = False  # whether its writes may overtake one another on the bus
    is_simple = False  # whether accesses have no other effect, though they may fail
    is_bulk = False  # whether one large access costs much less than several small ones
    lends = True  # whether it has views

    def originate(self, initiator: Initiator | None, *, relaxed: bool) -> None:
        """Set the initiator of writes, and whether they may overtake one another on the bus."""
        self.initiator = initiator
        self.relaxed = relaxed

    @abstractmethod
    def lend(self, address: int) -> memoryview | None:
        """View of the page at ``address``; ``None`` if accesses must use the backing."""

    @abstractmethod
    def read(self, address: int, length: int) -> bytes: ...

    @abstractmethod
    def write(self, address: int, data: BytesLike) -> None: ...

    def write_all(self, address: int, parts: Sequence[BytesLike]) -> None:
        """Write parts one after the other."""
        for part in parts:
            self.write(address, part)
            address += len(part)

    def push(self, address: int) -> None:
        """Complete earlier writes by a read; ``MemoryFault`` if that is not possible."""
        self.read(address, 1)

    def fault_in(self, address: int, length: int) -> None:  # noqa: B027  most pages are pinned
        """Make the pages of a range present.

        ``MemoryFault`` if they do not exist, ``PageFault`` until they are present.
        """

    def release(self) -> None:  # noqa: B027  most backings hold nothing
        """Release the pages of a destroyed region."""


class LockedMemory:
    """Host memory that a process has pinned, and the most that it may: ``ulimit -l``.

    ``limit`` is the maximum in bytes (RLIMIT_MEMLOCK), ``None`` for no limit; ``bytes`` is what is
    pinned, in whole pages of 4 KiB. As in Linux, the pages of a GPU do not count.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.bytes = 0

    def lock(self, size: int) -> None:
        """Count ``size`` more bytes; ``VerbsError`` ENOMEM if they exceed the limit."""
        if self.limit is not None and self.bytes + size > self.limit:
            raise VerbsError(
                f"Cannot allocate memory: {self.bytes + size} bytes would be locked, and ulimit -l"
                f" allows {self.limit}",
                ENOMEM,
            )
        self.bytes += size

    def unlock(self, size: int) -> None:
        """Count ``size`` fewer bytes."""
        self.bytes -= size


def _whole_pages(address: int, length: int) -> int:
    """Return the bytes of all pages of 4 KiB that a range touches."""
    return (address + length + -(address + length) % PAGE_4K) - (address - address % PAGE_4K)


class HostPages(Backing):
    """Pinned host memory: its mappings remain even if the space unmaps them."""

    path = Path.HOST
    by_bus_address = True
    is_simple = True

    def __init__(
        self,
        space: AddressSpace,
        address: int,
        length: int,
        *,
        writing: bool,
        locked: LockedMemory | None = None,
    ) -> None:
        """Pin memory, and count it in ``locked``.

        ``VerbsError`` ENOMEM if that is too much, which Linux checks first; EFAULT for memory that
        cannot be pinned: holes, MMIO, read-only memory.
        """
        self._locked = LockedMemory() if locked is None else locked
        self._size = _whole_pages(address, length)
        self._locked.lock(self._size)
        try:
            mappings = list(_pinned(space, address, length, writing=writing))
        except VerbsError:
            self._locked.unlock(self._size)
            raise
        self._space = AddressSpace()
        for mapping in mappings:
            self._space.map(mapping)
        # Usually there is one mapping, which needs no lookup.
        self._pages = mappings[0].pages if len(mappings) == 1 else None
        self.writable = writing
        self.page_size = self._pages.page_size if self._pages else PAGE_4K

    def lend(self, address: int) -> memoryview | None:
        if self._pages and self.writable:
            return self._pages.find(address >> self._pages.shift)
        mapping = self._space.mapping_at(address)
        return None if mapping is None else mapping.lend(address, self.page_size)

    def read(self, address: int, length: int) -> bytes:
        return (self._pages or self._space).read(address, length)

    def write(self, address: int, data: BytesLike) -> None:
        (self._pages if self._pages and self.writable else self._space).write(address, data)

    def release(self) -> None:
        self._locked.unlock(self._size)


def _pinned(
    space: AddressSpace, address: int, length: int, *, writing: bool
) -> Iterator[HostMemory]:
    try:
        for mapping, start, size in space.spans(address, length):
            mapping.admit(start, size, writing=writing)
            if not isinstance(mapping, HostMemory):
                raise MemoryFault("not host memory", start, size)
            yield mapping
    except MemoryFault as fault:
        raise VerbsError(f"Bad address: {fault}", EFAULT) from fault


class OnDemand(Backing):
    """Host memory that is not pinned: an adapter's first access to a page is a page fault.

    Unmapped pages are lost, and pages mapped there later cause new faults. A page is present
    ``latency`` ns after the fault; an access before that raises ``PageFault``.
    """

    path = Path.HOST
    page_size = PAGE_4K
    by_bus_address = True

    def __init__(self, space: AddressSpace, latency: int = 0) -> None:
        self._space = space
        self._latency = latency
        self._ready: dict[int, int] = {}  # first address of a page -> when it is present (ns)
        space.watch(self._unmapped)

    def _unmapped(self, start: int, end: int) -> None:
        self._ready = {page: at for page, at in self._ready.items() if not start <= page < end}
        self.owner.forget()

    def fault_in(self, address: int, length: int) -> None:
        """Make missing pages of a range present.

        ``MemoryFault`` if they do not exist, ``PageFault`` until all are present.
        """
        now = 0 if self.initiator is None else self.initiator.now
        ready = self._bring(address, length, now + self._latency)
        if ready > now and self.initiator is not None:
            raise PageFault("the page is being brought in", address, length, ready)

    def prefetch(self, address: int, length: int) -> None:
        """Make the pages of a range present at once; ``MemoryFault`` if they do not exist."""
        self._bring(address, length, 0)

    def _bring(self, address: int, length: int, ready: int) -> int:
        """Make missing pages present at ``ready`` (ns). Return when all pages are present."""
        spans = list(self._space.spans(address, length))
        for mapping, start, size in spans:
            if not mapping.pinnable:
                raise MemoryFault("no memory that can be paged", start, size)
        return max((self._page(page, ready) for page in _pages(spans)), default=0)

    def _page(self, page: int, ready: int) -> int:
        """When a page is present (ns): at ``ready``, or at its earlier scheduled time."""
        if page not in self._ready:
            self._ready[page] = ready
            self.faults += 1
        elif ready < self._ready[page]:
            self._ready[page] = ready
        return self._ready[page]

    def lend(self, address: int) -> memoryview | None:
        mapping = self._space.mapping_at(address)
        return None if mapping is None else mapping.lend(address, PAGE_4K)

    def read(self, address: int, length: int) -> bytes:
        self.fault_in(address, length)
        return self._space.read(address, length)

    def write(self, address: int, data: BytesLike) -> None:
        self.fault_in(address, len(data))
        self._space.write(address, data)

    def push(self, address: int) -> None:
        """Do nothing: writes to host memory are complete at once."""

    def release(self) -> None:
        self._space.unwatch(self._unmapped)


def _pages(spans: Sequence[Span]) -> Iterator[int]:
    """First addresses of the pages in the ranges, by the page size of each mapping."""
    for mapping, address, length in spans:
        for start, _ in split(address, length, mapping.page_size):
            yield start & -mapping.page_size


class PageList(Backing):
    """A list of bus pages of a fast registration.

    The first page begins at linear address ``first``. The pages may be of host memory
    or of an aperture; the first one selects the path to count.
    """

    lends_devices = False  # whether device pages are pinned, with notice when they are removed

    def __init__(
        self, space: AddressSpace, first: int, pages: Sequence[int], page_size: int
    ) -> None:
        """``VerbsError`` EINVAL for a bus address that is not page-aligned, EFAULT if unmapped."""
        self.page_size = min(page_size, PAGE_64K)  # of views, which are contiguous
        self._size = page_size
        self._first = first
        self._pages = [(_mapping(space, page, page_size), page) for page in pages]
        self.path = self._pages[0][0].path

    def _part(self, address: int, length: int, *, writing: bool) -> tuple[Mapping, int] | None:
        """Mapping and bus address of bytes inside one page, after the access check."""
        at = address - self._first
        number = at // self._size
        offset = at - number * self._size
        if not length or offset + length > self._size:
            return None
        mapping, page = self._pages[number]
        mapping.admit(page + offset, length, writing=writing)
        return mapping, page + offset

    def _parts(self, address: int, length: int) -> Iterator[tuple[Mapping, int, int]]:
        for start, size in split(address - self._first, length, self._size):
            mapping, page = self._pages[start // self._size]
            yield mapping, page + start % self._size, size

    def lend(self, address: int) -> memoryview | None:
        at = address - self._first
        mapping, page = self._pages[at // self._size]
        if not (mapping.pinnable or self.lends_devices):
            return None
        return mapping.lend(page + at % self._size, self.page_size)

    def _admitted(
        self, address: int, length: int, *, writing: bool
    ) -> list[tuple[Mapping, int, int]]:
        parts = list(self._parts(address, length))
        for mapping, start, size in parts:
            mapping.admit(start, size, writing=writing)
        return parts

    def read(self, address: int, length: int) -> bytes:
        part = self._part(address, length, writing=False)
        if part is not None:
            return part[0].read(part[1], length)
        parts = self._admitted(address, length, writing=False)
        return b"".join(mapping.read(start, size) for mapping, start, size in parts)

    def write(self, address: int, data: BytesLike) -> None:
        part = self._part(address, len(data), writing=True)
        if part is None:
            self._write_parts(address, data)
        else:
            part[0].post(part[1], data, self.initiator, self.relaxed)

    def _write_parts(self, address: int, data: BytesLike) -> None:
        source = memoryview(data)
        at = 0
        for mapping, start, size in self._admitted(address, len(data), writing=True):
            mapping.post(start, source[at : at + size], self.initiator, self.relaxed)
            at += size


def _mapping(space: AddressSpace, page: int, page_size: int) -> Mapping:
    mapping = space.mapping_at(page)
    if page % page_size:
        raise VerbsError(f"bus address {page:#x} begins no page of {page_size}", EINVAL)
    if mapping is None or page + page_size > mapping.end:
        raise VerbsError(f"no page of {page_size} at bus address {page:#x}", EFAULT)
    return mapping


_ZERO_BASED: Final = Access.ZERO_BASED.value
_RELAXED: Final = Access.RELAXED_ORDERING.value


class Region(Grant):
    """A memory region. ``address`` is its start for the application.

    Local and remote key are one number. The four accesses take addresses from ``iova`` on and
    raise ``MemoryFault`` outside the region, for unaligned atomics, and after the
    pages were removed. Each is counted as one DMA. ``is_plain`` says that accesses have no other
    effect, though they may raise ``MemoryFault``.
    """

    __slots__ = (
        "_backing", "_copies", "_delta", "_direct", "_dma", "_initiator", "_mask", "_page_size",
        "_pages", "_path", "_shift", "address", "is_plain", "max_pages", "windows",
    )  # fmt: skip
    pd: ProtectionDomain
    label = "MR"

    def __init__(
        self,
        pd: ProtectionDomain,
        counters: DmaCounters,
        max_pages: int = 0,
        initiator: Initiator | None = None,
    ) -> None:
        """A region without pages; one with ``max_pages`` is for fast registration.

        ``initiator`` is the adapter as a bus initiator.
        """
        super().__init__(pd)
        self.address = 0
        self.max_pages = max_pages
        self.windows: set[Grant] = set()  # bound to this region
        self._dma = counters
        self._initiator = initiator
        self._pages: dict[int, memoryview] = {}
        self._backing: Backing | None = None
        self.is_plain = False
        self._direct: Backing | None = None  # the backing if it has no views
        self._delta = self._shift = self._mask = self._page_size = self._copies = 0
        self._path = counters[Path.HOST]

    def __getstate__(self) -> object:
        """The state of a copy, without cached pages: its own backing provides them."""
        state: tuple[None, dict[str, object]] = super().__getstate__()  # type: ignore[assignment]
        return None, state[1] | {"_pages": {}}

    @property
    def addr(self) -> int:
        """The address of the first byte, as libibverbs calls it: :attr:`address`."""
        return self.address

    @property
    def lkey(self) -> int:
        return self.key

    @property
    def rkey(self) -> int:
        return self.key

    @property
    def backing(self) -> Backing | None:
        return self._backing

    @property
    def is_bulk(self) -> bool:  # type: ignore[override]
        """Whether one large access costs much less than several small ones."""
        return self._backing is not None and self._backing.is_bulk

    @property
    def page_faults(self) -> int:
        """Page faults of the adapter: only on-demand regions have any."""
        return self._backing.faults if self._backing else 0

    @property
    def zero_based(self) -> bool:
        return bool(self.access & _ZERO_BASED)

    def translate(self, backing: Backing, address: int, iova: int, length: int) -> None:
        """Set the backing of the region: ``iova`` maps to linear address ``address``."""
        self.drop()
        self._backing = backing
        self.is_plain = backing.is_simple
        self._direct = None if backing.lends else backing
        backing.owner = self
        self.address = address
        self.iova = iova
        self.end = iova + length
        self._delta = address - iova
        self._page_size = backing.page_size
        self._shift = backing.page_size.bit_length() - 1
        self._mask = backing.page_size - 1
        self._path = self._dma[backing.path]
        self._copies = backing.copies

    def allow(self, access: int) -> None:
        """Grant these rights to the complete region."""
        self.permit(self.iova, self.length, access, local=True)
        if self._backing is not None:
            self._backing.originate(self._initiator, relaxed=bool(access & _RELAXED))

    def drop(self) -> None:
        """Release the pages."""
        backing, self._backing, self._direct = self._backing, None, None
        self.is_plain = False
        self._pages.clear()
        if backing is not None:
            backing.release()

    def forget(self) -> None:
        """Discard all views of the backing's pages."""
        self._pages.clear()

    def invalidate(self) -> None:
        """Remove the pages: keys are refused, and accesses in progress fail."""
        for grant in (self, *self.windows):
            grant.deny(KeyFault.INVALIDATED)
        self.drop()

    def read(self, iova: int, length: int) -> bytes | memoryview:
        """Return ``length`` bytes, perhaps a view of the page: copy it before the next write."""
        direct = self._direct
        if direct is not None and self.iova <= iova and iova + length <= self.end:
            counters = self._path
            counters.address = address = iova + self._delta
            counters.bytes += length
            counters.transactions += 1
            return direct.read(address, length)
        address = iova + self._delta
        page = self._pages.get(address >> self._shift)
        at = address & self._mask
        end = at + length
        if page is None or end > self._page_size or iova < self.iova or iova + length > self.end:
            return self._read_pages(iova, length)
        counters = self._path
        counters.address = address
        counters.bytes += length
        counters.transactions += 1
        return page[at:end]

    def write(self, iova: int, data: BytesLike) -> None:
        """Write ``data`` (bytes; a memoryview must have format ``B``)."""
        length, direct = len(data), self._direct
        if direct is not None and self.iova <= iova and iova + length <= self.end:
            counters = self._path
            counters.address = address = iova + self._delta
            counters.bytes += length
            counters.transactions += 1
            direct.write(address, data)
            return
        address = iova + self._delta
        page = self._pages.get(address >> self._shift)
        at = address & self._mask
        end = at + length
        if page is None or end > self._page_size or iova < self.iova or iova + length > self.end:
            self._write_pages(iova, data)
            return
        page[at:end] = data
        counters = self._path
        counters.address = address
        counters.bytes += length
        counters.transactions += 1

    def write_all(self, iova: int, parts: Sequence[BytesLike]) -> None:
        """Write parts one after the other."""
        length = sum(map(len, parts))
        self._checked(iova, length).write_all(iova + self._delta, parts)
        self._count(iova, length)

    def place(self, iova: int) -> int:
        return iova

    def footprint(self, iova: int, length: int) -> Footprint:
        if self._backing is None or not self._backing.by_bus_address:
            return Footprint(self, iova, iova + length)
        start = iova + self._delta
        return Footprint(None, start, start + length)

    def fault_in(self, iova: int, length: int) -> None:
        self._checked(iova, length).fault_in(iova + self._delta, length)

    def push(self, iova: int) -> None:
        self._checked(iova, 1).push(iova + self._delta)

    def fetch_add(self, iova: int, value: int) -> int:
        """Add to eight bytes, little-endian; return the previous value. One read, one write."""
        check_aligned(iova)
        old, new = added(self.read(iova, ATOMIC_SIZE), value)
        write_result(self.write, iova, new)
        return old

    def compare_swap(self, iova: int, compare: int, swap: int) -> int:
        """Write ``swap`` to eight bytes equal to ``compare``; return the previous value."""
        check_aligned(iova)
        old, new = swapped(self.read(iova, ATOMIC_SIZE), compare, swap)
        write_result(self.write, iova, new)
        return old

    def _checked(self, iova: int, length: int) -> Backing:
        if self._backing is None:
            raise MemoryFault(f"region {self.key:#x} has no pages", iova, length)
        if iova < self.iova or iova + length > self.end:
            raise MemoryFault(f"outside region {self.key:#x}", iova, length)
        return self._backing

    def _read_pages(self, iova: int, length: int) -> bytes:
        data = self._checked(iova, length).read(iova + self._delta, length)
        self._count(iova, length)
        return data

    def _write_pages(self, iova: int, data: BytesLike) -> None:
        self._checked(iova, len(data)).write(iova + self._delta, data)
        self._count(iova, len(data))

    def _count(self, iova: int, length: int) -> None:
        """Count a DMA, and cache the page it ended in for the next one."""
        path, backing = self._path, self._backing
        path.address = iova + self._delta
        path.bytes += length
        path.transactions += 1
        path.copies += self._copies
        if backing is None or not backing.lends:
            return
        number = (iova + length - 1 + self._delta) >> self._shift
        if length and number not in self._pages:
            page = backing.lend(number << self._shift)
            if page is not None:
                self._pages[number] = page
