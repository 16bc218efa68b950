"""Posted writes: what came through BAR1 and becomes visible to kernels a little later.

A PCIe write is posted: its sender does not learn when it takes effect. Here every write gets the
time at which it becomes visible when it arrives, so that a kernel that reads memory at a given time
sees what became visible up to then. What may overtake what:

- Writes of one initiator (an adapter, a processor) become visible in the order in which it made
  them. One of a region with RELAXED_ORDERING may overtake those before it; what the initiator
  writes in order afterwards overtakes neither (PCIe Base Specification 2.4.1).
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
"""Bytes that are kept invisible; beyond that, the first to become visible do so at once."""
NEVER: Final = 1 << 64
"""Of a write that only a flush or a read makes visible. Later than any time."""


_Posted = tuple[int, int, bytes]
"""When a write becomes visible (ns), its address and its data."""


class PostedWrites:
    """The writes that kernels need not see yet.

    ``store(address, data)`` makes one visible. A write becomes visible after a delay from 0 to
    ``max_delay`` (ns), which comes from ``random``; with ``None`` only a flush makes it visible.
    ``now`` is the latest time (ns) that was told.
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
        """Take a write of ``initiator`` in, at its time; ``relaxed`` may overtake."""
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
        """Put a write behind all that become visible no later. Most often that is the end."""
        waiting, place = self._waiting, len(self._waiting)
        while place and waiting[place - 1][0] > posted[0]:
            place -= 1
        if place == len(waiting):
            waiting.append(posted)
        else:
            waiting.insert(place, posted)

    def _drawn(self) -> int:
        """The time at which a write that arrives now becomes visible, if it overtakes."""
        if self._max_delay is None:
            return NEVER
        return self.now + int(self._random.random() * (self._max_delay + 1))

    def advance(self, now: int) -> None:
        """Make visible what becomes so up to the time ``now`` (ns). Time does not go back."""
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
