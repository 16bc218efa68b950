"""Scenarios made in Python: two hosts, a link, a connection, and what a test changes of them."""

from typing import Any

from rdmawire.traffic.scenario.document import Mark
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.connection import ConnectionPlan
from rdmawire.traffic.scenario.model.expectation import (
    CounterExpectation,
    EventExpectation,
    Expectation,
    MemoryExpectation,
    PacketExpectation,
    StateExpectation,
    TimeExpectation,
)
from rdmawire.traffic.scenario.model.host import HostPlan, MemoryPlan
from rdmawire.traffic.scenario.model.network import FaultPlan, LinkPlan
from rdmawire.traffic.scenario.model.step import StepPlan
from rdmawire.traffic.scenario.runner.play import Outcome, play
from rdmawire.traffic.scenario.types import Content, End, Fill, Range, Span

MARK = Mark(7, 5)
CLIENT, SERVER = End("client", "a"), End("server", "a")
SOURCE, SINK = Span("client", "source"), Span("server", "sink")
COUNT = Content(fill=Fill.COUNT)


def memory(name: str, size: int = 8192, **more: Any) -> MemoryPlan:
    return MemoryPlan(name=name, size=size, mark=MARK, **more)


def host(name: str, *memories: MemoryPlan, **more: Any) -> HostPlan:
    return HostPlan(name=name, mark=MARK, memory=memories, **more)


def link(*faults: FaultPlan, ends: tuple[str, str] = ("client", "server"), **more: Any) -> LinkPlan:
    return LinkPlan(ends=ends, mark=MARK, faults=faults, **more)


def connection(name: str = "a", **more: Any) -> ConnectionPlan:
    more.setdefault("ends", ("client", "server"))
    return ConnectionPlan(name=name, mark=MARK, **more)


def fault(do: str, **more: Any) -> FaultPlan:
    return FaultPlan(do=do, mark=MARK, **more)


def step(verb: str, end: End | None = CLIENT, **more: Any) -> StepPlan:
    return StepPlan(verb=verb, mark=MARK, end=end, **more)


def write(**more: Any) -> StepPlan:
    """All of the source, to the sink, unless told otherwise."""
    return step("write", **{"local": (SOURCE,), "remote": SINK, **more})


def between(least: int, most: int | None = None) -> Range:
    return Range(least, most)


def exactly(number: int) -> Range:
    return Range(number, number)


def holds(span: Span, same_as: Span | None = None, **more: Any) -> MemoryExpectation:
    content = Content(**more) if more else None
    return MemoryExpectation(span=span, mark=MARK, same_as=same_as, content=content)


def counts(name: str, range_: Range) -> CounterExpectation:
    of, _, counter = name.rpartition(".")
    return CounterExpectation(of=of, counter=counter, range=range_, mark=MARK)


def packets(
    range_: Range, where: dict[str, object] | None = None, **more: Any
) -> PacketExpectation:
    return PacketExpectation(where=where or {}, range=range_, mark=MARK, **more)


def state(end: End, name: str) -> StateExpectation:
    return StateExpectation(end=end, state=name, mark=MARK)


def event(name: str, range_: Range, of: str = "server") -> EventExpectation:
    return EventExpectation(host=of, event=name, range=range_, mark=MARK)


def lasts(range_: Range) -> TimeExpectation:
    return TimeExpectation(range=range_, mark=MARK)


def scene(*steps: StepPlan, **more: Any) -> Scenario:
    """8 KiB that count at the client, 8 KiB of zeros at the server, and one RC connection."""
    given: dict[str, Any] = {
        "name": "a test",
        "source": "test.yaml",
        "hosts": (host("client", memory("source", content=COUNT)), host("server", memory("sink"))),
        "links": (link(),),
        "connections": (connection(),),
        "steps": steps,
        **more,
    }
    return Scenario(**given)


def expecting(scenario: Scenario, *expectations: Expectation) -> Scenario:
    return scenario.model_copy(update={"expectations": expectations})


def failures_of(outcome: Outcome) -> list[str]:
    """What the failures say, without their place in the file."""
    source = outcome.scenario.source
    prefix = f"{source}:{MARK.line}:{MARK.column}: "
    return [failure.text(source).removeprefix(prefix) for failure in outcome.failures]


def failures(scenario: Scenario, *expectations: Expectation) -> list[str]:
    """What becomes of a scenario with these expectations."""
    return failures_of(play(expecting(scenario, *expectations)))
