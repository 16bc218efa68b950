"""Filters over columns pass the same frames as filters over frames."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rdmawire.capture import open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.filter import FieldArray, Filter, FilterError, evaluate_columns, is_simple, parse
from rdmawire.filter.ast import FieldReference, ValueType
from rdmawire.filter.match_frame import compile_value
from rdmawire.filter.names import lookup
from tests.captures import CAPTURES
from tests.filter.samples import FILTERS, filters

_TYPES = {
    ValueType.NUMBER: "u8",
    ValueType.FLAG: "?",
    ValueType.MAC: "u8",
    ValueType.IPV4: "u4",
    ValueType.IPV6: "V16",
    ValueType.TIME: "i8",
    ValueType.DURATION: "i8",
}


def column(name: str, frames: Iterable[Dissection]) -> FieldArray:
    """A field's values over frames, as columns hold them."""
    kind = parse(name).of.type  # type: ignore[union-attr]
    found = [compile_value(FieldReference(name, kind))(frame) for frame in frames]
    values = np.zeros(len(found), _TYPES[kind])
    for place, here in enumerate(found):
        if here:
            values[place] = _element(kind, here[0])
    return FieldArray(values, np.array([bool(here) for here in found]))


def _element(kind: ValueType, value: object) -> object:
    if isinstance(value, bytes):
        return np.void(value) if kind is ValueType.IPV6 else int.from_bytes(value, "big")
    return value


def dissected() -> list[Dissection]:
    names = ("linux/rxe61_rnr.pcap", "linux/rxe61_vt_rc_v6.pcap", "generated/tagged.pcap")
    found = []
    for name in names:
        with open_capture(CAPTURES / name) as reader:
            found += list(Dissector().capture(reader))
    return found


FRAMES = dissected()
SIMPLE = [text for text in FILTERS if is_simple(parse(text))]
COLUMNS = {name: column(name, FRAMES) for text in SIMPLE for name in Filter(text).names}


def over_columns(text: str) -> NDArray[np.bool_]:
    return evaluate_columns(parse(text), COLUMNS)


def over_frames(text: str) -> list[bool]:
    return list(map(Filter(text), FRAMES))


@pytest.mark.parametrize("text", SIMPLE)
def test_columns_pass_what_frames_pass(text: str) -> None:
    assert over_columns(text).tolist() == over_frames(text)


@settings(deadline=None)
@given(filters(SIMPLE))
def test_columns_pass_what_frames_pass_of_combinations(text: str) -> None:
    assert over_columns(text).tolist() == over_frames(text)


NUMBERS = st.sampled_from([0, 1, 4, 17, 255]) | st.integers(0, 255)


@given(
    st.sampled_from(["==", "!=", "===", "!==", "<", "<=", ">", ">="]),
    st.sampled_from(["", "any ", "all "]),
    NUMBERS,
    NUMBERS,
)
def test_every_comparison_with_and_without_a_mask(
    operator: str, quantifier: str, mask: int, number: int
) -> None:
    for side in ("infiniband.bth.opcode", f"infiniband.bth.opcode & {mask}"):
        text = f"{quantifier}{side} {operator} {number}"
        assert over_columns(text).tolist() == over_frames(text)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_every_set_of_values_and_ranges(members: list[tuple[int, int]]) -> None:
    inside = ", ".join(f"{low}" if low == high else f"{low} .. {high}" for low, high in members)
    for text in (f"infiniband.bth.opcode in {{{inside}}}", f"ip.ttl not in {{{inside}}}"):
        assert over_columns(text).tolist() == over_frames(text)


def test_the_table_has_simple_filters_of_every_kind() -> None:
    kinds = {lookup(FieldReference(name, ValueType.NUMBER)).type for name in COLUMNS}
    assert kinds == set(_TYPES)
    assert len(SIMPLE) > 60


@pytest.mark.parametrize(
    "text",
    [
        *("ip.addr == 10.77.0.1", "udp.port == 4791", "eth.addr == 52:54:00:00:00:01"),
        *("infiniband", "frame contains 01", "ip.src#1", "eth.src[0] == 52", "ip.ttl + 1 == 65"),
        *('rdmawire.icrc.status == "good"', "iwarp_ddp.stag == 1", "ip.ttl == 64 or arp"),
        *("infiniband.bth", "udp.stream == 1", "len(ip.src) == 4", "ip and udp"),
        *('frame.time < "9999-12-31 00:00:00Z"', 'frame.time != "0001-01-01 00:00:00Z"'),
        "frame.time_delta in {0..999999999999999999}",
    ],
)  # fmt: skip
def test_what_is_not_simple_is_refused(text: str) -> None:
    assert not Filter(text).simple
    with pytest.raises(FilterError, match="needs complete frames"):
        evaluate_columns(parse(text), {})


def test_a_frame_without_the_field_fails_unless_negated() -> None:
    values = np.array([17, 17], np.uint8)
    columns = {"infiniband.bth.opcode": FieldArray(values, np.array([True, False]))}
    for text, expected in (
        ("infiniband.bth.opcode == 17", [True, False]),
        ("infiniband.bth.opcode != 4", [True, False]),
        ("not infiniband.bth.opcode == 17", [False, True]),
        ("infiniband.bth.opcode", [True, False]),
        ("infiniband.bth.opcode & 0x10", [True, False]),
        ("infiniband.bth.opcode not in {4}", [True, True]),
    ):
        assert evaluate_columns(parse(text), columns).tolist() == expected, text


def test_the_column_is_not_changed() -> None:
    valid = np.array([True, False])
    found = evaluate_columns(
        parse("ip.ttl"), {"ip.ttl": FieldArray(np.array([1, 2], np.uint8), valid)}
    )
    found[:] = False
    assert valid.tolist() == [True, False]
