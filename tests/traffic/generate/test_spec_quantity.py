"""Sizes, rates and shares as people write them."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.traffic.generate.spec import (
    FASTEST,
    MAX_SIZES,
    SLOWEST,
    Sizes,
    SpecError,
    rate,
    share,
)

GIB = 1 << 30
LONG = [("100 Gbit/s", 10**11), ("2.5Gbit/s", 25 * 10**8), ("9000000 bit/s", 9 * 10**6)]


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("64", ((64, 64),)),
        ("0", ((0, 0),)),
        ("4k", ((4096, 4096),)),
        ("1M", ((1 << 20, 1 << 20),)),
        ("2G", ((2 * GIB, 2 * GIB),)),
        ("64-4K", ((64, 4096),)),
        (" 64 , 1k-2k", ((64, 64), (1024, 2048))),
        ("4 KiB", ((4096, 4096),)),
        ("1MiB", ((1 << 20, 1 << 20),)),
        ("2 GiB", ((2 * GIB, 2 * GIB),)),
        ("1.5k", ((1536, 1536),)),
        ("64 bytes - 4 KiB, 1 M", ((64, 4096), (1 << 20, 1 << 20))),
    ],
)
def test_sizes(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert Sizes.parse(text).ranges == ranges


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no size such as"),
        ("4x", "'4x' is no size such as 64, 4k, 1M"),
        ("-4", "is no size such as"),
        ("1.0001k", "is no size such as"),
        ("1T", "at most 2 GiB"),
        ("1 KB", "is no size such as"),
        ("1 ib", "is no size such as"),
        ("1 k k", "is no size such as"),
        ("\u0664", "is no size such as"),
        ("64,", "is no size such as"),
        ("3G", "at most 2 GiB"),
        ("2k-1k", "2k is more than 1k"),
        ("9" * 500, ".."),
        (",".join(["1"] * (MAX_SIZES + 1)), f"{MAX_SIZES} are allowed"),
    ],
)
def test_what_is_no_size(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as found:
        Sizes.parse(text)
    assert len(str(found.value)) < 200


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(100, 200)), min_size=1), st.integers())
def test_a_size_is_picked_from_its_ranges(ranges: list[tuple[int, int]], seed: int) -> None:
    sizes = Sizes(tuple(ranges))
    picked = sizes.pick(Random(seed))
    assert any(low <= picked <= high for low, high in ranges)
    assert sizes.varied
    assert sizes.largest == max(high for _, high in ranges)


def test_the_same_size_twice_does_not_vary() -> None:
    assert not Sizes.parse("64,64-64").varied


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("100G", 10**11),
        ("2.5g", 25 * 10**8),
        ("400000000", 4 * 10**8),
        ("1.6T", 16 * 10**11),
        *LONG,
    ],
)
def test_rates(text: str, bits: int) -> None:
    assert rate(text) == bits


@pytest.mark.parametrize("text", ["", "fast", "0", "-1G", "11T", "1.G", "1e9", str(SLOWEST - 1)])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(SpecError):
        rate(text)
    assert rate(str(FASTEST)) == FASTEST


@pytest.mark.parametrize(
    ("text", "value"), [("1%", 0.01), ("0.01", 0.01), ("0", 0.0), (".5", 0.5), ("12.5 %", 0.125)]
)
def test_shares(text: str, value: float) -> None:
    assert share(text, 0.5) == value


@pytest.mark.parametrize("text", ["", "%", "nan", "inf", "-1%", "51%", "0.6", "1e-3", "5%%", "x"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(SpecError, match="up to 50%"):
        share(text, 0.5)


@given(st.text(max_size=80))
def test_any_text_is_understood_or_refused(text: str) -> None:
    for parse in (Sizes.parse, rate, lambda words: share(words, 1.0)):
        with suppress(SpecError):
            parse(text)
