"""Values as files write them: what each parser takes, and what it refuses."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.traffic.scenario import types
from rdmawire.traffic.scenario.document import TextError
from rdmawire.traffic.scenario.types import End, Range, Span
from rdmawire.units import RATES, SIZES, TIMES, format_exactly

GOOD: list[tuple[Callable[[str], Any], str, Any]] = [
    (types.parse_number, "7", 7),
    (types.parse_number, "-1", -1),
    (types.parse_number, "0x1F", 31),
    (types.parse_number, "007", 7),
    (types.parse_number, str(types.MAX_NUMBER), types.MAX_NUMBER),
    (types.parse_fraction, "0.25", 0.25),
    (types.parse_fraction, "1", 1.0),
    (types.parse_size, "0", 0),
    (types.parse_size, "64", 64),
    (types.parse_size, "64 bytes", 64),
    (types.parse_size, "8KiB", 8192),
    (types.parse_size, "8  KiB", 8192),
    (types.parse_size, "1.5 MiB", 3 << 19),
    (types.parse_size, "0x10 KiB", 16384),
    (types.parse_time, "0", 0),
    (types.parse_time, "10 us", 10_000),
    (types.parse_time, "0.001 us", 1),
    (types.parse_time, "1.5s", 1_500_000_000),
    (types.parse_rate, "100 Gbit/s", 10**11),
    (types.parse_rate, "2.5 Gbit/s", 25 * 10**8),
    (types.parse_amount, "0", 0),
    (types.parse_amount, "64 KiB", 65536),
    (types.parse_amount, "1 ms", 10**6),
    (types.parse_amount, "3", 3),
    (types.parse_name, "a_1", "a_1"),
    (types.parse_name, "_", "_"),
    (types.parse_span, "a.b", Span("a", "b")),
    (types.parse_span, "a.b[1:3]", Span("a", "b", 1, 2)),
    (types.parse_span, "a.b[ 4 KiB : 8 KiB ]", Span("a", "b", 4096, 4096)),
    (types.parse_span, "a.b[7:]", Span("a", "b", 7)),
    (types.parse_span, "a.b[:7]", Span("a", "b", 0, 7)),
    (types.parse_span, "a.b[:]", Span("a", "b")),
    (types.parse_end, "a/b", End("a", "b")),
    (types.parse_end, "a/b#12", End("a", "b", 12)),
    (types.parse_hex, "00 fF", b"\x00\xff"),
    (types.parse_hex, "", b""),
    (types.parse_utf8, "grün", "grün".encode()),
    (types.parse_mac, "02:AB:00:00:00:01", "02:ab:00:00:00:01"),
    (types.parse_mac, "02-00-00-00-00-01", "02:00:00:00:00:01"),
    (types.parse_address, "10.0.0.1", "10.0.0.1"),
    (types.parse_address, "FD00:0::1", "fd00::1"),
    (types.parse_flag, "true", True),
    (types.parse_flag, "false", False),
]

_NUMBERS = ("", "x", "1.0", "1e3", "1_000", "+1", "--1", "0x", "-0x1", "٣", "1 ", "9" * 41)
_SIZES = ("", "KiB", "8 KB", "8 kb", "-8", "0.3", "1.5", "8 Ki B", "8 KiB KiB", "9" * 30 + " TiB")
_SPANS = (
    *("a", "a.", ".b", "a.b.c", "a.b[", "a.b]", "a.b[]", "a.b[1]", "a.b[2:1]", "a.b[1:1]"),
    *("a.b[-1:1]", "a.b[1:2:3]", "a.b[x:2]", "a.b[1:2]c", "1a.b"),
)
_ENDS = ("a", "a/", "/b", "a/b/c", "a/b#", "a/b#0", "a/b#-1", "a/b#x", "a#1/b")
_MACS = ("", "02:00:00:00:00", "02:00-00:00:00:0", "03:00:00:00:00:01")
_ADDRESSES = ("", "10.0.0", "fe80::1%eth0", "0.0.0.0", "::", "ff02::1", "host")

BAD: dict[Callable[[str], Any], tuple[str, ...]] = {
    types.parse_number: (*_NUMBERS, str(types.MAX_NUMBER + 1)),
    types.parse_fraction: ("", ".5", "5.", "1e-3", "nan", "inf", "-0.1", "0" * 41),
    types.parse_size: _SIZES,
    types.parse_time: ("1", "us", "1 µs", "0.0001 us", "1 m", "1 h", "-1 us"),
    types.parse_rate: ("1", "100", "0.1 bit/s", "0.0001k", "1 µ", "0 foo"),
    types.parse_amount: ("", "1 bit/s", "x", "1k", "1M", "1 m", "1G"),
    types.parse_name: ("", "1a", "a-b", "a b", "ä", "a.b", "a" * 65),
    types.parse_span: _SPANS,
    types.parse_end: _ENDS,
    types.parse_hex: ("0", "0x00", "gg", "00:ff"),
    types.parse_utf8: ("\ud800",),
    types.parse_mac: _MACS,
    types.parse_address: _ADDRESSES,
    types.parse_flag: ("", "yes", "True", "1", "on"),
}
REFUSED = [(parse, text) for parse, texts in BAD.items() for text in texts]


@pytest.mark.parametrize(("parse", "text", "value"), GOOD)
def test_good_texts_are_values(parse: Callable[[str], Any], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(("parse", "text"), REFUSED)
def test_bad_texts_are_unfit(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(TextError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3", Range(3, 3)),
        ("3..5", Range(3, 5)),
        ("3 .. 5", Range(3, 5)),
        ("1..", Range(1, None)),
        ("..9", Range(0, 9)),
        ("5..5", Range(5, 5)),
    ],
)
def test_ranges_have_a_least_and_a_most(text: str, found: Range) -> None:
    assert types.parse_range(text, types.parse_number) == found


@pytest.mark.parametrize("text", ["", "..", "5..3", "1...2", "1..2..3", "a..b", "1-2"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(TextError):
        types.parse_range(text, types.parse_number)


@given(st.sampled_from(list(BAD)), st.text(max_size=50))
def test_any_text_is_a_value_or_unfit(parse: Callable[[str], Any], text: str) -> None:
    try:
        parse(text)
    except TextError:
        return


@given(st.integers(0, types.MAX_NUMBER), st.sampled_from(["size", "time", "rate"]))
def test_quantities_are_written_as_they_are_read(value: int, kind: str) -> None:
    table = {"size": SIZES, "time": TIMES, "rate": RATES}[kind]
    assert getattr(types, f"parse_{kind}")(format_exactly(value, table)) == value


@pytest.mark.parametrize(
    "text",
    ["255.255.255.255", "127.0.0.1", "240.0.0.1", "0.0.0.1", "224.0.0.1", "::", "::1", "ff02::1"],
)
def test_addresses_that_no_host_has(text: str) -> None:
    with pytest.raises(TextError, match="the address of one host"):
        types.parse_address(text)


@pytest.mark.parametrize(("parse", "unit"), [(types.parse_size, "TiB"), (types.parse_time, "s")])
def test_a_value_that_is_too_large_is_reported_with_the_bound(
    parse: Callable[[str], int], unit: str
) -> None:
    with pytest.raises(TextError) as caught:
        parse(f"99999999999999999999 {unit}")
    assert parse(caught.value.expected.removeprefix("no more than ")) <= types.MAX_NUMBER
