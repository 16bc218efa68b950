"""Pairs of addresses, numbered in the order in which they are met."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.column import Columns
from rdmawire.stats.circle import Numbers
from rdmawire.stats.facts import Pair
from rdmawire.stats.interned import Interned
from rdmawire.stats.question import FACTS
from rdmawire.wire.show import ipv4, ipv6

PAIRS = 1 << 14
"""Pairs of addresses that are told apart; those met later are counted together."""
OTHER = PAIRS - 1
"""The number of all pairs that are not told apart."""


class Addresses:
    """The pairs met so far, and what each is numbered."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self._numbers: dict[Pair, int] = {}
        self._of_ipv4 = Interned(lambda key: self.number(_ipv4_pair(key)))

    def number(self, pair: Pair) -> int:
        """The number of a pair."""
        number = self._numbers.get(pair)
        if number is None:
            if len(self.pairs) == OTHER:
                return OTHER
            number = self._numbers[pair] = len(self.pairs)
            self.pairs.append(pair)
        return number

    def back(self, number: int) -> int:
        """The number of the pair with the addresses exchanged; -1 if there is none."""
        if number == OTHER:
            return -1
        source, destination = self.pairs[number]
        return self._numbers.get(Pair(destination, source), -1)

    def of_rows(self, block: Columns, rows: Numbers) -> Numbers:
        """The pair of each of these rows."""
        numbers = np.full(len(rows), OTHER, np.int64)
        dissected = block[FACTS].valid[rows]
        here = ~dissected & block["ip.src"].valid[rows]
        if here.any():
            numbers[here] = self._of_ipv4(_ipv4_keys(*_ends(block, "ip", rows[here])))
        here = ~dissected & block["ipv6.src"].valid[rows]
        if here.any():
            numbers[here] = self._of_ipv6(*_ends(block, "ipv6", rows[here]))
        for at in np.flatnonzero(dissected):
            numbers[at] = self.number(block[FACTS].values[rows[at]].pair)
        return numbers

    def _of_ipv6(self, sources: NDArray[Any], destinations: NDArray[Any]) -> Numbers:
        both = np.empty((len(sources), 2), sources.dtype)
        both[:, 0], both[:, 1] = sources, destinations
        distinct, inverse = np.unique(both.view("V32").ravel(), return_inverse=True)
        return np.array([self.number(_ipv6_pair(key.tobytes())) for key in distinct])[inverse]


def _ends(block: Columns, prefix: str, rows: Numbers) -> tuple[NDArray[Any], NDArray[Any]]:
    return block[f"{prefix}.src"].values[rows], block[f"{prefix}.dst"].values[rows]


def _ipv4_keys(sources: NDArray[Any], destinations: NDArray[Any]) -> NDArray[np.uint64]:
    return sources.astype(np.uint64) << np.uint64(32) | destinations.astype(np.uint64)


def _ipv4_pair(key: int) -> Pair:
    octets = key.to_bytes(8, "big")
    return Pair(ipv4(octets[:4]), ipv4(octets[4:]))


def _ipv6_pair(key: bytes) -> Pair:
    return Pair(ipv6(key[:16]), ipv6(key[16:]))
