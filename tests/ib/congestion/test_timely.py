"""TIMELY: what each round trip does to the rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.ib.congestion.timely import Timely, TimelyParameters

KNOWN = TimelyParameters()


def at(rate: float, *rtts: int) -> Timely:
    """A flow at this rate, after round trips of so many ns."""
    flow = Timely()
    flow.rate = rate
    for rtt in rtts:
        flow.acknowledged(rtt, 0)
    return flow


def test_a_short_round_trip_raises_the_rate_whatever_its_gradient() -> None:
    assert at(1e9, 20_000, 45_000).rate == 1e9 + 2 * KNOWN.delta


def test_a_long_one_cuts_it_by_how_long_it_is() -> None:
    assert at(1e9, 1_000_000).rate == 1e9 * (1 - 0.8 * 0.5)


def test_in_between_a_rising_round_trip_cuts_by_its_gradient() -> None:
    flow = at(1e9, 100_000, 110_000)
    gradient = 0.875 * 10_000 / KNOWN.min_rtt
    assert flow.rate == (1e9 + KNOWN.delta) * (1 - 0.8 * gradient)


def test_five_that_do_not_rise_make_it_go_up_five_times_as_fast() -> None:
    assert at(1e9, *[100_000] * 4).rate == 1e9 + 4 * KNOWN.delta
    assert at(1e9, *[100_000] * 5).rate == 1e9 + 9 * KNOWN.delta


@pytest.mark.parametrize("worse", [100_001, 500_001], ids=["gradient", "long"])
def test_after_a_decrease_round_trips_are_counted_anew(worse: int) -> None:
    flow = at(1e9, *[100_000] * 4, worse)
    for rtt in (100_000, 90_000, 80_000, 70_000):
        before = flow.rate
        flow.acknowledged(rtt, 0)
        assert flow.rate <= before + KNOWN.delta


def test_marks_and_bytes_mean_nothing() -> None:
    flow = at(1e9)
    flow.notified(0)
    flow.sent(10**9, 0)
    assert flow.rate == 1e9
    assert flow.next_timer() is None


@given(st.lists(st.integers(0, 10**9), max_size=60))
def test_the_rate_stays_within_its_bounds(rtts: list[int]) -> None:
    flow = Timely()
    for rtt in rtts:
        flow.acknowledged(rtt, 0)
        assert KNOWN.min_rate <= flow.rate <= KNOWN.line_rate
