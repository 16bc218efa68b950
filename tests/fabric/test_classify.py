"""What switches read of frames, and how they choose among equal paths."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.fabric.classify import Classifier, key_of
from rdmawire.fabric.switch import AddressTable, chosen
from rdmawire.wire.inet import ECN, VLAN, Ethernet, EtherType
from tests.fabric.talker import frame_of, mac_of

BOTH = pytest.mark.parametrize("ipv6", [False, True])


@BOTH
def test_all_packets_of_a_flow_have_one_key(ipv6: bool) -> None:
    keys = {key_of(frame_of(1, 2, psn, size=4 * psn, ipv6=ipv6)) for psn in range(20)}
    assert len(keys) == 1
    others = [
        frame_of(3, 2, ipv6=ipv6),
        frame_of(1, 3, ipv6=ipv6),
        frame_of(1, 2, ipv6=ipv6, port=0xC001),
        frame_of(1, 2, ipv6=ipv6, dscp=1),
        frame_of(1, 2, ipv6=ipv6, ecn=ECN.CE),
    ]
    assert len(keys | {key_of(frame) for frame in others}) == 6


@BOTH
def test_priorities_by_dscp(ipv6: bool) -> None:
    usual, mapped = Classifier(), Classifier({26: 3, 46: 6})
    for dscp in range(64):
        frame = frame_of(1, 2, dscp=dscp, ipv6=ipv6)
        assert usual.traits(frame).priority == dscp >> 3
        assert mapped.traits(frame).priority == {26: 3, 46: 6}.get(dscp, 0)


@BOTH
@pytest.mark.parametrize("ecn", list(ECN))
def test_only_capable_frames_without_a_mark_can_be_marked(ecn: ECN, ipv6: bool) -> None:
    traits = Classifier().traits(frame_of(1, 2, ecn=ecn, ipv6=ipv6))
    assert traits.markable == (ecn in {ECN.ECT_0, ECN.ECT_1})


@BOTH
def test_what_is_hashed_depends_on_the_flow_alone(ipv6: bool) -> None:
    read = Classifier().traits
    plain = read(frame_of(1, 2, ipv6=ipv6)).tuple
    assert read(frame_of(1, 2, 9, ipv6=ipv6, ecn=ECN.CE, dscp=9)).tuple == plain
    assert read(frame_of(1, 2, ipv6=ipv6, port=0xC001)).tuple != plain


def test_tags_carry_a_priority() -> None:
    tagged = Ethernet(mac_of(1), mac_of(2), EtherType.VLAN).build() + VLAN(5, 0, 7, 0x800).build()
    assert Classifier().traits(tagged + bytes(50)).priority == 5


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_have_traits(data: bytes) -> None:
    assert 0 <= Classifier().traits(data).priority <= 7
    assert 0 <= Classifier().traits(bytes(12) + b"\x08\x00\x45" + data).priority <= 7
    assert 0 <= Classifier().traits(bytes(12) + b"\x86\xdd" + data).priority <= 7
    assert 0 <= Classifier().traits(bytes(12) + b"\x81\x00" + data).priority <= 7


def flows(count: int) -> list[bytes]:
    read = Classifier().traits
    return [read(frame_of(1, 2, port=0xC000 + n, size=0)).tuple for n in range(count)]


def test_flows_spread_evenly_over_equal_paths() -> None:
    spread = Counter(chosen((0, 1, 2, 3), flow, 0) for flow in flows(4000))
    assert all(900 < spread[port] < 1100 for port in range(4))


def test_switches_with_other_seeds_split_flows_otherwise() -> None:
    ports = (0, 1, 2, 3)
    here = [flow for flow in flows(4000) if chosen(ports, flow, 1) == 0]
    there = Counter(chosen(ports, flow, 2) for flow in here)
    assert all(count > len(here) // 6 for count in there.values())
    assert len(there) == 4


def test_the_choice_is_the_same_on_every_machine() -> None:
    found = "".join(str(chosen((0, 1, 2, 3), flow, 7)) for flow in flows(16))
    assert found == "0301101310330100"


def test_addresses_are_learnt_up_to_a_number_and_move() -> None:
    table = AddressTable(2)
    table.give(mac_of(9), (4, 5))
    assert [table.learn(mac_of(n), n) for n in (1, 2, 3, 9)] == [True, True, False, False]
    assert [table.learnt(mac_of(n)) for n in (1, 2, 3, 9)] == [1, 2, None, None]
    assert [table.given(mac_of(n)) for n in (1, 9)] == [(), (4, 5)]
    assert table.learn(mac_of(1), 1) is False
    assert table.learn(mac_of(1), 6) is True
    assert table.learnt(mac_of(1)) == 6
    assert table.learn(b"\1" + bytes(5), 1) is False
