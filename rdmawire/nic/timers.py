"""Deadlines of many objects in one heap, the soonest first. Times are ns.

A deadline that moves later leaves its entry where it is; when the entry comes up, it is put back.
Nearly every ACK moves one, and that must cost nothing. One that moves earlier, or goes, leaves an
entry that nobody needs: once those are more than half, all are removed together, so the heap holds
at most ``2 * live + SLACK`` entries for ``live`` deadlines.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

SLACK = 16
"""Entries that are not worth a cleaning."""


class Waiter(Protocol):
    """What waits: until ``deadline``; ``place`` is the time of its entry in the heap.

    Both belong to :class:`Timers`; ``None`` stands for no deadline and no entry.
    """

    deadline: int | None
    place: int | None


W = TypeVar("W", bound=Waiter)


class Timers(Generic[W]):
    """The deadlines of all that wait in one adapter."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, W]] = []
        self._entries = 0
        self._live = 0

    def __len__(self) -> int:
        """How many entries the heap has, needed or not."""
        return len(self._heap)

    def arm(self, waiter: W, deadline: int) -> None:
        """Have ``waiter`` wait until ``deadline``, whatever it waited for before."""
        if waiter.deadline is None:
            self._live += 1
        waiter.deadline = deadline
        if waiter.place is None or deadline < waiter.place:
            self._put(waiter, deadline)
            self._clean()

    def disarm(self, waiter: W) -> None:
        """Have ``waiter`` wait for nothing."""
        if waiter.deadline is not None:
            waiter.deadline = None
            self._live -= 1
            self._clean()

    def next(self) -> int | None:
        """The soonest deadline, if anything waits."""
        while self._heap:
            time, _, waiter = self._heap[0]
            if waiter.place == time == waiter.deadline:
                return time
            self._put_back()
        return None

    def due(self, now: int) -> Iterator[W]:
        """What waited until ``now`` or earlier, in that order; each waits for nothing after."""
        while (time := self.next()) is not None and time <= now:
            waiter = heappop(self._heap)[2]
            waiter.place = None
            self.disarm(waiter)
            yield waiter

    def _put(self, waiter: W, time: int) -> None:
        waiter.place = time
        self._entries += 1
        heappush(self._heap, (time, self._entries, waiter))

    def _put_back(self) -> None:
        """Take the first entry out; what had it gets another if it still waits."""
        time, _, waiter = heappop(self._heap)
        if waiter.place == time:
            waiter.place = None
            if waiter.deadline is not None:
                self._put(waiter, waiter.deadline)

    def _clean(self) -> None:
        """Keep one entry for each deadline, where those nobody needs are more than half."""
        if len(self._heap) <= 2 * self._live + SLACK:
            return
        needed: dict[W, tuple[int, int, W]] = {}
        for entry in sorted(self._heap, reverse=True):
            time, number, waiter = entry
            if waiter.deadline is None:
                waiter.place = None
            elif waiter.place == time:
                needed[waiter] = (waiter.deadline, number, waiter)
        for time, _, waiter in needed.values():
            waiter.place = time
        self._heap = list(needed.values())
        heapify(self._heap)
