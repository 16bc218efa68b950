"""Memory regions, IBA 10.6.

A region translates the addresses that its keys are used with (``iova``) into linear addresses of
its backing, a constant further on, and keeps views of the pages that the backing lent. So the
usual access is one lookup and one copy; whatever is not usual goes to the backing. A region that
lost its pages keeps no view and has no backing: no access needs to ask whether it is alive.
"""

from typing import Final

from rdmawire.errors import MemoryFault
from rdmawire.memory.access import Access
from rdmawire.memory.backing import Backing
from rdmawire.memory.counter import DmaCounter, Path
from rdmawire.memory.domain import ProtectionDomain
from rdmawire.memory.grant import Footprint, Grant, KeyFault
from rdmawire.memory.page import LAST_ADDRESS, Octets
from rdmawire.memory.space import ATOMIC_SIZE, added, check_aligned
from rdmawire.memory.window import Initiator

_ZERO_BASED: Final = Access.ZERO_BASED.value
_RELAXED: Final = Access.RELAXED_ORDERING.value


class Region(Grant):
    """A memory region. ``address`` is where it begins for the application.

    Local and remote key are one number. The four accesses take addresses from ``iova`` on and
    raise ``MemoryFault`` for what is outside, for atomics that are not aligned, and once the
    pages are gone. Each is counted as one DMA.
    """

    __slots__ = (
        "_backing", "_copies", "_counter", "_delta", "_initiator", "_mask", "_page_size", "_pages",
        "_shift", "_tally", "address", "max_pages", "windows",
    )  # fmt: skip
    pd: ProtectionDomain
    label = "MR"

    def __init__(
        self,
        pd: ProtectionDomain,
        counter: DmaCounter,
        max_pages: int = 0,
        initiator: Initiator | None = None,
    ) -> None:
        """A region without pages; one with ``max_pages`` is for fast registration.

        ``initiator`` is the adapter that uses it, as the bus sees it.
        """
        super().__init__(pd)
        self.address = 0
        self.max_pages = max_pages
        self.windows: set[Grant] = set()  # bound to this region
        self._counter = counter
        self._initiator = initiator
        self._pages: dict[int, memoryview] = {}
        self._backing: Backing | None = None
        self._delta = self._shift = self._mask = self._page_size = self._copies = 0
        self._tally = counter[Path.HOST]

    def __getstate__(self) -> object:
        """The state of a copy, without cached pages: its own backing lends it those."""
        state: tuple[None, dict[str, object]] = super().__getstate__()  # type: ignore[assignment]
        return None, state[1] | {"_pages": {}}

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
    def page_faults(self) -> int:
        """Pages that were not there when the adapter came: only regions on demand have any."""
        return self._backing.faults if self._backing else 0

    @property
    def zero_based(self) -> bool:
        return bool(self.access & _ZERO_BASED)

    def translate(self, backing: Backing, address: int, iova: int, length: int) -> None:
        """Put pages behind the region: ``iova`` means linear address ``address``."""
        self.drop()
        self._backing = backing
        backing.owner = self
        self.address = address
        self.iova = iova
        self.end = iova + length
        self._delta = address - iova
        self._page_size = backing.page_size
        self._shift = backing.page_size.bit_length() - 1
        self._mask = backing.page_size - 1
        self._tally = self._counter[backing.path]
        self._copies = backing.copies

    def allow(self, access: int) -> None:
        """Grant these rights to the whole region."""
        self.permit(self.iova, self.length, access, local=True)
        if self._backing is not None:
            self._backing.originate(self._initiator, relaxed=bool(access & _RELAXED))

    def drop(self) -> None:
        """Give the pages back."""
        backing, self._backing = self._backing, None
        self._pages.clear()
        if backing is not None:
            backing.release()

    def forget(self) -> None:
        """What the backing lent is no longer good."""
        self._pages.clear()

    def invalidate(self) -> None:
        """The pages are gone: keys are refused, and accesses under way find nothing."""
        for grant in (self, *self.windows):
            grant.deny(KeyFault.INVALIDATED)
        self.drop()

    def read(self, iova: int, length: int) -> bytes | memoryview:
        """``length`` octets. May be a view of the page: copy it before anything is written."""
        address = iova + self._delta
        page = self._pages.get(address >> self._shift)
        at = address & self._mask
        end = at + length
        if page is None or end > self._page_size or iova < self.iova or iova + length > self.end:
            return self._read_pages(iova, length)
        tally = self._tally
        tally.octets += length
        tally.transactions += 1
        return page[at:end]

    def write(self, iova: int, data: Octets) -> None:
        """Write ``data`` (octets: a view must be of format ``B``)."""
        length = len(data)
        address = iova + self._delta
        page = self._pages.get(address >> self._shift)
        at = address & self._mask
        end = at + length
        if page is None or end > self._page_size or iova < self.iova or iova + length > self.end:
            self._write_pages(iova, data)
            return
        page[at:end] = data
        tally = self._tally
        tally.octets += length
        tally.transactions += 1

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
        """Add to eight octets, little-endian; returns what was there. One read, one write."""
        check_aligned(iova)
        old, new = added(self.read(iova, ATOMIC_SIZE), value)
        self.write(iova, new)
        return old

    def compare_swap(self, iova: int, compare: int, swap: int) -> int:
        """Put ``swap`` into eight octets if they hold ``compare``; returns what was there."""
        check_aligned(iova)
        old = int.from_bytes(self.read(iova, ATOMIC_SIZE), "little")
        new = swap & LAST_ADDRESS if old == compare else old
        self.write(iova, new.to_bytes(ATOMIC_SIZE, "little"))
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

    def _write_pages(self, iova: int, data: Octets) -> None:
        self._checked(iova, len(data)).write(iova + self._delta, data)
        self._count(iova, len(data))

    def _count(self, iova: int, length: int) -> None:
        """Count a DMA, and borrow the page it ended in for the next one."""
        self._tally.octets += length
        self._tally.transactions += 1
        self._tally.copies += self._copies
        number = (iova + length - 1 + self._delta) >> self._shift
        if length and self._backing is not None and number not in self._pages:
            page = self._backing.lend(number << self._shift)
            if page is not None:
                self._pages[number] = page
