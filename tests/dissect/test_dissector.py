"""Dissection: complete, never raising, keeping what stood before the trouble."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.decode import LINK_TYPES as KNOWN_LINK_TYPES
from rdmawire.decode.inet import MAX_TUNNELS
from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.node import Node
from rdmawire.testing.strategies import frames, native_packets
from rdmawire.wire import ib, inet
from rdmawire.wire.header import Header
from rdmawire.wire.mad import MANAGEMENT_QPS
from rdmawire.wire.native import NativePacket
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame

LINK_TYPES = [*KNOWN_LINK_TYPES, 147]
FAULTY = Path(__file__).parents[2] / "captures" / "faulty"


def left_out(found: Dissection) -> set[int]:
    """Offsets of bytes that stand in no node; without streams, where Markers cut payloads."""
    stand = [range(node.offset, node.offset + len(node.data)) for node in found.nodes]
    return set(range(len(found.data))).difference(*stand)


def plain_frame(packet: Packet, **udp: int) -> Frame:
    ip = inet.IPv4(protocol=17, src=b"\x0a\0\0\1", dst=b"\x0a\0\0\2")
    headers = (inet.Ethernet(type=0x0800), ip, inet.UDP(**{"srcport": 7, "dstport": 4791} | udp))
    return Frame(headers, packet).seal()


def kinds(found: Dissection) -> list[type[Header]]:
    return [type(header) for header in found.headers()]


def last(found: Dissection) -> Node:
    """The first of the last nodes, which say what is wrong."""
    assert found.malformed is not None
    return found.malformed


def place_of(node: Node) -> tuple[str, int, bytes]:
    return node.name, node.offset + len(node.data), node.data


def status(found: Dissection, field: object) -> object:
    values = [extra.value for node in found.nodes for extra in node.extras if extra.field is field]
    return values[0] if values else None


def is_no_management(packet: Packet) -> bool:
    """Whether the payload may be any: what goes to a management queue pair is a MAD."""
    return packet.bth.destqp not in MANAGEMENT_QPS


@given(frames().filter(lambda frame: is_no_management(frame.packet)))
def test_every_byte_of_a_good_frame_is_in_one_node(frame: Frame) -> None:
    data = frame.build()
    found = Dissector().dissect(data)
    assert found.malformed is None
    assert not found.bad_checks
    covered = sorted((node.offset, node.data) for node in found.nodes)
    assert b"".join(part for _, part in covered) == data
    assert status(found, generated.ICRC_STATUS) == "good"


@given(native_packets().filter(lambda native: is_no_management(native.packet)))
def test_native_packets(packet: NativePacket) -> None:
    found = Dissector().dissect(packet.build(), link_type=247)
    assert found.malformed is None
    assert status(found, generated.ICRC_STATUS) == "good"
    assert status(found, generated.VCRC_STATUS) == "good"


@given(st.binary(max_size=300), st.sampled_from(LINK_TYPES), st.integers(0, 400))
def test_any_bytes_dissect(data: bytes, link_type: int, length: int) -> None:
    found = Dissector().dissect(data, link_type=link_type, length=length)
    for node in found.nodes:
        assert 0 <= node.offset <= len(data)
        assert data[node.offset : node.offset + len(node.data)] == node.data


@given(st.binary(max_size=300), st.sampled_from(LINK_TYPES), st.integers(0, 400))
def test_every_byte_of_any_frame_is_in_a_node(data: bytes, link_type: int, length: int) -> None:
    assert not left_out(Dissector().dissect(data, link_type=link_type, length=length))


places = st.dictionaries(st.integers(0, 120), st.sampled_from([0, 1, 0x1F, 0x7F, 0xFF]))


def damaged(data: bytes, places: dict[int, int]) -> bytes:
    return bytes(places.get(place, byte) for place, byte in enumerate(data))


@given(frames(), places)
def test_every_byte_of_a_damaged_frame_is_in_a_node(frame: Frame, places: dict[int, int]) -> None:
    assert not left_out(Dissector().dissect(damaged(frame.build(), places)))


@given(native_packets(), places)
def test_every_byte_of_a_damaged_native_packet_is_in_a_node(
    packet: NativePacket, places: dict[int, int]
) -> None:
    assert not left_out(Dissector().dissect(damaged(packet.build(), places), link_type=247))


def test_every_reason_is_kept_with_its_bytes() -> None:
    with open_capture(FAULTY / "two_reasons.pcap") as reader:
        (found,) = Dissector().capture(reader)
    reasons = [(node.reason, node.offset, node.data) for node in found.nodes if node.reason]
    assert reasons == [
        ("IPv4.total_length says that 65515 bytes follow, 32 are there", 34, b""),
        ("opcode 0x1f is reserved (IBA 9.2.1)", 54, found.data[54:]),
    ]
    assert last(found).reason == reasons[0][0]
    assert not left_out(found)


def test_lengths_inside_one_that_is_too_long_are_not_held_against_the_frame() -> None:
    data = plain_frame(Packet.make(Opcode.RC_SEND_ONLY, payload=b"abcd")).build()
    found = Dissector().dissect(data[:-6])
    assert [node.reason for node in found.nodes if node.reason] == [last(found).reason]


def test_a_length_without_room_for_the_lrh_has_no_vcrc() -> None:
    packet = NativePacket(ib.LRH(), None, Packet.make(Opcode.RC_SEND_ONLY)).seal()
    data = packet.lrh.replace(pktlen=1).build() + packet.build()[ib.LRH.SIZE :]
    found = Dissector().dissect(data, link_type=247)
    assert [node.name for node in found.nodes] == ["lrh", "malformed"]
    assert last(found).reason == "LRH.pktlen 1: at least 2 words, which the LRH takes"
    assert last(found).data == found.data[ib.LRH.SIZE :]
    assert not found.checks
    assert status(found, generated.VCRC_STATUS) == "absent"


def test_tunnels_in_tunnels_are_followed_so_far() -> None:
    ip = inet.IPv4(protocol=17)
    tunnel = (inet.Ethernet(type=0x0800), ip, inet.UDP(9, inet.VXLAN_PORT, 0, 1), inet.VXLAN())
    found = Dissector().dissect(b"".join(header.build() for header in tunnel) * (MAX_TUNNELS + 1))
    assert kinds(found).count(inet.VXLAN) == MAX_TUNNELS
    *_, end = found.nodes
    assert end.reason == "VXLAN: the frame has 16 tunnels around this one already"
    assert end.data == inet.VXLAN().build()


@given(frames(), st.data())
def test_a_damaged_frame_keeps_the_nodes_before_the_damage(
    frame: Frame, data: st.DataObject
) -> None:
    raw = bytearray(frame.build())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255))
    whole = Dissector().dissect(frame.build())
    found = Dissector().dissect(bytes(raw))
    before = {place_of(node) for node in whole.nodes if place_of(node)[1] <= place and node.header}
    assert before <= {place_of(node) for node in found.nodes}


@given(frames(), st.data())
def test_a_frame_cut_by_the_capture_is_not_malformed_for_that(
    frame: Frame, data: st.DataObject
) -> None:
    raw = frame.build()
    kept = data.draw(st.integers(54, len(raw) - len(frame.trailer) - 1))
    found = Dissector().dissect(raw[:kept], length=len(raw))
    assert status(found, generated.CUT) == f"the capture kept {kept} of {len(raw)} bytes"
    assert not found.bad_checks
    assert status(found, generated.ICRC_STATUS) in ("absent", None)


def test_a_frame_that_ends_early_names_the_length_field_that_needs_more() -> None:
    data = plain_frame(Packet.make(Opcode.RC_SEND_ONLY, payload=b"abcd")).build()
    found = Dissector().dissect(data[:-6])
    assert last(found).reason == "IPv4.total_length says that 28 bytes follow, 22 are there"
    assert last(found).offset == 34
    assert ib.BTH in kinds(found)
    assert status(found, generated.ICRC_STATUS) == "absent"


def test_a_reserved_opcode_ends_the_frame_and_its_icrc_is_still_checked() -> None:
    packet = Packet(ib.BTH(opcode=0x1F), (), b"12345678")
    headers = plain_frame(Packet.make(Opcode.RC_SEND_ONLY)).headers
    found = Dissector().dissect(Frame(headers, packet).seal().build())
    assert last(found).reason == "opcode 0x1f is reserved (IBA 9.2.1)"
    assert last(found).data == b"12345678"
    assert last(found).offset == 54
    assert status(found, generated.ICRC_STATUS) == "good"


def test_a_bad_icrc_shows_what_was_found_and_what_was_expected() -> None:
    frame = plain_frame(Packet.make(Opcode.RC_SEND_ONLY, payload=b"abcd"))
    found = Dissector().dissect(frame._replace(icrc=frame.icrc ^ 1).build())
    assert status(found, generated.ICRC_STATUS) == "bad"
    assert status(found, generated.ICRC_EXPECTED) == frame.icrc
    (check,) = found.bad_checks
    assert str(check) == (f"ICRC bad: found 0x{frame.icrc ^ 1:08x}, expected 0x{frame.icrc:08x}")


@pytest.mark.parametrize("place", [24, 40])
def test_bad_ip_and_udp_checksums(place: int) -> None:
    frame = plain_frame(Packet.make(Opcode.RC_SEND_ONLY), checksum=1)
    data = bytearray(frame.build())
    data[place] ^= 0xFF
    found = Dissector().dissect(bytes(data))
    assert [check.name for check in found.bad_checks] == [
        "IPv4 header checksum" if place == 24 else "UDP checksum"
    ]


@pytest.mark.parametrize("port", [53, 69, 319, 4789, 4791])
def test_the_source_port_does_not_change_what_a_datagram_is(port: int) -> None:
    packet = Packet.make(Opcode.RC_SEND_ONLY, payload=b"abcd")
    found = Dissector().dissect(plain_frame(packet, srcport=port).build())
    assert kinds(found)[-2:] == [ib.BTH, ib.ICRC]


def test_other_ports_carry_roce_when_asked_to() -> None:
    packet = Packet.make(Opcode.RC_SEND_ONLY, payload=b"abcd")
    data = plain_frame(packet, dstport=14791).build()
    assert ib.BTH not in kinds(Dissector().dissect(data))
    assert ib.BTH in kinds(Dissector(roce_ports=[4791, 14791]).dissect(data))


def test_an_unknown_link_type_is_reported() -> None:
    found = Dissector().dissect(b"abc", link_type=147)
    assert "link type 147" in last(found).reason


def test_a_vendors_opcode_keeps_its_bytes() -> None:
    packet = Packet(ib.BTH(opcode=0xC7), (), b"any octets at all...")
    headers = plain_frame(Packet.make(Opcode.RC_SEND_ONLY)).headers
    found = Dissector().dissect(Frame(headers, packet).seal().build())
    assert status(found, generated.VENDOR) == b"any octets at all..."
    assert found.malformed is None


def test_frames_are_numbered_and_timed() -> None:
    dissector = Dissector()
    first = dissector.dissect(b"", time_ns=1_000)
    second = dissector.dissect(b"", time_ns=5_000)
    assert (first.number, second.number) == (1, 2)
    assert (second.first_ns, second.previous_ns) == (1_000, 1_000)


def test_a_frame_gives_its_headers_and_its_line() -> None:
    ack = ib.AETH(ack=ib.Ack.ACK, value=31, msn=7)
    packet = Packet.make(Opcode.RC_ACKNOWLEDGE, ack, destqp=0x11, psn=5)
    found = Dissector().dissect(plain_frame(packet).build())
    assert found.header(ib.AETH) == ack
    assert found.header(ib.RETH) is None
    assert str(found).endswith("RC_ACKNOWLEDGE qp 0x000011 psn 5, ACK msn 7")
