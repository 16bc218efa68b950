"""What stands behind a region: pages, and a way to them from the region's linear addresses.

A region keeps views of pages that its backing lends, and asks the backing for everything else:
ranges across pages, pages that do not exist yet, pages that cannot be lent. A backing tells its
region when what it lent is no longer good.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from errno import EFAULT, EINVAL
from typing import Protocol

from rdmawire.errors import MemoryFault, PageFault, VerbsError
from rdmawire.memory.counter import Path
from rdmawire.memory.page import PAGE_4K, PAGE_64K, Octets, split
from rdmawire.memory.space import AddressSpace, Span
from rdmawire.memory.window import HostMemory, Initiator, Window


class Owner(Protocol):
    """The region that uses a backing."""

    def forget(self) -> None:
        """Views lent so far are no longer good; new ones may be asked for."""

    def invalidate(self) -> None:
        """The pages are gone for ever."""


class Backing(ABC):
    """Pages of ``page_size`` octets at linear addresses."""

    page_size: int
    path: Path
    owner: Owner
    writable = True
    by_bus_address = False  # whether linear addresses are bus addresses
    faults = 0  # pages that came when they were needed
    copies = 0  # that each DMA costs
    peer: object = None  # the only adapter that may use it, if there is one
    initiator: Initiator | None = None  # who writes
    relaxed = False  # whether its writes may overtake one another on the bus

    def originate(self, initiator: Initiator | None, *, relaxed: bool) -> None:
        """Set who writes, and whether its writes may overtake one another on the bus."""
        self.initiator = initiator
        self.relaxed = relaxed

    @abstractmethod
    def lend(self, address: int) -> memoryview | None:
        """The page that begins at ``address``; ``None`` if accesses must come to the backing."""

    @abstractmethod
    def read(self, address: int, length: int) -> bytes: ...

    @abstractmethod
    def write(self, address: int, data: Octets) -> None: ...

    def push(self, address: int) -> None:
        """Have what was written before arrive, ``MemoryFault`` if it cannot. A read does that."""
        self.read(address, 1)

    def fault_in(self, address: int, length: int) -> None:  # noqa: B027  most pages are pinned
        """Have the pages of a range present.

        ``MemoryFault`` where there are none, ``PageFault`` while they are being brought in.
        """

    def release(self) -> None:  # noqa: B027  most backings hold nothing
        """The region is gone."""


class HostPages(Backing):
    """Pinned host memory: its windows stay, even when the space unmaps them."""

    path = Path.HOST
    by_bus_address = True

    def __init__(self, space: AddressSpace, address: int, length: int, *, writing: bool) -> None:
        """``VerbsError`` EFAULT for what cannot be pinned: holes, MMIO, read-only memory."""
        windows = list(_pinned(space, address, length, writing=writing))
        self._space = AddressSpace()
        for window in windows:
            self._space.map(window)
        # Most often there is one window, and no need to look for it.
        self._pages = windows[0].pages if len(windows) == 1 else None
        self.writable = writing
        self.page_size = self._pages.page_size if self._pages else PAGE_4K

    def lend(self, address: int) -> memoryview | None:
        if self._pages and self.writable:
            return self._pages.find(address >> self._pages.shift)
        window = self._space.window_at(address)
        return None if window is None else window.lend(address, self.page_size)

    def read(self, address: int, length: int) -> bytes:
        return (self._pages or self._space).read(address, length)

    def write(self, address: int, data: Octets) -> None:
        (self._pages if self._pages and self.writable else self._space).write(address, data)


def _pinned(
    space: AddressSpace, address: int, length: int, *, writing: bool
) -> Iterator[HostMemory]:
    try:
        for window, start, size in space.spans(address, length):
            window.admit(start, size, writing=writing)
            if not isinstance(window, HostMemory):
                raise MemoryFault("not host memory", start, size)
            yield window
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
        """Bring in the pages of a range that are not present.

        ``MemoryFault`` where there are none, ``PageFault`` until all are present.
        """
        now = 0 if self.initiator is None else self.initiator.now
        ready = self._bring(address, length, now + self._latency)
        if ready > now and self.initiator is not None:
            raise PageFault("the page is being brought in", address, length, ready)

    def prefetch(self, address: int, length: int) -> None:
        """Make the pages of a range present at once; ``MemoryFault`` where there are none."""
        self._bring(address, length, 0)

    def _bring(self, address: int, length: int, ready: int) -> int:
        """Have missing pages present at ``ready`` (ns). Return when all pages are present."""
        spans = list(self._space.spans(address, length))
        for window, start, size in spans:
            if not window.pinnable:
                raise MemoryFault("no memory that can be paged", start, size)
        return max((self._page(page, ready) for page in _pages(spans)), default=0)

    def _page(self, page: int, ready: int) -> int:
        """When a page is present (ns): at ``ready``, or when it was to be, if that is earlier."""
        if page not in self._ready:
            self._ready[page] = ready
            self.faults += 1
        elif ready < self._ready[page]:
            self._ready[page] = ready
        return self._ready[page]

    def lend(self, address: int) -> memoryview | None:
        window = self._space.window_at(address)
        return None if window is None else window.lend(address, PAGE_4K)

    def read(self, address: int, length: int) -> bytes:
        self.fault_in(address, length)
        return self._space.read(address, length)

    def write(self, address: int, data: Octets) -> None:
        self.fault_in(address, len(data))
        self._space.write(address, data)

    def push(self, address: int) -> None:
        """Nothing is on its way: host memory has what was written, and a hole never was."""

    def release(self) -> None:
        self._space.unwatch(self._unmapped)


def _pages(spans: Sequence[Span]) -> Iterator[int]:
    """The first addresses of the pages that ranges touch, as their windows are paged."""
    for window, address, length in spans:
        for start, _ in split(address, length, window.page_size):
            yield start & -window.page_size


class PageList(Backing):
    """A list of bus pages, as a fast registration gives it.

    The first page begins at linear address ``first``. The pages may be of host memory
    or of an aperture; the first one says which path is counted.
    """

    lends_devices = False  # pages of devices are pinned and told of when they go

    def __init__(
        self, space: AddressSpace, first: int, pages: Sequence[int], page_size: int
    ) -> None:
        """``VerbsError`` EINVAL for a bus address that begins no page, EFAULT for one of none."""
        self.page_size = min(page_size, PAGE_64K)  # of what is lent, which lies in one piece
        self._size = page_size
        self._first = first
        self._pages = [(_window(space, page, page_size), page) for page in pages]
        self.path = self._pages[0][0].path

    def _part(self, address: int, length: int, *, writing: bool) -> tuple[Window, int] | None:
        """Window and bus address of some octets inside one page, admitted."""
        at = address - self._first
        number = at // self._size
        offset = at - number * self._size
        if not length or offset + length > self._size:
            return None
        window, page = self._pages[number]
        window.admit(page + offset, length, writing=writing)
        return window, page + offset

    def _parts(self, address: int, length: int) -> Iterator[tuple[Window, int, int]]:
        for start, size in split(address - self._first, length, self._size):
            window, page = self._pages[start // self._size]
            yield window, page + start % self._size, size

    def lend(self, address: int) -> memoryview | None:
        at = address - self._first
        window, page = self._pages[at // self._size]
        if not (window.pinnable or self.lends_devices):
            return None
        return window.lend(page + at % self._size, self.page_size)

    def _admitted(
        self, address: int, length: int, *, writing: bool
    ) -> list[tuple[Window, int, int]]:
        parts = list(self._parts(address, length))
        for window, start, size in parts:
            window.admit(start, size, writing=writing)
        return parts

    def read(self, address: int, length: int) -> bytes:
        part = self._part(address, length, writing=False)
        if part is not None:
            return part[0].read(part[1], length)
        parts = self._admitted(address, length, writing=False)
        return b"".join(window.read(start, size) for window, start, size in parts)

    def write(self, address: int, data: Octets) -> None:
        part = self._part(address, len(data), writing=True)
        if part is None:
            self._write_parts(address, data)
        else:
            part[0].post(part[1], data, self.initiator, self.relaxed)

    def _write_parts(self, address: int, data: Octets) -> None:
        source = memoryview(data)
        at = 0
        for window, start, size in self._admitted(address, len(data), writing=True):
            window.post(start, source[at : at + size], self.initiator, self.relaxed)
            at += size


def _window(space: AddressSpace, page: int, page_size: int) -> Window:
    window = space.window_at(page)
    if page % page_size:
        raise VerbsError(f"bus address {page:#x} begins no page of {page_size}", EINVAL)
    if window is None or page + page_size > window.end:
        raise VerbsError(f"no page of {page_size} at bus address {page:#x}", EFAULT)
    return window
