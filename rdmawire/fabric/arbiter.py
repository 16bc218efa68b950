"""Arbitration: which ingress port's frame gets the last place in a full queue of a switch.

If the first frame always got it, hosts whose frames arrive at the same instant would be served in a
fixed order, and of hosts with the same rate the one that is a little earlier would get everything
(S. Floyd and V. Jacobson, On Traffic Phase Effects in Packet-Switched Gateways, 1992). So the port
that had it longest ago gets it; a tie, as at the beginning, is broken at random.
"""

from random import Random


class Arbiter:
    """Decides between ingress ports, by number, for one queue. ``random`` breaks ties."""

    __slots__ = ("_kept", "_random", "_turn")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kept: dict[int, int] = {}
        self._turn = 0

    def prefers(self, port: int, other: int) -> bool:
        """Whether a frame from ``port`` takes the last place from one that came by ``other``."""
        mine, others = self._kept.get(port, 0), self._kept.get(other, 0)
        return mine < others or (mine == others and bool(self._random.getrandbits(1)))

    def keep(self, port: int) -> None:
        """Record that a frame from this port had the last place when the queue had room again."""
        self._turn += 1
        self._kept[port] = self._turn
