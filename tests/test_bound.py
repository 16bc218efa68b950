"""Bounds of settings: what each accepts, and what it says of the rest."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.bound import Bound, Kind, Many, Optional, Real, Table, Whole, Word, misfit, misfit_of

TURNS = Many(Whole(1, 9, "a turn"))
SHARES = Table(Word(("a", "b")), Real(0, 1))


@pytest.mark.parametrize(
    ("bound", "value", "reason"),
    [
        (Whole(1, 9), 1, ""),
        (Whole(1, 9), 9, ""),
        (Whole(1, 9), 0, "0 is not a whole number from 1 to 9"),
        (Whole(1, 9, "a turn"), 10, "10 is not a turn from 1 to 9"),
        (Whole(), 1.0, "1.0 (float) is not a whole number from 0 to 18446744073709551615"),
        (Whole(), 1 << 200, "a number of 201 bits is not a whole number from 0 to"),
        (Real(0, 1), 1, ""),
        (Real(0, 1), 0.5, ""),
        (Real(0, 1e15), float("nan"), "nan (float) is not a number from 0 to 1e+15"),
        (Real(0, 1), float("inf"), "inf (float) is not a number from 0 to 1"),
        (Real(0, 1), "0.5", "'0.5' (str) is not a number from 0 to 1"),
        (Kind(int), 1, ""),
        (Kind((int, tuple)), "x", "'x' (str) is no int or tuple"),
        (Kind((int, tuple), but=(bool,)), True, "True is no int or tuple"),
        (Word(("a", "b")), "b", ""),
        (Word(("a", "b")), "c", "'c' is not one of a, b"),
        (Word(("a", "b")), ["a"], "['a'] (list) is not one of a, b"),
        (TURNS, (), ""),
        (TURNS, {1, 9}, ""),
        (TURNS, [3, 0], "0 is not a turn from 1 to 9"),
        (TURNS, range(1, 10), ""),
        (TURNS, range(5, 1 << 60), "1152921504606846975 is not a turn from 1 to 9"),
        (TURNS, range(9, -9, -1), "-8 is not a turn from 1 to 9"),
        (TURNS, "12", "'12' (str) is not a collection"),
        (TURNS, None, "None (NoneType) is not a collection"),
        (Optional(TURNS), None, ""),
        (Optional(TURNS), [3], ""),
        (Optional(TURNS), [3, 0], "0 is not a turn from 1 to 9"),
        (Optional(TURNS), 0, "0 is not a collection"),
        (SHARES, {"a": 0.5}, ""),
        (SHARES, {"c": 0.5}, "'c' is not one of a, b"),
        (SHARES, {"a": 2}, "2 is not a number from 0 to 1"),
        (SHARES, [("a", 1)], "[('a', 1)] (list) is not a mapping"),
    ],
)
def test_what_was_found_and_what_is_allowed(bound: Bound, value: Any, reason: str) -> None:
    found = bound.wrong(value)
    assert found.startswith(reason) if reason else not found


class Made(NamedTuple):
    some: object
    more: object = 0


BOUNDS: dict[str, Bound] = {"some": Whole(0, 7), "more": Whole(0, 1)}


def test_the_first_that_is_wrong_is_named() -> None:
    assert misfit("Mine", {"some": 8, "more": 2}, BOUNDS).startswith("Mine.some: 8 is not")
    assert misfit_of(Made(7, 2), BOUNDS).startswith("Made.more: 2 is not")
    assert not misfit_of(Made(7, 1), BOUNDS)


@given(value=st.from_type(object) | st.integers() | st.floats() | st.text() | st.binary())
def test_any_value_is_answered(value: object) -> None:
    for bound in (Whole(), Real(0, 1), Kind(str), Word(("a",)), TURNS, SHARES):
        assert isinstance(bound.wrong(value), str)
