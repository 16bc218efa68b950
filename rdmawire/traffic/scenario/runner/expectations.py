"""Find the frame that changed a counter, caused an event, or moved a queue pair to its state.

Probes read the expected values whenever a frame may have changed them, and attribute a change to
that frame. Changes in between are attributed to no frame.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from rdmawire.fabric.frame import Envelope
from rdmawire.traffic.scenario.counters import (
    COUNTERS,
    DROPPED,
    FAULTS,
    HARDWARE,
    SENT,
    HostCounts,
    LinkCounts,
    Of,
)
from rdmawire.traffic.scenario.model.expectation import (
    CounterExpectation,
    EventExpectation,
    StateExpectation,
)
from rdmawire.traffic.scenario.runner.endpoint import QueuePairRuntime
from rdmawire.traffic.scenario.runner.observer import FrameOrId, FrameRef, Observer, Occurrences
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.verbs.enums import QPState


class CounterReader(NamedTuple):
    """Reads the counters of a scenario."""

    testbed: Testbed
    observer: Observer

    def read(self, of: str, counter: str) -> int:
        return self.reader(of, counter)()

    def reader(self, of: str, counter: str) -> Callable[[], int]:
        kind, source = self._counted(of)
        return partial(COUNTERS[kind][counter].read, source)

    def all(self) -> dict[str, int]:
        """Return every counter by its name: ``client.retransmits``, ``leaf:server.marks``.

        A host without a link has none.
        """
        network = self.testbed.network
        return {
            f"{of}.{name}": counter.read(source)
            for of in (*self.observer.hosts, *network.links, *network.switches, *network.ports)
            for kind, source in (self._counted(of),)
            for name, counter in COUNTERS[kind].items()
        }

    def _counted(self, of: str) -> tuple[Of, object]:
        """Return what a subject is, and the source of its counters."""
        testbed, network = self.testbed, self.testbed.network
        if of in testbed.machines:
            machine = testbed.machines[of]
            sent, mac = self.observer.hosts[of].sent, network.macs[of]
            return Of.HOST, HostCounts(machine.host.nic, sent, mac, machine.bus)
        if of in network.links:
            faults = testbed.faults[of]
            return Of.LINK, LinkCounts(network.links[of], lambda: faults.lost, faults.hits)
        if of in network.ports:
            return Of.PORT, network.ports[of]
        return Of.SWITCH, network.switches[of]


# Probes.

_TAKEN: Final = ("dropped", *DROPPED, *HARDWARE)
_CARRIED: Final = ("lost", "oversized", *FAULTS)
_SWITCHED: Final = (
    "stranded",
    *(name for name in COUNTERS[Of.PORT] if name.startswith(("drops", "marks", "stops"))),
)
_NO_FRAME: Final = Envelope(b"")
_PAUSES: Final = tuple(name for name in COUNTERS[Of.PORT] if name.startswith("pauses"))


class Probe(Protocol):
    """A value that frames may change."""

    def look(self, where: "Locate", frame: Envelope) -> None:
        """Attribute a change, if there is one, to this frame."""


class CounterProbe:
    """Watches a counter, which ``read`` returns."""

    def __init__(self, read: Callable[[], int], most: int | None) -> None:
        self._sightings = Occurrences[FrameRef | int](most)
        self._read = read
        self._arrived: FrameOrId = None

    def look(self, where: "Locate", frame: Envelope) -> None:
        more = self._read() - self._sightings.count
        if more:
            self._sightings.record(where(frame), more)

    def arrives(self, seen: FrameRef) -> None:
        """Note a frame about to be received; earlier changes belong to the preceding one."""
        self._end()
        self._arrived = seen

    def _end(self) -> None:
        self.look(lambda _: self._arrived, _NO_FRAME)

    @property
    def shown(self) -> FrameOrId:
        """The frame that explains the count."""
        self._end()
        return self._sightings.shown


class FrameProbe:
    """Counts frames that pass a point."""

    def __init__(self, most: int | None) -> None:
        self._sightings = Occurrences[FrameRef | int](most)

    def look(self, where: "Locate", frame: Envelope) -> None:
        self._sightings.record(where(frame))

    @property
    def shown(self) -> FrameOrId:
        """The frame that explains the count."""
        return self._sightings.shown


class StateProbe:
    """Watches the state of a queue pair."""

    def __init__(self, endpoint: QueuePairRuntime) -> None:
        self._lane = endpoint
        self._state: QPState = endpoint.qp.state
        self._seen: FrameOrId = None

    def look(self, where: "Locate", frame: Envelope) -> None:
        state = self._lane.qp.state
        if state is not self._state:
            self._state, self._seen = state, where(frame)

    @property
    def shown(self) -> FrameOrId:
        """The frame that led to the state."""
        self.look(_nothing, _NO_FRAME)
        return self._seen


Locate = Callable[[Envelope], FrameOrId]
"""Returns the reference of a frame."""


def _look(probes: Iterable[Probe], where: Locate, frame: Envelope) -> None:
    for probe in probes:
        probe.look(where, frame)


class ExpectationWatcher:
    """Probes of all counters, events and states that a scenario expects."""

    def __init__(self, testbed: Testbed, observer: Observer) -> None:
        self._testbed = testbed
        self._network = testbed.network
        self._observer = observer
        self._counting = CounterReader(testbed, observer)
        self._probes: dict[int, CounterProbe | FrameProbe] = {}
        self._state_probes: dict[QueuePairRuntime, StateProbe] = {}
        for name in observer.hosts:
            self._probe_host(name)
        for name in testbed.network.links:
            self._probe_link(name)
        for name in (*observer.hosts, *testbed.network.ports):
            self._probe_pauses(name)
        for name in testbed.network.switches:
            self._probe_switch(name)

    def counted(self, plan: CounterExpectation | EventExpectation) -> FrameRef | None:
        """Return the frame that explains a count, if there is one."""
        probe = self._probes.get(id(plan))
        return None if probe is None else self._seen(probe.shown)

    def entered(self, endpoint: QueuePairRuntime) -> FrameRef | None:
        """Return the frame that led a queue pair to its state, if there is one."""
        probe = self._state_probes.get(endpoint)
        return None if probe is None else self._seen(probe.shown)

    def _seen(self, sight: FrameOrId) -> FrameRef | None:
        return self._observer.captured(sight) if isinstance(sight, int) else sight

    # Probes.

    def _counters(self, of: str, names: Iterable[str]) -> Iterator[CounterProbe]:
        wanted = set(names)
        for plan in self._testbed.scenario.expectations:
            if isinstance(plan, CounterExpectation) and plan.of == of and plan.counter in wanted:
                read = self._counting.reader(of, plan.counter)
                self._probes[id(plan)] = probe = CounterProbe(read, plan.range.most)
                yield probe

    def _flows(self, link: str) -> Iterator[FrameProbe]:
        """Make probes of a link's frames, which it counts after its taps have seen them."""
        for plan in self._testbed.scenario.expectations:
            if isinstance(plan, CounterExpectation) and (plan.of, plan.counter) == (link, "frames"):
                self._probes[id(plan)] = flow = FrameProbe(plan.range.most)
                yield flow

    def _events(self, host: str) -> Iterator[CounterProbe]:
        events = self._testbed.machines[host].events
        for plan in self._testbed.scenario.expectations:
            if isinstance(plan, EventExpectation) and plan.host == host:
                read = partial(events.__getitem__, plan.event)
                self._probes[id(plan)] = probe = CounterProbe(read, plan.range.most)
                yield probe

    def _states(self, host: str) -> Iterator[StateProbe]:
        for plan in self._testbed.scenario.expectations:
            if isinstance(plan, StateExpectation) and plan.end.host == host:
                for endpoint in self._testbed.endpoints_at(plan.end):
                    self._state_probes[endpoint] = probe = StateProbe(endpoint)
                    yield probe

    # Taps.

    def _probe_host(self, name: str) -> None:
        sent = tuple(self._counters(name, SENT))
        if sent:
            self._tap(name, sent, self._observer.where(name))
        taken: list[Probe] = [
            *self._counters(name, _TAKEN),
            *self._events(name),
            *self._states(name),
        ]
        if taken:
            arrival = _Arrival(taken, self._observer.where(name, arrived=True))
            self._network.tap(name, arrival.before, arrivals=True)
            self._testbed.machines[name].port.on_taken.append(arrival.after)

    def _probe_pauses(self, name: str) -> None:
        """Probe pauses of a host or a port at each frame that it receives."""
        paused = tuple(self._counters(name, _PAUSES))
        if not paused:
            return
        where = self._observer.where(name, arrived=True)

        def look(frame: Envelope, _: int) -> None:
            seen = where(frame)
            for probe in paused:
                probe.arrives(seen)

        self._network.tap(name, look, arrivals=True)

    def _probe_link(self, name: str) -> None:
        flows, carried = tuple(self._flows(name)), tuple(self._counters(name, _CARRIED))
        if not flows and not carried:
            return
        where = self._observer.where(name)
        one, _, other = name.partition("-")
        for end, peer in ((one, other), (other, one)) if flows else ():
            station = f"{end}:{peer}" if end in self._network.switches else end
            self._tap(station, flows, where)
        if carried:
            link = self._network.links[name]
            link.on_carried.append(lambda frame, _: _look(carried, where, frame))

    def _probe_switch(self, name: str) -> None:
        switch, observer = self._network.switches[name], self._observer
        ports = [port for port in self._network.ports if port.partition(":")[0] == name]
        watched = [probe for of in (name, *ports) for probe in self._counters(of, _SWITCHED)]

        def look(frame: Envelope) -> None:
            _look(watched, lambda _: observer.captured(frame.id) or frame.id, frame)

        if watched:
            observer.frame_index.needed = True
            switch.on_counted.append(look)

    def _tap(self, name: str, probes: Sequence[Probe], where: Locate) -> None:
        self._network.tap(name, lambda frame, _: _look(probes, where, frame))


def _nothing(_: Envelope) -> None:
    """Attribute a change to no frame."""


class _Arrival:
    """Attributes changes between arrival and processing of a frame to that frame."""

    def __init__(self, probes: Sequence[Probe], where: Locate) -> None:
        self._probes = probes
        self._where = where
        self._frame = _NO_FRAME

    def before(self, frame: Envelope, _: int) -> None:
        """Note a frame that is about to be received; earlier changes belong to no frame."""
        _look(self._probes, _nothing, frame)
        self._frame = frame

    def after(self, _: bytes, __: int) -> None:
        """Attribute changes to the received frame."""
        _look(self._probes, self._where, self._frame)
