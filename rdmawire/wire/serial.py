"""Serial arithmetic: numbers of a fixed width, the highest of which is followed by zero. RFC 1982.

The functions are for packet and message sequence numbers, 24 bits (IBA 9.7.1); :class:`Circle` is
for numbers of other widths. Of two numbers less than half the circle apart, the later one is ahead.
No other module masks a PSN with ``0xFFFFFF``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final


@dataclass(frozen=True, slots=True)
class Circle:
    """Numbers from zero to ``modulus - 1``, which follow one another in a circle."""

    modulus: int

    def add(self, number: int, count: int) -> int:
        """The number ``count`` after this one; before it where ``count`` is negative."""
        return (number + count) % self.modulus

    def distance(self, start: int, end: int) -> int:
        """Steps from ``start`` to ``end``, the shorter way round; negative if that is back."""
        half = self.modulus >> 1
        return (end - start + half) % self.modulus - half


BITS_32 = Circle(1 << 32)
BITS_64 = Circle(1 << 64)


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
