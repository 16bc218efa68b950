"""Construct's structs: headers by their names, whole packets, and one kind of error."""

from pathlib import Path
from typing import Any

import pytest
from construct import Construct, ConstructError
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import LinkType, open_capture
from rdmawire.dissect.dissector import Dissector
from rdmawire.errors import WireError
from rdmawire.layers import construct
from rdmawire.layers.construct import (
    BTH,
    FPDU,
    ManagementDatagram,
    NativePacket,
    RoCEFrame,
    Segment,
    StartUpReply,
    StartUpRequest,
    TransportPacket,
    struct,
)
from rdmawire.testing.strategies import fpdus, frames, mads, native_packets, packets, start_ups
from rdmawire.wire import ib, native, roce
from rdmawire.wire.mpa import MPARequest
from rdmawire.wire.native import NativePacket as Native
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from rdmawire.wire.tables import tables
from tests.captures import each_capture

WHOLE: list[Construct] = [
    *(TransportPacket, RoCEFrame, NativePacket, ManagementDatagram),
    *(Segment, FPDU, StartUpRequest, StartUpReply),
]


def same(struct_: Construct, data: bytes) -> Any:
    """What the bytes parse to, once that is built again."""
    found = struct_.parse(data)
    assert struct_.build(found) == data
    return found


def test_every_table_has_its_struct_by_name() -> None:
    for table in tables():
        assert getattr(construct, table.__name__) is struct(table)


def test_numbers_with_a_name_are_given_and_found_by_it() -> None:
    data = BTH.build({"opcode": "RC_SEND_ONLY", "destqp": 17, "psn": 5})
    assert data == ib.BTH(opcode=4, destqp=17, psn=5).build()
    assert BTH.parse(data).opcode == "RC_SEND_ONLY"
    assert int(BTH.parse(data).opcode) == 4


@pytest.mark.parametrize(
    ("header", "reason"),
    [({"psn": 1 << 24}, "psn"), ({"opcode": "RC_SEND_ONY"}, "opcode"), ({"psn": "x"}, "psn")],
)
def test_a_value_that_does_not_fit_is_named(header: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConstructError, match=rf"BTH -> {reason}"):
        BTH.build(header)


@given(packets())
def test_a_transport_packet_is_the_codecs(packet: Packet) -> None:
    found = same(TransportPacket, packet.build())
    assert found.payload == packet.payload
    assert found.pad == packet.pad
    assert list(found.extended)[1:] == [type(header).label for header in packet.extended]


@given(packets())
def test_pad_and_pad_count_are_worked_out(packet: Packet) -> None:
    found = TransportPacket.parse(packet.build())
    del found.pad, found.bth["padcnt"]
    made = packet.replace(payload=packet.payload)
    assert TransportPacket.build(found) == made.build()


@given(frames())
def test_a_frame_is_the_codecs_and_seals_itself(frame: Frame) -> None:
    found = same(RoCEFrame, frame.build())
    del found.icrc
    if found.udp is not None:
        del found.udp["length"]
    assert RoCEFrame.build(found) == frame.build()


@given(native_packets())
def test_a_native_packet_is_the_codecs_and_seals_itself(packet: Native) -> None:
    found = same(NativePacket, packet.build())
    del found.icrc, found.vcrc, found.lrh["pktlen"]
    assert NativePacket.build(found) == packet.build()


@pytest.mark.parametrize("lnh", [0, 1])
def test_a_packet_without_iba_transport_is_refused(lnh: int) -> None:
    transport = {"bth": {"opcode": "RC_SEND_ONLY"}, "payload": b"abc"}
    data = bytearray(NativePacket.build({"transport": transport}))
    data[1] = data[1] & ~3 | lnh
    with pytest.raises(WireError, match=f"LRH.lnh {lnh}: no IBA transport"):
        native.parse(bytes(data))
    with pytest.raises(ConstructError, match=f"LRH.lnh {lnh}: no IBA transport"):
        NativePacket.parse(bytes(data))


def test_frames_are_built_from_the_fewest_values() -> None:
    transport = {"bth": {"opcode": "RC_SEND_ONLY"}, "payload": b"abc"}
    for type_ in ("IPV4", "IPV6", "ROCE"):
        frame = roce.parse(RoCEFrame.build({"ethernet": {"type": type_}, "transport": transport}))
        assert frame.icrc == frame.expected_icrc()
        assert frame.packet.payload == b"abc"
    for lrh in ({}, {"lnh": "IBA_GLOBAL"}):
        packet = native.parse(NativePacket.build({"lrh": lrh, "transport": transport}))
        assert packet.seal() == packet


@given(mads())
def test_a_management_datagram_is_parsed_into_its_headers(data: bytes) -> None:
    found = same(ManagementDatagram, data)
    assert found[0].name in ("MAD", "DirectedMAD")


@given(fpdus())
def test_an_fpdu_is_parsed_and_works_out_what_is_left_out(data: bytes) -> None:
    found = same(FPDU, data)
    assert FPDU.build({"segment": found.segment}) == data


@given(start_ups())
def test_start_up_frames_are_parsed_and_announce_what_they_carry(data: bytes) -> None:
    struct_ = StartUpRequest if data[:16] == MPARequest().key else StartUpReply
    found = same(struct_, data)
    del found.header["pd_length"]
    assert struct_.build(found) == data


@each_capture()
def test_every_packet_of_the_captures_is_parsed_and_built(path: Path) -> None:
    dissector = Dissector()
    with open_capture(path) as reader:
        for record in reader:
            frame = dissector.dissect(record.data, link_type=record.link_type, length=record.length)
            if frame.malformed or len(record.data) < record.length:
                continue
            if record.link_type == LinkType.INFINIBAND and frame.header(ib.BTH):
                same(NativePacket, record.data)
            if record.link_type == LinkType.ETHERNET and is_roce(record.data):
                same(RoCEFrame, record.data)


def is_roce(data: bytes) -> bool:
    try:
        roce.parse(data)
    except WireError:
        return False
    return True


@pytest.mark.parametrize("whole", WHOLE, ids=lambda whole: str(whole.name))
@given(data=st.binary(max_size=120))
def test_any_bytes_parse_or_are_refused_by_construct(whole: Construct, data: bytes) -> None:
    try:
        found = whole.parse(data)
    except ConstructError:
        return
    assert data.startswith(whole.build(found))


def test_an_error_has_the_path_of_the_field() -> None:
    frame = RoCEFrame.build(
        {"ethernet": {"type": "IPV4"}, "transport": {"bth": {"opcode": "RC_SEND_ONLY"}}}
    )
    with pytest.raises(ConstructError, match=r"RoCEFrame -> transport"):
        RoCEFrame.parse(frame[:52])
    with pytest.raises(ConstructError, match=r"network\nEtherType 0x0806 carries no RoCE"):
        RoCEFrame.parse(frame[:12] + b"\x08\x06" + frame[14:])
    with pytest.raises(ConstructError, match="IP protocol 6 carries no RoCE"):
        RoCEFrame.parse(frame[:23] + b"\x06" + frame[24:])
    with pytest.raises(ConstructError, match=r"-> extended\nopcode 0x1f is reserved"):
        TransportPacket.parse(b"\x1f" + bytes(20))
    with pytest.raises(ConstructError, match="Opcode has no 'SEND_ONLY'; the nearest are RC_SEND_"):
        TransportPacket.build({"bth": {"opcode": "SEND_ONLY"}})
    with pytest.raises(ConstructError, match="no header of this message is named 'BTX'"):
        Segment.build([{"name": "BTX", "value": {}}])


def test_a_version_against_the_ethertype_is_kept_and_has_no_icrc() -> None:
    whole = RoCEFrame.build({"ethernet": {"type": "IPV4"}, "transport": {"bth": {"opcode": 4}}})
    data = whole[:14] + b"\x65" + whole[15:]
    frame = RoCEFrame.parse(data)
    assert RoCEFrame.build(frame) == data
    del frame.icrc
    with pytest.raises(ConstructError, match="RoCEFrame"):
        RoCEFrame.build(frame)
