"""Losses drawn ahead of time, and one after the other: the same ones."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rdmawire.traffic.generate.link import Chance, Pattern

SHARES = st.sampled_from([0.0, 0.05, 0.5, 1.0])


@given(SHARES, st.integers(), st.lists(st.integers(0, 40), max_size=10))
def test_looking_ahead_changes_nothing(share: float, seed: int, steps: list[int]) -> None:
    one, other = Chance(share, Random(seed)), Chance(share, Random(seed))
    for step in steps:
        ahead = one.within(step)
        assert one.within(step) == ahead
        assert ahead == tuple(place for place in range(step) if other.takes_next())
        one.pass_by(step)


@given(SHARES, st.integers(), st.integers(0, 50), st.integers(0, 50))
def test_nearer_losses_are_the_first_of_those_further_ahead(
    share: float, seed: int, near: int, more: int
) -> None:
    chance = Chance(share, Random(seed))
    near_ones = chance.within(near)
    assert tuple(place for place in chance.within(near + more) if place < near) == near_ones


@given(SHARES, st.integers(), st.integers(0, 50), st.integers(0, 50))
def test_the_first_loss_is_the_first_of_all(
    share: float, seed: int, passed: int, frames: int
) -> None:
    chance = Chance(share, Random(seed))
    chance.pass_by(passed)
    first = chance.first(frames)
    assert first == (chance.within(frames) or (None,))[0]


def test_a_share_of_many_is_lost() -> None:
    chance = Chance(0.1, Random(1))
    assert 900 < len(chance.within(10_000)) < 1100


@given(st.sets(st.integers(0, 20)))
def test_a_pattern_loses_these_and_no_others(places: set[int]) -> None:
    pattern = Pattern(places)
    assert {place for place in range(30) if pattern.takes_next()} == places
