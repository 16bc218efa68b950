"""Summaries of runs, put together."""

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from rdmawire.traffic.summary import NOTHING, Moved, TrafficSummary, added, repeated

COUNTS = st.integers(0, 1 << 40)
MOVED = st.builds(Moved, COUNTS, COUNTS, COUNTS)
PATHS = st.dictionaries(st.sampled_from(["host", "gpu_direct", "bounce"]), MOVED)
SUMMARIES = st.builds(
    TrafficSummary,
    **{name: COUNTS for name in TrafficSummary._fields if name not in {"paths", "wall_s"}},
    paths=PATHS,
    wall_s=st.just(0.0),
)


@given(SUMMARIES)
def test_nothing_adds_nothing(one: TrafficSummary) -> None:
    assert added(NOTHING, one) == added(one, NOTHING) == one


@given(SUMMARIES, SUMMARIES)
def test_counts_are_added_and_paths_by_name(one: TrafficSummary, other: TrafficSummary) -> None:
    both = added(one, other)
    assert both.messages == one.messages + other.messages
    assert both.virtual_ns == one.virtual_ns + other.virtual_ns
    assert both.paths.keys() == one.paths.keys() | other.paths.keys()
    for name, way in both.paths.items():
        parts = [each.paths[name] for each in (one, other) if name in each.paths]
        assert way == Moved(*map(sum, zip(*parts, strict=True)))


@given(SUMMARIES, st.integers(1, 5))
def test_many_times_is_one_after_the_other(one: TrafficSummary, times: int) -> None:
    assert repeated(one, times) == reduce(added, [one] * times)
