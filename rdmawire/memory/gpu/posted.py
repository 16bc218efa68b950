"""Posted writes: writes through BAR1, which become visible to kernels a little later.

A PCIe write is posted: its sender does not learn when it takes effect. Here a write gets, when it
arrives, the time at which it becomes visible: a kernel that reads memory at a given time sees the
writes whose time has come. Ordering:

- Writes of one initiator (an adapter, a processor) become visible in the order in which it made
  them. A write to a region with RELAXED_ORDERING may overtake those before it; a later write
  without it overtakes neither (PCIe Base Specification 2.4.1).
- Writes of different initiators may overtake one another.
- Host memory is not posted: a flag, a completion or an ACK that says that data has arrived may be
  seen before the data is visible in the GPU.
- A read through BAR1 overtakes nothing: it makes all writes before it visible, and so do RDMA READ,
  FLUSH and atomics, which read, and ``flush``.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from rdmawire.memory.window import Initiator

MAX_POSTED: Final = 1 << 20
"""Most bytes that are invisible; beyond that, the next writes become visible at once."""
NEVER: Final = 1 << 64
"""The time (ns) of a write that only a flush or a read makes visible: later than any other."""


_Posted = tuple[int, int, bytes]
"""When a write becomes visible (ns), its address and its data."""


class PostedWrites:
    """Writes that are not visible to kernels yet.

    ``store(address, data)`` makes one visible. A write becomes visible after a delay from 0 to
    ``max_delay`` (ns) that ``random`` draws; with ``None`` only a flush makes it visible. ``now``
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
        """Add a write of ``initiator`` at its time; a ``relaxed`` one may overtake those before."""
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
        """Insert a write by its time, behind those of the same time; most often at the end."""
        waiting, place = self._waiting, len(self._waiting)
        while place and waiting[place - 1][0] > posted[0]:
            place -= 1
        if place == len(waiting):
            waiting.append(posted)
        else:
            waiting.insert(place, posted)

    def _drawn(self) -> int:
        """Draw the time (ns) at which a write that arrives now becomes visible."""
        if self._max_delay is None:
            return NEVER
        return self.now + int(self._random.random() * (self._max_delay + 1))

    def advance(self, now: int) -> None:
        """Make the writes visible whose time is ``now`` (ns) or earlier. Time does not go back."""
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
        """Make everything visible."""
        while self._waiting:
            self._show()

    def next_visible(self) -> int | None:
        """When the next write becomes visible by itself (ns). Asking changes nothing."""
        if not self._waiting or self._waiting[0][0] == NEVER:
            return None
        return self._waiting[0][0]
