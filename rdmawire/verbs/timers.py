"""Deadlines of many objects in one heap, the soonest first. Times are in ns.

When a deadline moves later, its entry stays in the heap, and is moved when it reaches the front:
nearly every ACK moves a deadline, which must cost nothing. A deadline that moves earlier, or is
disarmed, leaves a stale entry. Once more than half of the entries are stale, they are removed
together, so the heap holds at most ``2 * live + SLACK`` entries for ``live`` deadlines.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

SLACK = 16
"""Maximum number of stale entries that are kept without a cleanup."""


class Waiter(Protocol):
    """An object with a ``deadline``; ``place`` is the time of its entry in the heap.

    Both are set by :class:`Timers`; ``None`` means no deadline and no entry.
    """

    deadline: int | None
    place: int | None


W = TypeVar("W", bound=Waiter)


class Timers(Generic[W]):
    """The deadlines of the waiters of one adapter.

    ``heap`` has the entries, stale ones included; if it is empty, there is no deadline.
    """

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, W]] = []
        self._entries = 0
        self._live = 0

    def __len__(self) -> int:
        """The number of entries in the heap, stale ones included."""
        return len(self.heap)

    def arm(self, waiter: W, deadline: int) -> None:
        """Set the deadline of ``waiter``, in place of an earlier one."""
        if waiter.deadline is None:
            self._live += 1
        waiter.deadline = deadline
        if waiter.place is None or deadline < waiter.place:
            self._put(waiter, deadline)
            self._clean()

    def disarm(self, waiter: W) -> None:
        """Remove the deadline of ``waiter``."""
        if waiter.deadline is not None:
            waiter.deadline = None
            self._live -= 1
            self._clean()

    def next(self) -> int | None:
        """The soonest deadline, or ``None``."""
        while self.heap:
            time, _, waiter = self.heap[0]
            if waiter.place == time == waiter.deadline:
                return time
            self._put_back()
        return None

    def due(self, now: int) -> Iterator[W]:
        """Remove the waiters whose deadline is ``now`` or earlier, and yield them in order."""
        while (time := self.next()) is not None and time <= now:
            waiter = heappop(self.heap)[2]
            waiter.place = None
            self.disarm(waiter)
            yield waiter

    def _put(self, waiter: W, time: int) -> None:
        waiter.place = time
        self._entries += 1
        heappush(self.heap, (time, self._entries, waiter))

    def _put_back(self) -> None:
        """Remove the first entry, and add another for its waiter if that still has a deadline."""
        time, _, waiter = heappop(self.heap)
        if waiter.place == time:
            waiter.place = None
            if waiter.deadline is not None:
                self._put(waiter, waiter.deadline)

    def _clean(self) -> None:
        """Remove stale entries, if they are more than half of all."""
        if len(self.heap) <= 2 * self._live + SLACK:
            return
        needed: dict[W, tuple[int, int, W]] = {}
        for entry in sorted(self.heap, reverse=True):
            time, number, waiter = entry
            if waiter.deadline is None:
                waiter.place = None
            elif waiter.place == time:
                needed[waiter] = (waiter.deadline, number, waiter)
        for time, _, waiter in needed.values():
            waiter.place = time
        self.heap = list(needed.values())
        heapify(self.heap)
