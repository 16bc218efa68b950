"""Any field set to any value: an edit raises nothing, and is the same for each frame of a flow."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import LinkType
from rdmawire.cli.edit import fpdu_finder
from rdmawire.decode import walk_frame
from rdmawire.testing.strategies import frames, native_packets
from rdmawire.traffic.edit import ChecksumMode, Editor
from rdmawire.traffic.edit.iwarp import INSIDE, StreamEditor
from rdmawire.traffic.edit.rules import AssignRule, EditField, fields_of
from rdmawire.wire import native, roce
from rdmawire.wire.header import Header
from tests.captures import CHOSEN
from tests.traffic.edit.samples import LINUX, records

BytesLike = tuple[bytes, int]
"""A frame, and its link type."""


@cache
def carriers() -> dict[type[Header], BytesLike]:
    """A frame of chosen captures with each header that is in one."""
    found: dict[type[Header], BytesLike] = {}
    for path in CHOSEN:
        for one in records(path):
            for _, header in walk_frame(one.data, one.link_type).headers:
                found.setdefault(type(header), (one.data, one.link_type))
    return found


def values(each: EditField) -> set[int]:
    """Values that are likely to be taken for something."""
    most = (1 << each.width) - 1
    return {value & most for value in (0, 1, 3, 4, 6, 60, most - 1, most)}


def assigned(each: EditField, value: int) -> AssignRule:
    return AssignRule(each.name, [each], value)


def test_most_headers_are_in_a_capture() -> None:
    assert len(carriers()) > 50


@pytest.mark.parametrize("checksum_mode", ChecksumMode)
def test_no_value_of_any_field_raises_anything(checksum_mode: ChecksumMode) -> None:
    for table, (data, link_type) in carriers().items():
        for each in fields_of(table):
            for value in values(each):
                rule = assigned(each, value)
                editor = Editor([rule], checksum_mode=checksum_mode)
                first = editor.edit(data, link_type)
                assert len(first) == len(data)
                assert editor.edit(data, link_type) == first
                assert not list(rule.unused())


@st.composite
def assignments(draw: st.DrawFn, data: bytes, link_type: int) -> AssignRule:
    """Any value for a field that the frame has."""
    places = walk_frame(data, link_type).headers
    table = type(draw(st.sampled_from(places)).header)
    each = draw(st.sampled_from(list(fields_of(table))))
    return assigned(each, draw(st.integers(0, (1 << each.width) - 1)))


@given(st.data(), frames(), st.sampled_from(ChecksumMode))
def test_of_a_frame_any_field_may_have_any_value(
    data: st.DataObject, frame: roce.Frame, checksum_mode: ChecksumMode
) -> None:
    raw = frame.build()
    rules = [data.draw(assignments(raw, LinkType.ETHERNET)) for _ in range(2)]
    editor = Editor(rules, checksum_mode=checksum_mode)
    assert editor.edit(raw) == editor.edit(raw)


@given(st.data(), native_packets(), st.sampled_from(ChecksumMode))
def test_of_a_native_packet_any_field_may_have_any_value(
    data: st.DataObject, packet: native.NativePacket, checksum_mode: ChecksumMode
) -> None:
    raw = packet.build()
    rules = [data.draw(assignments(raw, LinkType.INFINIBAND)) for _ in range(2)]
    editor = Editor(rules, checksum_mode=checksum_mode)
    first = editor.edit(raw, LinkType.INFINIBAND)
    assert editor.edit(raw, LinkType.INFINIBAND) == first


@pytest.mark.parametrize("checksum_mode", ChecksumMode)
def test_no_value_of_any_field_of_an_fpdu_raises_anything(checksum_mode: ChecksumMode) -> None:
    content = records(LINUX / "siw612crc_rping.pcap")[:40]
    for each in (each for table in INSIDE for each in fields_of(table)):
        for value in (0, (1 << each.width) - 1):
            stream = StreamEditor[int](
                Editor([assigned(each, value)], checksum_mode=checksum_mode), fpdu_finder()
            )
            done = [pair for one in content for pair in stream.take(0, one.data, one.link_type)]
            assert len([*done, *stream.rest()]) == len(content)
