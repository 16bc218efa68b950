"""Serial arithmetic of packet and message sequence numbers: 24 bits, IBA 9.7.1.

Of two numbers less than half the circle apart, the later one is ahead. Nobody else writes
``& 0xFFFFFF``.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Final

MODULUS = 1 << 24
HALF = MODULUS >> 1
"""The numbers that may be in flight: those behind the one expected are repeated, not new."""
MAX_IN_FLIGHT: Final = HALF - 1
"""Most packets that a requester may leave unacknowledged."""


def add(psn: int, packets: int) -> int:
    """The number ``packets`` after this one; before it where ``packets`` is negative."""
    return (psn + packets) % MODULUS


def numbers(start: int, count: int) -> Iterable[int]:
    """The ``count`` numbers that begin at ``start``."""
    end = start + count
    if end <= MODULUS:
        return range(start, end)
    return chain(range(start, MODULUS), range(end % MODULUS))


def distance(start: int, end: int) -> int:
    """Packets from ``start`` to ``end``: -2**23 to 2**23 - 1, negative if ``end`` is behind."""
    return (end - start + HALF) % MODULUS - HALF


def span(start: int, end: int) -> int:
    """Packets from ``start`` forward to ``end``: 0 to 2**24 - 1."""
    return (end - start) % MODULUS


def is_before(first: int, second: int) -> bool:
    """Whether ``first`` is behind ``second``."""
    return 0 < (second - first) % MODULUS < HALF


def in_window(psn: int, start: int, packets: int) -> bool:
    """Whether ``psn`` is one of the ``packets`` numbers that begin at ``start``."""
    return (psn - start) % MODULUS < packets
