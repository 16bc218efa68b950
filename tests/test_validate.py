"""Constraints: what each accepts, and its messages for other values."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import FabricError, VerbsError
from rdmawire.validate import (
    CollectionOf,
    Constraint,
    InstanceOf,
    Integer,
    MappingOf,
    NoneOr,
    Number,
    OneOf,
    as_bytes,
    byte_count,
    check_attributes,
    check_bytes,
    check_int,
    check_methods,
    check_range,
    check_time,
    check_type,
    check_values,
    iterate,
)

TURNS = CollectionOf(Integer(1, 9, "a turn"))
SHARES = MappingOf(OneOf(("a", "b")), Number(0, 1))


@pytest.mark.parametrize(
    ("constraint", "value", "reason"),
    [
        (Integer(1, 9), 1, ""),
        (Integer(1, 9), 9, ""),
        (Integer(1, 9), 0, "0 is not an integer from 1 to 9"),
        (Integer(1, 9, "a turn"), 10, "10 is not a turn from 1 to 9"),
        (Integer(), 1.0, "1.0 (float) is not an integer from 0 to 18446744073709551615"),
        (Integer(), 1 << 200, "a number of 201 bits is not an integer from 0 to"),
        (Number(0, 1), 1, ""),
        (Number(0, 1), 0.5, ""),
        (Number(0, 1e15), float("nan"), "nan (float) is not a number from 0 to 1e+15"),
        (Number(0, 1), float("inf"), "inf (float) is not a number from 0 to 1"),
        (Number(0, 1), "0.5", "'0.5' (str) is not a number from 0 to 1"),
        (InstanceOf(int), 1, ""),
        (InstanceOf((int, tuple)), "x", "'x' (str) is not of type int or tuple"),
        (InstanceOf((int, tuple), but=(bool,)), True, "True is not of type int or tuple"),
        (OneOf(("a", "b")), "b", ""),
        (OneOf(("a", "b")), "c", "'c' is not one of a, b"),
        (OneOf(("a", "b")), ["a"], "['a'] (list) is not one of a, b"),
        (TURNS, (), ""),
        (TURNS, {1, 9}, ""),
        (TURNS, [3, 0], "0 is not a turn from 1 to 9"),
        (TURNS, range(1, 10), ""),
        (TURNS, range(5, 1 << 60), "1152921504606846975 is not a turn from 1 to 9"),
        (TURNS, range(9, -9, -1), "-8 is not a turn from 1 to 9"),
        (TURNS, "12", "'12' (str) is not a collection"),
        (TURNS, None, "None (NoneType) is not a collection"),
        (NoneOr(TURNS), None, ""),
        (NoneOr(TURNS), [3], ""),
        (NoneOr(TURNS), [3, 0], "0 is not a turn from 1 to 9"),
        (NoneOr(TURNS), 0, "0 is not a collection"),
        (SHARES, {"a": 0.5}, ""),
        (SHARES, {"c": 0.5}, "'c' is not one of a, b"),
        (SHARES, {"a": 2}, "2 is not a number from 0 to 1"),
        (SHARES, [("a", 1)], "[('a', 1)] (list) is not a mapping"),
    ],
)
def test_found_and_allowed(constraint: Constraint, value: Any, reason: str) -> None:
    found = constraint.problem(value)
    assert found.startswith(reason) if reason else not found


class Made(NamedTuple):
    some: object
    more: object = 0


BOUNDS: dict[str, Constraint] = {"some": Integer(0, 7), "more": Integer(0, 1)}


def test_the_first_invalid_one_is_named() -> None:
    with pytest.raises(FabricError, match=r"^Mine.some: 8 is not"):
        check_values("Mine", {"some": 8, "more": 2}, BOUNDS, FabricError)
    with pytest.raises(VerbsError, match=r"^Made.more: 2 is not .* \[EINVAL\]$"):
        check_attributes(Made(7, 2), BOUNDS)
    check_attributes(Made(7, 1), BOUNDS)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: check_int("n", 8, 1, 7), "n: 8 is not an integer from 1 to 7"),
        (lambda: check_int("n", "8"), "n: '8' (str) is not an integer from 0 to"),
        (lambda: check_time(-1), "now: -1 is not a number of nanoseconds from 0 to"),
        (lambda: check_type("n", 1, str), "n: 1 is not of type str"),
        (lambda: check_bytes("mac", b"abc", 6), "mac: 3 bytes found, not 6"),
        (lambda: check_bytes("mac", "abc", 6), "mac: 'abc' (str) is not of type bytes"),
        (lambda: check_range(0, 1.5), "length: 1.5 (float) is not of type int"),
        (lambda: byte_count(cast("bytes", "x")), "data: 'x' (str) is not bytes"),
        (lambda: as_bytes("key", cast("bytes", 7)), "key: 7 is not bytes"),
        (lambda: check_methods("r", 7, "getrandbits"), "r: 7 has no method getrandbits()"),
        (lambda: iterate("wrs", cast("list[int]", 7)), "wrs: 7 is not a sequence"),
    ],
)
def test_arguments_of_verbs(call: Callable[[], object], reason: str) -> None:
    with pytest.raises(VerbsError, match=f"^{re.escape(reason)}"):
        call()


@given(value=st.from_type(object) | st.integers() | st.floats() | st.text() | st.binary())
def test_any_value_is_answered(value: object) -> None:
    for constraint in (Integer(), Number(0, 1), InstanceOf(str), OneOf(("a",)), TURNS, SHARES):
        assert isinstance(constraint.problem(value), str)
