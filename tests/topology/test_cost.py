"""The cost model: measured copies, and what holds for any flows that share links."""

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rdmawire.topology import Iommu, Machine, memory_route, peer_route
from rdmawire.topology.cost import (
    SOURCES,
    CopyKind,
    Costs,
    Flow,
    copy_time,
    fair_rates,
    finish_times,
    latency,
    max_min_rates,
    rate_of,
    read_time,
    route_rate,
    write_time,
)
from rdmawire.traffic.scenario.topology_file import open_host
from tests.topology.h200 import KINDS_1, KINDS_2, RUN_1, RUN_2
from tests.topology.machines import machines

DGX = open_host("dgx-h200").machine
TWO = open_host("two-sockets").machine


def measured() -> Iterator[tuple[CopyKind, int, float]]:
    for kinds, run in ((KINDS_1, RUN_1), (KINDS_2, RUN_2)):
        for size, times in run.items():
            for kind, time in zip(kinds, times, strict=True):
                yield kind, size, time


@pytest.mark.parametrize(("kind", "size", "time"), list(measured()))
def test_measured_copies_are_reproduced(kind: CopyKind, size: int, time: float) -> None:
    gpu, peer = DGX.gpus[:2]
    other = peer if kind in (CopyKind.PEER, CopyKind.BOUNCE) else None
    ratio = copy_time(DGX, kind, size, gpu, other) / 1000 / time
    assert 1 / 1.5 <= ratio <= 1.5


def test_every_constant_has_a_source() -> None:
    assert [field.name for field in fields(Costs)] == list(SOURCES)


def test_a_peer_without_nvlinks_is_reached_through_the_host() -> None:
    first, second = TWO.gpus
    through = copy_time(TWO, CopyKind.PEER, 1 << 20, first, second)
    assert through == copy_time(TWO, CopyKind.BOUNCE, 1 << 20, first, second)
    assert through > copy_time(TWO, CopyKind.PINNED_AND_SYNC, 1 << 20, first)


def test_what_adds_latency() -> None:
    adapter, near, far = TWO.adapters[0], *TWO.gpus
    below_switch = peer_route(TWO, adapter, near)
    assert latency(TWO, below_switch) == 115
    across = peer_route(TWO, adapter, far)
    assert latency(TWO, across) == 115 + 2 * 270 + 100
    translated = replace(TWO, settings=replace(TWO.settings, iommu=Iommu.TRANSLATED))
    assert latency(translated, across) == latency(TWO, across) + 330
    assert latency(translated, below_switch) == 115


def test_reads_wait_for_a_round_trip() -> None:
    adapter, gpu = TWO.adapters[0], TWO.gpus[1]
    route = peer_route(TWO, adapter, gpu)
    assert read_time(TWO, route, 64) > write_time(TWO, route, 64)
    few = read_time(TWO, route, 1 << 20, max_requests=8)
    assert few > 2 * read_time(TWO, route, 1 << 20)
    rate = route_rate(route)
    assert rate is not None
    assert write_time(TWO, route, 10_000_000) == pytest.approx(latency(TWO, route) + 1e16 / rate)


@st.composite
def flows(draw: st.DrawFn) -> tuple[Machine, list[Flow]]:
    """Draw a host, and transfers between its devices that begin at different times."""
    machine = draw(machines())
    assume(len(machine.devices) > 1)
    ends = st.lists(st.sampled_from(machine.devices), min_size=2, max_size=2, unique=True)
    pairs = draw(st.lists(ends, min_size=1, max_size=5))
    drawn = [
        Flow(
            peer_route(machine, pair[0], pair[1]),
            draw(st.integers(0, 1 << 24)),
            draw(st.sampled_from([0.0, 10.0, 5e4])),
        )
        for pair in pairs
    ]
    return machine, drawn


@given(flows())
def test_rates_are_max_min_fair(drawn: tuple[Machine, list[Flow]]) -> None:
    routes = [flow.route for flow in drawn[1]]
    rates = fair_rates(routes)
    links: dict[tuple[str, str], tuple[float, list[int]]] = {}
    for index, route in enumerate(routes):
        for step in route.steps:
            if (rate := rate_of(step)) is not None:
                links.setdefault((step.source, step.target), (rate, []))[1].append(index)
    for capacity, users in links.values():
        assert sum(rates[index] for index in users) <= capacity * (1 + 1e-9)
    for index, rate in enumerate(rates):
        full = (
            sum(rates[other] for other in users) >= capacity * (1 - 1e-9)
            and rate >= max(rates[other] for other in users) * (1 - 1e-9)
            for capacity, users in links.values()
            if index in users
        )
        assert any(full)


LINKS = st.integers(0, 5)
PATHS = st.dictionaries(
    st.integers(0, 30), st.lists(LINKS, min_size=1, max_size=4, unique=True), max_size=12
)
CAPACITIES = st.lists(st.floats(1, 1e12), min_size=6, max_size=6)


@given(PATHS, CAPACITIES)
def test_each_flow_has_a_full_link_where_none_is_faster(
    paths: dict[int, list[int]], capacities: list[float]
) -> None:
    rates = max_min_rates(paths, dict(enumerate(capacities)))
    assert rates.keys() == paths.keys()
    used = [sum(rates[flow] for flow in paths if link in paths[flow]) for link in range(6)]
    assert all(used[link] <= capacities[link] * (1 + 1e-9) for link in range(6))
    for flow, links in paths.items():
        assert any(
            used[link] >= capacities[link] * (1 - 1e-9)
            and all(
                rates[other] <= rates[flow] * (1 + 1e-9) for other in paths if link in paths[other]
            )
            for link in links
        )


def test_rates_of_a_small_network() -> None:
    paths = {"a": [1], "b": [1, 2], "c": [2], "d": [2]}
    assert max_min_rates(paths, {1: 10.0, 2: 9.0}) == {"b": 3.0, "c": 3.0, "d": 3.0, "a": 7.0}


@given(flows())
def test_flows_end_no_earlier_than_alone(drawn: tuple[Machine, list[Flow]]) -> None:
    machine, several = drawn
    ends = finish_times(machine, several)
    for flow, end in zip(several, ends, strict=True):
        (alone,) = finish_times(machine, [flow])
        assert alone == pytest.approx(flow.start + write_time(machine, flow.route, flow.size))
        assert end >= alone * (1 - 1e-9)


def test_two_adapters_share_the_link_of_a_socket() -> None:
    gpu = DGX.device("GPU0")
    alone = Flow(memory_route(DGX, gpu, 1), 22_000_000)
    other = Flow(memory_route(DGX, gpu, 1), 22_000_000)
    assert finish_times(DGX, [alone])[0] == pytest.approx(1e6, rel=1e-3)
    assert finish_times(DGX, [alone, other])[0] == pytest.approx(2e6, rel=1e-3)
