"""Expectations against what was found: every one that does not hold is a failure."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from rdmawire.errors import MemoryFault
from rdmawire.traffic.scenario.model import (
    CounterExpectation,
    EventExpectation,
    Expectation,
    MemoryExpectation,
    PacketExpectation,
    Range,
    Span,
    StateExpectation,
    TimeExpectation,
)
from rdmawire.traffic.scenario.playing.counting import Counting
from rdmawire.traffic.scenario.playing.failure import Failure
from rdmawire.traffic.scenario.playing.holding import PIECE, octets_of
from rdmawire.traffic.scenario.playing.observe import Observer, Seen, Sightings
from rdmawire.traffic.scenario.playing.player import Player
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.traffic.scenario.playing.wording import (
    fields_text,
    found_time,
    range_text,
    time_text,
)
from rdmawire.traffic.scenario.playing.work import Run

SHOWN: Final = 8
"""Octets of memory that a failure shows."""


class Played(NamedTuple):
    """A scenario after its end.

    ``writer`` tells which frame changed an octet last, ``nearest`` of one that was almost wanted.
    ``rest`` is when the last frame arrived or the last work was done (ns).
    """

    stage: Stage
    player: Player
    observer: Observer
    writer: Callable[[Span], int | None]
    nearest: Callable[[PacketExpectation], str]
    rest: int


def verdict(played: Played) -> Iterator[Failure]:
    """All that did not come as it should: steps first, then expectations, in their order."""
    yield from played.stage.failures
    for run in played.player.runs:
        yield from _step(run)
    for expectation in played.stage.scenario.expectations:
        yield from _CHECKS[type(expectation)](played, expectation)


# Steps.


def _step(run: Run) -> Iterator[Failure]:
    mark, wrong = run.step.mark, run.wrong
    if wrong is not None:
        what = run.title if wrong.lane is None else f"{run.title} on {wrong.lane.name}"
        yield Failure(mark, what, wrong.expected, wrong.found, wrong.frame, wrong.point)
    elif not run.begun:
        yield Failure(mark, run.title, "to be done", f"it never began{_why(run)}")
    elif run.ended < run.total:
        yield _unfinished(run)


def _why(run: Run) -> str:
    waits = ", ".join(run.step.after)
    return f": it waits for {waits}" if run.waits else ""


def _unfinished(run: Run) -> Failure:
    """A step of which something has not ended: the first queue pair where that is so."""
    lane = next(job.lane for job in run.jobs if job.ended < run.step.times)
    expected = run.step.refused or run.step.status or "to be posted"
    found = f"{run.ended} of {run.total}" if run.ended else "no completion"
    if run.total > 1:
        expected = f"{expected} {run.total} times"
    if lane.trouble or not lane.ready:
        found = f"{found}: {lane.trouble or 'it was never connected'}"
    return Failure(run.step.mark, f"{run.title} on {lane.name}", expected, found)


# Memory.


def _memory(played: Played, plan: MemoryExpectation) -> Iterator[Failure]:
    what = f"memory {_span(plan.span)}"
    try:
        difference = _difference(played.stage, plan)
    except MemoryFault as fault:
        yield Failure(plan.mark, what, _wanted(plan), f"no memory: {fault}")
        return
    if difference is not None:
        expected, found, offset = difference
        octet = plan.span._replace(offset=offset, length=1)
        yield Failure(plan.mark, what, expected, found, played.writer(octet))


def _difference(stage: Stage, plan: MemoryExpectation) -> tuple[str, str, int] | None:
    """What should stand where the memory first differs, what does, and at which octet."""
    held = stage.held(plan.span)
    offset, length = held.extent(plan.span)
    of = f" (of {_span(plan.same_as)})" if plan.same_as else ""
    for wanted in _pieces(stage, plan, length):
        found = held.read(offset, len(wanted))
        if found != wanted:
            at = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
            place = offset + at
            return f"{_hex(wanted, at)}{of}", f"{_hex(found, at)} at octet {place}", place
        offset += len(wanted)
    return None


def _pieces(stage: Stage, plan: MemoryExpectation, length: int) -> Iterator[bytes]:
    if plan.same_as is None:
        assert plan.content is not None  # there is no such expectation
        yield from octets_of(plan.content, length, stage.network.random("expected"))
        return
    held = stage.held(plan.same_as)
    start, _ = held.extent(plan.same_as)
    for offset in range(0, length, PIECE):
        yield held.read(start + offset, min(PIECE, length - offset))


def _wanted(plan: MemoryExpectation) -> str:
    if plan.same_as is not None:
        return f"that of {_span(plan.same_as)}"
    return "octets" if plan.content is None else plan.content.fill.value


def _hex(octets: bytes, at: int) -> str:
    shown = octets[at : at + SHOWN].hex(" ")
    return f"{shown}.." if at + SHOWN < len(octets) else shown


def _span(span: Span) -> str:
    name = f"{span.host}.{span.memory}"
    if span.length is None:
        return f"{name}[{span.offset}:]" if span.offset else name
    return f"{name}[{span.offset}:{span.offset + span.length}]"


# Counters.


def _counter(played: Played, plan: CounterExpectation) -> Iterator[Failure]:
    found = Counting(played.stage, played.observer).read(plan.of, plan.counter)
    if not plan.range.holds(found):
        what = f"counter {plan.of}.{plan.counter}"
        seen = _seen(_sightings(played.observer, plan), plan.range)
        yield Failure(plan.mark, what, range_text(plan.range), str(found), *seen)


def _sightings(observer: Observer, plan: CounterExpectation) -> Sightings | None:
    """The frames that a counter counted, where they were noted."""
    if plan.counter == "lost":
        return observer.losses.get(plan.of)
    watch = observer.hosts.get(plan.of)
    return None if watch is None else watch.sightings.get(plan.counter)


def _seen(sightings: Sightings | None, range_: Range) -> tuple[int | None, str]:
    """The first frame that there should not be; the last one there is, if there are too few."""
    seen: Seen | None = None
    if sightings is not None and range_.most is not None and sightings.count > range_.most:
        seen = sightings.at(range_.most)
    elif sightings is not None:
        seen = sightings.last
    return (None, "") if seen is None else (seen.number, seen.point)


# The rest.


def _packets(played: Played, plan: PacketExpectation) -> Iterator[Failure]:
    sightings = played.observer.packets[id(plan)]
    if not plan.range.holds(sightings.count):
        of = f" sent by {plan.sent_by}" if plan.sent_by else ""
        on = f" on {plan.link}" if plan.link else ""
        fields = f" with {fields_text(plan.where)}" if plan.where else ""
        arrived = " that arrive" if plan.arrived else ""
        what = f"packets{of}{on}{arrived}{fields}"
        few = sightings.count < plan.range.least
        near = played.nearest(plan) if few else ""
        seen = _seen(sightings, plan.range)
        yield Failure(
            plan.mark, what, range_text(plan.range), str(sightings.count), *seen, nearest=near
        )


def _state(played: Played, plan: StateExpectation) -> Iterator[Failure]:
    for lane in played.stage.lanes_at(plan.end):
        found = lane.qp.state.name
        if found != plan.state:
            seen = played.observer.last.refusal(lane)
            what = f"state of {lane.name}"
            yield Failure(plan.mark, what, plan.state, found, *(seen or (None, "")))


def _event(played: Played, plan: EventExpectation) -> Iterator[Failure]:
    found = played.stage.machines[plan.host].events[plan.event]
    if not plan.range.holds(found):
        what = f"events {plan.host}.{plan.event}"
        yield Failure(plan.mark, what, range_text(plan.range), str(found))


def _time(played: Played, plan: TimeExpectation) -> Iterator[Failure]:
    found = played.rest
    if not plan.range.holds(found):
        expected = range_text(plan.range, time_text)
        frames = played.observer.numbering.frames
        yield Failure(plan.mark, "time", expected, found_time(found, plan.range), frames or None)


_Check = Callable[[Played, Any], Iterator[Failure]]

_CHECKS: Final[dict[type[Expectation], _Check]] = {
    MemoryExpectation: _memory,
    CounterExpectation: _counter,
    PacketExpectation: _packets,
    StateExpectation: _state,
    EventExpectation: _event,
    TimeExpectation: _time,
}
"""What each kind of expectation is held against."""
