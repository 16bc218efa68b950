"""Checksums by themselves: over pseudo headers, of links, as asked for, and absent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture import LinkType
from rdmawire.decode.checksum import vcrc_change
from rdmawire.traffic.edit import ChecksumMode, Editor, text
from rdmawire.wire import native, roce
from rdmawire.wire.checksum import internet_checksum, udp_checksum
from rdmawire.wire.ib import LNH, LRH, VCRC, FlowControl
from rdmawire.wire.icrc import vcrc
from rdmawire.wire.inet import UDP, Ethernet, EtherType, IPProtocol, IPv4, IPv6
from rdmawire.wire.layout import joined
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.roce import Frame
from tests.traffic.edit.frames import A6, B6, MAC_A, MAC_B, A, B, ip_headers, packet

SEND = packet(Opcode.RC_SEND_ONLY, payload=b"hello", psn=5)
MOVE = "10.0.0.1=192.168.200.1"


@given(st.binary(min_size=1, max_size=80), st.integers(0, 79), st.integers(1, 255))
def test_what_changes_in_a_vcrc_follows_from_the_bits_that_changed(
    data: bytes, at: int, flips: int
) -> None:
    at %= len(data)
    changed = bytearray(data)
    changed[at] ^= flips
    behind = len(data) - at - 1
    assert vcrc_change(bytes([0, flips]), behind) == vcrc(data) ^ vcrc(changed)


def test_a_udp_checksum_that_is_there_covers_the_new_icrc_and_one_that_is_not_stays_away() -> None:
    for checksum in (0, 1):
        data = Frame(ip_headers(A, B, checksum), SEND).seal().build()
        new = roce.parse(Editor([text.ips([MOVE]), text.psn_offsets(["7"])]).edit(data))
        udp = new.headers[-1]
        assert isinstance(udp, UDP)
        assert bool(udp.checksum) == bool(checksum)
        assert new.seal() == new


@pytest.mark.parametrize("length", range(3))
def test_a_udp_checksum_is_never_zero_where_there_is_one(length: int) -> None:
    """Of 65536 addresses one has a sum that comes to zero."""
    ip = IPv4(protocol=IPProtocol.UDP, src=A, dst=B, total_length=28 + length)
    udp = UDP(1, 2, 8 + length)
    datagram = udp.build() + b"\x80\xff\x7f"[:length]
    old = udp.replace(checksum=udp_checksum(ip, datagram)).build() + datagram[8:]
    data = joined(Ethernet(MAC_B, MAC_A, EtherType.IPV4), ip) + old
    seen = set()
    for number in range(0, 65536, 1):
        host = 0x0A000000 | number
        target = host.to_bytes(4, "big")
        if udp_checksum(ip.replace(src=target), datagram) != 0xFFFF:
            continue
        rule = text.ips([f"10.0.0.1=10.0.{target[2]}.{target[3]}"])
        seen.add(Editor([rule]).edit(data)[40:42])
    assert seen == {b"\xff\xff"}


def icmpv6(source: bytes, destination: bytes, body: bytes) -> bytes:
    """An ICMPv6 message in a frame, with its checksum. RFC 4443, 2.3."""
    message = bytes([136, 0, 0, 0]) + body
    start = int.from_bytes(source + destination, "big") + IPProtocol.ICMPV6 + len(message)
    sum_ = internet_checksum(message, start)
    ip = IPv6(
        payload_length=len(message),
        next_header=IPProtocol.ICMPV6,
        src=source,
        dst=destination,
    )
    head = joined(Ethernet(MAC_B, MAC_A, EtherType.IPV6), ip)
    return head + message[:2] + sum_.to_bytes(2, "big") + message[4:]


def test_a_neighbour_s_message_covers_the_new_addresses() -> None:
    new = Editor([text.ips(["fd00::1=fd00::7:1"])]).edit(icmpv6(A6, B6, b"odd number"))
    source = A6[:-4] + bytes([0, 7, 0, 1])
    assert new == icmpv6(source, B6, b"odd number")


def test_of_a_packet_that_ip_cut_up_the_first_part_has_the_checksum_of_all() -> None:
    datagram = UDP(1, 2, 8 + 32).build() + bytes(range(32))
    whole = IPv4(protocol=IPProtocol.UDP, src=A, dst=B)
    sum_ = udp_checksum(whole, datagram)
    datagram = datagram[:6] + sum_.to_bytes(2, "big") + datagram[8:]
    ethernet = Ethernet(MAC_B, MAC_A, EtherType.IPV4)
    first = joined(ethernet, whole.replace(mf=1, total_length=36), datagram[:16])
    second = joined(ethernet, whole.replace(fragment_offset=2, total_length=44), datagram[16:])
    editor = Editor([text.ips([MOVE])])
    new, rest = editor.edit(first), editor.edit(second)
    moved = IPv4.parse(new, Ethernet.SIZE)
    assert udp_checksum(moved, datagram) == int.from_bytes(new[40:42], "big")
    assert (rest[34:], rest[26:30]) == (datagram[16:], bytes([192, 168, 200, 1]))


@pytest.mark.parametrize("checksum_mode", ChecksumMode)
def test_a_checksum_is_what_it_is_set_to(checksum_mode: ChecksumMode) -> None:
    data = Frame(ip_headers(A, B, 1), SEND).seal().build()
    rules = [
        text.assignment("udp.checksum=0"),
        text.assignment("infiniband.invariant.crc=0x01020304"),
    ]
    editor = Editor([*rules, text.psn_offsets(["1"])], checksum_mode=checksum_mode)
    for _ in range(2):
        new = roce.parse(editor.edit(data))
        udp = new.headers[-1]
        assert isinstance(udp, UDP)
        assert (udp.checksum, new.icrc, new.packet.bth.psn) == (0, 0x01020304, 6)
    assert not [each for rule in rules for each in rule.unused()]


def test_all_checksums_are_made_right_where_that_is_asked_for() -> None:
    right = Frame(ip_headers(A, B, 1), SEND).seal()
    wrong = bytearray(right.build())
    for at in (24, 40, len(wrong) - 1):
        wrong[at] ^= 0x55
    editor = Editor([], checksum_mode=ChecksumMode.ALL)
    for _ in range(2):
        assert editor.edit(bytes(wrong)) == right.build()
    assert editor.counts.bad == 2


def test_a_vcrc_that_was_wrong_stays_so_and_is_right_if_asked_for() -> None:
    lrh = LRH(lnh=LNH.IBA_LOCAL, slid=3, dlid=4)
    good = native.NativePacket(lrh, None, SEND).seal()
    bad = good._replace(vcrc=good.vcrc ^ 0x0101).build()
    rules = [text.lids(["3=30"]), text.psn_offsets(["9"])]
    for checksum_mode, flips in ((ChecksumMode.CHANGED, 0x0101), (ChecksumMode.ALL, 0)):
        editor = Editor(rules, checksum_mode=checksum_mode)
        for _ in range(2):
            new = native.parse(editor.edit(bad, LinkType.INFINIBAND))
            assert new.vcrc ^ new.expected_vcrc() == flips
            assert new.icrc == new.expected_icrc()


def test_a_native_packet_without_its_vcrc_is_edited_all_the_same() -> None:
    whole = native.NativePacket(LRH(lnh=LNH.IBA_LOCAL), None, SEND).seal().build()
    editor = Editor([text.psn_offsets(["9"]), text.assignment("vcrc.crc=5")])
    short = editor.edit(whole[: -VCRC.SIZE], LinkType.INFINIBAND)
    assert editor.edit(whole, LinkType.INFINIBAND) == short + b"\x00\x05"


def test_a_link_packet_s_crc_fits_again() -> None:
    credit = FlowControl(op=0, fctbs=5, vl=1, fccl=7)
    credit = credit.replace(lpcrc=vcrc(credit.build()[:4]))
    record = bytes(8) + bytes([25, 0, 0, 22, 0, 0, 0, 6]) + credit.build()
    new = Editor([text.assignment("flowcontrol.fccl=9")]).edit(record, LinkType.ERF)
    after = FlowControl.parse(new, 16)
    assert (after.fccl, after.lpcrc) == (9, vcrc(after.build()[:4]))
