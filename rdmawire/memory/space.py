"""An address space: windows that do not overlap, and accesses across them."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from errno import EEXIST, EINVAL, ENOMEM
from typing import Final, NamedTuple

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.argument import check_kind, check_range, length_of
from rdmawire.memory.page import LAST_ADDRESS, PAGE_2M, PAGE_4K, Octets
from rdmawire.memory.window import HostMemory, Window, check_page_size
from rdmawire.screen import shown

ATOMIC_SIZE: Final = 8
_FIRST_FREE: Final = 0x10000000
_GUARD: Final = PAGE_2M

Watcher = Callable[[int, int], None]


class Span(NamedTuple):
    """A range inside one window."""

    window: Window
    address: int
    length: int


def check_aligned(address: int) -> None:
    """``MemoryFault`` unless an atomic operation may use this address (IBA 9.4.5)."""
    if address % ATOMIC_SIZE:
        raise MemoryFault(f"atomic operation not aligned to {ATOMIC_SIZE}", address, ATOMIC_SIZE)


def added(old: bytes | memoryview, value: int) -> tuple[int, bytes]:
    """The number in eight octets, and the octets of its sum with ``value``.

    Numbers stand in memory in the host's byte order, here little-endian as on x86.
    """
    number = int.from_bytes(old, "little")
    return number, ((number + value) & LAST_ADDRESS).to_bytes(ATOMIC_SIZE, "little")


class AddressSpace:
    """Bus addresses, which for host memory are virtual addresses as well.

    Accesses cross window and page borders. One that meets no window, or one that refuses, is a
    ``MemoryFault`` that says where, and nothing was written.
    """

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._windows: list[Window] = []
        self._watchers: list[Watcher] = []
        self._next = _FIRST_FREE

    @property
    def windows(self) -> tuple[Window, ...]:
        """What is mapped, by address."""
        return tuple(self._windows)

    def map(self, window: Window) -> None:
        """Add a window; ``VerbsError`` EEXIST where it overlaps another."""
        check_kind("window", window, Window)
        index = bisect_right(self._bases, window.base)
        for other in self._windows[max(0, index - 1) : index + 1]:
            if other.base < window.end and window.base < other.end:
                raise VerbsError(f"{window.base:#x} is in use from {other.base:#x}", EEXIST)
        self._bases.insert(index, window.base)
        self._windows.insert(index, window)

    def unmap(self, window: Window) -> None:
        """Take a window out; ``VerbsError`` EINVAL if it is not mapped.

        Regions with pinned pages keep these; regions on demand lose them.
        """
        check_kind("window", window, Window)
        if window not in self._windows:
            raise VerbsError(f"no such window at {window.base:#x}", EINVAL)
        index = self._windows.index(window)
        del self._bases[index], self._windows[index]
        for watcher in tuple(self._watchers):
            watcher(window.base, window.end)

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher(start, end)`` when that range is unmapped."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.remove(watcher)

    def allocate(self, size: int, page_size: int = PAGE_4K) -> HostMemory:
        """Host memory of ``size`` octets or more, mapped at a free, page-aligned address.

        Unmapped octets lie on both sides, so that stray accesses fault. ENOMEM where 64 bits of
        address do not suffice.
        """
        check_kind("size", size, int)
        check_page_size(page_size)
        if size > LAST_ADDRESS - self._next - 2 * _GUARD:
            raise VerbsError(f"no {shown(size)} octets of addresses left", ENOMEM)
        window = HostMemory(self._gap(size), size + -size % page_size, page_size)
        self.map(window)
        self._next = window.end
        return window

    def _gap(self, size: int) -> int:
        """Where ``size`` octets are free, 2 MiB or more behind what is mapped before."""
        base = self._next - self._next % -PAGE_2M + _GUARD
        for window in self._windows[max(0, bisect_right(self._bases, base) - 1) :]:
            if window.base < base + size + _GUARD and base < window.end + _GUARD:
                base = window.end - window.end % -PAGE_2M + _GUARD
        return base

    def window_at(self, address: int) -> Window | None:
        """What is mapped there, if anything is."""
        index = bisect_right(self._bases, address) - 1
        if index < 0 or address >= self._windows[index].end:
            return None
        return self._windows[index]

    def spans(self, address: int, length: int) -> Iterator[Span]:
        """The range, window by window; ``MemoryFault`` at the first octet without one."""
        end = address + length
        while address < end:
            window = self.window_at(address)
            if window is None:
                raise MemoryFault("unmapped address", address, end - address)
            size = min(end, window.end) - address
            yield Span(window, address, size)
            address += size

    def _admitted(self, address: int, length: int, *, writing: bool) -> list[Span]:
        spans = list(self.spans(address, length))
        for window, start, size in spans:
            window.admit(start, size, writing=writing)
        return spans

    def read(self, address: int, length: int) -> bytes:
        check_range(address, length)
        spans = self._admitted(address, length, writing=False)
        return b"".join(window.read(start, size) for window, start, size in spans)

    def write(self, address: int, data: Octets) -> None:
        length = length_of(data)
        check_range(address, length)
        spans = self._admitted(address, length, writing=True)
        if len(spans) == 1:
            spans[0].window.write(address, data)
            return
        source = memoryview(data)
        for window, start, size in spans:
            window.write(start, source[start - address : start - address + size])

    def fetch_add(self, address: int, value: int) -> int:
        """Add to eight aligned octets (little-endian); returns what was there."""
        check_kind("address", address, int)
        check_kind("value", value, int)
        check_aligned(address)
        old, new = added(self.read(address, ATOMIC_SIZE), value)
        self.write(address, new)
        return old

    def compare_swap(self, address: int, compare: int, swap: int) -> int:
        """Put ``swap`` into eight aligned octets if they hold ``compare``; returns what was there.

        Memory that cannot be written faults whether or not the comparison holds.
        """
        for name, number in (("address", address), ("compare", compare), ("swap", swap)):
            check_kind(name, number, int)
        check_aligned(address)
        self._admitted(address, ATOMIC_SIZE, writing=True)
        old = int.from_bytes(self.read(address, ATOMIC_SIZE), "little")
        if old == compare:
            self.write(address, (swap & LAST_ADDRESS).to_bytes(ATOMIC_SIZE, "little"))
        return old
