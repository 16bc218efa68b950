"""Which rules set the same bits."""

from collections.abc import Mapping
from itertools import combinations
from typing import Final

import pytest

from rdmawire.traffic.edit import text
from rdmawire.traffic.edit.rules import EditField, EditRule, shared, touched

KINDS: Final[Mapping[str, EditRule]] = {
    "mac": text.macs(["02:00:00:00:00:01=02:00:00:00:00:02"]),
    "ip": text.ips(["10.0.0.1=10.0.0.2"]),
    "ipv6": text.ips(["fd00::1=fd00::2"]),
    "lid": text.lids(["1=2"]),
    "vlan": text.vlans(["1=2"]),
    "pkey": text.pkeys(["1=2"]),
    "qpn": text.qpns(["1=2"]),
    "rkey": text.rkeys(["1@10.0.0.1=2"]),
    "psn": text.psn_offsets(["1"]),
    "va": text.va_offsets(["1"]),
    "ecn": text.ecn("ce"),
    "dscp": text.dscp("1"),
    "ttl": text.ttl("1"),
    "udp": text.udp_source("1"),
}
SHARING = [
    (text.ttl("1"), text.ttl("2"), "ip.ttl"),
    (text.ttl("1"), text.assignment("ip.ttl+=2"), "ip.ttl"),
    (text.ttl("1"), text.assignment("ipv6.hlim=2"), "ipv6.hop_limit"),
    (text.dscp("1"), text.assignment("ip.dsfield=0"), "ip.dscp"),
    (text.ecn("ce"), text.assignment("ip.dsfield=0"), "ip.ecn"),
    (text.assignment("icrc.crc=1"), text.assignment("icrc.crc=2"), "icrc.crc"),
    (KINDS["mac"], text.assignment("eth.src=02:00:00:00:00:05"), "eth.src"),
    (KINDS["mac"], text.assignment("arp.dst.hw_mac=02:00:00:00:00:05"), "arp.dst_hw"),
    (KINDS["ip"], text.assignment("ip.src=1.1.1.1"), "ip.src"),
    (KINDS["ip"], text.assignment("grh.dgid=::1"), "grh.dgid"),
    (KINDS["ipv6"], text.assignment("ipv6.dst=::1"), "ipv6.dst"),
    (KINDS["lid"], text.assignment("lrh.slid=5"), "lrh.slid"),
    (KINDS["vlan"], text.assignment("vlan.id=5"), "vlan.id"),
    (KINDS["pkey"], text.assignment("bth.pkey=5"), "bth.pkey"),
    (KINDS["qpn"], text.assignment("bth.destqp=5"), "bth.destqp"),
    (KINDS["qpn"], text.assignment("deth.srcqp+=5"), "deth.srcqp"),
    (KINDS["rkey"], text.assignment("infiniband.reth.r_key=5"), "reth.rkey"),
    (KINDS["rkey"], text.assignment("iwarp_ddp.stag=5"), "ddp_tagged.stag"),
    (KINDS["psn"], text.assignment("bth.psn=5"), "bth.psn"),
    (KINDS["psn"], text.assignment("cm_rep.starting_psn=5"), "cm_rep.starting_psn"),
    (KINDS["va"], text.assignment("reth.va-=5"), "reth.va"),
]
APART = [
    (text.dscp("1"), text.ecn("ce")),
    (text.ttl("1"), text.assignment("ip.protocol=1")),
    (text.assignment("tcp.srcport=1"), text.udp_source("2")),
    (text.assignment("bth.psn=1"), text.assignment("bth.destqp=1")),
    (KINDS["ipv6"], text.assignment("ip.src=1.1.1.1")),
    (KINDS["vlan"], text.assignment("vlan.priority=3")),
    (KINDS["va"], text.assignment("reth.rkey=5")),
    (KINDS["psn"], text.assignment("aeth.msn=5")),
]


def found(one: EditRule, other: EditRule) -> EditField | None:
    return shared(touched(one), touched(other))


@pytest.mark.parametrize(("one", "other", "name"), SHARING, ids=[row[2] for row in SHARING])
def test_two_that_set_the_same_bits_share_a_field(
    one: EditRule, other: EditRule, name: str
) -> None:
    field, again = found(one, other), found(other, one)
    assert field is not None
    assert again is not None
    assert field.name == name


@pytest.mark.parametrize(("one", "other"), APART)
def test_two_that_set_other_bits_share_none(one: EditRule, other: EditRule) -> None:
    assert found(one, other) is None
    assert found(other, one) is None


def test_options_of_two_kinds_never_set_the_same() -> None:
    pairs = combinations([kind for kind in KINDS if kind != "ipv6"], 2)
    clashes = [(one, other) for one, other in pairs if found(KINDS[one], KINDS[other])]
    assert clashes == []
