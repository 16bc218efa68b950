"""What each kind of rule does to the fields of a frame."""

from typing import TypeVar

import pytest

from rdmawire.capture import LinkType
from rdmawire.traffic.edit import Editor, text
from rdmawire.traffic.edit.rules import EditRule
from rdmawire.wire import native
from rdmawire.wire.header import Header
from rdmawire.wire.ib import (
    AETH,
    CNP,
    DETH,
    GRH,
    IETH,
    LNH,
    LRH,
    RETH,
    Ack,
    AtomicETH,
)
from rdmawire.wire.inet import (
    ARP,
    ECN,
    UDP,
    VLAN,
    VXLAN,
    VXLAN_PORT,
    Ethernet,
    EtherType,
    IPv4,
    IPv6,
)
from rdmawire.wire.layout import joined
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.roce import Frame, parse
from tests.traffic.edit.frames import (
    A6,
    B6,
    MAC_A,
    MAC_B,
    A,
    B,
    after,
    frame,
    ip_headers,
    packet,
    tagged,
)

SEND = packet(Opcode.RC_SEND_ONLY, payload=b"hello", psn=5)
READ = packet(Opcode.RC_RDMA_READ_REQUEST, RETH(0x1000, 0x1201, 64))

_H = TypeVar("_H", bound=Header)


def header(found: Frame, table: type[_H]) -> _H:
    """The innermost header of a table."""
    pieces = (*found.headers, *found.packet.extended)
    return next(piece for piece in reversed(pieces) if isinstance(piece, table))


def test_macs_are_mapped_at_both_ends_and_may_be_exchanged() -> None:
    swap = text.macs(["02:00:00:00:00:01=02-00-00-00-00-02", "02:00:00:00:00:02=02:00:00:00:00:01"])
    ethernet = header(after(frame(SEND), swap), Ethernet)
    assert (ethernet.dst, ethernet.src) == (MAC_A, MAC_B)


def test_addresses_are_mapped_one_by_one_or_by_prefixes_of_which_the_longest_counts() -> None:
    rule = text.ips(["10.0.0.0/24=192.168.7.0/24", "10.0.0.2=172.16.0.9"])
    ip = header(after(frame(SEND), rule), IPv4)
    assert (ip.src, ip.dst) == (bytes([192, 168, 7, 1]), bytes([172, 16, 0, 9]))


def test_ipv6_addresses_are_mapped_and_ipv4_maps_leave_them_alone() -> None:
    rule = text.ips(["fd00::1=fd00::7:1", "0.0.0.0/1=128.0.0.0/1"])
    ip = header(after(frame(SEND, A6, B6), rule), IPv6)
    assert (ip.src.hex()[-8:], ip.dst) == ("00070001", B6)


def test_gids_are_mapped_as_ipv6_or_as_the_ipv4_address_that_they_hold() -> None:
    grh = GRH(sgid=bytes(10) + b"\xff\xff" + A, dgid=B6)
    data = Frame((Ethernet(MAC_B, MAC_A, EtherType.ROCE), grh), SEND).seal().build()
    found = header(after(data, text.ips(["10.0.0.1=10.9.9.9", "fd00::2=fd00::3"])), GRH)
    assert found.sgid == bytes(10) + b"\xff\xff" + bytes([10, 9, 9, 9])
    assert found.dgid[-1] == 3


def test_arp_has_the_new_addresses_too() -> None:
    arp = ARP(1, EtherType.IPV4, 6, 4, 2, MAC_A, A, MAC_B, B)
    data = joined(Ethernet(MAC_B, MAC_A, EtherType.ARP), arp)
    rules = [text.macs(["02:00:00:00:00:01=02:00:00:00:00:07"]), text.ips(["10.0.0.2=10.0.0.9"])]
    found = ARP.parse(Editor(rules).edit(data), Ethernet.SIZE)
    assert (found.src_hw[-1], found.dst_proto[-1]) == (7, 9)


def test_addresses_inside_a_tunnel_are_mapped_as_those_outside() -> None:
    inner = frame(SEND)
    tunnel = UDP(4000, VXLAN_PORT, UDP.SIZE + VXLAN.SIZE + len(inner))
    ethernet, ip, _ = ip_headers(A, B)
    length = IPv4.SIZE + tunnel.length
    data = joined(ethernet, ip.replace(total_length=length), tunnel, VXLAN(vni_valid=1)) + inner
    new = Editor([text.ips(["10.0.0.1=10.0.0.9"]), text.ttl("3")]).edit(data)
    outer = IPv4.parse(new, Ethernet.SIZE)
    inside = parse(new[-len(inner) :])
    assert inside.seal() == inside
    assert (outer.src[-1], header(inside, IPv4).src[-1]) == (9, 9)
    assert (outer.ttl, header(inside, IPv4).ttl) == (64, 3)


def test_queue_pairs_are_mapped_where_a_packet_goes_and_where_a_datagram_comes_from() -> None:
    datagram = packet(Opcode.UD_SEND_ONLY, DETH(7, 0, 18), payload=b"hi")
    found = after(frame(datagram), text.qpns(["17=0x1234", "18=0x777777"]))
    assert (found.packet.bth.destqp, header(found, DETH).srcqp) == (0x1234, 0x777777)


def test_a_queue_pair_of_one_host_is_not_that_of_the_other() -> None:
    rule = text.qpns(["17@10.0.0.2=40", "17=50"])
    assert after(frame(SEND), rule).packet.bth.destqp == 40
    assert after(frame(SEND, B, A), rule).packet.bth.destqp == 50
    assert not list(rule.unused())


def test_keys_are_mapped_in_every_header_that_has_one() -> None:
    for one in (
        READ,
        packet(Opcode.RC_FETCH_ADD, AtomicETH(0x1000, 0x1201, 1, 0)),
        packet(Opcode.RC_SEND_ONLY_WITH_INVALIDATE, IETH(0x1201), payload=b"x"),
    ):
        found = after(frame(one), text.rkeys(["0x1201@10.0.0.2=0x77"])).packet.extended[0]
        assert isinstance(found, RETH | AtomicETH | IETH)
        assert found.rkey == 0x77


def test_remote_addresses_move_by_key_and_wrap_round() -> None:
    rule = text.va_offsets(["0x1201=-0x2000", "0x10"])
    assert header(after(frame(READ), rule), RETH).va == (1 << 64) - 0x1000
    other = packet(Opcode.RC_RDMA_READ_REQUEST, RETH(0x1000, 1, 64))
    assert header(after(frame(other), rule), RETH).va == 0x1010


def test_a_remote_address_moves_by_the_key_that_was_captured_whatever_that_becomes() -> None:
    rules = [text.rkeys(["0x1201=5"]), text.va_offsets(["0x1201=1"])]
    found = header(after(frame(READ), *rules), RETH)
    assert (found.rkey, found.va) == (5, 0x1001)


def test_psns_wrap_round_at_24_bits_and_leave_ackreq_and_msn_alone() -> None:
    ack = packet(Opcode.RC_ACKNOWLEDGE, AETH(ack=Ack.ACK, value=31, msn=9), psn=0xFFFFFF, ackreq=1)
    found = after(frame(ack), text.psn_offsets(["100"]))
    assert (found.packet.bth.psn, found.packet.bth.ackreq, header(found, AETH).msn) == (99, 1, 9)


def test_a_cnp_is_of_no_flow_and_keeps_its_psn() -> None:
    cnp = packet(Opcode.CNP, CNP(), psn=0)
    assert after(frame(cnp), text.psn_offsets(["100"])).packet.bth.psn == 0


@pytest.mark.parametrize(("word", "mark"), [("not", 0), ("ect0", 2), ("ect1", 1), ("ce", 3)])
def test_marks_of_congestion_leave_the_icrc_as_it_is(word: str, mark: int) -> None:
    for source, destination, table in ((A, B, IPv4), (A6, B6, IPv6)):
        before = parse(frame(SEND, source, destination))
        found = after(before.build(), text.ecn(word), text.dscp("46"))
        ip = header(found, table)
        assert isinstance(ip, IPv4 | IPv6)
        assert (ip.ecn, ip.dscp, ECN(mark)) == (mark, 46, mark)
        assert found.icrc == before.icrc


def test_time_to_live_is_a_hop_limit_in_ipv6_and_in_a_grh() -> None:
    assert header(after(frame(SEND), text.ttl("3")), IPv4).ttl == 3
    assert header(after(frame(SEND, A6, B6), text.ttl("0xff")), IPv6).hop_limit == 255
    data = Frame((Ethernet(MAC_B, MAC_A, EtherType.ROCE), GRH(sgid=A6, dgid=B6)), SEND).seal()
    assert header(after(data.build(), text.ttl("1")), GRH).hoplmt == 1


def test_ports_partitions_and_tags_are_set_or_mapped() -> None:
    data = Frame(tagged(3, 5), SEND).seal().build()
    rules = [text.udp_source("0xc123"), text.pkeys(["0xffff=0x8001"]), text.vlans(["3=4", "5=6"])]
    found = after(data, *rules)
    assert [piece.id for piece in found.headers if isinstance(piece, VLAN)] == [4, 6]
    assert (header(found, UDP).srcport, found.packet.bth.pkey) == (0xC123, 0x8001)


def test_any_field_is_set_by_either_of_its_names_in_the_innermost_header() -> None:
    data = Frame(tagged(3, 5), SEND).seal().build()
    found = after(data, text.assignment("vlan.id=9"), text.assignment("infiniband.bth.a=1"))
    assert [piece.id for piece in found.headers if isinstance(piece, VLAN)] == [3, 9]
    assert found.packet.bth.ackreq == 1


def test_a_field_is_added_to_and_wraps_round() -> None:
    ack = frame(packet(Opcode.RC_ACKNOWLEDGE, AETH(ack=Ack.ACK, value=31, msn=2)))
    assert header(after(ack, text.assignment("aeth.msn+=5")), AETH).msn == 7
    assert header(after(ack, text.assignment("aeth.msn-=3")), AETH).msn == 0xFFFFFF


def test_fields_that_differ_from_frame_to_frame_are_set_in_all_frames_of_a_flow() -> None:
    ethernet, ip, udp = ip_headers(A, B)
    editor = Editor([text.assignment("ip.identification=7"), text.assignment("ip.ttl-=1")])
    for number in range(5):
        headers = (ethernet, ip.replace(identification=number), udp)
        found = parse(editor.edit(Frame(headers, SEND).seal().build()))
        assert found.seal() == found
        assert (header(found, IPv4).identification, header(found, IPv4).ttl) == (7, 63)


def test_of_two_rules_that_set_a_field_the_later_one_counts() -> None:
    rules = [text.psn_offsets(["100"]), text.assignment("bth.psn=3"), text.assignment("bth.psn=4")]
    assert after(frame(SEND), *rules).packet.bth.psn == 4


def test_lids_are_mapped_and_may_name_the_host_of_a_queue_pair() -> None:
    packets = native.NativePacket(LRH(lnh=LNH.IBA_LOCAL, slid=3, dlid=4), None, SEND).seal()
    rules = [text.lids(["3=30", "4=40"]), text.qpns(["17@lid:4=18", "17@lid:3=19"])]
    found = native.parse(Editor(rules).edit(packets.build(), LinkType.INFINIBAND))
    assert found.seal() == found
    assert (found.lrh.slid, found.lrh.dlid, found.packet.bth.destqp) == (30, 40, 18)


def merged(rule: EditRule, *data: bytes) -> list[str]:
    """Return what an edit of frames reports of numbers that became one."""
    editor = Editor([rule])
    for one in data:
        editor.edit(one)
    return list(rule.merged())


SENDS = [
    frame(packet(Opcode.RC_SEND_ONLY, destqp=qpn), source, to)
    for qpn in (17, 18, 99) for source, to in ((A, B), (B, A))
]  # fmt: skip
"""Queue pairs 17, 18 and 99 at two hosts."""


def test_two_numbers_of_a_host_that_become_one_are_reported() -> None:
    assert merged(text.qpns(["17=5", "18=5"]), *SENDS) == [
        "0x11 and 0x12 of 10.0.0.2 are both 0x5 now",
        "0x11 and 0x12 of 10.0.0.1 are both 0x5 now",
    ]
    assert merged(text.qpns(["17@10.0.0.1=99"]), *SENDS) == [
        "0x11 and 0x63 of 10.0.0.1 are both 0x63 now"
    ]
    assert merged(text.macs(["02:00:00:00:00:01=02:00:00:00:00:02"]), *SENDS) == [
        "02:00:00:00:00:01 and 02:00:00:00:00:02 are both 02:00:00:00:00:02 now"
    ]
    assert merged(text.ips(["10.0.0.2=10.0.0.1"]), *SENDS) == [
        "10.0.0.1 and 10.0.0.2 are both 10.0.0.1 now"
    ]
    assert merged(text.ips(["10.0.0.1=7.0.0.2", "10.0.0.0/24=7.0.0.0/24"]), *SENDS) == [
        "10.0.0.1 and 10.0.0.2 are both 7.0.0.2 now"
    ]
    assert merged(text.ips(["10.0.0.1/32=10.0.0.0/32", "10.0.0.2/32=10.0.0.0/32"]), *SENDS)


def test_numbers_that_stay_apart_are_no_matter() -> None:
    assert not merged(text.qpns(["17=18", "18=17"]), *SENDS)
    assert not merged(text.qpns(["17@10.0.0.1=5", "18@10.0.0.2=5"]), *SENDS)
    assert not merged(text.qpns(["17=5", "1=5"]), *SENDS)
    assert not merged(text.qpns(["17=17"]), *SENDS)
    assert not merged(text.ips(["10.0.0.0/24=7.0.0.0/24", "10.0.0.0/16=7.0.0.0/16"]), *SENDS)
    assert not merged(text.pkeys(["0xffff=1", "0=1"]), *SENDS)


def test_what_is_kept_of_numbers_that_became_one_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rdmawire.traffic.edit.mapping.MAX_MERGES", 1)
    assert len(merged(text.qpns(["17=5", "18=5"]), *SENDS)) == 1
    monkeypatch.setattr("rdmawire.traffic.edit.mapping.MAX_NUMBERS", 0)
    assert not merged(text.qpns(["17=5", "18=5"]), *SENDS)


def test_rules_that_matched_no_frame_are_reported() -> None:
    rules = (
        text.ips(["10.0.0.1=1.1.1.1", "10.0.0.5=1.1.1.5"]),
        text.psn_offsets(["17=3", "18=4"]),
        text.assignment("reth.va=5"),
        text.ttl("3"),
    )
    after(frame(SEND), *rules)
    unused = [each.text for rule in rules for each in rule.unused()]
    assert unused == ["10.0.0.5=1.1.1.5", "18=4", "reth.va=5"]
