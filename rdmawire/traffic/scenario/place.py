"""Where the hosts of a scenario are found: what their plans leave out is made of their numbers."""

from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final

from rdmawire.fabric.host import Place
from rdmawire.fabric.network import place_of
from rdmawire.traffic.scenario.model import HostPlan

_IPV4_OCTETS: Final = 4


def places_of(hosts: Sequence[HostPlan]) -> list[Place]:
    """The place of each, numbered from 1 on: 10.0.0.1, or fd00::1 if some host has IPv6."""
    ipv6 = any(":" in (host.address or "") for host in hosts)
    return [_place(host, number, ipv6=ipv6) for number, host in enumerate(hosts, 1)]


def _place(plan: HostPlan, number: int, *, ipv6: bool) -> Place:
    usual = place_of(number)
    address = f"fd00::{number:x}" if ipv6 else str(IPv4Address(usual.gid[-_IPV4_OCTETS:]))
    return Place.of(plan.mac or usual.mac.hex(":"), plan.address or address)
