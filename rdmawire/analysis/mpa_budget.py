"""What all directions of all connections keep in memory together, and who lets go.

A direction keeps the octets of an FPDU that is not whole, or the window of a search with what it
has found there. Bounds for each add up: many connections at once could keep a gigabyte and more.
"""

from collections import OrderedDict
from typing import Protocol

KEPT_IN_ALL = 64 << 20
"""Octets that all directions keep together: 500 searches with a full window, or the longest FPDU
of 1000 directions. Links have fewer half-sent FPDUs than that, and captures are not joined in the
middle of more streams; past it, the direction longest silent lets go."""


class Keeper(Protocol):
    """A direction of a connection."""

    @property
    def kept(self) -> int:
        """Octets of memory that letting go would free."""

    def let_go(self) -> None:
        """Keep nothing, and go on with what comes next."""


class Budget:
    """Shares out ``most`` octets; ``kept`` are in use."""

    def __init__(self, most: int = KEPT_IN_ALL) -> None:
        self.kept = 0
        self._most = most
        self._shares: OrderedDict[Keeper, int] = OrderedDict()

    def settle(self, keeper: Keeper) -> None:
        """A direction has spoken: note what it keeps now; others let go if that is too much."""
        self.forget(keeper)
        if share := keeper.kept:
            self._shares[keeper] = share
            self.kept += share
        while self.kept > self._most:
            self._shrink()

    def forget(self, keeper: Keeper) -> None:
        """A direction is no more, or keeps nothing."""
        self.kept -= self._shares.pop(keeper, 0)

    def _shrink(self) -> None:
        silent, share = self._shares.popitem(last=False)
        self.kept -= share
        silent.let_go()
