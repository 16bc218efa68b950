"""What a switch of a scenario takes in beyond ``xoff``, where its queues do not say it."""

from collections.abc import Iterable
from typing import Final

from rdmawire.fabric.pfc import headroom
from rdmawire.traffic.scenario.model import ConnectionPlan, LinkPlan
from rdmawire.wire.ib import BTH, ICRC, RETH, XRCETH, ImmDt
from rdmawire.wire.inet import UDP, Ethernet, IPv6

_AROUND: Final = sum(
    header.SIZE for header in (Ethernet, IPv6, UDP, BTH, XRCETH, RETH, ImmDt, ICRC)
)
"""Octets round a payload, at the most. IBA 9.2, A17."""


def longest_frame(connections: Iterable[ConnectionPlan]) -> int:
    """Octets of the longest frame that connections send."""
    return _AROUND + max((plan.mtu for plan in connections), default=0)


def headroom_of(
    switch: str, links: Iterable[LinkPlan], connections: Iterable[ConnectionPlan]
) -> int:
    """Octets that each port of a switch must take in beyond ``xoff`` so that nothing is lost."""
    frame = longest_frame(connections)
    needed = (
        headroom(link.rate, link.latency, frame)
        for link in links
        if switch in link.ends and link.rate is not None
    )
    return max(needed, default=0)
