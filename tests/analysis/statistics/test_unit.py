"""Lengths of time are written as people write them."""

import pytest

from rdmawire.analysis.statistics.unit import seconds


@pytest.mark.parametrize(
    ("nanoseconds", "written"),
    [
        (0, "0 s"),
        (1, "0.000000001 s"),
        (20_000, "0.00002 s"),
        (1_500_000_000, "1.5 s"),
        (100_000_000_000, "100 s"),
    ],
)
def test_seconds_have_no_exponent(nanoseconds: int, written: str) -> None:
    assert seconds(nanoseconds) == written
