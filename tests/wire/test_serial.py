"""Serial arithmetic of any width, and of PSNs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.wire import serial
from rdmawire.wire.serial import BITS_32, BITS_64, Circle

CIRCLES = [Circle(8), BITS_32, BITS_64]
numbers = st.integers(0, serial.MODULUS - 1)
steps = st.integers(-(1 << 23), (1 << 23) - 1)


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


@given(numbers, steps)
def test_distance_is_the_inverse_of_add(start: int, packets: int) -> None:
    end = serial.add(start, packets)
    assert 0 <= end < serial.MODULUS
    assert serial.distance(start, end) == packets


@given(numbers, steps)
def test_of_two_numbers_the_one_that_was_counted_up_to_is_ahead(start: int, packets: int) -> None:
    assert serial.is_before(start, serial.add(start, packets)) == (packets > 0)


@given(numbers, st.integers(0, 300), st.integers(-300, 600))
def test_window(start: int, packets: int, step: int) -> None:
    assert serial.in_window(serial.add(start, step), start, packets) == (0 <= step < packets)


def test_the_wrap() -> None:
    assert serial.add(0xFFFFFF, 1) == 0
    assert serial.add(0, -1) == 0xFFFFFF
    assert serial.is_before(0xFFFFFF, 0)
    assert not serial.is_before(0, 0xFFFFFF)
