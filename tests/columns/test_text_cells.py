"""Text of many rows as arrays of characters: the same as of Python's own formatting."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rdmawire.columns.text_cells import (
    decimals,
    decimals_with_zeros,
    encoded,
    formatted,
    from_rows,
    from_texts,
    from_values,
    hexadecimals,
    in_encoding,
    seconds_cells,
    side_by_side,
    text_of,
)
from rdmawire.units import decimal_seconds

U64 = st.integers(0, 2**64 - 1)


def rows_of(cells: np.ndarray) -> list[str]:
    return [text_of(row).decode() for row in cells]


@given(st.lists(U64 | st.integers(0, 10_001)))
def test_decimals(numbers: list[int]) -> None:
    assert rows_of(decimals(np.array(numbers, np.uint64))) == list(map(str, numbers))


@given(st.integers(1, 19), st.data())
def test_decimals_with_zeros(digits: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, 10**digits - 1)))
    found = rows_of(decimals_with_zeros(np.array(numbers, np.uint64), digits))
    assert found == [f"{number:0{digits}d}" for number in numbers]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@given(data=st.data())
def test_decimals_of_narrow_numbers(dtype: type[np.unsignedinteger], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, np.iinfo(dtype).max)))
    assert rows_of(decimals(np.array(numbers, dtype))) == list(map(str, numbers))


@given(st.integers(1, 16), st.data())
def test_hexadecimals(digits: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, 16**digits - 1)))
    found = rows_of(hexadecimals(np.array(numbers, np.uint64), digits))
    assert found == [f"{number:0{digits}x}" for number in numbers]


@given(
    st.lists(U64 | st.integers(0, 70_000)),
    st.sampled_from(["d", "x", "1d", "6d", "20d", "25d", "012d", "1x", "9x", "02x", "016x"]),
)
@example([0, 10**12], "012d")
@example([0, 2**32], "02x")
def test_formats(numbers: list[int], form: str) -> None:
    found = rows_of(formatted(np.array(numbers, np.uint64), form))
    assert found == [format(number, form) for number in numbers]


@pytest.mark.parametrize("form", ["", "s", "-6d", "#x", ",d", "6", "x4"])
def test_other_formats_are_refused(form: str) -> None:
    with pytest.raises(ValueError, match=f"cannot write numbers as '{form}': d or x"):
        formatted(np.array([1]), form)


TIMES = st.lists(st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-(10**10), 10**10))


@given(TIMES, st.sampled_from([0, 1, 13, 25]))
def test_seconds(times: list[int], width: int) -> None:
    found = rows_of(seconds_cells(np.array(times, np.int64), width))
    assert found == [decimal_seconds(time).rjust(width) for time in times]


@given(st.lists(st.binary(max_size=9).map(lambda text: text.replace(b"\0", b"")), min_size=1))
def test_texts(texts: list[bytes]) -> None:
    indices = np.arange(len(texts))[::-1]
    assert [text_of(row) for row in from_texts(texts, indices)] == texts[::-1]


@given(st.lists(st.text(st.characters(exclude_characters="\0"), max_size=9), min_size=1))
def test_values(values: list[str]) -> None:
    array = np.empty(len(values), object)
    array[:] = values
    assert [text_of(row) for row in from_values(array, str)] == list(map(encoded, values))


@given(st.lists(st.sampled_from([b"", b"x", b"a longer text", 40 * b"y"]), min_size=1))
def test_text_with_few_and_with_many_unused_characters(texts: list[bytes]) -> None:
    assert text_of(from_rows(texts)) == b"".join(texts)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("utf-8", "é→\ud800"), ("UTF_8", "→"), ("ascii", "a→é"), ("latin-1", "é→"), ("cp1252", "…")],
)
def test_other_encodings(encoding: str, text: str) -> None:
    found = in_encoding(encoded(text), encoding)
    assert found == text.encode(encoding, "backslashreplace")


def test_cells_side_by_side_are_lines() -> None:
    numbers = np.array([7, 12345, 0], np.uint32)
    lines = side_by_side(3, decimals(numbers), ";\n")
    assert text_of(lines) == b"7;\n12345;\n0;\n"
    assert text_of(lines[:0]) == b""
