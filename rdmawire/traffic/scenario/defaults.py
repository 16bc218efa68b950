"""What a scenario leaves out: the addresses of its hosts, and the headroom of its switches."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from typing import Final

from rdmawire.fabric.host import Place
from rdmawire.fabric.network import place_of
from rdmawire.fabric.pfc import headroom
from rdmawire.traffic.scenario.model import ConnectionPlan, HostPlan, LinkPlan
from rdmawire.wire.ib import BTH, ICRC, RETH, XRCETH, ImmDt
from rdmawire.wire.inet import UDP, Ethernet, IPv6

_IPV4_BYTES: Final = 4


def places_of(hosts: Sequence[HostPlan]) -> list[Place]:
    """The place of each, numbered from 1 on: 10.0.0.1, or fd00::1 if some host has IPv6."""
    ipv6 = any(":" in (host.address or "") for host in hosts)
    return [_place(host, number, ipv6=ipv6) for number, host in enumerate(hosts, 1)]


def _place(plan: HostPlan, number: int, *, ipv6: bool) -> Place:
    usual = place_of(number)
    address = f"fd00::{number:x}" if ipv6 else str(IPv4Address(usual.gid[-_IPV4_BYTES:]))
    return Place.of(plan.mac or usual.mac.hex(":"), plan.address or address)


_AROUND: Final = sum(
    header.SIZE for header in (Ethernet, IPv6, UDP, BTH, XRCETH, RETH, ImmDt, ICRC)
)
"""Bytes round a payload, at the most. IBA 9.2, A17."""


def longest_frame(connections: Iterable[ConnectionPlan]) -> int:
    """Bytes of the longest frame that connections send."""
    return _AROUND + max((plan.mtu for plan in connections), default=0)


def headroom_of(
    switch: str, links: Iterable[LinkPlan], connections: Iterable[ConnectionPlan]
) -> int:
    """Bytes that each port of a switch must take in beyond ``xoff`` so that nothing is lost."""
    frame = longest_frame(connections)
    needed = (
        headroom(link.rate, link.latency, frame)
        for link in links
        if switch in link.ends and link.rate is not None
    )
    return max(needed, default=0)
