"""Which frame shows what a counter counted, an event told, or how a queue pair came to its state.

What is expected is looked at again whenever a frame may have changed it: what is different then is
that frame's doing. What changed in between is no frame's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from rdmawire.fabric.frame import Envelope
from rdmawire.traffic.scenario.counters import COUNTERS, DROPPED, FAULTS, HARDWARE, SENT, Of
from rdmawire.traffic.scenario.model import (
    CounterExpectation,
    EventExpectation,
    StateExpectation,
)
from rdmawire.traffic.scenario.runner.counting import CounterReader
from rdmawire.traffic.scenario.runner.host_runtime import QueuePairRuntime
from rdmawire.traffic.scenario.runner.observer import FrameOrId, FrameRef, Observer, Occurrences
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.verbs.enums import QPState

_TAKEN: Final = ("dropped", *DROPPED, *HARDWARE)
_CARRIED: Final = ("lost", "oversized", *FAULTS)
_SWITCHED: Final = (
    "stranded",
    *(name for name in COUNTERS[Of.PORT] if name.startswith(("drops", "marks", "stops"))),
)
_NO_FRAME: Final = Envelope(b"")
_PAUSES: Final = tuple(name for name in COUNTERS[Of.PORT] if name.startswith("pauses"))


class Probe(Protocol):
    """Something that frames change."""

    def look(self, where: "Locate", frame: Envelope) -> None:
        """See whether it has changed, which is this frame's doing, or none's."""


class CounterProbe:
    """Something that is counted; ``read`` says how much there is by now."""

    def __init__(self, read: Callable[[], int], most: int | None) -> None:
        self._sightings = Occurrences[FrameRef | int](most)
        self._read = read
        self._arrived: FrameOrId = None

    def look(self, where: "Locate", frame: Envelope) -> None:
        more = self._read() - self._sightings.count
        if more:
            self._sightings.record(where(frame), more)

    def arrives(self, seen: FrameRef) -> None:
        """A frame is about to be taken in; what changed up to now, the one before it did."""
        self._end()
        self._arrived = seen

    def _end(self) -> None:
        self.look(lambda _: self._arrived, _NO_FRAME)

    @property
    def shown(self) -> FrameOrId:
        """The frame that shows how much there is."""
        self._end()
        return self._sightings.shown


class FrameProbe:
    """Frames that pass a place."""

    def __init__(self, most: int | None) -> None:
        self._sightings = Occurrences[FrameRef | int](most)

    def look(self, where: "Locate", frame: Envelope) -> None:
        self._sightings.record(where(frame))

    @property
    def shown(self) -> FrameOrId:
        """The frame that shows how many there are."""
        return self._sightings.shown


class StateProbe:
    """The state of a queue pair."""

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
        """The frame with which the state was entered."""
        self.look(_nothing, _NO_FRAME)
        return self._seen


Locate = Callable[[Envelope], FrameOrId]
"""Tells which frame of the capture, or of its place, one is."""


def _look(probes: Iterable[Probe], where: Locate, frame: Envelope) -> None:
    for probe in probes:
        probe.look(where, frame)


class ExpectationWatcher:
    """Watches of all that a scenario expects of counters, events and states."""

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
        """The frame that shows what was counted; ``None`` where none does."""
        probe = self._probes.get(id(plan))
        return None if probe is None else self._seen(probe.shown)

    def entered(self, endpoint: QueuePairRuntime) -> FrameRef | None:
        """The frame with which a queue pair entered its state, if it was one."""
        probe = self._state_probes.get(endpoint)
        return None if probe is None else self._seen(probe.shown)

    def _seen(self, sight: FrameOrId) -> FrameRef | None:
        """A frame as it is known in the end."""
        return self._observer.captured(sight) if isinstance(sight, int) else sight

    # What there is to watch.

    def _counters(self, of: str, names: Iterable[str]) -> Iterator[CounterProbe]:
        wanted = set(names)
        for plan in self._testbed.scenario.expectations:
            if isinstance(plan, CounterExpectation) and plan.of == of and plan.counter in wanted:
                read = self._counting.reader(of, plan.counter)
                self._probes[id(plan)] = probe = CounterProbe(read, plan.range.most)
                yield probe

    def _flows(self, link: str) -> Iterator[FrameProbe]:
        """A link counts a frame after taps have seen it."""
        for plan in self._testbed.scenario.expectations:
            if isinstance(plan, CounterExpectation) and (plan.of, plan.counter) == (link, "frames"):
                self._probes[id(plan)] = flow = FrameProbe(plan.range.most)
                yield flow

    def _events(self, host: str) -> Iterator[CounterProbe]:
        told = self._testbed.machines[host].events
        for plan in self._testbed.scenario.expectations:
            if isinstance(plan, EventExpectation) and plan.host == host:
                read = partial(told.__getitem__, plan.event)
                self._probes[id(plan)] = probe = CounterProbe(read, plan.range.most)
                yield probe

    def _states(self, host: str) -> Iterator[StateProbe]:
        for plan in self._testbed.scenario.expectations:
            if isinstance(plan, StateExpectation) and plan.end.host == host:
                for endpoint in self._testbed.endpoints_at(plan.end):
                    self._state_probes[endpoint] = probe = StateProbe(endpoint)
                    yield probe

    # Where it is watched.

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
        """Nothing but a frame that comes in stops a host or a port."""
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
        for station in self._stations_on(name) if flows else ():
            self._tap(station, flows, where)
        if carried:
            link = self._network.links[name]
            link.on_carried.append(lambda frame, _: _look(carried, where, frame))

    def _stations_on(self, name: str) -> Iterator[str]:
        """The hosts and the ports at both ends of a link, whose taps see a frame last."""
        link = next(link for link in self._testbed.scenario.links if link.name == name)
        for end, peer in (link.ends, reversed(link.ends)):
            yield f"{end}:{peer}" if end in self._network.switches else end

    def _probe_switch(self, name: str) -> None:
        switch, observer = self._network.switches[name], self._observer
        ports = [port for port in self._network.ports if port.partition(":")[0] == name]
        watched = [probe for of in (name, *ports) for probe in self._counters(of, _SWITCHED)]

        def look(frame: Envelope) -> None:
            _look(watched, lambda _: observer.captured(frame.id) or frame.id, frame)

        if watched:
            observer.frame_index.needed = True
            switch.on_counted.append(look)

    def _tap(
        self, name: str, probes: Sequence[Probe], where: Locate, *, arrivals: bool = False
    ) -> None:
        tap = lambda frame, _: _look(probes, where, frame)  # noqa: E731
        self._network.tap(name, tap, arrivals=arrivals)


def _nothing(_: Envelope) -> None:
    """What changed up to now is no frame's doing."""


class _Arrival:
    """Watches what a host's frames change between arrival and the end of their processing."""

    def __init__(self, probes: Sequence[Probe], where: Locate) -> None:
        self._probes = probes
        self._where = where
        self._frame = _NO_FRAME

    def before(self, frame: Envelope, _: int) -> None:
        """A frame is about to be taken in: what changed up to now is no frame's doing."""
        _look(self._probes, _nothing, frame)
        self._frame = frame

    def after(self, _: bytes, __: int) -> None:
        """The host has taken that frame in."""
        _look(self._probes, self._where, self._frame)
