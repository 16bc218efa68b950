"""A world: ports, the links that join them, and a clock that jumps to whatever comes next.

Ports are asked in turn for what they have to send, a burst each; then what has arrived is handed
over, and when nothing is left to do at this time, the clock moves on. Nothing here is random and
nothing waits, so the same beginning gives the same octets at the same times.

A port is an adapter, or one of the ports of a switch. A link joins as many ports as are attached
to it, and each hears what is for its address.
"""

from copy import deepcopy
from functools import partial
from typing import Any, Final, Self

from rdmawire.bound import TIME, Bound, Whole
from rdmawire.errors import RdmaError
from rdmawire.fabric.agenda import APPOINTMENT, Agenda
from rdmawire.fabric.appointment import Action, Appointment
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Arrival, Held
from rdmawire.fabric.mac import Mac
from rdmawire.fabric.refusal import MOMENT, check_settings, check_values
from rdmawire.fabric.station import Carrier, Hold, Port, Relay, Segment, Station, Tap
from rdmawire.snapshot import copy_each
from rdmawire.units import seconds
from rdmawire.verbs.ah import MAC_OCTETS

BOUNDS: Final[dict[str, Bound]] = {
    "time_limit": TIME,
    "event_limit": Whole(called="a number of events"),
}
"""What the limits of a world may be."""

TIME_LIMIT = seconds(3_600)
EVENT_LIMIT = 1_000_000


class Unsettled(RdmaError):
    """A world that does not come to rest within the limits of one run."""


class World:
    """All that happens, in order. ``now`` is the time in ns, ``last_arrival`` that of a frame.

    One run may last ``time_limit`` ns and take ``event_limit`` frames, timers and appointments.
    Taps see every frame of the world; :meth:`segment` has those of one link, and stations have
    those of one port.
    """

    def __init__(self, *, time_limit: int = TIME_LIMIT, event_limit: int = EVENT_LIMIT) -> None:
        self.now = 0
        self.last_arrival = 0
        self.time_limit = time_limit
        self.event_limit = event_limit
        check_settings(self, BOUNDS)
        self.on_sent: list[Tap] = []
        self.on_arrival: list[Tap] = []
        self._stations: list[Station] = []
        self._segments: dict[int, Segment] = {}
        self._awake: dict[Station, None] = {}
        self._agenda = Agenda()
        self._events = 0
        self._deadline = 0
        self._frames = 0

    def attach(self, port: Port, mac: bytes, link: Carrier) -> Station:
        """Put a port with this address (six octets) on a link, beside those that are there.

        On a link with a rate it sends through a :class:`Mac`, one frame at a time.
        """
        if link.rate is None:
            return self._join(port, mac, link)
        return self.place(Mac(port, link), mac, link)

    def place(self, port: Port, mac: bytes, link: Carrier) -> Station:
        """As :meth:`attach`, for a port that keeps to the link's rate by itself.

        It gives all that may go now when it is asked, and says by its timer when more may.
        """
        station = self._join(port, mac, link)
        station.paced = True
        return station

    def place_relay(self, port: Relay, mac: bytes, link: Carrier) -> Station:
        """As :meth:`place`, for a port of a switch.

        It answers nothing: what it receives is sent by others, and it has itself woken when it has
        something to send.
        """
        station = self._join(port, mac, link)
        station.paced = True
        station.relay = port
        return station

    def _join(self, port: Port | Relay, mac: bytes, link: Carrier) -> Station:
        segment = self.segment(link)
        station = Station(port, mac, segment, len(self._stations))
        self._stations.append(station)
        segment.join(station)
        return station

    def segment(self, link: Carrier) -> Segment:
        """Who is on a link, and who listens there."""
        if id(link) not in self._segments:
            self._segments[id(link)] = Segment(link)
        return self._segments[id(link)]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A world of its own, with links of its own."""
        copied = memo[id(self)] = object.__new__(type(self))
        copy_each((*self._stations, *self._segments.values()), memo)
        copied.__dict__.update(deepcopy(self.__dict__, memo))
        segments = copied._segments.values()
        copied._segments = {id(segment.link): segment for segment in segments}
        return copied

    def wake(self, station: Station) -> None:
        """Ask a port for what it has to send: something happened to it from outside."""
        self._awake[station] = None

    def at(self, time: int, action: Action) -> Appointment:
        """Do something at a time (ns). It must wake the ports that it gives something to send.

        ``FabricError`` for a time that is no whole number.
        """
        check_values("World", {"at": time}, {"at": MOMENT})
        return self._agenda.appoint(max(time, self.now), action)

    def run(self, until: int | None = None) -> None:
        """Go on until all is at rest, or up to the time ``until`` (ns).

        ``Unsettled`` when that takes longer than the limits; the world stands as it was then.
        ``FabricError`` for a time that is no whole number.
        """
        if until is not None:
            check_values("World", {"until": until}, {"until": MOMENT})
        self._events = 0
        self._deadline = self.now + self.time_limit
        self._awake.update(dict.fromkeys(self._stations))
        while (time := self._next_time()) is not None and (until is None or time <= until):
            if time > self._deadline:
                raise Unsettled(f"not at rest after {self.time_limit} ns: next is due at {time} ns")
            self.now = time
            self._happen(time)
            self._transmit(time)
            if self._events > self.event_limit:
                raise Unsettled(f"not at rest after {self.event_limit} events, at {time} ns")
        if until is not None:
            self.now = max(self.now, until)

    def _next_time(self) -> int | None:
        """When something happens next: now, while ports have something to send."""
        if self._awake:
            return self.now
        time = self._agenda.next_time()
        return self.now if time is not None and time < self.now else time

    def _happen(self, now: int) -> None:
        """Hand over what has arrived, call the ports whose timers are due, keep appointments."""
        awake, behind = self._awake, self._agenda.behind
        while events := self._agenda.take(now):
            self._events += len(events)
            for _, _, place, what, frame in events:
                if frame is not None:  # and so ``what`` is a station
                    if behind and place in behind:
                        self._deliver_all(what, [frame, *behind.pop(place)], now)  # type: ignore[arg-type]
                    else:
                        self._deliver(what, frame, now)  # type: ignore[arg-type]
                elif isinstance(what, Appointment):
                    if what.action is not None:
                        what.action()
                else:
                    what.port.handle_timer(now)
                    awake[what] = None
            if events[-1][1] != APPOINTMENT or self._events > self.event_limit:
                break  # only appointments make others for now

    def _deliver(self, station: Station, frame: Envelope, now: int) -> None:
        """Hand a frame over. A port that relays is woken by what comes of it."""
        self.last_arrival = now
        segment = station.segment
        if self.on_arrival or segment.on_arrival or station.on_arrival:
            self._show(frame, self.on_arrival, segment.on_arrival, station.on_arrival)
        if station.relay is not None:
            station.relay.receive(frame, now)
        else:
            station.port.receive(frame.data, now)
            self._awake[station] = None

    def _deliver_all(self, station: Station, frames: list[Envelope], now: int) -> None:
        """Hand over frames that are there together; one by one, where somebody listens."""
        self._events += len(frames) - 1
        if self.on_arrival or station.segment.on_arrival or station.on_arrival:
            for frame in frames:
                self._deliver(station, frame, now)
        else:
            self.last_arrival = now
            station.receive_all(frames, now)
            if station.relay is None:
                self._awake[station] = None

    def _transmit(self, now: int) -> None:
        """Take one burst from each port that may have something; those with nothing rest."""
        awake = self._awake
        for station in tuple(awake):
            if station.relay is None:
                count = self._burst(station, now)
            else:
                count = self._pass_on(station, station.relay, now)
            self._events += count
            if station.paced or not count:
                del awake[station]
                station.timer = station.port.next_timer()
                self._agenda.arm(station)

    def _burst(self, station: Station, now: int) -> int:
        """Number the frames that a port sends, and send them; how many there are."""
        frames, mac = station.port.transmit(now), station.mac
        for data in frames:
            self._frames += 1
            self._send(station, Envelope(data, self._frames, mac, 1), now)
        return len(frames)

    def _pass_on(self, station: Station, relay: Relay, now: int) -> int:
        """Send the frames that a port of a switch sends, each one hop farther or its own."""
        frames = relay.transmit(now)
        for one in frames:
            number, origin = one.id, one.origin
            if not number:
                self._frames = number = self._frames + 1
                origin = station.mac
            frame = Envelope(one.data, number, origin, one.hops + 1, one.redirects, one.faults)
            self._send(station, frame, now)
        return len(frames)

    def _send(self, station: Station, frame: Envelope, now: int) -> None:
        """Put a frame on the link. One to the port's own address turns round before that."""
        mac, segment = frame.data[:MAC_OCTETS], station.segment
        if mac == station.mac:
            self._agenda.expect(now, (station,), frame)
            return
        if self.on_sent or segment.on_sent or station.on_sent:
            self._show(frame, self.on_sent, segment.on_sent, station.on_sent)
        hearers = segment.by_mac.get(mac) or segment.others(station)
        time = None if station.held else segment.straight(frame, now)
        if time is not None:
            self._agenda.expect(time, hearers, frame)
        else:
            self._carry(station, frame, hearers)

    def _carry(self, station: Station, frame: Envelope, hearers: tuple[Station, ...]) -> None:
        """Put a frame on a link on which something may befall it."""
        overtaken = tuple(station.held)
        arrivals = station.segment.link.carry(frame, self.now)
        for arrival in arrivals:
            if isinstance(arrival, Held):
                self._hold(station, arrival, hearers)
            else:
                self._agenda.expect(arrival[0], hearers, arrival[1])
        if overtaken:
            self._overtake(station, overtaken, arrivals)

    def _show(self, frame: Envelope, *listening: list[Tap]) -> None:
        for taps in listening:
            for tap in taps:
                tap(frame, self.now)

    def _hold(self, station: Station, held: Held, hearers: tuple[Station, ...]) -> None:
        """Keep a frame back until it was overtaken, or its time has come."""
        hold = Hold(held.frame, held.behind, hearers)
        station.held.append(hold)
        hold.deadline = self.at(held.time, partial(self._wait_no_longer, station, hold))

    def _wait_no_longer(self, station: Station, hold: Hold) -> None:
        self._let_go(station, hold, self.now)

    def _overtake(
        self, station: Station, overtaken: tuple[Hold, ...], arrivals: list[Arrival]
    ) -> None:
        """Frames that were kept back arrive behind this one, if that was the last to wait for."""
        times = [arrival.time for arrival in arrivals if not isinstance(arrival, Held)]
        for hold in overtaken if times else ():
            hold.behind -= 1
            if hold.behind <= 0:
                self._let_go(station, hold, max(times))

    def _let_go(self, station: Station, hold: Hold, time: int) -> None:
        station.held.remove(hold)
        if hold.deadline is not None:
            hold.deadline.cancel()
        self._agenda.expect(time, hold.hearers, hold.frame)
