# SPDX-License-Identifier: GPL-2.0-only
"""Packets built with Scapy: lengths, pads and CRCs worked out, wrong values named."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw, fuzz, ls
from scapy.utils import rdpcap, wrpcap

from rdmawire.errors import WireError
from rdmawire.layers import scapy
from rdmawire.layers.scapy import (
    AETH,
    BTH,
    DETH,
    FPDU,
    GRH,
    LRH,
    MAD,
    MPA,
    REQ,
    RETH,
    RWH,
    AtomicETH,
    DDPControl,
    ImmDt,
    MPAEnhanced,
    MPAReply,
    MPARequest,
    RDMAPControlReserved,
    TerminateControl,
    UntaggedHeader,
)
from rdmawire.testing.strategies import frames, native_packets
from rdmawire.wire import ib, mad, native, roce
from rdmawire.wire.icrc import vcrc
from rdmawire.wire.mpa import build_fpdu
from rdmawire.wire.native import NativePacket
from rdmawire.wire.opcode import SHAPES, Opcode, Payload
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.roce import Frame

LAYERS = list(scapy._LAYERS.values())
IP4 = IP(src="192.0.2.1", dst="192.0.2.2")
IP6 = IPv6(src="2001:db8::1", dst="2001:db8::2")
LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
NETWORKS = [LINK / IP4 / UDP(), LINK / Dot1Q() / IP6 / UDP(), LINK / GRH(hoplmt=1)]


@pytest.mark.parametrize("network", NETWORKS, ids=["IPv4", "IPv6", "GRH"])
@pytest.mark.parametrize("length", range(9))
def test_a_write_has_its_pad_lengths_and_icrc(network: Packet, length: int) -> None:
    headers = BTH(opcode="RC_RDMA_WRITE_ONLY", destqp=17) / RETH(dmalen=length)
    pkt = network / headers / bytes(length)
    frame = roce.parse(bytes(pkt))
    assert frame.packet.bth.padcnt == len(frame.packet.pad) == -length % 4
    assert frame.packet.payload == bytes(length)
    assert frame.expected_icrc() == frame.icrc
    assert frame.seal() == frame


@pytest.mark.parametrize("opcode", sorted(SHAPES), ids=lambda opcode: Opcode(opcode).name)
def test_every_opcode_builds_with_its_headers(opcode: int) -> None:
    pkt = LINK / IP4 / UDP() / BTH(opcode=Opcode(opcode).name)
    for table in LAYOUTS[opcode].headers:
        pkt /= scapy._LAYERS[table.__name__]()
    payload = bytes(8 if SHAPES[opcode].payload is Payload.EIGHT else 0)
    again = Ether(bytes(pkt / payload)) if payload else Ether(bytes(pkt))
    again[BTH].header()
    frame = roce.parse(bytes(again))
    frame.packet.check()
    assert frame.icrc == frame.expected_icrc()
    assert tuple(type(header) for header in frame.packet.extended) == LAYOUTS[opcode].headers


@given(frames())
def test_the_icrc_is_the_codecs_for_any_frame(frame: Frame) -> None:
    pkt = Ether(frame.build())
    assert pkt[BTH].icrc == frame.icrc
    del pkt.icrc, pkt[BTH].padcnt
    assert bytes(pkt) == frame.build()


@given(native_packets())
def test_native_packets_are_built_as_the_codec_does(packet: NativePacket) -> None:
    pkt = LRH(packet.build())
    del pkt.icrc, pkt.vcrc, pkt.pktlen
    if GRH in pkt:
        del pkt[GRH].paylen
    assert bytes(pkt) == packet.build()


def test_a_native_packet_has_its_length_and_both_crcs() -> None:
    pkt = LRH(dlid=2, slid=1) / BTH(opcode="UC_SEND_ONLY", destqp=5) / b"hello"
    packet = native.parse(bytes(pkt))
    assert packet.seal() == packet
    assert packet.lrh.lnh == ib.LNH.IBA_LOCAL
    assert vcrc(bytes(pkt)[:-2]) == LRH(bytes(pkt)).vcrc


def test_a_raw_packet_of_a_native_link_carries_ip() -> None:
    pkt = LRH(bytes(LRH() / RWH() / IP4 / UDP() / BTH(opcode="UC_SEND_ONLY")))
    assert [type(each) for each in (pkt[RWH].payload, pkt[BTH].underlayer)] == [IP, UDP]
    assert pkt[BTH].icrc_good()


# values


def test_words_of_the_standard_are_numbers() -> None:
    assert BTH(opcode="UD_SEND_ONLY_WITH_IMMEDIATE").opcode == 0x65
    assert AETH(ack="NAK", value="REMOTE_ACCESS_ERROR").syndrome == 0x62
    assert MAD(mgmt_class=7, method="SEND", attribute_id="REQ").attribute_id == 0x10


def test_a_word_that_the_row_does_not_have_is_named_with_those_near_it() -> None:
    with pytest.raises(WireError, match=r"BTH.opcode has no word 'RC_SEND_ONY'; .*RC_SEND_ONLY"):
        BTH(opcode="RC_SEND_ONY")
    with pytest.raises(WireError, match=r"BTH.psn has no word 'one'; it takes a number"):
        BTH(psn="one")


@pytest.mark.parametrize(
    ("pkt", "reason"),
    [
        (BTH(psn=1 << 24), "BTH.psn 16777216 does not fit in 24 bits"),
        (BTH(psn=-1), "BTH.psn -1 does not fit in 24 bits"),
        (GRH(sgid=bytes(15)), "GRH.sgid takes 16 bytes, found 15"),
        (BTH(icrc=1 << 32), "BTH.icrc 4294967296 does not fit in 4 bytes"),
        (BTH(pad="ab"), "BTH.pad takes bytes, found 'ab'"),
        (BTH(padcnt=4), "BTH.padcnt 4 does not fit in 2 bits"),
        (BTH(psn=b"\x01"), r"BTH.psn takes a number, found b'\\x01'"),
        (BTH(psn=1.5), "BTH.psn takes a number, found 1.5"),
        (scapy.CNP(resv128=16), "CNP.resv128 takes bytes, found 16"),
        (scapy.LinearForwardingTable(port=[1]), r"LinearForwardingTable.port takes 64 numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_does_not_fit_is_named(pkt: Packet, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        bytes(pkt)


def test_groups_of_rows_are_read_set_and_given_as_one_number() -> None:
    pkt = AETH(syndrome=0x3F, msn=5)
    assert (pkt.ack, pkt.value, pkt.syndrome) == (1, 31, 0x3F)
    pkt.syndrome = 0x60
    assert bytes(pkt) == bytes.fromhex("60000005")
    with pytest.raises(WireError, match=r"AETH.syndrome 256 does not fit in 8 bits"):
        AETH(syndrome=256)
    with pytest.raises(WireError, match=r"AETH.syndrome is a number, not 'NAK'; words go to"):
        AETH(syndrome="NAK")
    with pytest.raises(AttributeError, match="syndrom"):
        AETH(syndrom=1)


def test_addresses_are_given_and_shown_in_their_notation() -> None:
    pkt = GRH(sgid="::ffff:192.0.2.1")
    assert bytes(pkt)[8:24] == bytes.fromhex("00000000000000000000ffffc0000201")
    assert pkt.sgid == "::ffff:192.0.2.1"
    with pytest.raises(WireError, match=r"GRH.sgid .*'fe80'"):
        GRH(sgid="fe80")


def test_pad_and_icrc_may_be_wrong_on_purpose() -> None:
    pkt = BTH(opcode="RC_SEND_ONLY", padcnt=2, pad=b"\xff", icrc=1) / b"abc"
    assert bytes(pkt)[1] >> 4 & 3 == 2
    assert bytes(pkt)[12:] == b"abc\xff\0\0\0\1"


def test_an_icrc_stays_as_it_was_received_until_it_is_deleted() -> None:
    pkt = Ether(bytes(LINK / IP4 / UDP() / BTH(opcode="RC_SEND_ONLY", psn=1) / b"abcd"))
    received = pkt.icrc
    pkt[BTH].psn = 2
    assert Ether(bytes(pkt)).icrc == received
    assert not pkt[BTH].icrc_good()
    del pkt[BTH].icrc
    assert Ether(bytes(pkt))[BTH].icrc_good()


def test_without_a_network_below_there_is_no_icrc_to_expect() -> None:
    pkt = BTH(opcode="RC_SEND_ONLY") / b"abcd"
    assert pkt.icrc_expected() is None
    assert not BTH(bytes(pkt)).icrc_good()
    assert bytes(pkt).endswith(bytes(4))


# management


def test_a_connection_request_fills_its_datagram() -> None:
    pkt = (
        LINK / IP4 / UDP() / BTH(opcode="UD_SEND_ONLY", destqp=1) / DETH(qkey=0x80010000)
        / MAD(mgmt_class=7, class_version=2, method="SEND", attribute_id="REQ")
        / REQ(local_comm_id=5)
    )  # fmt: skip
    again = Ether(bytes(pkt))
    assert len(again[MAD].build()) == mad.SIZE
    assert again[REQ].local_comm_id == 5
    assert again[BTH].icrc_good()


# iWARP


TCP_LINE = "IP / TCP 192.0.2.1:5 > 192.0.2.2:7174 S / "
SEND = DDPControl(t=0, l=1) / RDMAPControlReserved(opcode="SEND") / UntaggedHeader(msn=1)


@pytest.mark.parametrize("length", range(5))
def test_an_fpdu_has_its_length_pad_and_crc(length: int) -> None:
    pkt = FPDU() / SEND / Raw(bytes(length))
    assert bytes(pkt) == build_fpdu(bytes(SEND / Raw(bytes(length))))
    assert FPDU(bytes(pkt)).crc_good()
    assert not FPDU(bytes(FPDU(crc=1) / SEND)).crc_good()


def test_a_piece_of_a_stream_is_a_list_of_frames() -> None:
    request = MPARequest(s=1) / MPAEnhanced(ird=1) / b"hello"
    data = bytes(MPA(frames=[request, FPDU() / SEND / b"a", FPDU() / SEND]))
    piece = MPA(data)
    assert [type(frame) for frame in piece.frames] == [MPARequest, FPDU, FPDU]
    assert piece.frames[0].pd_length == MPAEnhanced.table.SIZE + 5
    assert piece.frames[0][Raw].load == b"hello"
    assert piece.frames[1][Raw].load == b"a"
    assert bytes(piece) == data


def test_a_reply_parts_private_data_from_what_follows() -> None:
    piece = MPA(bytes(MPAReply() / b"private") + bytes(FPDU() / SEND))
    assert [type(frame) for frame in piece.frames] == [MPAReply, FPDU]
    assert piece.frames[0].load == b"private"


# what Scapy does with packets


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_every_layer_is_listed_shown_copied_and_fuzzed(
    layer: type[Packet], capsys: pytest.CaptureFixture[str]
) -> None:
    ls(layer)
    assert all(field.name in capsys.readouterr().out for field in layer.fields_desc[:1])
    pkt = layer()
    assert pkt.copy() == pkt
    assert bytes(pickle.loads(pickle.dumps(pkt))) == bytes(pkt)
    assert layer.__name__ in repr(pkt)
    assert layer.__name__ in pkt.show(dump=True)
    assert len(bytes(fuzz(layer()))) >= layer.table.SIZE
    assert fuzz(layer()).show(dump=True)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_no_row_has_the_name_of_something_else_in_scapy(layer: Any) -> None:
    named = {row.name for row in (*layer.table.rows, *layer.table.groups)}
    assert not named & set(dir(scapy.TableLayer))


def test_fuzzed_packets_are_built_and_read() -> None:
    for _ in range(50):
        pkt = LINK / IP4 / UDP() / fuzz(BTH() / RETH() / AtomicETH() / ImmDt())
        assert BTH in Ether(bytes(pkt))


def test_packets_go_into_captures_and_come_out(tmp_path: Path) -> None:
    packets = [LINK / IP4 / UDP() / BTH(opcode="RC_SEND_ONLY", psn=n) / b"x" for n in range(3)]
    wrpcap(str(tmp_path / "a.pcap"), packets)
    wrpcap(str(tmp_path / "b.pcap"), [LRH() / BTH() / b"x"])
    assert [pkt[BTH].psn for pkt in rdpcap(str(tmp_path / "a.pcap"))] == [0, 1, 2]
    assert rdpcap(str(tmp_path / "b.pcap"))[0][BTH].icrc_good()


def test_a_pickled_packet_is_the_same() -> None:
    pkt = LINK / IP4 / UDP() / BTH(opcode="RC_SEND_ONLY") / b"abc"
    assert pickle.loads(pickle.dumps(pkt))[BTH].icrc_good()


@pytest.mark.parametrize(
    ("pkt", "line"),
    [
        (
            IP4 / UDP(sport=5) / BTH(opcode="RC_SEND_ONLY", destqp=17, psn=5) / b"x",
            "IP / UDP 192.0.2.1:5 > 192.0.2.2:4791 / BTH RC_SEND_ONLY qp 0x000011 psn 5 / Raw",
        ),
        (
            LRH(slid=1, dlid=2) / BTH(opcode="RC_ACKNOWLEDGE") / AETH(syndrome=0x60, msn=7),
            "LRH 1 > 2 / BTH RC_ACKNOWLEDGE qp 0x000000 psn 0 / AETH NAK PSN_SEQUENCE_ERROR msn 7",
        ),
        (
            IP4 / TCP(sport=5, dport=7174) / MPA(frames=[FPDU(ulpdu_length=18) / SEND]),
            TCP_LINE + "FPDU 18 bytes / DDPControl / RDMAP SEND / queue 0 msn 1 offset 0",
        ),
    ],
)  # fmt: skip
def test_a_summary_tells_what_the_headers_say(pkt: Packet, line: str) -> None:
    assert pkt.summary() == line


def test_a_number_is_shown_as_the_standards_word() -> None:
    assert "opcode=RC_SEND_ONLY" in repr(BTH(opcode=4))
    assert "opcode=31 (RESERVED)" in repr(BTH(opcode=31))
    assert "value=14 (1.28 ms)" in repr(AETH(syndrome=0x2E))
    assert "error_code" in TerminateControl(layer="DDP", etype=1).show(dump=True)


# ports


@pytest.fixture(autouse=True)
def bound() -> Any:
    yield
    scapy.unbind()
    scapy.bind()


def payload_of(port: int) -> type[Packet]:
    return type(Ether(bytes(LINK / IP4 / UDP(dport=port) / Raw(bytes(24))))[UDP].payload)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([4791, 5000, 5001])), max_size=8))
def test_ports_are_bound_and_unbound_in_any_order(steps: list[tuple[bool, int]]) -> None:
    scapy.unbind()
    wanted: list[int] = []
    for binds, port in steps:
        (scapy.bind if binds else scapy.unbind)(port)
        wanted = [other for other in wanted if other != port] + [port] * binds
    for port in (4791, 5000, 5001):
        assert (payload_of(port) is BTH) == (port in wanted)
    assert UDP(bytes(UDP() / BTH())).dport == (wanted[-1] if wanted else 53)


def test_unbind_takes_roces_ethertype_back_with_the_last() -> None:
    data = bytes(LINK / GRH() / BTH(opcode="RC_SEND_ONLY"))
    scapy.unbind(4791)
    assert GRH in Ether(data)
    scapy.unbind()
    assert GRH not in Ether(data)


def test_a_port_of_iwarp_is_bound_twice_and_given_back_twice() -> None:
    data = bytes(LINK / IP4 / TCP(dport=7174) / FPDU() / SEND)
    for change, found in [(scapy.bind_iwarp, True), (scapy.unbind_iwarp, False)] * 2:
        change(7174)
        change(7174)
        assert (FPDU in Ether(data)) is found
        assert (TCP() / FPDU()).dport == (7174 if found else 80)


def test_what_no_packet_can_hold_is_shown_as_it_is() -> None:
    assert repr(AETH(value=1 << 200)) == f"<AETH  value={1 << 200} |>"
    assert repr(GRH(dgid=b"x")) == "<GRH  dgid=b'x' |>"


def test_a_list_of_values_makes_as_many_packets() -> None:
    answers = AETH(ack=[0, 3], msn=7)
    shown = dict(line.split("=") for line in answers.show(dump=True).split("\n") if "=" in line)
    assert {name.strip(): value.strip() for name, value in shown.items()} == {
        "resv1": "0", "ack": "[0, 3]", "value": "0", "msn": "7",
    }  # fmt: skip
    assert [bytes(each).hex() for each in answers] == ["00000007", "60000007"]
