"""When steps are done: together, at a time, after others; how many at a time; in rounds.

What is claimed of the order is read off the capture.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rdmawire.capture import open_capture
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.connection import ReceivePlan
from rdmawire.traffic.scenario.model.step import StepPlan
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.traffic.scenario.types import End, Span
from rdmawire.wire import roce
from rdmawire.wire.ib import RETH
from tests.traffic.scenario.scene import (
    MARK,
    SERVER,
    SINK,
    connection,
    failures,
    failures_of,
    host,
    link,
    memory,
    scene,
    step,
    write,
)

ACKNOWLEDGE = 0x11
EIGHT = Span("client", "source", 0, 8)


class Passed(NamedTuple):
    """A frame of a capture: when (ns), to which queue pair, what, and where it writes."""

    time: int
    destqp: int
    opcode: int
    va: int


def passed(scenario: Scenario, path: Path) -> list[Passed]:
    """The frames of a scenario that went as it should."""
    assert failures_of(play(scenario, capture=path / "out.pcap")) == []
    found = []
    with open_capture(path / "out.pcap") as reader:
        for record in reader:
            packet = roce.parse(record.data).packet
            va = next((part.va for part in packet.extended if isinstance(part, RETH)), 0)
            found.append(Passed(record.time_ns, packet.bth.destqp, packet.bth.opcode, va))
    return found


def small(place: int, **more: Any) -> StepPlan:
    """A WRITE of eight bytes that the capture knows by its place."""
    return write(local=(EIGHT,), remote=Span("server", "sink", 8 * place), **more)


def places(found: list[Passed]) -> list[tuple[int, int]]:
    """When (ns) and whereto the WRITEs went, from the first place on."""
    writes = [one for one in found if one.opcode != ACKNOWLEDGE]
    start = min(one.va for one in writes)
    return [(one.time, (one.va - start) // 8) for one in writes]


def test_steps_go_together_at_a_time_or_after_others(tmp_path: Path) -> None:
    steps = (
        small(0, name="first"),
        small(1),
        small(2, at=5_000),
        small(3),
        small(4, after=("first",)),
        small(5),
        small(6, after=("first",), at=9_000),
        small(7, after=("first",), at=1),
    )
    found = places(passed(scene(*steps), tmp_path))
    assert found == [
        (0, 0),
        (0, 1),
        (2_000, 4),
        (2_000, 5),
        (2_000, 7),
        (5_000, 2),
        (5_000, 3),
        (9_000, 6),
    ]


def test_a_first_step_with_a_time_takes_those_behind_it_along(tmp_path: Path) -> None:
    found = places(passed(scene(small(0, at=3_000), small(1)), tmp_path))
    assert found == [(3_000, 0), (3_000, 1)]


def test_after_waits_for_all_of_a_step_at_all_its_queue_pairs(tmp_path: Path) -> None:
    steps = (small(0, name="many", times=3, depth=1), small(1, after=("many",)))
    found = passed(scene(*steps, connections=(connection(count=2),)), tmp_path)
    assert [time for time, place in places(found) if place == 1] == [6_000, 6_000]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_never_more_than_the_depth_is_under_way(depth: int, tmp_path: Path) -> None:
    steps = (small(0, times=10, depth=depth),)
    under_way = most = 0
    for frame in passed(scene(*steps), tmp_path):
        under_way += -under_way if frame.opcode == ACKNOWLEDGE else 1
        most = max(most, under_way)
    assert most == depth


def test_without_a_depth_the_queue_is_filled(tmp_path: Path) -> None:
    wide = connection(packets_in_flight=1500)
    steps = scene(small(0, times=1500), connections=(wide,))
    assert [frame.time for frame in passed(steps, tmp_path)].count(0) == 1024


@pytest.mark.parametrize("packets", [None, 1, 20])
def test_no_more_than_the_window_is_under_way(packets: int | None, tmp_path: Path) -> None:
    own = connection(packets_in_flight=packets)
    plan = scene(small(0, times=200), connections=(own,))
    under_way = most = 0
    for frame in passed(plan, tmp_path):
        under_way += -under_way if frame.opcode == ACKNOWLEDGE else 1
        most = max(most, under_way)
    assert most <= (packets or 128)


def test_a_queue_pair_does_its_steps_in_their_order(tmp_path: Path) -> None:
    steps = (small(0, times=3, depth=1), small(1), small(2))
    found = [place for _, place in places(passed(scene(*steps), tmp_path))]
    assert found == [0, 0, 0, 1, 2]


def test_receives_are_no_part_of_that_order() -> None:
    hosts = (host("client", memory("source")), host("server", memory("sink"), memory("inbox")))
    steps = (
        write(end=SERVER, local=(SINK,), remote=Span("client", "source"), times=5, depth=1),
        step("receive", SERVER, local=(Span("server", "inbox"),)),
        step("send", inline=b"at once", status="SUCCESS"),
    )
    assert failures(scene(*steps, hosts=hosts)) == []


@pytest.mark.parametrize("depth", [None, 2])
def test_a_barrier_has_all_finish_a_round_before_any_begins_the_next(
    depth: int | None, tmp_path: Path
) -> None:
    size = depth or 1
    steps = (small(0, times=6, depth=depth, barrier=True),)
    links = (link(latency=1_000, rate=10**8),)
    plan = connection(count=3)
    found = passed(scene(*steps, links=links, connections=(plan,)), tmp_path)
    requests, answers = 0, 0
    for frame in found:
        if frame.opcode == ACKNOWLEDGE:
            answers += 1
            continue
        requests += 1
        round_ = (requests - 1) // (3 * size)
        assert answers >= 3 * round_, f"request {requests} before all of round {round_} is over"
    assert requests == 18


def test_without_a_barrier_nobody_waits_for_others(tmp_path: Path) -> None:
    links = (link(latency=1_000, rate=10**8),)
    steps = (
        small(0, end=End("client", "a", 1), times=4, depth=1),
        write(end=End("client", "a", 2), times=4, depth=1),
    )
    plan = connection(count=2)
    found = passed(scene(*steps, links=links, connections=(plan,)), tmp_path)
    requests = [frame.destqp for frame in found if frame.opcode != ACKNOWLEDGE]
    quick = min(requests)
    behind = requests[::-1].index(quick)
    assert behind >= 7


def test_a_time_that_never_comes_is_a_failure() -> None:
    bad = step("write", name="bad", local=(EIGHT,), remote=SINK, refused="EINVAL")
    steps = (
        step("receive", SERVER, name="never"),
        small(0, after=("never",), name="waits"),
        small(1, after=("waits", "never")),
        bad,
    )
    assert failures(scene(*steps)) == [
        "never (receive) on server/a: expected SUCCESS, found no completion",
        "waits (write): expected to be done, found it never began: it waits for never",
        "write: expected to be done, found it never began: it waits for waits, never",
        "bad (write): expected to be done, found it never began",
    ]


def test_thousands_of_steps_one_after_the_other_take_no_stack() -> None:
    steps = [
        small(0, name=str(n), after=(str(n - 1),) if n else (), flags=(), status=None)
        for n in range(3000)
    ]
    assert failures(scene(*steps)) == []


def test_a_run_that_does_not_come_to_rest_is_a_failure() -> None:
    endless = connection(attributes={"rnr_retry": 7, "min_rnr_timer": 1})
    found = failures(scene(step("send", inline=b"x"), connections=(endless,), time_limit=10**6))
    assert found == [
        (
            "test.yaml:1:1: the run: expected an end, "
            "found not at rest after 1000000 ns: next is due at 1008000 ns"
        ),
        "send on client/a: expected SUCCESS, found no completion",
    ]


def test_progress_counts_what_has_ended() -> None:
    said: list[tuple[int, int]] = []
    play(scene(small(0, times=3), small(1)), progress=lambda *done: said.append(done))
    assert said == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_progress_does_not_count_what_no_step_says() -> None:
    said: list[tuple[int, int]] = []
    receives = ReceivePlan(at=SERVER, mark=MARK, count=3)
    hello = step("send", inline=b"")
    plan = connection(receives=(receives,))
    play(scene(hello, connections=(plan,)), progress=lambda *done: said.append(done))
    assert said == [(1, 1)]


def test_work_that_comes_while_the_wire_is_busy_goes_out_right_behind(tmp_path: Path) -> None:
    """All but the first are posted while frames of the one before still wait for the wire."""
    steps = [write(at=2_000 * n + 100) for n in range(4)]
    found = passed(scene(*steps, links=(link(latency=10**6, rate=10**9),)), tmp_path)
    times = [one.time for one in found if one.opcode != ACKNOWLEDGE]
    assert len(times) == 32
    assert max(after - before for before, after in pairwise(times)) < 10_000
