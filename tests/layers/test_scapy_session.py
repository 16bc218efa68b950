# SPDX-License-Identifier: GPL-2.0-only
"""A Scapy session finds in TCP the FPDUs that the dissector finds."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.packet import Packet, Raw
from scapy.sendrecv import sniff

from rdmawire.capture import open_capture
from rdmawire.dissect.dissector import Dissector
from rdmawire.layers.scapy import FPDU, MPA, IWARPSession, MPARequest
from rdmawire.wire import mpa
from rdmawire.wire.header import Header
from rdmawire.wire.mpa import FPDULength, MPAReply, build_fpdu
from rdmawire.wire.tables import tables_of
from tests.captures import CAPTURES, EVERY, each_capture
from tests.layers.scapy_samples import headers_of, read

APART = (mpa.Marker, mpa.FPDUCRC, mpa.UnusedCRC)
IN_TCP = tuple(table for table in tables_of("mpa", "rdmap", "terminate") if table not in APART)
"""Tables of streams, but for Markers, which are taken out, and CRCs, which are fields."""


def found_by_dissector(path: Path) -> list[Counter[Header]]:
    """The headers of streams, frame by frame; those of one frame may be in another order."""
    with open_capture(path) as reader:
        frames = list(Dissector().capture(reader))
    return [Counter(h for h in frame.headers() if isinstance(h, IN_TCP)) for frame in frames]


def found_by_session(path: Path) -> list[Counter[Header]]:
    session: Any = IWARPSession()
    packets = [session.process(pkt) if TCP in pkt else pkt for _, pkt in read(path)]
    return [Counter(h for h in headers_of(pkt) if isinstance(h, IN_TCP)) for pkt in packets]


IWARP = [path for path in EVERY if path.name.startswith(("iwarp", "siw"))]


@each_capture(IWARP)
def test_the_session_finds_what_the_dissector_finds(path: Path) -> None:
    assert found_by_session(path) == found_by_dissector(path)


def test_the_captures_hold_fpdus_out_of_order_with_markers_and_joined_midway() -> None:
    names = {path.stem for path in IWARP}
    assert {"iwarp_disorder", "iwarp_markers_crc", "iwarp_joined", "iwarp_hole"} <= names
    for path in IWARP:
        if "not" not in path.stem:
            assert any(found_by_dissector(path)), path.name


@each_capture(IWARP)
def test_what_is_found_is_built_as_it_stood_without_markers(path: Path) -> None:
    session: Any = IWARPSession()
    for _, pkt in read(path):
        whole = session.process(pkt) if TCP in pkt else pkt
        for frame in whole[MPA].frames if MPA in whole else ():
            assert bytes(type(frame)(bytes(frame))) == bytes(frame)
            assert bytes(frame) in bytes(whole)


def test_a_capture_is_sniffed_with_the_session() -> None:
    path = CAPTURES / "linux" / "siw612crc_rping.pcap"
    packets = sniff(offline=str(path), session=IWARPSession)
    with open_capture(path) as reader:
        assert len(packets) == sum(1 for _ in reader)
    fpdus = [fpdu for pkt in packets if MPA in pkt for fpdu in pkt[MPA].frames if FPDU in fpdu]
    assert len(fpdus) > 10
    assert all(fpdu.crc_good() for fpdu in fpdus if fpdu.crc)


# packets made here


CLIENT, SERVER = {"src": "192.0.2.1", "dst": "192.0.2.2"}, {"src": "192.0.2.2", "dst": "192.0.2.1"}
SEGMENT = bytes.fromhex("4143000000000000000000000001") + bytes(4)


def conversation() -> list[Packet]:
    """Start-up frames of both sides, then an FPDU from the client that ends in a second packet."""
    request, reply = mpa.MPARequest(c=1).build(), MPAReply(c=1).build()
    up = IP(**CLIENT) / TCP(sport=9, dport=7174, flags="PA", seq=100, ack=500)
    down = IP(**SERVER) / TCP(sport=7174, dport=9, flags="PA", seq=500, ack=100 + len(request))
    fpdu = build_fpdu(SEGMENT)
    first, second = up.copy(), up.copy()
    first.seq = 100 + len(request)
    second.seq = first.seq + 10
    syn = IP(**CLIENT) / TCP(sport=9, dport=7174, flags="S", seq=99)
    return [syn, up / request, down / reply, first / fpdu[:10], second / fpdu[10:]]


def test_packets_that_were_built_not_read_are_followed_too() -> None:
    session: Any = IWARPSession()
    packets = [session.process(pkt) for pkt in conversation()]
    assert [MPA in pkt for pkt in packets] == [False, True, True, False, True]
    assert MPARequest in packets[1]
    assert packets[4][FPDU].crc_good()
    assert packets[4][FPDU].ulpdu_length == len(SEGMENT)


def test_an_ipv6_extension_header_hides_no_connection() -> None:
    session: Any = IWARPSession()
    request = mpa.MPARequest().build()
    tcp = TCP(sport=9, dport=7174, flags="PA", seq=1) / request
    pkt = session.process(IPv6(src="2001:db8::1", dst="2001:db8::2") / IPv6ExtHdrDestOpt() / tcp)
    assert MPARequest in pkt


@pytest.mark.parametrize("pkt", [TCP() / b"x", UDP() / b"x", Raw(b"x"), IP() / TCP()])
def test_what_is_no_iwarp_comes_out_as_it_went_in(pkt: Packet) -> None:
    assert IWARPSession().process(pkt.copy()) == pkt


def test_many_fpdus_in_one_segment_are_all_there() -> None:
    session: Any = IWARPSession()
    *start, _, _ = conversation()
    for pkt in start:
        session.process(pkt)
    up = IP(**CLIENT) / TCP(sport=9, dport=7174, flags="PA", seq=100 + mpa.MPARequest.SIZE)
    pkt = session.process(up / (build_fpdu(SEGMENT) * 1500))
    assert len(pkt[MPA].frames) == 1500
    assert len(pkt[MPA].frames) * (FPDULength.SIZE + 18 + 4) == len(bytes(pkt[MPA]))
    assert pkt.summary().count("FPDU") == 1500
