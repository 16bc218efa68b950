"""Frames of RoCEv2 and RoCE, and packets of native links."""

from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.testing.strategies import frames, native_packets, packets
from rdmawire.wire import native, roce
from rdmawire.wire.checksum import internet_checksum, ipv4_header_checksum
from rdmawire.wire.ib import BTH, GRH, LNH, LRH
from rdmawire.wire.inet import UDP, Ethernet, IPv4
from rdmawire.wire.native import NativePacket
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame


@given(frames())
def test_parse_is_the_inverse_of_build(frame: Frame) -> None:
    data = frame.build()
    parsed = roce.parse(data)
    assert parsed == frame
    assert parsed.build() == data


@given(frames())
def test_sealing_a_sealed_frame_changes_nothing(frame: Frame) -> None:
    assert frame.seal() == frame
    assert frame.expected_icrc() == frame.icrc


@given(packets(), st.integers(0, 255))
def test_the_plain_path_reads_what_the_general_one_reads(packet: Packet, port: int) -> None:
    headers = (Ethernet(type=0x0800), IPv4(protocol=17), UDP(7, port, 0, 1))
    data = Frame(headers, packet, 0, b"padding").seal().build()
    plain = roce._parse_plain(b"x" + data + b"y", port, 1, 1 + len(data))
    assert plain == roce._parse_any(data, port)
    assert type(plain) is Frame
    assert type(plain.packet) is Packet


@given(frames(), st.data())
def test_bth_offset_finds_the_bth(frame: Frame, data: st.DataObject) -> None:
    raw = frame.build()
    start = data.draw(st.integers(0, 3))
    found = roce.bth_offset(bytes(start) + raw, start, start + len(raw))
    assert BTH.parse(bytes(start) + raw, found) == frame.packet.bth
    assert roce.bth_offset(bytes(start) + raw, start, found + BTH.SIZE - 1) == -1
    assert roce.bth_offset(raw, 0, len(raw), port=1) in (-1, found - start)


@given(frames(), st.sampled_from([(-1, 0), (0, 1), (-(10**30), 0), (0, 10**30), (10**30, 10**30)]))
def test_no_bth_stands_outside_the_buffer(frame: Frame, moved: tuple[int, int]) -> None:
    data = frame.build()
    assert roce.bth_offset(data, moved[0], len(data) + moved[1]) == -1


@given(frames(), st.data())
def test_any_change_gives_a_frame_or_a_wire_error(frame: Frame, data: st.DataObject) -> None:
    raw = bytearray(frame.build())
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        raw[place] = data.draw(st.integers(0, 255))
    changed = bytes(raw)[: data.draw(st.integers(0, len(raw)))]
    try:
        parsed = roce.parse(changed)
    except WireError:
        return
    assert parsed.build() == changed


@given(st.binary(max_size=160))
def test_any_bytes_are_a_frame_or_a_wire_error(data: bytes) -> None:
    for read in (roce.parse, native.parse):
        try:
            parsed = read(data)
        except WireError:
            continue
        assert parsed.build() == data


@given(native_packets())
def test_native_packets(packet: NativePacket) -> None:
    data = packet.build()
    assert native.parse(data) == packet
    assert packet.seal() == packet
    with pytest.raises(WireError, match="pktlen says"):
        native.parse(data + b"\0")


def test_native_raw_packets_are_no_transport_packets() -> None:
    with pytest.raises(WireError, match=r"LRH.lnh 0: no IBA transport follows"):
        native.parse(LRH(lnh=0, pktlen=4).build() + bytes(10))


def test_seal_keeps_a_udp_checksum_of_zero() -> None:
    packet = Packet.make(0x64 - 0x60, payload=b"abc")
    headers = (Ethernet(type=0x0800), IPv4(protocol=17), UDP(7, 4791))
    sealed = Frame(headers, packet).seal()
    assert isinstance(sealed.headers[2], UDP)
    assert sealed.headers[2].checksum == 0
    assert sealed.headers[2].length == 8 + 16 + 4


def test_a_udp_checksum_needs_an_ip_header_before_it() -> None:
    headers = (Ethernet(type=0x8915), GRH(), UDP(checksum=1))
    with pytest.raises(WireError, match="a UDP header without an IP header before it"):
        Frame(headers, Packet.make(4)).seal()


def test_a_native_packet_is_whole_words() -> None:
    packet = NativePacket(LRH(), None, Packet(BTH(opcode=0xC7), (), b"abc"))
    with pytest.raises(WireError, match=r"19 bytes up to the ICRC: LRH\.pktlen counts words"):
        packet.seal()


def test_a_frame_without_a_network_header_cannot_be_sealed() -> None:
    with pytest.raises(WireError, match="no IPv4, IPv6 or GRH"):
        Frame((Ethernet(),), Packet.make(4)).seal()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Ethernet takes 14 bytes, 0 are left"),
        (Ethernet(type=0x0806).build(), "EtherType 0x0806 carries no RoCE"),
        (Ethernet(type=0x0800).build() + IPv4(protocol=6).build(), "IP protocol 6 carries no"),
        (Ethernet(type=0x0800).build() + IPv4(ihl=4).build(), "a header of 16 bytes"),
        (Ethernet(type=0x0800).build() + IPv4(mf=1).build(), "a fragment"),
        (
            Ethernet(type=0x0800).build() + IPv4(protocol=17, total_length=80).build() + bytes(9),
            "60 bytes announced, 9 are there",
        ),
        (
            Ethernet(type=0x0800).build()
            + IPv4(protocol=17, total_length=80).build()
            + UDP(dstport=53).build()
            + bytes(60),
            "UDP port 53 is not RoCEv2's 4791",
        ),
        (
            Ethernet(type=0x8915).build() + GRH(nxthdr=17).build(),
            "GRH.nxthdr 17 is not the IBA transport's 0x1b",
        ),
    ],
)
def test_errors_say_what_the_frame_is_instead(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        roce.parse(data)


SEND = Packet.make(4, payload=b"abc")
FRAME = Frame((Ethernet(type=0x0800), IPv4(protocol=17), UDP(7, 4791, 0, 1)), SEND).seal()
NATIVE = NativePacket(LRH(dlid=2), None, SEND).seal()


@given(frames(), native_packets())
def test_replacing_nothing_changes_nothing(frame: Frame, packet: NativePacket) -> None:
    assert frame.replace() == frame
    assert packet.replace() == packet


def test_replace_keeps_the_rest_and_seals_nothing() -> None:
    other = FRAME.replace(packet=SEND.replace(payload=b"xyz"), trailer=b"t")
    assert (other.headers, other.icrc, other.trailer) == (FRAME.headers, FRAME.icrc, b"t")
    assert other.icrc != other.expected_icrc()
    assert other.seal().icrc == other.expected_icrc()
    with_grh = NATIVE.replace(grh=GRH())
    assert with_grh.lrh.lnh == LNH.IBA_LOCAL
    assert with_grh.seal().lrh.lnh == LNH.IBA_GLOBAL
    assert with_grh.replace(grh=None) == NATIVE


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"icrc": 1 << 32}, r"^ICRC.crc: 4294967296 does not fit 32 bits"),
        ({"icrc": "0"}, r"^ICRC.crc: takes a number of 32 bits, found str '0'"),
        ({"trailer": "text"}, r"^Frame.trailer takes bytes, found str 'text'$"),
        ({"headers": None}, r"^Frame.headers takes tuple, found NoneType None$"),
        ({"headers": ("eth",)}, r"^a header or bytes belong here, found str 'eth'$"),
        ({"headers": (IPv4(src="10.0.0.1"),)}, r"^IPv4.src: takes 4 bytes, found str '10.0.0.1'$"),
        ({"packet": b"packet"}, r"^Frame.packet takes Packet, found bytes b'packet'$"),
        ({"packet": Packet(BTH(opcode=4), (), b"abc")}, "make 3 bytes, no multiple of four"),
    ],
)
def test_a_frame_refuses_parts_that_cannot_stand_there(parts: Any, message: str) -> None:
    with pytest.raises(WireError, match=message):
        FRAME.replace(**parts)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"vcrc": 1 << 16}, r"^VCRC.crc: 65536 does not fit 16 bits"),
        ({"lrh": None}, r"^NativePacket.lrh takes LRH, found NoneType None$"),
        ({"grh": b"grh"}, r"^NativePacket.grh takes GRH or NoneType, found bytes b'grh'$"),
        ({"packet": None}, r"^NativePacket.packet takes Packet, found NoneType None$"),
        ({"lrh": LRH(vl=16)}, r"^LRH.vl: 16 does not fit 4 bits"),
        ({"packet": Packet(BTH(opcode=0x1F))}, "opcode 0x1f is reserved"),
    ],
)
def test_a_native_packet_refuses_parts_that_cannot_stand_there(parts: Any, message: str) -> None:
    with pytest.raises(WireError, match=message):
        NATIVE.replace(**parts)


@pytest.mark.parametrize("value", [FRAME, NATIVE, SEND], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("wrong", [None, "text", 1.5, 7, b"octets", ("text",), []], ids=repr)
def test_whatever_stands_in_a_part_makes_bytes_or_a_wire_error(
    value: Frame | NativePacket | Packet, wrong: Any
) -> None:
    methods = ("build", "seal", "expected_icrc", "expected_vcrc", "check", "replace")
    for part in value._fields:
        changed: Any = value._replace(**{part: wrong})
        for method in filter(partial(hasattr, value), methods):
            with suppress(WireError):
                getattr(changed, method)()


def test_replacing_a_part_that_is_none_is_a_type_error_that_names_it() -> None:
    for value in (FRAME, NATIVE, SEND):
        parts: Any = {"psn": 3}
        with pytest.raises(TypeError, match=rf"{type(value).__name__}.*'psn'"):
            value.replace(**parts)


def test_what_is_too_long_to_announce_cannot_be_sealed() -> None:
    long = SEND.replace(payload=bytes(1 << 16))
    with pytest.raises(WireError, match=r"^IPv4.total_length: 65580 does not fit 16 bits"):
        FRAME.replace(packet=long).seal()
    with pytest.raises(WireError, match=r"^LRH.pktlen: 16390 does not fit 11 bits"):
        NATIVE.replace(packet=long).seal()


def sum_of_words(data: bytes) -> int:
    """RFC 1071's own way: ones' complement addition of 16-bit words."""
    total = 0
    for i in range(0, len(data), 2):
        total += int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big")
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


@given(st.binary(max_size=40))
def test_internet_checksum(data: bytes) -> None:
    assert internet_checksum(data) == sum_of_words(data)


def test_ipv4_header_checksum_of_a_known_header() -> None:
    # captures/linux/rxe61_vt_rc_all_1024.pcap, frame 40.
    header = bytes.fromhex("450000306e4e40004011b7d20a4d00010a4d0002")
    assert ipv4_header_checksum(header) == 0xB7D2
