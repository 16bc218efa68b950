"""A world: ports, the links that join them, and a clock that jumps to whatever comes next.

Ports are asked in turn for what they have to send, a burst each; then what has arrived is handed
over, and when nothing is left to do at this time, the clock moves on. Nothing here is random and
nothing waits, so the same beginning gives the same octets at the same times.

A port is an adapter today. A link joins as many ports as are attached to it, and each hears what
is for its address: a switch will be so many ports, each with a link of its own.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from rdmawire.errors import RdmaError
from rdmawire.fabric.clock import seconds
from rdmawire.fabric.link import Arrival

MAC_OCTETS = 6
TIME_LIMIT = seconds(3_600)
EVENT_LIMIT = 1_000_000

Tap = Callable[[bytes, int], None]
"""Sees a frame, and when (ns) it is there."""


class Unsettled(RdmaError):
    """A world that does not come to rest within the limits of one run."""


class Port(Protocol):
    """What is at the end of a link: an engine that has no clock of its own."""

    def receive(self, frame: bytes, now: int) -> None: ...

    def transmit(self, now: int) -> list[bytes]: ...

    def next_timer(self) -> int | None: ...

    def handle_timer(self, now: int) -> None: ...


class Carrier(Protocol):
    """What takes frames from port to port. Says when each arrives, changed or repeated or not."""

    def carry(self, frame: bytes, now: int) -> list[Arrival]: ...


class Station:
    """A port at its place: the address it answers to, and the link that it is attached to.

    ``timer`` is when the port wants to be called (ns), as it said when last asked.
    """

    __slots__ = ("link", "mac", "port", "timer")

    def __init__(self, port: Port, mac: bytes, link: Carrier) -> None:
        self.port = port
        self.mac = mac
        self.link = link
        self.timer: int | None = None


class World:
    """All that happens, in order. ``now`` is the time in ns.

    One run may last ``time_limit`` ns and take ``event_limit`` frames and timers.
    """

    def __init__(self, *, time_limit: int = TIME_LIMIT, event_limit: int = EVENT_LIMIT) -> None:
        self.now = 0
        self.time_limit = time_limit
        self.event_limit = event_limit
        self.on_sent: list[Tap] = []
        self.on_arrival: list[Tap] = []
        self._stations: list[Station] = []
        self._awake: dict[Station, None] = {}
        self._arrivals: list[tuple[int, int, Station, bytes]] = []
        self._hearers: dict[tuple[Station, bytes], tuple[Station, ...]] = {}
        self._order = 0
        self._events = 0
        self._deadline = 0

    def attach(self, port: Port, mac: bytes, link: Carrier) -> None:
        """Put a port with this address (six octets) on a link, beside those that are there."""
        self._stations.append(Station(port, mac, link))
        self._hearers.clear()

    def run(self, until: int | None = None) -> None:
        """Go on until all is at rest, or up to the time ``until`` (ns).

        ``Unsettled`` when that takes longer than the limits; the world stands as it was then.
        """
        self._events = 0
        self._deadline = self.now + self.time_limit
        self._awake = dict.fromkeys(self._stations)
        while (time := self._next_time()) is not None and (until is None or time <= until):
            self._go_to(time)
            self._deliver()
            self._fire()
            self._transmit()
        if until is not None:
            self.now = max(self.now, until)

    def _next_time(self) -> int | None:
        """When something happens next: now, while ports have something to send."""
        if self._awake:
            return self.now
        times = [station.timer for station in self._stations if station.timer is not None]
        if self._arrivals:
            times.append(self._arrivals[0][0])
        return max(self.now, min(times)) if times else None

    def _go_to(self, time: int) -> None:
        if time > self._deadline:
            raise Unsettled(f"not at rest after {self.time_limit} ns: next is due at {time} ns")
        self.now = time

    def _count(self) -> None:
        self._events += 1
        if self._events > self.event_limit:
            raise Unsettled(f"not at rest after {self.event_limit} events, at {self.now} ns")

    def _deliver(self) -> None:
        """Hand over what has arrived."""
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] <= self.now:
            _, _, station, frame = heappop(arrivals)
            self._count()
            for tap in self.on_arrival:
                tap(frame, self.now)
            station.port.receive(frame, self.now)
            self._awake[station] = None

    def _fire(self) -> None:
        """Call the ports whose timers are due."""
        for station in self._stations:
            if station.timer is not None and station.timer <= self.now:
                self._count()
                station.timer = None
                station.port.handle_timer(self.now)
                self._awake[station] = None

    def _transmit(self) -> None:
        """Take one burst from each port that may have something; those with nothing rest."""
        for station in tuple(self._awake):
            frames = station.port.transmit(self.now)
            for frame in frames:
                self._send(station, frame)
            if not frames:
                del self._awake[station]
                station.timer = station.port.next_timer()

    def _send(self, station: Station, frame: bytes) -> None:
        """Put a frame on the link. One to the port's own address turns round before that."""
        self._count()
        if frame[:MAC_OCTETS] == station.mac:
            self._expect(Arrival(self.now, frame), (station,))
            return
        for tap in self.on_sent:
            tap(frame, self.now)
        hearers = self._hearers_of(station, frame[:MAC_OCTETS])
        for arrival in station.link.carry(frame, self.now):
            self._expect(arrival, hearers)

    def _expect(self, arrival: Arrival, hearers: tuple[Station, ...]) -> None:
        for hearer in hearers:
            self._order += 1
            heappush(self._arrivals, (arrival.time, self._order, hearer, arrival.frame))

    def _hearers_of(self, sender: Station, mac: bytes) -> tuple[Station, ...]:
        """The port with this address on the sender's link, or else all others there."""
        key = (sender, mac)
        if key not in self._hearers:
            others = [s for s in self._stations if s.link is sender.link and s is not sender]
            named = tuple(station for station in others if station.mac == mac)
            self._hearers[key] = named or tuple(others)
        return self._hearers[key]
