"""What is to happen, by time: frames that arrive, ports that are to be called, and appointments.

At one time, frames come first, then timers, then appointments, each in the order in which they
were made (timers in that of their stations). Nothing is looked for: each queue is a heap.
"""

from heapq import heappop, heappush

from rdmawire.fabric.appointment import Action, Appointment
from rdmawire.fabric.station import Station


class Agenda:
    """Three queues, all by time (ns)."""

    __slots__ = ("_appointments", "_arrivals", "_order", "_timers")

    def __init__(self) -> None:
        self._arrivals: list[tuple[int, int, Station, bytes]] = []
        self._timers: list[tuple[int, int, Station]] = []
        self._appointments: list[tuple[int, int, Appointment]] = []
        self._order = 0

    def next_time(self) -> int | None:
        """When the first thing happens."""
        time = self._arrivals[0][0] if self._arrivals else None
        for other in (self._next_timer(), self._next_appointment()):
            if other is not None and (time is None or other < time):
                time = other
        return time

    def expect(self, time: int, hearer: Station, frame: bytes) -> None:
        """A frame will be there."""
        self._order += 1
        heappush(self._arrivals, (time, self._order, hearer, frame))

    def appoint(self, time: int, action: Action) -> Appointment:
        """Something will be done."""
        self._order += 1
        appointment = Appointment(action)
        heappush(self._appointments, (time, self._order, appointment))
        return appointment

    def arm(self, station: Station) -> None:
        """A station is called at its timer; at the earlier of this and what was said before.

        Timers mostly move on before they are due. What stands in the queue is only ever too
        early, and moved when it comes up, so a station has few entries however often it moves.
        """
        time, pending = station.timer, station.pending
        if time is not None and (not pending or time < pending[-1]):
            pending.append(time)
            heappush(self._timers, (time, station.number, station))

    def arrived(self, now: int) -> tuple[Station, bytes] | None:
        """The next frame that is there by now."""
        if self._arrivals and self._arrivals[0][0] <= now:
            return heappop(self._arrivals)[2:]
        return None

    def due(self, now: int) -> Station | None:
        """The next station that is to be called by now."""
        time = self._next_timer()
        if time is None or time > now:
            return None
        _, _, station = heappop(self._timers)
        station.pending.pop()
        station.timer = None
        return station

    def appointed(self, now: int) -> Action | None:
        """The next appointment that is kept by now."""
        time = self._next_appointment()
        return None if time is None or time > now else heappop(self._appointments)[2].action

    def _next_appointment(self) -> int | None:
        """The first that was not called off."""
        appointments = self._appointments
        while appointments and appointments[0][2].action is None:
            heappop(appointments)
        return appointments[0][0] if appointments else None

    def _next_timer(self) -> int | None:
        """The first timer that still holds; those that moved on are put where they are now."""
        timers = self._timers
        while timers:
            time, _, station = timers[0]
            if station.timer == time:
                return time
            heappop(timers)
            station.pending.pop()
            self.arm(station)
        return None
