"""Parts of lines as arrays of characters: what is made of values is found again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.columns.frame_text import MAX_TEXTS
from rdmawire.columns.line_text import DistinctValues, Template


def found_by(found: DistinctValues[str], values: list[bytes], length: int) -> list[str]:
    rows = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), length)
    return [found.made[index] for index in found.indices(rows).tolist()]


@given(st.sampled_from([0, 1, 4, 8, 9, 20]), st.data())
def test_each_value_is_made_once(length: int, data: st.DataObject) -> None:
    made: list[bytes] = []

    def make(value: bytes) -> str:
        made.append(value)
        return value.hex()

    found = DistinctValues(make)
    calls = st.lists(st.binary(min_size=length, max_size=length), max_size=8)
    for values in data.draw(st.lists(calls, max_size=4)):
        assert found_by(found, values, length) == [value.hex() for value in values]
    assert len(made) == len(set(made))


@pytest.mark.parametrize("length", [3, 12])
def test_values_dropped_from_the_cache_are_made_again(length: int) -> None:
    found = DistinctValues(bytes.hex)
    values = [number.to_bytes(length, "big") for number in range(3 * MAX_TEXTS)]
    for start in (*range(0, len(values), 1000), 0):
        some = values[start : start + 1000]
        assert found_by(found, some, length) == list(map(bytes.hex, some))
        assert len(found.made) <= MAX_TEXTS + 1000


def test_a_template_has_the_numbers_that_are_written() -> None:
    text = "psn \x001\0x\0, msn \x002\0d\0."
    assert Template.of(text, 4) == (
        [b"psn ", b"", b", msn ", b".", b""],
        [
            "",
            "x",
            "d",
            "",
        ],
    )
