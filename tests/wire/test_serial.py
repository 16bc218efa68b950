"""Serial arithmetic of any width."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.wire.serial import BITS_32, BITS_64, Circle

CIRCLES = [Circle(8), BITS_32, BITS_64]


@pytest.mark.parametrize("circle", CIRCLES)
@given(st.integers(0), st.integers())
def test_a_distance_is_what_has_to_be_added(circle: Circle, start: int, count: int) -> None:
    start %= circle.modulus
    end = circle.add(start, count)
    assert 0 <= end < circle.modulus
    distance = circle.distance(start, end)
    assert circle.add(start, distance) == end
    assert -circle.modulus // 2 <= distance < circle.modulus // 2


def test_the_highest_number_is_followed_by_zero() -> None:
    last = BITS_32.modulus - 1
    assert BITS_32.add(last, 1) == 0
    assert BITS_32.add(0, -1) == last
    assert (BITS_32.distance(last, 2), BITS_32.distance(2, last)) == (3, -3)
