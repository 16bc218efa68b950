"""Flow rules: what they match, their priorities, and the spreading of flows over queues."""

from collections import Counter
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.fabric import CAP, Host
from rdmawire.ib import FlowKind, FlowRule, HeaderMatch, QPInit, QueuePair, RssHash
from rdmawire.ib.flow_steering import SteeredFrame, ip_flow, matching, rss_hash
from rdmawire.verbs import QPAttributes, QPType
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.inet import (
    TCP,
    UDP,
    VLAN,
    VXLAN,
    VXLAN_PORT,
    Ethernet,
    EtherType,
    IPProtocol,
    IPv4,
    IPv6,
)

SRC, DST = ip_address("10.0.0.1").packed, ip_address("10.0.0.2").packed


def queues(count: int) -> tuple[Host, list[QueuePair]]:
    host = Host(2)
    cq = host.nic.create_cq(64)
    made = [
        host.nic.create_qp(QPType.RAW_PACKET, QPInit(host.pd, cq, cq, CAP)) for _ in range(count)
    ]
    for qp in made:
        host.bring_up(qp, QPAttributes())
    return host, made


def takers(rules: list[FlowRule], data: bytes) -> list[QueuePair]:
    frame = SteeredFrame(data)
    return [rule.queue_for(frame.flow) for rule in matching(rules, frame)]


def ipv4(protocol: int, data: bytes, **fields: int) -> bytes:
    ip = IPv4(protocol=protocol, total_length=20 + len(data), src=SRC, dst=DST, **fields)
    ip = ip.replace(checksum=ipv4_header_checksum(ip.build()))
    return Ethernet(bytes(6), bytes(6), EtherType.IPV4).build() + ip.build() + data


def udp(srcport: int, dstport: int) -> bytes:
    return ipv4(IPProtocol.UDP, UDP(srcport, dstport, 8).build())


FRAMES = {
    "arp": Ethernet(b"\xff" * 6, bytes(6), EtherType.ARP).build() + bytes(46),
    "icmp": ipv4(IPProtocol.ICMP, bytes(8)),
    "udp 7": udp(40000, 7),
    "udp 9": udp(40000, 9),
    "tcp 7": ipv4(IPProtocol.TCP, TCP(srcport=1, dstport=7).build()),
}


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({}, set(FRAMES)),
        ({"ethertype": EtherType.ARP}, {"arp"}),
        ({"ip_protocol": IPProtocol.ICMP}, {"icmp"}),
        ({"ip_protocol": IPProtocol.UDP}, {"udp 7", "udp 9"}),
        ({"dst_port": 7}, {"udp 7", "tcp 7"}),
        ({"ip_protocol": IPProtocol.UDP, "dst_port": 7}, {"udp 7"}),
        ({"ethertype": EtherType.IPV6, "dst_port": 7}, set()),
    ],
)
def test_a_rule_takes_what_has_all_its_fields(fields: dict[str, Any], taken: set[str]) -> None:
    _, (qp,) = queues(1)
    rule = FlowRule(qp, **fields)
    assert {name for name, frame in FRAMES.items() if takers([rule], frame)} == taken


def test_of_matching_rules_the_first_priority_takes_the_frame() -> None:
    _, (icmp, rest, sniffer) = queues(3)
    rules = [
        FlowRule(rest, priority=1),
        FlowRule(icmp, ip_protocol=IPProtocol.ICMP),
        FlowRule(sniffer, ip_protocol=IPProtocol.ICMP),
    ]
    assert takers(rules, FRAMES["icmp"]) == [icmp, sniffer]
    assert takers(rules, FRAMES["arp"]) == [rest]


def vxlan(inner: bytes, vni: int) -> bytes:
    data = VXLAN(vni_valid=1, vni=vni).build() + inner
    return ipv4(IPProtocol.UDP, UDP(1, VXLAN_PORT, 8 + len(data)).build() + data)


def test_headers_match_outside_or_inside_of_a_tunnel() -> None:
    _, (qp,) = queues(1)
    seven, vni = HeaderMatch(UDP, 7 << 32, 0xFFFF << 32), HeaderMatch(VXLAN, 5 << 8, 0xFFFFFF << 8)
    frames = {"plain": udp(1, 7), "five": vxlan(udp(1, 7), 5), "six": vxlan(udp(1, 9), 6)}
    cases = {
        (seven,): {"plain"},
        (seven._replace(inner=True),): {"five"},
        (vni,): {"five"},
        (HeaderMatch(VXLAN),): {"five", "six"},
        (HeaderMatch(EtherType, EtherType.IPV4, 0xFFFF, inner=True), vni): {"five"},
    }
    for headers, taken in cases.items():
        rule = FlowRule(qp, headers=headers)
        assert {name for name, frame in frames.items() if takers([rule], frame)} == taken


def test_the_type_is_that_behind_vlan_tags() -> None:
    _, (qp,) = queues(1)
    plain = udp(1, 7)
    tagged = plain[:12] + EtherType.VLAN.to_bytes(2, "big") + b"\x20\x05" + plain[12:]
    ip, vlan = (
        HeaderMatch(EtherType, EtherType.IPV4, 0xFFFF),
        HeaderMatch(VLAN, 5 << 16, 0xFFF << 16),
    )
    assert takers([FlowRule(qp, headers=(ip,))], tagged) == [qp]
    assert takers([FlowRule(qp, headers=(ip, vlan))], tagged) == [qp]
    assert not takers([FlowRule(qp, headers=(vlan,))], plain)
    length = plain[:12] + b"\x00\x20" + plain[14:]  # IEEE 802.3
    assert takers([FlowRule(qp, headers=(HeaderMatch(Ethernet),))], length) == [qp]


@given(st.binary(max_size=80), st.sampled_from(sorted(FRAMES)), st.integers(0, 80))
def test_any_bytes_are_steered(data: bytes, name: str, length: int) -> None:
    host, (qp, other) = queues(2)
    headers = tuple(
        HeaderMatch(part, inner=inner) for part in (UDP, VLAN) for inner in (False, True)
    )
    for kind in FlowKind:
        host.nic.create_flow(FlowRule(qp, kind=kind))
    host.nic.create_flow(FlowRule(qp, rss=(qp, other)))
    host.nic.create_flow(FlowRule(qp, headers=headers))
    for frame in (data, FRAMES[name][:length] + data):
        host.nic.receive(frame, 0)
        host.nic.receive_all([frame], 0)


def test_flows_are_spread_by_their_hash() -> None:
    _, made = queues(4)
    rule = FlowRule(made[0], ip_protocol=IPProtocol.UDP, rss=tuple(made))
    counts: Counter[int] = Counter()
    for port in range(40000, 40256):
        (found,) = takers([rule], udp(port, 7))
        assert found is made[rss_hash(SRC, DST, (port, 7)) % 4]
        assert takers([rule], udp(port, 7)) == [found]
        counts[found.qp_num] += 1
    assert len(counts) == 4
    assert min(counts.values()) > 256 // 8


def test_packets_without_ports_are_hashed_by_addresses() -> None:
    flow = ip_flow(FRAMES["icmp"])
    assert flow is not None
    assert RssHash().of(flow) == rss_hash(SRC, DST)
    later = ip_flow(ipv4(IPProtocol.UDP, bytes(16), fragment_offset=1))
    assert later is not None
    assert later.ports is None
    assert ip_flow(FRAMES["arp"]) is None


def test_ipv6_has_a_flow_too() -> None:
    ends = ip_address("fd00::1").packed, ip_address("fd00::2").packed
    ip = IPv6(payload_length=8, next_header=IPProtocol.UDP, src=ends[0], dst=ends[1])
    link = Ethernet(bytes(6), bytes(6), EtherType.IPV6)
    flow = ip_flow(link.build() + ip.build() + UDP(5, 6, 8).build())
    assert flow == (IPProtocol.UDP, *ends, (5, 6))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ip_protocol": 256}, "ip_protocol"),
        ({"dst_port": 1 << 16}, "dst_port"),
        ({"priority": -1}, "priority"),
    ],
)
def test_impossible_rules_are_refused(fields: dict[str, Any], message: str) -> None:
    host, (qp,) = queues(1)
    with pytest.raises(VerbsError, match=message):
        host.nic.create_flow(FlowRule(qp, **fields))


def test_a_queue_pair_of_a_table_is_in_use() -> None:
    host, (one, other) = queues(2)
    rule = host.nic.create_flow(FlowRule(one, rss=(one, other)))
    with pytest.raises(VerbsError, match="has flows"):
        host.nic.destroy_qp(other)
    host.nic.destroy_flow(rule)
    host.nic.destroy_qp(other)
