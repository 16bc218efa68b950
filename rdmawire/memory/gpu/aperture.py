"""BAR1: the range of bus addresses at which pinned GPU pages appear."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from errno import ENOMEM
from random import Random
from typing import Final

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.memory.address_space import Initiator, Mapping
from rdmawire.memory.page import Path, SparsePages, split
from rdmawire.validate import BytesLike

MAX_POSTED: Final = 1 << 20
"""Maximum of invisible bytes; beyond that, the next writes become visible at once."""
NEVER: Final = 1 << 64
"""Time (ns) of a write that only a flush or a read makes visible: later than any other."""


_Posted = tuple[int, int, bytes]
"""Time (ns) at which a write becomes visible, its address and its data."""


class PostedWrites:
    """Writes that are not yet visible to kernels.

    ``store(address, data)`` makes one visible. A write becomes visible after a delay from 0 to
    ``max_delay`` (ns) drawn from ``random``; with ``None`` only a flush makes it visible. ``now``
    is the latest time (ns) seen so far.
    """

    def __init__(
        self, store: Callable[[int, bytes], None], max_delay: int | None, random: Random
    ) -> None:
        self._store = store
        self._max_delay = max_delay
        self._random = random
        self._waiting: deque[_Posted] = deque()  # by the time at which they become visible
        self._last: dict[Initiator | None, int] = {}  # when the latest write becomes visible
        self._bytes = 0
        self.now = 0

    def push(self, address: int, data: bytes, initiator: Initiator | None, relaxed: bool) -> None:
        """Add a write of ``initiator`` at its time; a ``relaxed`` one may overtake earlier ones."""
        if initiator is not None:
            self.advance(initiator.now)
        last = self._last.get(initiator, 0)
        drawn = self._drawn()
        latest = self._last[initiator] = max(drawn, last)
        self._insert((drawn if relaxed else latest, address, data))
        self._bytes += len(data)
        while self._bytes > MAX_POSTED:
            self._show()

    def _insert(self, posted: _Posted) -> None:
        """Insert a write by its time, after those of the same time; usually at the end."""
        waiting, index = self._waiting, len(self._waiting)
        while index and waiting[index - 1][0] > posted[0]:
            index -= 1
        if index == len(waiting):
            waiting.append(posted)
        else:
            waiting.insert(index, posted)

    def _drawn(self) -> int:
        """Draw the time (ns) at which a write that arrives now becomes visible."""
        if self._max_delay is None:
            return NEVER
        return self.now + int(self._random.random() * (self._max_delay + 1))

    def advance(self, now: int) -> None:
        """Make the writes up to ``now`` (ns) visible. Time does not go back."""
        now = max(self.now, now)
        self.now = now
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            self._show()

    def _show(self) -> None:
        _, address, data = self._waiting.popleft()
        self._bytes -= len(data)
        self._store(address, data)

    def flush(self) -> None:
        """Make all writes visible."""
        while self._waiting:
            self._show()

    def next_visible(self) -> int | None:
        """When the next write becomes visible by itself (ns). Asking changes nothing."""
        if not self._waiting or self._waiting[0][0] == NEVER:
            return None
        return self._waiting[0][0]


class Aperture(Mapping):
    """BAR1: ``size`` bytes of bus addresses, and the page table from them to ``memory`` of a GPU.

    The first ``reserved`` bytes are not assigned. A GPU page has one bus address, however often it
    is pinned. Reads push earlier posted writes, as on PCIe; without ``posted``, writes are
    visible at once.
    """

    path = Path.GPU_DIRECT

    def __init__(
        self,
        base: int,
        size: int,
        memory: SparsePages,
        *,
        reserved: int = 0,
        posted: PostedWrites | None = None,
    ) -> None:
        super().__init__(base, size, memory.page_size)
        self.lost = False  # the GPU fell off the bus
        self._memory = memory
        self._posted = posted
        self._next = base + reserved
        self._unused: list[int] = []
        self._pages: dict[int, int] = {}  # bus address of a page -> its GPU address
        self._bus: dict[int, int] = {}  # the reverse
        self._pins: Counter[int] = Counter()  # by GPU address

    @property
    def free(self) -> int:
        """Free bytes of BAR1."""
        return self.end - self._next + len(self._unused) * self.page_size

    def pins(self, page: int) -> int:
        """Number of pins of the page at a GPU address."""
        return self._pins[page]

    def pin(self, pages: Sequence[int]) -> tuple[int, ...]:
        """Pin GPU pages. Return their bus addresses; ``VerbsError`` ENOMEM if BAR1 is full."""
        needed = sum(page not in self._bus for page in pages) * self.page_size
        if needed > self.free:
            raise VerbsError(f"{needed} bytes of BAR1 needed, {self.free} left", ENOMEM)
        return tuple(self._pin(page) for page in pages)

    def _pin(self, page: int) -> int:
        self._pins[page] += 1
        bus = self._bus.get(page)
        if bus is None:
            bus = self._bus[page] = self._unused.pop() if self._unused else self._extend()
            self._pages[bus] = page
        return bus

    def _extend(self) -> int:
        bus, self._next = self._next, self._next + self.page_size
        return bus

    def unpin(self, pages: Sequence[int]) -> None:
        """Undo one pin of each page; posted writes are flushed before the last pin ends."""
        for page in pages:
            self._pins[page] -= 1
            if not self._pins[page]:
                self.flush()
                bus = self._bus.pop(page)
                del self._pins[page], self._pages[bus]
                self._unused.append(bus)

    def flush(self) -> None:
        """Make posted writes visible to kernels."""
        if self._posted is not None:
            self._posted.flush()

    def advance(self, now: int) -> None:
        """Make posted writes up to ``now`` (ns) visible to kernels."""
        if self._posted is not None:
            self._posted.advance(now)

    def next_visible(self) -> int | None:
        """When the next posted write becomes visible by itself (ns), if any does."""
        return None if self._posted is None else self._posted.next_visible()

    def _parts(self, address: int, length: int) -> Iterator[tuple[int, int]]:
        """Split the range into GPU addresses and lengths."""
        for start, size in split(address, length, self.page_size):
            offset = start % self.page_size
            yield self._pages[start - offset] + offset, size

    def admit(self, address: int, length: int, *, writing: bool) -> None:  # noqa: ARG002
        if self.lost:
            raise MemoryFault("GPU is off the bus", address, length)
        page = address - address % self.page_size
        if page in self._pages and address + length <= page + self.page_size:
            return
        for start, size in split(address, length, self.page_size):
            if start - start % self.page_size not in self._pages:
                raise MemoryFault("no GPU page behind BAR1", start, size)

    def read(self, address: int, length: int) -> bytes:
        self.flush()
        offset = address % self.page_size
        if offset + length <= self.page_size:
            return self._memory.read(self._pages[address - offset] + offset, length)
        return b"".join(self._memory.read(*part) for part in self._parts(address, length))

    def write(self, address: int, data: BytesLike) -> None:
        """Write as an unknown initiator, at the latest time (ns) seen so far."""
        self.post(address, data, None, relaxed=False)

    def post(
        self, address: int, data: BytesLike, initiator: Initiator | None, relaxed: bool
    ) -> None:
        raw = bytes(data)
        offset = address % self.page_size
        if offset + len(raw) <= self.page_size:
            self._store(self._pages[address - offset] + offset, raw, initiator, relaxed)
            return
        at = 0
        for start, size in self._parts(address, len(raw)):
            self._store(start, raw[at : at + size], initiator, relaxed)
            at += size

    def _store(self, address: int, data: bytes, initiator: Initiator | None, relaxed: bool) -> None:
        """Write inside one GPU page, at a GPU address."""
        if self._posted is None:
            self._memory.write(address, data)
        else:
            self._posted.push(address, data, initiator, relaxed)

    def lend(self, address: int, length: int) -> memoryview | None:
        """View of a pinned page; ``None`` with posted writes, which it could overtake."""
        if self._posted is not None:
            return None
        offset = address % self.page_size
        start = self._pages[address - offset] + offset
        page = self._memory.find(start >> self._memory.shift)
        at = start & self._memory.mask
        return None if page is None else page[at : at + length]
