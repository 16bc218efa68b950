"""Subnet administration: records, alone, in a segment, and in tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.testing.strategies import headers
from rdmawire.wire import mad, sa
from rdmawire.wire.header import Header
from rdmawire.wire.layout import Placed, joined
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import ClassPortInfo, ManagementClass, Method
from rdmawire.wire.notice import InformInfo, IssuerGID, Notice
from rdmawire.wire.rmpp import RMPP, RMPPType
from rdmawire.wire.sa import (
    SDGID,
    GuidInfoRecord,
    InformInfoRecord,
    LinkRecord,
    MCMemberRecord,
    MultiPathRecord,
    NodeRecord,
    PathRecord,
    PKeyTableRecord,
    PortInfoRecord,
    SAAttribute,
    SAHeader,
    ServiceAssociationRecord,
    ServiceRecord,
    SLtoVLMappingTableRecord,
    TraceRecord,
)
from rdmawire.wire.smp import (
    GUIDInfo,
    NodeDescription,
    NodeInfo,
    PKeyEntry,
    PortInfo,
    SLtoVLMappingTable,
)

SINGLE = RMPP(type=RMPPType.DATA, active=1, first=1, last=1, data1=1)


def answer(attribute: int, method: int = Method.GET_TABLE_RESP) -> MAD:
    """The common header of an answer."""
    return MAD(mgmt_class=ManagementClass.SUBN_ADM, method=method, attribute_id=attribute)


def data_pieces(data: bytes) -> list[Placed]:
    """The pieces behind the SA header, counted from there."""
    return [(offset - 56, piece) for offset, piece in mad.layout(data) if offset >= 56]


# IBA 15.2.5: what a record is made of, without what fills it up to a multiple of eight bytes.
RECORDS: dict[SAAttribute, list[type[Header]]] = {
    SAAttribute.CLASS_PORT_INFO: [ClassPortInfo],
    SAAttribute.INFORM_INFO: [InformInfo],
    SAAttribute.NODE_RECORD: [NodeRecord, NodeInfo, NodeDescription],
    SAAttribute.PORT_INFO_RECORD: [PortInfoRecord, PortInfo],
    SAAttribute.SL_TO_VL_MAPPING_TABLE_RECORD: [SLtoVLMappingTableRecord, SLtoVLMappingTable],
    SAAttribute.LINK_RECORD: [LinkRecord],
    SAAttribute.GUID_INFO_RECORD: [GuidInfoRecord, GUIDInfo],
    SAAttribute.SERVICE_RECORD: [ServiceRecord],
    SAAttribute.P_KEY_TABLE_RECORD: [PKeyTableRecord, *[PKeyEntry] * 32],
    SAAttribute.PATH_RECORD: [PathRecord],
    SAAttribute.MC_MEMBER_RECORD: [MCMemberRecord],
    SAAttribute.TRACE_RECORD: [TraceRecord],
    SAAttribute.MULTI_PATH_RECORD: [MultiPathRecord],
    SAAttribute.SERVICE_ASSOCIATION_RECORD: [ServiceAssociationRecord],
    SAAttribute.INFORM_INFO_RECORD: [InformInfoRecord, InformInfo],
}


@pytest.mark.parametrize("attribute", RECORDS)
def test_a_record_is_its_tables_one_behind_the_other(attribute: SAAttribute) -> None:
    head = answer(attribute, Method.GET_RESP)
    pieces = data_pieces(mad.build(head, RMPP(), SAHeader()))
    assert [type(piece) for _, piece in pieces] == [*RECORDS[attribute], bytes]


# IBA 15.2.5: bytes that a record takes; what repeats is counted for one.
@pytest.mark.parametrize(
    ("attribute", "length"),
    [
        (SAAttribute.NODE_RECORD, 108),
        (SAAttribute.PORT_INFO_RECORD, 68),
        (SAAttribute.SWITCH_INFO_RECORD, 24),
        (SAAttribute.LINEAR_FORWARDING_TABLE_RECORD, 72),
        (SAAttribute.RANDOM_FORWARDING_TABLE_RECORD, 72),
        (SAAttribute.MULTICAST_FORWARDING_TABLE_RECORD, 72),
        (SAAttribute.SM_INFO_RECORD, 25),
        (SAAttribute.VL_ARBITRATION_TABLE_RECORD, 72),
        (SAAttribute.SERVICE_RECORD, 176),
        (SAAttribute.PATH_RECORD, 64),
        (SAAttribute.MC_MEMBER_RECORD, 52),
        (SAAttribute.TRACE_RECORD, 46),
        (SAAttribute.NOTICE, 80),
    ],
)
def test_length_of_a_record(attribute: SAAttribute, length: int) -> None:
    head = answer(attribute, Method.GET_RESP)
    last = data_pieces(mad.build(head, RMPP(), SAHeader()))[-1]
    assert last == (length, bytes(200 - length))


def test_place_of_path_record_fields() -> None:
    # IBA 15.2.5.16, in bytes: DGID 8, DLID 40, hop limit 47, SL 53, MTU 54, rate 55, life 56.
    data = bytearray(64)
    data[40:42] = b"\x00\x07"
    data[44:48] = b"\x80\x12\x34\x05"
    data[52:58] = b"\x12\x33\x84\x83\x92\x09"
    path = PathRecord.parse(bytes(data))
    assert (path.dlid, path.raw_traffic, path.flow_label, path.hop_limit) == (7, 1, 0x1234, 5)
    assert (path.qos_class, path.sl) == (0x123, 3)
    assert (path.mtu_selector, path.mtu, path.rate_selector, path.rate) == (2, 4, 2, 3)
    assert (path.packet_life_time_selector, path.packet_life_time, path.preference) == (2, 18, 9)


def test_multi_path_has_as_many_gids_as_it_counts() -> None:
    head = MultiPathRecord(sgid_count=2, dgid_count=1)
    gids = [SDGID(sdgid=bytes([number]) * 16) for number in (1, 2, 3)]
    data = mad.build(answer(0x3A, Method.GET_MULTI), RMPP(), SAHeader(), head, *gids)
    pieces = [piece for _, piece in data_pieces(data)]
    assert pieces == [head, *gids, bytes(200 - 24 - 48)]


def test_more_gids_than_the_datagram_has_are_an_error_after_what_is_there() -> None:
    head = MultiPathRecord(sgid_count=12)
    data = mad.build(answer(0x3A, Method.GET_MULTI), RMPP(), SAHeader(), head)
    found: list[Placed] = []
    with pytest.raises(WireError, match="SDGID takes 16 bytes, 0 are left") as raised:
        found.extend(mad.layout(data))
    assert [piece for _, piece in found[3:]] == [head, *[SDGID()] * 11]
    assert raised.value.offset == 256


def test_multi_path_is_answered_with_path_records() -> None:
    header = SAHeader(attribute_offset=8)
    path = PathRecord(dlid=3)
    rmpp = SINGLE.replace(data2=20 + 64)
    data = mad.build(answer(0x3A, Method.GET_MULTI_RESP), rmpp, header, path)
    assert data_pieces(data) == [(0, path), (64, bytes(136))]
    assert list(sa.records(0x3A, 8, path.build(), Method.GET_MULTI_RESP)) == [(0, path)]


def test_a_segment_has_as_many_records_as_its_payload_length_says() -> None:
    links = [LinkRecord(from_lid=1, to_lid=2), LinkRecord(from_lid=2, to_lid=3)]
    rmpp = SINGLE.replace(data2=20 + 16)
    filler = b"\0\0"
    data = mad.build(
        answer(0x20), rmpp, SAHeader(attribute_offset=1), links[0], filler, links[1], filler
    )
    assert [piece for _, piece in data_pieces(data)] == [
        *(links[0], filler, links[1], filler, bytes(184))
    ]


def test_a_transfer_without_records_has_only_plain_data() -> None:
    for length in (0, 19, 20):
        data = mad.build(answer(0x35), SINGLE.replace(data2=length), SAHeader())
        assert data_pieces(data) == [(0, bytes(200))]


@pytest.mark.parametrize("segment", [RMPP(data1=1, first=1), RMPP(data1=2), RMPP(data1=3, last=1)])
def test_a_segment_of_many_is_plain(segment: RMPP) -> None:
    rmpp = segment.replace(type=RMPPType.DATA, active=1)
    data = mad.build(answer(0x35), rmpp, SAHeader(attribute_offset=8), bytes(range(200)))
    assert data_pieces(data) == [(0, bytes(range(200)))]


@given(st.lists(headers(PathRecord), max_size=5))
def test_records_of_a_table(paths: list[PathRecord]) -> None:
    data = joined(*paths)
    assert [piece for _, piece in sa.records(SAAttribute.PATH_RECORD, 8, data)] == paths


def test_records_wider_than_their_tables_end_in_plain_bytes() -> None:
    member = MCMemberRecord(mlid=0xC001)
    data = joined(member, bytes(4), member, bytes(4))
    assert list(sa.records(SAAttribute.MC_MEMBER_RECORD, 7, data)) == [
        *((0, member), (52, bytes(4)), (56, member), (108, bytes(4)))
    ]


def test_a_table_that_ends_inside_a_record_is_an_error() -> None:
    pieces = sa.records(SAAttribute.PATH_RECORD, 8, bytes(64 + 8))
    assert next(pieces) == (0, PathRecord())
    with pytest.raises(WireError, match="PathRecord takes 64 bytes, 8 are left") as raised:
        next(pieces)
    assert raised.value.offset == 64


def test_an_offset_too_small_for_the_record_is_an_error() -> None:
    with pytest.raises(WireError, match="PathRecord takes 64 bytes, 16 are left"):
        list(sa.records(SAAttribute.PATH_RECORD, 2, bytes(64)))


def test_without_an_offset_there_is_one_record() -> None:
    assert list(sa.records(SAAttribute.LINK_RECORD, 0, bytes(16))) == [
        *((0, LinkRecord()), (6, bytes(10)))
    ]
    assert list(sa.records(0xFFFF, 1, bytes(16))) == [(0, bytes(8)), (8, bytes(8))]
    assert list(sa.records(SAAttribute.LINK_RECORD, 1, b"")) == []


@given(st.sampled_from(sorted(sa.RECORDS)), st.integers(0, 40), st.binary(max_size=400))
def test_any_table_is_records_or_a_wire_error(attribute: int, offset: int, data: bytes) -> None:
    found: list[Placed] = []
    end = len(data)
    try:
        found.extend(sa.records(attribute, offset, data))
    except WireError as error:
        end = error.offset or 0
    raw = joined(*(piece for _, piece in found))
    assert raw == data[: len(raw)]
    assert len(raw) <= end
    assert end < len(data) or end == len(raw)


def test_a_long_table_takes_time_in_proportion_to_its_length() -> None:
    data = bytes(64 * 20_000)
    assert sum(1 for _ in sa.records(SAAttribute.PATH_RECORD, 8, data)) == 20_000


def test_a_report_names_its_issuer() -> None:
    data = mad.build(answer(2, Method.REPORT), RMPP(), SAHeader(), Notice(is_generic=1))
    assert IssuerGID() in [piece for _, piece in mad.layout(data)]
