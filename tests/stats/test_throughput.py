"""Throughput: sums over intervals of time, for any frames in any blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.stats.throughput import COLUMNS, Bins, IntervalError, ThroughputSeries


def filled(times: list[int], piece: int, interval: int | None = None) -> Bins:
    bins = Bins(interval)
    for start in range(0, len(times), piece):
        part = np.array(times[start : start + piece], np.int64)
        bins.add(part, {name: np.ones(len(part), np.int64) for name in COLUMNS})
    return bins


def expected(times: list[int], width: int) -> list[int]:
    places = [max(time - times[0], 0) // width for time in times]
    return [places.count(place) for place in range(max(places) + 1)]


@given(
    st.lists(st.integers(0, 10**14), min_size=1, max_size=40),
    st.integers(1, 40),
    st.sampled_from([20, 120]),
)
def test_each_frame_is_in_the_stretch_of_its_time(times: list[int], piece: int, most: int) -> None:
    found = filled(times, piece).throughput(most)
    counts = found.sums["frames"].tolist()
    wanted = expected(times, found.width)
    assert counts[: len(wanted)] == wanted
    assert not any(counts[len(wanted) :])
    assert len(counts) <= most


@pytest.mark.parametrize("length", [10**3, 12_345, 10**9, 7 * 10**9, 3 * 10**12])
def test_long_captures_have_at_least_half_as_many_intervals(length: int) -> None:
    found: ThroughputSeries = filled([0, length], 1).throughput(120)
    assert 60 <= len(found.sums["frames"]) <= 120
    assert str(found.width).rstrip("0") in {"1", "2", "4", "5"}


def test_intervals_of_a_given_width() -> None:
    found = filled([0, 5, 10, 12, 39], 2, interval=10).throughput(2)
    assert found.width == 10
    assert found.sums["bytes"].tolist() == [2, 2, 0, 1]


def test_too_many_intervals_are_refused() -> None:
    with pytest.raises(IntervalError, match="more than 100000 intervals of 10 ns"):
        filled([0, 10**9], 1, interval=10)
    with pytest.raises(IntervalError, match="intervals of 1 us; choose longer ones"):
        filled([0, 10**9], 1, interval=1000)
