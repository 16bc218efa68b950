# SPDX-License-Identifier: GPL-2.0-only
"""Scapy reads every frame of the captures as the dissector does, and builds it again."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Padding, Raw

from rdmawire.dissect.dissector import Dissector
from rdmawire.layers import scapy
from rdmawire.layers.scapy import AETH, BTH, ERF, FPDU, GRH, LRH, MPA, RETH, RWH, TableLayer
from rdmawire.wire import mpa
from rdmawire.wire.header import Header
from rdmawire.wire.ib import ICRC, VCRC
from rdmawire.wire.tables import IWARP, tables_of
from tests.captures import CHOSEN, each_capture
from tests.layers.scapy_samples import headers_of, is_known, layers_of, read, uncached
from tests.wire.test_icrc import (
    CNP_CONNECTX_4_LX,
    IBA_LOCAL_PACKET,
    ROCE_RC_ACKNOWLEDGE,
    ROCE_RC_RDMA_WRITE_ONLY,
    UC_SEND_ONLY_IPV4,
    UC_SEND_ONLY_IPV6,
)

LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")

LRH_WITH_PADDING = LRH() / RWH() / IP(src="192.0.2.1", dst="192.0.2.2") / b"a" / Padding(bytes(3))

OF_OTHERS = tables_of("inet")
"""Headers that are Scapy's own."""

BEHIND = (ICRC, VCRC, mpa.FPDUCRC, mpa.UnusedCRC)
"""Tables that are fields here: they follow a payload."""

OF_STREAMS = tables_of(*IWARP)
"""Tables of headers in TCP streams: one packet alone does not have them all."""

PUT_TOGETHER = {"management.pcap": (105, 108), "management_erf.pcap": (105, 108)}
"""Frames that complete an RMPP transfer: the dissector shows what all its frames hold."""


@each_capture()
def test_headers_and_icrc_are_the_dissectors_and_every_frame_is_built_again(path: Path) -> None:
    dissector = Dissector()
    for record, pkt in read(path):
        assert bytes(pkt) == record.data
        assert bytes(uncached(pkt)) == record.data
        frame = dissector.dissect(record.data, link_type=record.link_type, length=record.length)
        if is_known(record) and frame.number not in PUT_TOGETHER.get(path.name, ()):
            wanted = [header for header in frame.headers() if is_ours(header)]
            assert headers_of(pkt) == wanted, f"frame {frame.number}"
        for check in frame.checks:
            if check.name == "ICRC" and BTH in pkt:
                assert pkt[BTH].icrc == check.found
                assert pkt[BTH].icrc_expected() == check.expected
                assert pkt[BTH].icrc_good() is check.good


def is_ours(header: Header) -> bool:
    return not isinstance(header, (*OF_OTHERS, *BEHIND, *OF_STREAMS))


VECTORS = [
    (UC_SEND_ONLY_IPV4.build(), 0x78F353F3),
    (UC_SEND_ONLY_IPV6.build(), 0x3E5B743B),
    (CNP_CONNECTX_4_LX, 0x82FD002A),
    (ROCE_RC_RDMA_WRITE_ONLY, 0xE3D856BB),
    (ROCE_RC_ACKNOWLEDGE, 0x25F0C038),
]


@pytest.mark.parametrize(("data", "icrc"), VECTORS)
def test_frames_of_scapys_own_tests_are_read_and_built(data: bytes, icrc: int) -> None:
    pkt = Ether(data)
    assert pkt[BTH].icrc == icrc
    assert pkt[BTH].icrc_good()
    del pkt.icrc
    assert bytes(pkt) == data


def test_the_standards_sample_packet_has_its_icrc() -> None:
    pkt = LRH(IBA_LOCAL_PACKET + bytes(6))
    assert pkt[BTH].icrc == 0
    assert pkt[BTH].icrc_expected() == 0x9625B75A


def test_payload_pad_and_icrc_of_a_write_are_apart() -> None:
    pkt = Ether(ROCE_RC_RDMA_WRITE_ONLY)
    assert [type(each) for each in layers_of(pkt)] == [Ether, GRH, BTH, RETH, Raw]
    assert pkt[BTH].opcode == 10
    assert pkt[RETH].dmalen == 5
    assert pkt[Raw].load == bytes.fromhex("0000000001")
    assert pkt[BTH].padcnt == len(pkt[BTH].pad) == 3


def test_what_the_link_puts_behind_a_packet_is_padding() -> None:
    data = (LINK / IP() / UDP() / BTH(opcode="RC_ACKNOWLEDGE") / AETH()).build()
    pkt = Ether(data + bytes(12))
    assert pkt[BTH].icrc_good()
    assert pkt[Padding].load == bytes(12)


def test_padding_in_a_native_packet_stays_before_its_vcrc_and_the_trailer_behind() -> None:
    data = LRH_WITH_PADDING.build() + b"trailer"
    pkt = LRH(data)
    assert pkt[Padding].load == bytes(3)
    assert pkt.trailer == b"trailer"
    assert bytes(uncached(pkt)) == data
    del pkt.vcrc, pkt.pktlen
    assert bytes(pkt) == data


def test_a_packet_that_was_cut_has_no_icrc() -> None:
    data = bytes(LINK / IP() / UDP() / BTH(opcode="RC_SEND_ONLY") / (b"x" * 40))
    pkt = Ether(data[:-20])
    assert pkt[BTH].icrc == b""
    assert not pkt[BTH].icrc_good()
    assert bytes(uncached(pkt)) == data[:-20]


def test_reserved_opcodes_leave_the_rest_as_it_is_but_for_the_icrc() -> None:
    data = bytes(LINK / IP() / UDP() / BTH(opcode=0x1F) / b"abcd")
    pkt = Ether(data)
    assert pkt[BTH].payload == Raw(b"abcd")
    assert pkt[BTH].icrc_good()


# any bytes


@cache
def some_frames() -> list[tuple[type[Packet], bytes]]:
    """Return short frames of captures, and the link layer of each."""
    return [
        (type(pkt), record.data)
        for path in CHOSEN
        for record, pkt in read(path)[:12]
        if len(record.data) < 400
    ]


@pytest.mark.parametrize(
    "layer", [scapy.Bytes, MPA, *scapy._LAYERS.values()], ids=lambda layer: layer.__name__
)
@settings(max_examples=settings().max_examples // 2)
@given(data=st.binary(min_size=1, max_size=300))
def test_any_layer_takes_any_bytes(layer: type[TableLayer], data: bytes) -> None:
    pkt = layer(data)
    shown(pkt)
    assert bytes(pkt) == data
    assert bytes(uncached(pkt)) == data


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[type[Packet], bytes]:
    """A frame of a capture with other bytes in it, cut behind Scapy's own link or made longer."""
    link, data = draw(st.sampled_from(some_frames()))
    frame = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    end = draw(st.integers(min(40, len(frame)), len(frame)))
    return link, bytes(frame[:end]) + draw(st.binary(max_size=8))


@given(spoilt())
def test_damaged_frames_are_read_shown_and_built_again(spoilt: tuple[type[Packet], bytes]) -> None:
    link, data = spoilt
    pkt = link(data)
    shown(pkt)
    assert bytes(pkt) == data
    assert bytes(uncached(pkt)) == data


@given(st.binary(max_size=200))
def test_any_segment_of_a_port_bound_to_iwarp_is_read(payload: bytes) -> None:
    scapy.bind_iwarp(7174)
    try:
        data = bytes(LINK / IP() / TCP(dport=7174) / Raw(payload))
        pkt = Ether(data)
        shown(pkt)
        assert bytes(uncached(pkt)) == data
    finally:
        scapy.unbind_iwarp(7174)


def test_a_segment_full_of_empty_fpdus_is_read() -> None:
    pkt = MPA(bytes(FPDU() / b"") * 8000)
    assert len(pkt.frames) == 8000
    assert bytes(pkt) == bytes(FPDU()) * 8000


def test_a_record_full_of_extension_headers_is_read_and_built() -> None:
    data = bytes(8) + b"\x95" + bytes(7) + (b"\x80" + bytes(7)) * 8000
    pkt = ERF(data)
    assert bytes(uncached(pkt)) == data


def shown(pkt: Packet) -> Any:
    """All that people see of a packet."""
    return pkt.summary(), repr(pkt), pkt.show(dump=True), pkt.copy().show2(dump=True)
