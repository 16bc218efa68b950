"""Text of many rows as arrays of characters: the same as of Python's own formatting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.columns.text_cells import (
    constant,
    decimals,
    from_texts,
    from_values,
    hexadecimals,
    seconds,
    text_of,
)
from rdmawire.units import decimal_seconds

U64 = st.integers(0, 2**64 - 1)


def rows_of(cells: np.ndarray) -> list[str]:
    return [text_of(row).decode() for row in cells]


@given(st.lists(U64 | st.integers(0, 12)), st.integers(1, 12))
def test_decimals(numbers: list[int], digits: int) -> None:
    found = rows_of(decimals(np.array(numbers, np.uint64), digits))
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


@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-(10**10), 10**10)))
def test_seconds(times: list[int]) -> None:
    assert rows_of(seconds(np.array(times, np.int64))) == list(map(decimal_seconds, times))


@given(st.lists(st.binary(max_size=9).map(lambda text: text.replace(b"\0", b"")), min_size=1))
def test_texts(texts: list[bytes]) -> None:
    indices = np.arange(len(texts))[::-1]
    assert [text_of(row) for row in from_texts(texts, indices)] == texts[::-1]
    values = np.empty(len(texts), object)
    values[:] = texts
    assert [text_of(row) for row in from_values(values, bytes)] == texts


def test_cells_side_by_side_are_lines() -> None:
    numbers = np.array([7, 12345, 0], np.uint32)
    lines = np.concatenate((decimals(numbers), constant(b";\n", 3)), axis=1)
    assert text_of(lines) == b"7;\n12345;\n0;\n"
    assert text_of(lines[:0]) == b""
