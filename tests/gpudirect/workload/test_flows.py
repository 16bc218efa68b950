"""Fair rates of flows, by the definition of max-min fairness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.gpudirect.workload.flows import fair_rates, wire_volume

LINKS = st.integers(0, 5)
WAYS = st.dictionaries(
    st.integers(0, 30), st.lists(LINKS, min_size=1, max_size=4, unique=True), max_size=12
)
CAPACITIES = st.lists(st.floats(1, 1e12), min_size=6, max_size=6)


@given(WAYS, CAPACITIES)
def test_each_flow_has_a_full_link_where_none_is_faster(
    ways: dict[int, list[int]], capacities: list[float]
) -> None:
    rates = fair_rates(ways, dict(enumerate(capacities)))
    assert rates.keys() == ways.keys()
    used = [sum(rates[flow] for flow in ways if link in ways[flow]) for link in range(6)]
    assert all(used[link] <= capacities[link] * (1 + 1e-9) for link in range(6))
    for flow, links in ways.items():
        assert any(
            used[link] >= capacities[link] * (1 - 1e-9)
            and all(
                rates[other] <= rates[flow] * (1 + 1e-9) for other in ways if link in ways[other]
            )
            for link in links
        )


def test_rates_of_a_small_network() -> None:
    ways = {"a": [1], "b": [1, 2], "c": [2], "d": [2]}
    assert fair_rates(ways, {1: 10.0, 2: 9.0}) == {"b": 3.0, "c": 3.0, "d": 3.0, "a": 7.0}


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 40960])
def test_headers_of_each_frame_take_time(size: int) -> None:
    payloads = [4096] * (size // 4096) + ([size % 4096] if size % 4096 or not size else [])
    frames = [max(payload + 58, 60) + 4 + 20 for payload in payloads]
    full = (4096 + 58 + 4 + 20) / 4096
    assert wire_volume(size) * full == pytest.approx(sum(frames) + 20)
