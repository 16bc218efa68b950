"""From text to tree: any text gives a tree or an error with a place; trees print as filters."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.filter import Filter, FilterError, field_names, parse
from rdmawire.filter.ast import (
    CompareOp,
    Comparison,
    Constant,
    FieldReference,
    Logic,
    Not,
    Prefix,
    Present,
    Quantifier,
    SliceRange,
    ValueType,
)
from tests.captures import CAPTURES
from tests.filter.samples import FILTERS

OPCODE = FieldReference("infiniband.bth.opcode", ValueType.NUMBER)


def is_opcode(number: int) -> Comparison:
    return Comparison(CompareOp.EQ, OPCODE, Constant(ValueType.NUMBER, number))


@pytest.mark.parametrize("text", FILTERS)
def test_a_tree_prints_as_a_filter_that_is_the_same_tree(text: str) -> None:
    tree = parse(text)
    assert parse(str(tree)) == tree


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("17", 17), ("0x11", 17), ("0X11", 17), ("021", 17), ("0b10001", 17), ("'\\x11'", 17)),
        *(("RC_ACKNOWLEDGE", 17), ('"rc acknowledge"', 17), ("10 + 7", 17), ("{2 * 9} - 1", 17)),
        ('"Reliable Connection (RC) - Acknowledge"', 17),
    ],
)
def test_numbers_and_words_for_them(text: str, number: int) -> None:
    assert parse(f"infiniband.bth.opcode == {text}") == is_opcode(number)


def test_and_binds_closer_than_xor_and_xor_closer_than_or() -> None:
    ip, udp, tcp = (
        Present(FieldReference(name, ValueType.PROTOCOL)) for name in ("ip", "udp", "tcp")
    )
    assert parse("ip or udp and tcp") == Logic("or", (ip, Logic("and", (udp, tcp))))
    assert parse("not ip and udp") == Logic("and", (Not(ip), udp))
    assert parse("ip || udp ^^ tcp && arp") == parse("ip or (udp xor (tcp and arp))")
    assert parse("(ip or udp) and tcp") == Logic("and", (Logic("or", (ip, udp)), tcp))


def test_equalities_quantify_over_values() -> None:
    for text, compare, quantifier in (
        ("==", CompareOp.EQ, Quantifier.ANY),
        ("!=", CompareOp.NE, Quantifier.ALL),
        ("===", CompareOp.EQ, Quantifier.ALL),
        ("!==", CompareOp.NE, Quantifier.ANY),
    ):
        tree = parse(f"infiniband.bth.opcode {text} 17")
        assert isinstance(tree, Comparison)
        assert (tree.compare, tree.quantifier) == (compare, quantifier)


def test_a_constant_on_the_left_changes_sides() -> None:
    assert parse("4 < infiniband.bth.opcode") == parse("infiniband.bth.opcode > 4")
    assert parse("4 <= infiniband.bth.opcode < 9") == parse(
        "infiniband.bth.opcode >= 4 and infiniband.bth.opcode < 9"
    )


def test_a_prefix_is_cut_to_its_bits() -> None:
    tree = parse("ip.src == 10.77.3.9/20")
    assert isinstance(tree, Comparison)
    assert tree.right == Constant(ValueType.IPV4, Prefix(bytes([10, 77, 0, 0]), 20))


def test_a_layer_is_a_span_of_one() -> None:
    assert parse("ip.src#2") == Present(
        FieldReference("ip.src", ValueType.IPV4, (SliceRange(2, 1),))
    )


def test_names_in_their_order_each_once() -> None:
    tree = parse("udp.port == 4791 and max(ip.ttl, ip.ttl) > 3 or frame[0:2] == eth.dst")
    assert field_names(tree) == ("udp.port", "ip.ttl", "frame", "eth.dst")
    assert Filter("arp").names == ("arp",)


WRONG = [
    ("", 1, "the filter is empty"),
    ("   ", 1, "the filter is empty"),
    ("ip and", 7, "a field or a value is expected here, not the end of the filter"),
    ("ip udp", 4, "'and', 'or' or the end is expected here, not 'udp'"),
    ("ip AND udp", 4, "not 'AND'; write 'and'"),
    ("(ip", 4, "')' is expected here, not the end"),
    ("ip)", 3, "not ')'"),
    ("infiniband.bth.opcod == 17", 1, "the nearest is infiniband.bth.opcode"),
    ("ip and infiniband.bth.psnn > 3", 8, "the nearest is infiniband.bth.psn"),
    ("infiniband.bth.psn == infiniband.bth.psnn", 23, "no field is named 'infiniband.bth.psnn'"),
    ("udp.dstport == udp.srcport-1", 16, "a minus needs a space before it"),
    ("infiniband.bth.opcode == 256", 26, "256 is too big; the maximum is 255"),
    ("psn == 256", 1, "the nearest is infiniband.bth.psn"),
    ("bth.pns == 256", 1, "the nearest is bth.psn"),
    ("infiniband.bht.fecn", 1, "the nearest are rdmawire.bth.fecn"),
    ("infiniband.bth.opcode == ZZ", 26, "ZZ is not a number"),
    ("infiniband.bth.opcode == SEND_ONY", 26, "not one of its words; the nearest are RC_SEND_ONLY"),
    ("infiniband.bth.opcode == WRITE", 26, "the nearest are RC_RDMA_WRITE_FIRST, RC_RDMA_WRITE_M"),
    ("rdmawire.icrc.status == wrong", 25, "wrong is not one of its words: good, bad, absent"),
    ("rdmawire.lpcrc.status in {good, absent}", 33, "absent is not one of its words: good, bad"),
    ("frame.len > -1", 14, "-1 is negative, which frame.len never is"),
    ("ip.src == 10.77.0.1/33", 11, "a prefix has at most 32 bits, not 33"),
    ("ip.src == 10.77.0", 11, "10.77.0 is not an IPv4 address"),
    ("eth.src == 52:54:00", 12, "52:54:00 has 3 bytes, not 6"),
    ("ip.src == eth.src", 11, "they cannot be compared"),
    ("ip.src == udp.port", 11, "they cannot be compared"),
    ("iwarp_mpa.fpdu == 1", 19, "iwarp_mpa.fpdu has no value to compare with 1"),
    ("frame.time > 17", 14, "17 is not a date"),
    ('frame.time > "2026-13-41"', 14, "is not a date"),
    ("frame.time_delta > 1e3", 20, "1e3 is not a time in seconds"),
    ("frame.time_delta * 2 > 1", 1, "* does not take it"),
    ("ip.src contains 4d", 1, "contains is for bytes and text"),
    ('frame.len matches "6"', 1, "write string(...)"),
    ('infiniband.bth.opcode contains "WRITE"', 1, "compare it with a word, as RC_SEND_FIRST"),
    ("frame matches RT", 15, 'a regular expression is written in "..."'),
    ('frame matches "["', 15, "a '[' without ']'"),
    ('frame matches "a(?=b)"', 15, "not understood here"),
    ('frame matches r"(a)\\1"', 15, "not understood here"),
    ('frame contains "\\."', 17, "\\. is not an escape; double the backslash"),
    ('frame contains "a', 16, "text that does not end"),
    ("frame contains '", 16, "'...' holds one character"),
    ("infiniband.bth.psn[0]", 1, "a slice is for bytes, addresses and text"),
    ("frame[0", 6, "'[' without ']'"),
    ("frame[]", 6, "'' is not a range"),
    ("frame[3-1]", 6, "range '3-1' is empty"),
    ("frame[0:0]", 6, "range '0:0' is empty"),
    ("ip.src#x", 8, "a layer's number"),
    ("ip.ttl in {}", 12, "not '}'"),
    ("ip.ttl in {1 2}", 14, "'}' is expected"),
    ("ip.ttl not 3", 12, "'in' is expected"),
    ("ip.ttl / 0 > 1 / 0", 20 - 2, "division by zero"),
    ("17", 1, "a field is expected here, not 17"),
    ("4 == 4", 1, "a field is expected here, not 4"),
    ("count(ip.addr)", 1, "compare count(...) with something"),
    ("nofunc(ip) == 1", 1, "no function is named 'nofunc'; there are upper, lower, len"),
    ("len(ip, udp) == 1", 1, "len() takes one value, not 2"),
    ("abs(ip.src) == 1", 5, "abs() is not for ip.src, which is an IPv4 address"),
    ("any ip", 7, "a comparison is expected"),
    ("ip.src == ${ip.src}", 11, "make no sense here"),
    ("ip.src = 10.77.0.1", 8, "equality is '=='"),
    ("ip | udp", 4, "write '||' or 'or'"),
    ("ip.src == \ud800", 11, "means nothing here"),
    ('frame contains "\ud800"', 16, "half a character"),
]


@pytest.mark.parametrize(("text", "column", "message"), WRONG)
def test_a_wrong_filter_is_an_error_with_place_and_reason(
    text: str, column: int, message: str
) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.offset == column - 1
    assert str(caught.value).startswith(f"column {column}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ip or " * 11_000 + "ip", "at most 65536 characters"),
        ("(" * 101 + "ip" + ")" * 101, "more than 100 levels"),
        ("not " * 101 + "ip", "more than 100 levels"),
        ("ip.ttl == " + "{" * 101 + "1" + "}" * 101, "more than 100 levels"),
        ("-" * 101 + "ip.ttl < 0", "more than 100 levels"),
        ("abs(" * 101 + "ip.ttl" + ")" * 101 + " == 1", "more than 100 levels"),
        ("ip.ttl" + " + ip.ttl" * 101 + " == 1", "more than 100 slices and operators"),
        ("frame" + "[0:9]" * 101, "more than 100 slices and operators"),
        ("frame[" + "0," * 101 + "0]", "more than 100 ranges"),
        ("ip.ttl in {" + "1," * 10_000 + "1}", "more than 10000 members"),
    ],
)
def test_a_filter_beyond_the_bounds_is_refused(text: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "ip or " * 10_000 + "ip",
        "(" * 100 + "ip" + ")" * 100,
        "not " * 100 + "ip",
        "ip.ttl == " + "{" * 100 + "1" + "}" * 100,
        "ip.ttl" + " + ip.ttl" * 100 + " == 1",
        "frame" + "[0:9]" * 100,
        "ip.ttl in {" + "1," * 9_999 + "1}",
        "-" * 100 + "ip.ttl < 0",
        "abs(" * 100 + "ip.ttl" + ")" * 100 + " == 1",
    ],
)
def test_a_filter_at_the_bounds_is_taken_and_printed(text: str) -> None:
    wanted = Filter(text)
    assert parse(str(wanted.tree)) == wanted.tree


PAGE = (CAPTURES.parent / "docs" / "howto" / "filter.md").read_text()
ADVICE = re.findall(
    r"`(.+)` \|$", PAGE.partition("| question |")[2].partition("\n\n")[0], re.MULTILINE
)


@pytest.mark.parametrize("text", ADVICE)
def test_the_page_advises_filters(text: str) -> None:
    assert field_names(parse(text))


def test_there_is_advice() -> None:
    assert len(ADVICE) >= 10


WORDS = st.sampled_from(
    [
        *("ip", "udp", "ip.src", "ip.ttl", "eth.src", "frame", "frame.time", "infiniband.bth.a"),
        *("frame.time_delta", "iwarp_mpa.fpdu", "frame.comment", "infiniband.bth", "ipv6.src"),
        *("==", "!=", "===", "!==", "<", ">=", "&", "+", "-", "*", "/", "%", "in", "contains"),
        *("matches", "and", "or", "not", "xor", "!", "any", "all", "(", ")", "{", "}", ",", ".."),
        *("#2", "#[1-2]", "[0:3]", "[-1]", "[1,3-4]", "[", "]", '"text"', 'r"a.*"', "'a'", '"a'),
        *("1", "0x10", "017", "10.77.0.1", "10.77.0.0/16", "fe80::/10", "52:54:00:00:00:01"),
        *("0.5", "2026-11-21", "True", "len(", "max(", "count(", "string(", "$", "~", "\\"),
    ]
)


@given(st.text() | st.lists(WORDS, max_size=12).map(" ".join) | st.lists(WORDS).map("".join))
def test_any_text_gives_a_tree_or_a_filter_error(text: str) -> None:
    where, message = 0, ""
    try:
        tree = parse(text)
    except FilterError as error:
        where, message = error.offset, str(error)
    else:
        assert parse(str(tree)) == tree
    assert 0 <= where <= len(text)
    assert message == "" or message.isprintable()
    assert len(message) < 600


@pytest.mark.parametrize("text", ["x" * 60_000, "ip.src == " + "1" * 60_000, "ip " + "a" * 60_000])
def test_a_very_long_word_is_not_quoted_whole(text: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert len(str(caught.value)) < 300
