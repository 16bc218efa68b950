"""What is to happen, by time: frames that arrive, ports that are to be called, and appointments.

At one time, frames come first, then timers, then appointments, each in the order in which they
were made (timers in that of their stations). Nothing is looked for: all stand in one heap.
"""

from heapq import heappop, heappush
from typing import Final

from rdmawire.fabric.appointment import Action, Appointment
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.station import Station

ARRIVAL: Final = 0
TIMER: Final = 1
APPOINTMENT: Final = 2

Event = tuple[int, int, int, Station | Appointment, Envelope | None]
"""Its time (ns), its kind, its place among those; whom it is about, and the frame that arrives."""


class Agenda:
    """All that is to happen. ``behind`` are frames that arrive together with one, by its place."""

    __slots__ = ("_first", "_heap", "_hearers", "_order", "_time", "behind")

    def __init__(self) -> None:
        self._heap: list[Event] = []
        self._order = 0
        self._time = -1
        self._hearers: tuple[Station, ...] = ()
        self._first = 0
        self.behind: dict[int, list[Envelope]] = {}

    def expect(self, time: int, hearers: tuple[Station, ...], frame: Envelope) -> None:
        """A frame will be there, at each of the stations; with the one before it, if that will."""
        if time == self._time and hearers is self._hearers:
            for place in range(self._first, self._first + len(hearers)):
                self.behind.setdefault(place, []).append(frame)
            return
        self._time, self._hearers = time, hearers
        self._first = self._order + 1
        for hearer in hearers:
            self._order += 1
            heappush(self._heap, (time, ARRIVAL, self._order, hearer, frame))

    def appoint(self, time: int, action: Action) -> Appointment:
        """Something will be done."""
        self._order += 1
        appointment = Appointment(action)
        heappush(self._heap, (time, APPOINTMENT, self._order, appointment, None))
        return appointment

    def arm(self, station: Station) -> None:
        """A station is called at its timer; at the earlier of this and what was said before.

        Timers mostly move on before they are due. What stands in the heap is only ever too
        early, and moved when it comes up, so a station has few entries however often it moves.
        """
        time, pending = station.timer, station.pending
        if time is not None and (not pending or time < pending[-1]):
            pending.append(time)
            heappush(self._heap, (time, TIMER, station.number, station, None))

    def timers(self) -> int:
        """How many entries there are for timers."""
        return sum(event[1] == TIMER for event in self._heap)

    def next_time(self) -> int | None:
        """When the first thing happens."""
        heap = self._heap
        while heap:
            event = heap[0]
            if event[4] is not None or self._holds(event):
                return event[0]
        return None

    def take(self, now: int) -> list[Event]:
        """What happens by now, in order. Timers that are due are none any more."""
        heap, found = self._heap, []
        if now >= self._time:
            self._time = -1
        while heap and (event := heap[0])[0] <= now:
            if event[4] is None:
                if not self._holds(event):
                    continue
                _begin(event[3])
            found.append(heappop(heap))
        return found

    def _holds(self, event: Event) -> bool:
        """Whether the first event, no arrival, is still to be; if not, it stands there no more."""
        time, _, _, what, _ = event
        if isinstance(what, Appointment):
            if what.action is not None:
                return True
            heappop(self._heap)
            return False
        if what.timer == time:
            return True
        heappop(self._heap)
        what.pending.pop()
        self.arm(what)
        return False


def _begin(what: Station | Appointment) -> None:
    """A timer that is due stands nowhere any more."""
    if isinstance(what, Station):
        what.pending.pop()
        what.timer = None
