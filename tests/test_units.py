"""One way to write times, sizes and rates, for scenarios, the command line and reports."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.traffic.generate import spec as ordered
from rdmawire.traffic.generate.spec import Sizes, SpecError
from rdmawire.traffic.scenario import types
from rdmawire.traffic.scenario.document import TextError
from rdmawire.units import (
    QuantityError,
    format_seconds,
    parse_duration,
    parse_quantity,
    rate_factor,
    size_factor,
)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

SIZES = {
    "64": 64,
    "64 bytes": 64,
    "64 octets": 64,
    "16k": 16 * KIB,
    "16K": 16 * KIB,
    "16 KiB": 16 * KIB,
    "16kib": 16 * KIB,
    "0x10 KiB": 16 * KIB,
    "1M": MIB,
    "1 MiB": MIB,
    "1.5 m": 3 * MIB // 2,
    "1G": GIB,
    "0": 0,
}
RATES = {
    "100G": 10**11,
    "100g": 10**11,
    "100Gbps": 10**11,
    "100 Gbps": 10**11,
    "100 Gb/s": 10**11,
    "100Gb/s": 10**11,
    "100 Gbit/s": 10**11,
    "100gbit/s": 10**11,
    "2.5G": 25 * 10**8,
    "25 Mbps": 25 * 10**6,
    "1.6T": 16 * 10**11,
    "400000000 bps": 4 * 10**8,
    "400000 k": 4 * 10**8,
}


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_sizes_are_one_in_scenarios_and_for_gen(text: str, size: int) -> None:
    assert types.parse_size(text) == size
    assert Sizes.parse(text).ranges == ((size, size),)


@pytest.mark.parametrize(("text", "bits"), RATES.items())
def test_rates_are_one_in_scenarios_and_for_gen(text: str, bits: int) -> None:
    assert types.parse_rate(text) == bits
    assert ordered.rate(text) == bits


REFUSED: list[tuple[Callable[[str], object], Callable[[str], object], tuple[str, ...]]] = [
    (
        types.parse_size,
        Sizes.parse,
        ("", "k", "8 KB", "8 MB", "8 b", "8 Kibit", "1 k k", "1e3", "8µ"),
    ),
    (
        types.parse_rate,
        ordered.rate,
        ("", "G", "100 GB/s", "100GBps", "100 Gib/s", "fast", "1e9", "1 P"),
    ),
]


@pytest.mark.parametrize(
    ("of_scenario", "of_gen", "text"),
    [(one, other, text) for one, other, texts in REFUSED for text in texts],
)
def test_both_refuse_the_same(
    of_scenario: Callable[[str], object], of_gen: Callable[[str], object], text: str
) -> None:
    with pytest.raises(TextError):
        of_scenario(text)
    with pytest.raises(SpecError, match="such as"):
        of_gen(text)


def test_a_rate_without_a_unit_is_for_gen_alone() -> None:
    """A scenario's link of 100 bits a second is a forgotten G."""
    assert ordered.rate("400000000") == 4 * 10**8
    with pytest.raises(TextError):
        types.parse_rate("400000000")


@given(st.text(max_size=60), st.sampled_from([size_factor, rate_factor]))
def test_any_text_is_a_quantity_or_none(text: str, factor: Callable[[str], int | None]) -> None:
    with suppress(QuantityError):
        assert parse_quantity(text, factor).value >= 0


@pytest.mark.parametrize(("text", "unit"), [("8 KB", "KB"), ("8", ""), ("x", "")])
def test_text_in_the_place_of_a_unit_is_reported(text: str, unit: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text, {"KiB": 1 << 10}.get)
    assert caught.value.unit == unit


@given(st.integers(0, 10**15), st.integers(0, 10**9 - 1))
def test_points_are_exact(whole: int, behind: int) -> None:
    found = parse_quantity(f"{whole}.{behind:09}G", rate_factor)
    assert found == (whole * 10**9 + behind, True, "G", 10**9)


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
    assert format_seconds(nanoseconds) == written


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("1.5s", 1_500_000_000), ("20ms", 20_000_000), ("7us", 7_000), ("9ns", 9), ("0.9ns", 0)],
)
def test_durations_are_nanoseconds(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "0", "20 ms", "5", "1 m", "-1 s", "1.s", "1e3 s", "1 s ", "9" * 19 + "s"]
)
def test_texts_that_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        parse_duration(text)
