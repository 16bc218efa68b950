"""The event queue: arrivals of frames, timers of ports, and scheduled calls, by time.

At equal times, arrivals come first, then timers, then scheduled calls; arrivals and calls in the
order in which they were added, timers in the order in which their ports were attached. All are in
one heap, so the next event is found without a search.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from rdmawire.fabric.frame import Envelope

Callback = Callable[[], None]


class ScheduledCall:
    """A call at a given time, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Callback) -> None:
        self.action: Callback | None = action

    def cancel(self) -> None:
        """Cancel the call. It has no effect after the call was made."""
        self.action = None


ARRIVAL: Final = 0
TIMER: Final = 1
CALL: Final = 2


class Timed(Protocol):
    """A port with a timer. The queue owns all attributes except ``timer`` and ``number``.

    - ``timer``: when to call the port (ns); ``None`` for never.
    - ``number``: orders ports whose timers are due at the same time.
    - ``pending``: times of its entries in the queue, the next one last.
    """

    timer: int | None
    number: int
    pending: list[int]


T = TypeVar("T", bound=Timed)

Event = tuple[int, int, int, T | ScheduledCall, Envelope | None]
"""Time (ns), type, order within that type; the port or call, and the frame if any."""


class EventQueue(Generic[T]):
    """Events in order. ``batched`` has the frames that arrive together with an earlier one."""

    __slots__ = ("_first", "_heap", "_order", "_receivers", "_time", "batched")

    def __init__(self) -> None:
        self._heap: list[Event[T]] = []
        self._order = 0
        self._time = -1
        self._receivers: tuple[T, ...] = ()
        self._first = 0
        self.batched: dict[int, list[Envelope]] = {}

    def add_arrival(self, time: int, receivers: tuple[T, ...], frame: Envelope) -> None:
        """Add a frame that arrives at all receivers, batched with the last one if possible."""
        if time == self._time and receivers is self._receivers:
            for place in range(self._first, self._first + len(receivers)):
                self.batched.setdefault(place, []).append(frame)
            return
        self._time, self._receivers = time, receivers
        order = self._order
        self._first = order + 1
        for receiver in receivers:
            order += 1
            heappush(self._heap, (time, ARRIVAL, order, receiver, frame))
        self._order = order

    def call_at(self, time: int, action: Callback) -> ScheduledCall:
        """Call ``action`` at ``time`` (ns)."""
        self._order += 1
        scheduled = ScheduledCall(action)
        heappush(self._heap, (time, CALL, self._order, scheduled, None))
        return scheduled

    def add_timer(self, port: T) -> None:
        """Add a port's timer to the queue, if it is earlier than the port's other entries.

        Timers are mostly restarted before they expire. An entry in the heap may be too early, never
        too late; it is moved when it is due. So a port has few entries, however often its timer
        changes.
        """
        time, pending = port.timer, port.pending
        if time is not None and (not pending or time < pending[-1]):
            pending.append(time)
            heappush(self._heap, (time, TIMER, port.number, port, None))

    def timers(self) -> int:
        """Number of timer entries."""
        return sum(event[1] == TIMER for event in self._heap)

    def next_time(self) -> int | None:
        """Time of the next event (ns), if there is any."""
        heap = self._heap
        while heap:
            event = heap[0]
            if event[4] is not None or self._is_valid(event):
                return event[0]
        return None

    def take(self, now: int) -> list[Event[T]]:
        """Remove and return the events that are due, in order."""
        heap = self._heap
        found: list[Event[T]] = []
        if now >= self._time:
            self._time = -1
        while heap and (event := heap[0])[0] <= now:
            if event[4] is None:
                what = event[3]
                if isinstance(what, ScheduledCall):
                    if not self._is_valid(event):
                        continue
                elif what.timer == event[0]:
                    what.timer = None  # a port that is about to be called
                    what.pending.pop()
                else:
                    self._is_valid(event)
                    continue
            found.append(heappop(heap))
        return found

    def _is_valid(self, event: Event[T]) -> bool:
        """Whether the first event, a timer or a call, is still valid. Remove it if not."""
        time, _, _, what, _ = event
        if isinstance(what, ScheduledCall):
            if what.action is not None:
                return True
            heappop(self._heap)
            return False
        if what.timer == time:
            return True
        heappop(self._heap)
        what.pending.pop()
        self.add_timer(what)
        return False
