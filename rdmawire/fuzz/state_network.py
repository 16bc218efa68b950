"""Hosts of state-level fuzzing: their ports, the link between them, and the ends of connections.

The oracle sees each event of a port, and each fault of the link is planned.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from rdmawire.fabric.fault import ACTIONS
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Delivery, Link
from rdmawire.fabric.simulator import Simulator
from rdmawire.fuzz.exchange import Expected
from rdmawire.fuzz.queue_end import QueueEnd, Station
from rdmawire.fuzz.state_oracle import NOTHING, ExpectedArrival, StateOracle, fail
from rdmawire.fuzz.state_setup import FIRST_QPN, StateSetup
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.units import us
from rdmawire.verbs.engine import Clock
from rdmawire.verbs.profile import PROFILES

LATENCY: Final = us(1)
MAX_FRAMES: Final = 4096
"""Frames that one event may cause before the oracle calls it endless."""
EVENTS: Final = 40_000
"""Events of one step before the oracle calls it endless."""


class TimedFrame(NamedTuple):
    """A frame and its time (ns)."""

    time: int
    data: bytes


class PlannedFaults:
    """A fault model: actions of :data:`rdmawire.fabric.fault.ACTIONS` for frames to come."""

    def __init__(self) -> None:
        self._plans: dict[int, tuple[str, dict[str, Any]]] = {}
        self._random = Random(0)  # noqa: S311  must be repeatable
        self._seen = 0

    def plan(self, ahead: int, do: str, options: dict[str, Any]) -> None:
        """Do this to the frame after the next ``ahead`` frames."""
        self._plans[self._seen + 1 + ahead] = (do, options)

    def apply(self, frame: Envelope, number: int) -> Iterable[Delivery]:
        """Apply the plan for this frame, if there is one."""
        self._seen = number
        delivery = Delivery(frame.data)
        do, options = self._plans.pop(number, ("", {}))
        if not do:
            return (delivery,)
        return tuple(ACTIONS[do](delivery, self._random, **options))


class WatchedPort:
    """An adapter's port that shows each event to the oracle.

    All frames that the adapter has ready are taken after each event, so that the answer to each
    frame is known.
    """

    def __init__(self, station: Station, oracle: StateOracle) -> None:
        self.station = station
        self._oracle = oracle
        self.ready: list[bytes] = []  # judged, or about to be judged, and not sent yet

    @property
    def clock(self) -> Clock | None:
        """The adapter's clock."""
        return self.station.nic.clock

    @clock.setter
    def clock(self, clock: Clock | None) -> None:
        self.station.nic.clock = clock

    def receive(self, frame: bytes, now: int) -> None:
        """Receive a frame, and judge what follows."""
        arrival = self._oracle.expect(self.station, frame, now)
        self.station.nic.receive(frame, now)
        self._judge(arrival, now)

    def _judge(self, arrival: ExpectedArrival, now: int) -> None:
        """Judge the frames that the adapter has ready."""
        frames = self._drained(now)
        self.ready += frames
        self._oracle.judge(self.station, arrival, frames, now)

    def transmit(self, now: int) -> list[bytes]:
        """Return all frames to send."""
        self._judge(NOTHING, now)
        frames, self.ready = self.ready, []
        return frames

    def posted(self, end: QueueEnd, expected: Expected, now: int) -> None:
        """Judge what follows at once from posted work of an end."""
        self._judge(ExpectedArrival(end, was=end.state, replies=expected), now)

    def _drained(self, now: int) -> list[bytes]:
        """Take all frames that the adapter has ready."""
        nic, frames = self.station.nic, []
        while more := nic.transmit(now):
            frames += more
            if len(frames) > MAX_FRAMES:
                expected = f"at most {MAX_FRAMES} frames"
                fail("endless", "IBA 9.7", expected, "more frames at one event")
        return frames

    def next_timer(self) -> int | None:
        """When :meth:`handle_timer` is due (ns), or ``None``."""
        return self.station.nic.next_timer()

    def handle_timer(self, now: int) -> None:
        """Handle the timers that are due."""
        self.station.nic.handle_timer(now)


class StateNetwork:
    """Hosts, their link, and the ends of the connections of a setup, in RESET.

    ``rules`` are those of each host, by index; hosts without an entry have the standard's. Frames
    on the link and injected ones are in ``frames``.
    """

    def __init__(self, setup: StateSetup, rules: Mapping[int, Rules] | None = None) -> None:
        rules = {} if rules is None else rules
        self.setup = setup
        self.frames: list[TimedFrame] = []
        self.simulator = Simulator(event_limit=EVENTS)
        self.faults = PlannedFaults()
        link = Link(LATENCY, faults=self.faults)
        self.ends: list[QueueEnd] = []
        self.oracle = StateOracle({})
        self.ports = [
            WatchedPort(
                Station(number + 1, PROFILES[name], rules.get(number, STANDARD)), self.oracle
            )
            for number, name in enumerate(setup.profiles)
        ]
        self.stations = [port.station for port in self.ports]
        for port in self.ports:
            self.simulator.attach(port, port.station.mac, link)
        self.simulator.on_sent.append(lambda frame, now: self.record(frame.data, now))
        self._connect()

    def record(self, data: bytes, now: int) -> None:
        """Add a frame to ``frames``."""
        self.frames.append(TimedFrame(now, data))

    def record_unsent(self) -> None:
        """Add the frames that adapters have ready to ``frames``: one may be the violation."""
        for port in self.ports:
            for data in port.ready:
                self.record(data, self.simulator.now)

    def _connect(self) -> None:
        """Make the ends of all connections."""
        for connection in self.setup.connections:
            pair = [
                QueueEnd(
                    self.stations[host],
                    FIRST_QPN + len(self.ends) + index,
                    connection.types[index],
                    (connection.psns[index], connection.psns[1 - index]),
                )
                for index, host in enumerate(connection.hosts)
            ]
            pair[0].peer, pair[1].peer = pair[1], pair[0]
            self.ends += pair
        self.oracle.ends.update({end.qpn: end for end in self.ends})

    def end(self, number: int) -> QueueEnd:
        """Return an end by number, reduced to how many there are."""
        return self.ends[number % len(self.ends)]

    def port_of(self, end: QueueEnd) -> WatchedPort:
        """Return the port of an end's host."""
        return next(port for port in self.ports if port.station is end.station)
