"""The use of links: bytes are kept, links have their rates, reads wait for round trips."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.topology import Bus, Machine, memory_route, peer_route
from rdmawire.topology.cost import write_time
from rdmawire.traffic.scenario.topology_file import open_host
from rdmawire.units import SECOND

HOST: Machine = open_host("two-sockets").machine
ROUTES = [
    peer_route(HOST, HOST.device("mlx5_0"), HOST.device("GPU0")),
    memory_route(HOST, HOST.device("mlx5_0"), 0),
    memory_route(HOST, HOST.device("mlx5_0"), 1),
    memory_route(HOST, HOST.device("GPU0"), 0),
]
Access = tuple[int, bool, int, int]


@st.composite
def accesses(draw: st.DrawFn) -> list[Access]:
    """Draw accesses: the number of a route, whether it is a read, bytes, ns after the last one."""
    one = st.tuples(
        st.integers(0, len(ROUTES) - 1),
        st.booleans(),
        st.integers(1, 1 << 20),
        st.integers(0, 100_000),
    )
    return draw(st.lists(one, min_size=1, max_size=20))


@settings(max_examples=50)
@given(accesses())
def test_bytes_are_kept_and_links_are_no_faster_than_they_are(drawn: list[Access]) -> None:
    bus = Bus(HOST)
    routes = [bus.route(route) for route in ROUTES]
    now, ends, wanted = 0, [], 0
    for number, reads, size, pause in drawn:
        now += pause
        route = routes[number]
        end = route.read(size, now) if reads else route.write(size, now)
        alone = write_time(HOST, route.route, size)
        assert end >= now + alone * (1 - 1e-9)
        ends.append(end)
        wanted += size * len(route.route.steps)
    assert sum(use.bytes for use in bus.links.values()) == wanted
    for use in bus.links.values():
        assert use.busy_ns <= max(ends)
        if use.rate:
            assert use.busy_ns == pytest.approx(use.bytes / use.rate * SECOND)


def test_a_write_alone_takes_the_time_of_the_model() -> None:
    for route in ROUTES:
        end = Bus(HOST).route(route).write(1 << 16, 1000)
        assert end == pytest.approx(1000 + write_time(HOST, route, 1 << 16))


def test_two_routes_share_a_link() -> None:
    bus = Bus(HOST)
    first, second = bus.route(ROUTES[0]), bus.route(ROUTES[1])
    alone = first.write(1 << 20, 0)
    assert second.write(1 << 20, 0) > 2 * alone * 0.9


def test_few_requests_make_reads_slow() -> None:
    fast, slow = Bus(HOST), Bus(HOST, max_requests=2)
    size = 1 << 20
    quick = fast.route(ROUTES[1]).read(size, 0)
    late = slow.route(ROUTES[1]).read(size, 0)
    route = slow.route(ROUTES[1])
    assert late > 5 * quick
    assert late >= size / slow.max_reading * 2 * route.latency


def test_transactions_are_those_of_the_sizes() -> None:
    bus = Bus(HOST, max_payload=128, max_read=256)
    bus.route(ROUTES[0]).write(1000, 0)
    assert {use.transactions for use in bus.links.values()} == {8}
    bus = Bus(HOST, max_payload=128, max_read=256)
    bus.route(ROUTES[0]).read(1000, 0)
    assert {use.transactions for use in bus.links.values()} == {4, 8}
