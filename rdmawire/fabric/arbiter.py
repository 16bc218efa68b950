"""Arbitration: which port's frame gets the last place in a full queue of a switch.

Were it always the first that comes, hosts whose frames come at the same instant would be served in
a fixed order, and of those that send at the same rate the one that is a little earlier would get
everything (S. Floyd and V. Jacobson, On Traffic Phase Effects in Packet-Switched Gateways, 1992).
So the port that had it longest ago has it; where that leaves a choice, as at the beginning, it is
drawn.
"""

from random import Random


class Arbiter:
    """Decides between the ports, by number, whose frames go to one queue. ``random`` draws."""

    __slots__ = ("_kept", "_random", "_turn")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kept: dict[int, int] = {}
        self._turn = 0

    def prefers(self, port: int, other: int) -> bool:
        """Whether a frame from ``port`` is to have the last place, which one from ``other`` has."""
        mine, others = self._kept.get(port, 0), self._kept.get(other, 0)
        return mine < others or (mine == others and bool(self._random.getrandbits(1)))

    def keep(self, port: int) -> None:
        """A frame from this port had the last place when there was room again."""
        self._turn += 1
        self._kept[port] = self._turn
