"""Packet sequence numbers as arrays: the arithmetic of :mod:`rdmawire.wire.serial`, on many."""

import numpy as np
from numpy.typing import NDArray

from rdmawire.wire.serial import MODULUS

Numbers = NDArray[np.int64]

_HALF = MODULUS >> 1


def distances(starts: Numbers, ends: Numbers) -> Numbers:
    """Packets from each start to its end: -2**23 to 2**23 - 1, negative if that is behind."""
    return (ends - starts + _HALF) % MODULUS - _HALF
