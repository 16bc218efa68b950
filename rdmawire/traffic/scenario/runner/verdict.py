"""Expectations compared with observations: each one that does not hold is a failure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from rdmawire.decode import Protocols
from rdmawire.errors import MemoryFault
from rdmawire.fabric.fault import Rule
from rdmawire.fabric.field import Fields, named
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.simulator import SimulationLimit, Tap
from rdmawire.traffic.scenario.document import Failure, Hint
from rdmawire.traffic.scenario.model.expectation import (
    CounterExpectation,
    EventExpectation,
    Expectation,
    MemoryExpectation,
    PacketExpectation,
    StateExpectation,
    TimeExpectation,
)
from rdmawire.traffic.scenario.model.network import FaultPlan
from rdmawire.traffic.scenario.runner.actions import Runner
from rdmawire.traffic.scenario.runner.expectations import CounterReader, ExpectationWatcher
from rdmawire.traffic.scenario.runner.host_runtime import PIECE, bytes_of
from rdmawire.traffic.scenario.runner.observer import (
    FrameIndex,
    FrameRef,
    Observer,
    among,
    expected_payload,
    is_from,
    pointed,
)
from rdmawire.traffic.scenario.runner.posted_work import StepRun
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.traffic.scenario.types import Range, Span
from rdmawire.wire.field_registry import HeaderField
from rdmawire.wire.header import Row
from rdmawire.wire.show import writer

SHOWN: Final = 8
"""Maximum bytes of memory that a failure shows."""


class TraceResult(NamedTuple):
    """``writers``: frame number of each byte; ``nearest``: near match by id of expectation."""

    writers: Mapping[Span, int | None]
    nearest: Mapping[int, str]


class FinishedRun(NamedTuple):
    """A scenario after its end.

    ``rest`` is the time of the last arrival or the last completed work (ns).
    """

    testbed: Testbed
    player: Runner
    observer: Observer
    watching: ExpectationWatcher
    rest: int


def verdict(played: FinishedRun, tracer: "Tracer") -> Iterator[Failure]:
    """Yield all failures: of steps first, then of expectations, in their order.

    ``tracer`` finds the frames that wrote bytes last, and near matches.
    """
    yield from played.testbed.failures
    for run in played.player.runs:
        yield from _step(run)
    differences = dict(_differences(played.testbed))
    data = (found.byte for found in differences.values() if found.byte is not None)
    evidence = _Evidence(played, differences, tracer.trace(data, _too_few(played)))
    for expectation in played.testbed.scenario.expectations:
        yield from _CHECKS[type(expectation)](evidence, expectation)


class _Difference(NamedTuple):
    """A difference between expected and found memory; ``byte`` is the first that differs."""

    expected: str
    found: str
    byte: Span | None = None


class _Evidence(NamedTuple):
    """What failures refer to.

    ``differences`` of memory by id of the expectation, and the traces of a second run.
    """

    played: FinishedRun
    differences: dict[int, _Difference]
    traced: TraceResult


# Steps.


def _step(run: StepRun) -> Iterator[Failure]:
    mark, wrong = run.step.mark, run.deviation
    if wrong is not None:
        what = run.title if wrong.endpoint is None else f"{run.title} on {wrong.endpoint.name}"
        yield Failure(mark, what, wrong.expected, wrong.found, wrong.frame, wrong.point)
    elif not run.begun:
        why = f": it waits for {', '.join(run.step.after)}" if run.waits else ""
        yield Failure(mark, run.title, "to be done", f"it never began{why}")
    elif run.ended < run.total:
        yield _unfinished(run)


def _unfinished(run: StepRun) -> Failure:
    """Report a step with incomplete work, by the first queue pair that has some."""
    endpoint = next(job.endpoint for job in run.jobs if job.ended < run.step.times)
    expected = run.step.refused or run.step.status or "to be posted"
    found = f"{run.ended} of {run.total}" if run.ended else "no completion"
    if run.total > 1:
        expected = f"{expected} {run.total} times"
    if endpoint.trouble or not endpoint.ready:
        found = f"{found}: {endpoint.trouble or 'it was never connected'}"
    return Failure(run.step.mark, f"{run.title} on {endpoint.name}", expected, found)


# Memory.


def _memory(evidence: _Evidence, plan: MemoryExpectation) -> Iterator[Failure]:
    found = evidence.differences.get(id(plan))
    if found is not None:
        what = f"memory {_span(plan.span)}"
        frame = None if found.byte is None else evidence.traced.writers.get(found.byte)
        yield Failure(plan.mark, what, found.expected, found.found, frame)


def _differences(testbed: Testbed) -> Iterator[tuple[int, _Difference]]:
    for plan in testbed.scenario.expectations:
        if isinstance(plan, MemoryExpectation):
            try:
                found = _difference(testbed, plan)
            except MemoryFault as fault:
                same, content = plan.same_as, plan.content
                fill = "bytes" if content is None else content.fill.value
                wanted = f"that of {_span(same)}" if same is not None else fill
                found = _Difference(wanted, f"no memory: {fault}")
            if found is not None:
                yield id(plan), found


def _difference(testbed: Testbed, plan: MemoryExpectation) -> _Difference | None:
    """Return the first difference between expected and found memory, if there is one."""
    buffer = testbed.buffer(plan.span)
    offset, length = buffer.extent(plan.span)
    of = f" (of {_span(plan.same_as)})" if plan.same_as else ""
    for wanted in _pieces(testbed, plan, length):
        found = buffer.read(offset, len(wanted))
        if found != wanted:
            at = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
            said = f"{_hex(found, at)} at byte {offset + at}"
            byte = plan.span._replace(offset=offset + at, length=1)
            return _Difference(f"{_hex(wanted, at)}{of}", said, byte)
        offset += len(wanted)
    return None


def _pieces(testbed: Testbed, plan: MemoryExpectation, length: int) -> Iterator[bytes]:
    if plan.is_unchanged:
        yield testbed.initial.get(id(plan), b"")
        return
    if plan.same_as is None:
        assert plan.content is not None  # each expectation has one of the two
        yield from bytes_of(plan.content, length, testbed.network.random("expected"))
        return
    buffer = testbed.buffer(plan.same_as)
    start, _ = buffer.extent(plan.same_as)
    for offset in range(0, length, PIECE):
        yield buffer.read(start + offset, min(PIECE, length - offset))


def _hex(data: bytes, at: int) -> str:
    shown = data[at : at + SHOWN].hex(" ")
    return f"{shown}.." if at + SHOWN < len(data) else shown


def _span(span: Span) -> str:
    name = f"{span.host}.{span.memory}"
    if span.length is None:
        return f"{name}[{span.offset}:]" if span.offset else name
    return f"{name}[{span.offset}:{span.offset + span.length}]"


# Counters, events and states.


def _counter(evidence: _Evidence, plan: CounterExpectation) -> Iterator[Failure]:
    played = evidence.played
    found = CounterReader(played.testbed, played.observer).read(plan.of, plan.counter)
    yield from _count(played, plan, f"counter {plan.of}.{plan.counter}", found)


def _event(evidence: _Evidence, plan: EventExpectation) -> Iterator[Failure]:
    played = evidence.played
    found = played.testbed.machines[plan.host].events[plan.event]
    yield from _count(played, plan, f"events {plan.host}.{plan.event}", found)


def _count(
    played: FinishedRun, plan: CounterExpectation | EventExpectation, what: str, found: int
) -> Iterator[Failure]:
    if not plan.range.holds(found):
        seen = pointed(played.watching.counted(plan))
        yield Failure(plan.mark, what, range_text(plan.range), str(found), *seen)


def _state(evidence: _Evidence, plan: StateExpectation) -> Iterator[Failure]:
    played = evidence.played
    for endpoint in played.testbed.endpoints_at(plan.end):
        found = endpoint.qp.state.name
        if found != plan.state:
            seen = pointed(played.watching.entered(endpoint))
            yield Failure(plan.mark, f"state of {endpoint.name}", plan.state, found, *seen)


# Frames and time.


def _packets(evidence: _Evidence, plan: PacketExpectation) -> Iterator[Failure]:
    sightings = evidence.played.observer.packets[id(plan)]
    if not plan.range.holds(sightings.count):
        of = f" sent by {plan.sent_by}" if plan.sent_by else ""
        on = f" on {plan.link}" if plan.link else ""
        arrived = " that arrive" if plan.arrived else ""
        what = f"packets{of}{on}{arrived}{_wanted_text(plan)}"
        near = evidence.traced.nearest.get(id(plan), "")
        seen = pointed(sightings.shown)
        yield Failure(
            plan.mark, what, range_text(plan.range), str(sightings.count), *seen, nearest=near
        )


def _wanted_text(plan: PacketExpectation) -> str:
    """Return the fields and the payload that frames must have, as words after "packets"."""
    wanted = [fields_text(plan.where)] if plan.where else []
    payload = expected_payload(plan)
    if payload is not None:
        wanted.append(_payload_text(payload))
    return f" with {' and '.join(wanted)}" if wanted else ""


def _payload_text(payload: bytes) -> str:
    return f"payload {_hex(payload, 0)}" if payload else "no payload"


def _too_few(played: FinishedRun) -> Iterator[PacketExpectation]:
    """Yield the packet expectations that matched too few frames."""
    for plan in played.testbed.scenario.expectations:
        sightings = played.observer.packets.get(id(plan))
        if isinstance(plan, PacketExpectation) and sightings is not None:
            yield from [plan] if sightings.count < plan.range.least else ()


def _time(evidence: _Evidence, plan: TimeExpectation) -> Iterator[Failure]:
    played = evidence.played
    found = played.rest
    if not plan.range.holds(found):
        expected = range_text(plan.range, time_text)
        frames = played.observer.recording.frames
        yield Failure(plan.mark, "time", expected, found_time(found, plan.range), frames or None)


_Check = Callable[[_Evidence, Any], Iterator[Failure]]

_CHECKS: Final[dict[type[Expectation], _Check]] = {
    MemoryExpectation: _memory,
    CounterExpectation: _counter,
    PacketExpectation: _packets,
    StateExpectation: _state,
    EventExpectation: _event,
    TimeExpectation: _time,
}
"""The check of each type of expectation."""


# Faults.


def unused_faults(testbed: Testbed) -> Iterator[Hint]:
    """Yield a hint for each fault that changed no frame, in the order of the links."""
    for link in testbed.scenario.links:
        rules = testbed.faults[link.name].rules
        for plan, rule in zip(link.faults, rules, strict=True):
            if not rule.hits:
                frames = testbed.network.links[link.name].frames
                why = _why_unused(plan, rule, f"{frames} on {link.name}")
                yield Hint(plan.mark, f"the fault '{plan.do}' changed no frame: {why}")


def _why_unused(plan: FaultPlan, rule: Rule, all_: str) -> str:
    """Say which condition no frame met: fields, occurrence, or chance."""
    if not rule.fits:
        return f"of the {all_} none {_named(plan)}"
    met = f"of the {all_} {rule.turns or rule.fits} could be meant"
    if not rule.turns:
        return f"{met}, but 'nth' {_numbers(plan.nth)} never came"
    if not rule.meant:
        return f"{met}, but chance {plan.chance:g} met none"
    meant = f"of the {all_} {rule.meant} were meant, but"
    if plan.do != "mark":
        return f"{meant} it leaves them as they were"
    why = "none is ECN-capable, or all have a mark already"
    return f"{meant} {why}; give 'ecn: true' to their connection"


def _named(plan: FaultPlan) -> str:
    """Describe the frames that a fault selects."""
    said = []
    if plan.packet:
        said.append(f"is packet {_numbers(plan.packet)} of what {_sender(plan)} requests")
    elif plan.sent_by:
        said.append(f"is sent by {_sender(plan)}")
    if plan.where:
        said.append(f"has {fields_text(plan.where)}")
    return " and ".join(said) or "came"


def _sender(plan: FaultPlan) -> str:
    end = plan.sent_by
    assert end is not None  # without it there is no packet
    number = "" if end.number is None else f"#{end.number}"
    return f"{end.host}/{end.connection}{number}"


def _numbers(places: tuple[int, ...], shown: int = 4) -> str:
    more = ", .." if len(places) > shown else ""
    return ", ".join(map(str, places[:shown])) + more


# Values in messages.

_UNITS: Final = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))
_DIGITS: Final = 4
"""Digits of a measured time, unless more are needed to distinguish it from the expected one."""


def range_text(range_: Range, say: Callable[[int], str] = str) -> str:
    """``3``, ``3 to 5``, ``at most 9`` or ``1 or more``."""
    if range_.least == range_.most:
        return say(range_.least)
    if range_.most is None:
        return f"{say(range_.least)} or more"
    if not range_.least:
        return f"at most {say(range_.most)}"
    return f"{say(range_.least)} to {say(range_.most)}"


def time_text(time: int) -> str:
    """Write a time (ns) in its largest unit: ``2 ms``, ``1.0245 us``."""
    name, unit = next((row for row in _UNITS if time >= row[1]), _UNITS[-1])
    whole, rest = divmod(time, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits} {name}" if digits else f"{whole} {name}"


def found_time(time: int, wanted: Range) -> str:
    """Write a time (ns) rounded, or exactly if the rounded value would be an expected one."""
    step = 10 ** max(len(str(time)) - _DIGITS, 0)
    rounded = (time + step // 2) // step * step
    return time_text(time if wanted.holds(rounded) else rounded)


def fields_text(where: Mapping[str, object]) -> str:
    """Write fields with their values: ``aeth.ack NAK, bth.psn 100..107``."""
    return ", ".join(f"{name} {value_text(name, value, where)}" for name, value in where.items())


def value_text(name: str, value: object, beside: Mapping[str, object]) -> str:
    """Write a field's value in the standard's words; fields ``beside`` it may decide them."""
    if isinstance(value, range):
        return f"{value.start}..{value.stop - 1}"
    if isinstance(value, tuple):
        return f"[{', '.join(value_text(name, one, beside) for one in value)}]"
    one = next(iter(named(name)), None)
    return str(value) if one is None else _word(one, value, beside)


def _word(one: HeaderField, value: object, beside: Mapping[str, object]) -> str:
    meaning, row = one.meaning, one.row
    if one.own and isinstance(row, Row) and row.cases:
        by = beside.get(f"{one.table.label}.{row.by}")
        meaning = row.cases.get(by, meaning) if isinstance(by, int) else meaning
    if isinstance(value, bytes):
        return writer(meaning.show, row.width)(value)
    listed = isinstance(value, int) and meaning.enum is not None
    return (meaning.word(value) if listed and isinstance(value, int) else "") or str(value)


# Traces find the frame that wrote a byte last, or nearly matched: the scenario is run again with
# probes. The same scenario gives the same frames, so their numbers are those of the first run.

FEWEST_FIELDS = 2
"""With fewer expected fields, any frame would be a near match."""


class ClosestMatch:
    """Finds the first frame with all fields of ``plan`` and all values but one."""

    def __init__(self, plan: PacketExpectation, sender: bytes | None, protocols: Protocols) -> None:
        self.text = ""
        self._protocols = protocols
        self._wanted = {name: among(value) for name, value in plan.where.items()}
        self._payload = expected_payload(plan)
        self._sender = sender

    def at(self, where: Callable[[], FrameRef]) -> Tap:
        """Return a tap; ``where`` gives the reference of the frame that passes it."""

        def look(frame: Envelope, now: int) -> None:  # noqa: ARG001 - a tap
            if not self.text and is_from(self._sender, frame.data):
                self._compare(frame.data, where())

        return look

    def _compare(self, frame: bytes, seen: FrameRef) -> None:
        fields = Fields(frame, seen.number, self._protocols)
        found = {name: fields.get(name) for name in self._wanted}
        wrong = [name for name, values in self._wanted.items() if not fields.has(name, values)]
        differs = self._payload not in (None, fields.payload)
        if len(wrong) + differs != 1 or None in found.values():
            return
        place = f" of {seen.point}" if seen.point else ""
        said = _payload_text(fields.payload)
        for name in wrong:
            said = f"{name} {value_text(name, found[name], found)}"
        self.text = f"frame {seen.number}{place}, {said}"


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


class Tracer:
    """Finds writers of bytes and near matches by a second run, if there are any to find.

    ``make_testbed`` returns the testbed of that run. ``frames`` is the number of captured frames;
    ``points`` and ``arrived`` are the capture's.
    """

    def __init__(
        self,
        make_testbed: Callable[[], Testbed],
        frames: int,
        points: tuple[str, ...],
        *,
        arrived: bool,
    ) -> None:
        self._make_testbed = make_testbed
        self._points = points
        self._arrived = arrived
        self._able = frames <= MAX_FRAMES

    def trace(self, data: Iterable[Span], packets: Iterable[PacketExpectation]) -> TraceResult:
        """Return the last writer of each byte, and the frame nearest to each packet expectation."""
        spans = tuple(data)[:MAX_PROBES]
        plans = [plan for plan in packets if _conditions(plan) >= FEWEST_FIELDS][:MAX_PROBES]
        if not self._able or not (spans or plans):
            return TraceResult({}, {})
        testbed = self._make_testbed()
        observer = Observer(testbed, None, self._points, arrived=self._arrived)
        testbed.install_faults()
        probes = {span: _probe(testbed, observer, span) for span in spans}
        misses = {}
        for plan in plans:
            sender = observer.sender_of(plan)
            misses[id(plan)] = miss = ClosestMatch(plan, sender, observer.protocols)
            observer.watch(plan, miss.at)
        Runner(testbed, observer).start()
        with suppress(SimulationLimit):
            testbed.network.simulator.run()
        for machine in testbed.machines.values():
            machine.flush()
        for probe in probes.values():
            probe.rest()
        writers = {span: probe.writer for span, probe in probes.items()}
        return TraceResult(writers, {key: miss.text for key, miss in misses.items()})


def _conditions(plan: PacketExpectation) -> int:
    return len(plan.where) + (plan.payload is not None)


def _probe(testbed: Testbed, observer: Observer, span: Span) -> ByteProbe:
    observer.frame_index.needed = True
    probe = ByteProbe(testbed, observer.frame_index, span)
    if span.host in observer.hosts:
        testbed.network.tap(span.host, probe.before, arrivals=True)
        testbed.machines[span.host].port.on_taken.append(probe.after)
    return probe
