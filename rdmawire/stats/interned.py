"""Keys of 64 bits to small numbers, many at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.stats.circle import Numbers

_BITS = 16
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Knuth's multiplier: its product's upper bits depend on all bits of a key."""


class Interned:
    """Remembers the number of each key.

    ``number`` gives that of a key not met before; every other key is looked up in a table with
    one place for each hash, where the last key that was put there stands.
    """

    def __init__(self, number: Callable[[int], int]) -> None:
        self._number = number
        self._keys = np.zeros(1 << _BITS, np.uint64)
        self._numbers = np.full(1 << _BITS, -1, np.int64)

    def __call__(self, keys: NDArray[np.uint64]) -> Numbers:
        """The numbers of keys."""
        places = (keys * _GOLDEN) >> np.uint64(64 - _BITS)
        numbers: Numbers = self._numbers[places]
        missed = np.flatnonzero((self._keys[places] != keys) | (numbers < 0))
        if len(missed):
            numbers[missed] = self._learn(keys[missed], places[missed])
        return numbers

    def _learn(self, keys: NDArray[np.uint64], places: NDArray[Any]) -> Numbers:
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.empty(len(distinct), np.int64)
        for at in np.argsort(first):
            numbers[at] = self._number(int(distinct[at]))
        self._keys[places[first]], self._numbers[places[first]] = distinct, numbers
        found: Numbers = numbers[inverse]
        return found
