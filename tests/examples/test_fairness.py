"""Jain's index."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.fairness import jain

shares = st.lists(st.floats(0, 1e6), min_size=1, max_size=20)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_equal_shares_are_fair_and_one_for_all_is_not(count: int) -> None:
    assert jain([5.0] * count) == pytest.approx(1)
    assert jain([5.0] + [0.0] * (count - 1)) == pytest.approx(1 / count)
    assert jain([0.0] * count) == pytest.approx(1 / count)


@given(shares)
def test_it_is_between_one_for_all_and_all_for_one(found: list[float]) -> None:
    assert 1 / len(found) <= jain(found) * (1 + 1e-9) <= 1 + 1e-8


def test_a_known_example() -> None:
    """Half of the users with equal shares: one half."""
    assert jain([4, 4, 0, 0]) == pytest.approx(0.5)
