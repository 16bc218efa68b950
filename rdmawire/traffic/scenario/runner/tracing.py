"""Find the frame that wrote a byte last, or nearly matched: run the scenario again with probes.

The same scenario gives the same frames, so their numbers are those of the first run.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from rdmawire.errors import MemoryFault
from rdmawire.fabric.field import Fields
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.simulator import SimulationLimit, Tap
from rdmawire.traffic.scenario.model import PacketExpectation, Scenario, Span
from rdmawire.traffic.scenario.runner.failure import value_text
from rdmawire.traffic.scenario.runner.observer import FrameIndex, FrameRef, Observer, among, is_from
from rdmawire.traffic.scenario.runner.player import Runner
from rdmawire.traffic.scenario.runner.testbed import Testbed

FEWEST_FIELDS = 2
"""With fewer expected fields, any frame would be a near match."""


class ClosestMatch:
    """Finds the first frame with all fields of ``plan`` and all values but one."""

    def __init__(self, plan: PacketExpectation, sender: bytes | None) -> None:
        self.text = ""
        self._wanted = {name: among(value) for name, value in plan.where.items()}
        self._sender = sender

    def at(self, where: Callable[[], FrameRef]) -> Tap:
        """Return a tap; ``where`` gives the reference of the frame that passes it."""

        def look(frame: Envelope, now: int) -> None:  # noqa: ARG001 - a tap
            if not self.text and is_from(self._sender, frame.data):
                self._compare(frame.data, where())

        return look

    def _compare(self, frame: bytes, seen: FrameRef) -> None:
        fields = Fields(frame, seen.number)
        found = {name: fields.get(name) for name in self._wanted}
        wrong = [name for name, values in self._wanted.items() if not fields.has(name, values)]
        if len(wrong) == 1 and None not in found.values():
            self.text = _text(seen, wrong[0], found)


def _text(seen: FrameRef, name: str, found: Mapping[str, object]) -> str:
    place = f" of {seen.point}" if seen.point else ""
    return f"frame {seen.number}{place}, {name} {value_text(name, found[name], found)}"


MAX_FRAMES: Final = 1 << 16
"""A run with more frames is not repeated."""

MAX_PROBES: Final = 64
"""Maximum bytes, and packet expectations, that are traced."""


class ByteProbe:
    """Reads one byte before and after each frame that its host receives.

    ``writer`` is the number of the captured frame that changed it last, if any. A write to a GPU is
    seen only when it is flushed, and is attributed to the last frame that arrived.
    """

    def __init__(self, testbed: Testbed, numbers: FrameIndex, span: Span) -> None:
        self.writer: int | None = None
        self._buffer = testbed.buffer(span)
        self._offset = span.offset
        self._numbers = numbers
        self._arrived: int | None = None
        self._value = self._look()

    def before(self, frame: Envelope, now: int) -> None:  # noqa: ARG002 - a tap
        """Record a frame that the host is about to receive; it did not cause earlier changes."""
        self.rest()
        self._arrived = self._numbers.of(frame.id)

    def after(self, frame: bytes, now: int) -> None:  # noqa: ARG002 - a tap
        """Compare after the host received the frame."""
        self._compare(self._arrived)

    def rest(self) -> None:
        """Compare when no frame is being received."""
        self._compare(None if self._buffer.gpu is None else self._arrived)

    def _compare(self, writer: int | None) -> None:
        value = self._look()
        if value != self._value:
            self._value = value
            self.writer = writer

    def _look(self) -> bytes:
        try:
            return self._buffer.read(self._offset, 1)
        except MemoryFault:
            return b""


class TraceResult(NamedTuple):
    """``writers``: frame number of each byte; ``nearest``: near match by id of expectation."""

    writers: Mapping[Span, int | None]
    nearest: Mapping[int, str]


class Tracer:
    """Finds writers of bytes and near matches by a second run, if there are any to find.

    ``frames`` is the number of captured frames; ``points`` and ``arrived`` are the capture's.
    """

    def __init__(
        self, scenario: Scenario, frames: int, points: tuple[str, ...], *, arrived: bool
    ) -> None:
        self._scenario = scenario
        self._points = points
        self._arrived = arrived
        self._able = frames <= MAX_FRAMES

    def trace(self, data: Iterable[Span], packets: Iterable[PacketExpectation]) -> TraceResult:
        """Return the last writer of each byte, and the frame nearest to each packet expectation."""
        spans = tuple(data)[:MAX_PROBES]
        plans = [plan for plan in packets if len(plan.where) >= FEWEST_FIELDS][:MAX_PROBES]
        if not self._able or not (spans or plans):
            return TraceResult({}, {})
        return self._play(spans, plans)

    def _play(self, spans: Iterable[Span], plans: Iterable[PacketExpectation]) -> TraceResult:
        """Run the scenario with probes."""
        testbed = Testbed(self._scenario)
        observer = Observer(testbed, None, self._points, arrived=self._arrived)
        testbed.install_faults()
        probes = {span: _probe(testbed, observer, span) for span in spans}
        misses = {id(plan): _near_miss(observer, plan) for plan in plans}
        Runner(testbed, observer).start()
        with suppress(SimulationLimit):
            testbed.network.simulator.run()
        for machine in testbed.machines.values():
            machine.flush()
        for probe in probes.values():
            probe.rest()
        writers = {span: probe.writer for span, probe in probes.items()}
        return TraceResult(writers, {key: miss.text for key, miss in misses.items()})


def _probe(testbed: Testbed, observer: Observer, span: Span) -> ByteProbe:
    observer.frame_index.needed = True
    probe = ByteProbe(testbed, observer.frame_index, span)
    if span.host in observer.hosts:
        testbed.network.tap(span.host, probe.before, arrivals=True)
        testbed.machines[span.host].port.on_taken.append(probe.after)
    return probe


def _near_miss(observer: Observer, plan: PacketExpectation) -> ClosestMatch:
    miss = ClosestMatch(plan, observer.sender_of(plan))
    observer.watch(plan, miss.at)
    return miss
