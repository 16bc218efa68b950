"""Which rules set the same bits."""

import pytest

from rdmawire.traffic.edit import text
from rdmawire.traffic.edit.assign import AssignRule

SHARING = [
    (text.ttl("1"), text.ttl("2"), "ip.ttl"),
    (text.ttl("1"), text.assignment("ip.ttl+=2"), "ip.ttl"),
    (text.ttl("1"), text.assignment("ipv6.hlim=2"), "ipv6.hop_limit"),
    (text.dscp("1"), text.assignment("ip.dsfield=0"), "ip.dscp"),
    (text.ecn("ce"), text.assignment("ip.dsfield=0"), "ip.ecn"),
    (text.assignment("icrc.crc=1"), text.assignment("icrc.crc=2"), "icrc.crc"),
]
APART = [
    (text.dscp("1"), text.ecn("ce")),
    (text.ttl("1"), text.assignment("ip.protocol=1")),
    (text.assignment("tcp.srcport=1"), text.udp_source("2")),
    (text.assignment("bth.psn=1"), text.assignment("bth.destqp=1")),
]


@pytest.mark.parametrize(("one", "other", "name"), SHARING)
def test_two_that_set_the_same_bits_share_a_field(
    one: AssignRule, other: AssignRule, name: str
) -> None:
    found, again = one.shared(other), other.shared(one)
    assert found is not None
    assert again is not None
    assert found.name == name


@pytest.mark.parametrize(("one", "other"), APART)
def test_two_that_set_other_bits_share_none(one: AssignRule, other: AssignRule) -> None:
    assert one.shared(other) is None
    assert other.shared(one) is None
