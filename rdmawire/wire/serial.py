"""Serial arithmetic: numbers of fixed width that wrap to zero. RFC 1982.

The functions are for packet and message sequence numbers, 24 bits (IBA 9.7.1); :class:`Circle` is
for numbers of other widths. Of two numbers less than half the circle apart, the later one is ahead.
No other module masks a PSN with ``0xFFFFFF``.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Final, NamedTuple


class Circle(NamedTuple):
    """Numbers from zero to ``modulus - 1`` that wrap around."""

    modulus: int

    def add(self, number: int, count: int) -> int:
        """The number ``count`` steps after ``number``; before it if ``count`` is negative."""
        return (number + count) % self.modulus

    def distance(self, start: int, end: int) -> int:
        """Steps from ``start`` to ``end`` in the shorter direction; negative if backward."""
        half = self.modulus >> 1
        return (end - start + half) % self.modulus - half


BITS_32 = Circle(1 << 32)
BITS_64 = Circle(1 << 64)


MODULUS = 1 << 24
HALF = MODULUS >> 1
"""Size of the window of new PSNs; PSNs before the expected one are duplicates."""
MAX_IN_FLIGHT: Final = HALF - 1
"""Maximum number of unacknowledged packets of a requester."""


def add(psn: int, packets: int) -> int:
    """The PSN ``packets`` after ``psn``; before it if ``packets`` is negative."""
    return (psn + packets) % MODULUS


def numbers(start: int, count: int) -> Iterable[int]:
    """The ``count`` PSNs that begin at ``start``."""
    end = start + count
    if end <= MODULUS:
        return range(start, end)
    return chain(range(start, MODULUS), range(end % MODULUS))


def distance(start: int, end: int) -> int:
    """Packets from ``start`` to ``end``: -2**23 to 2**23 - 1, negative if ``end`` is earlier."""
    return (end - start + HALF) % MODULUS - HALF


def span(start: int, end: int) -> int:
    """Packets from ``start`` forward to ``end``: 0 to 2**24 - 1."""
    return (end - start) % MODULUS


def is_before(first: int, second: int) -> bool:
    """Whether ``first`` precedes ``second``."""
    return 0 < (second - first) % MODULUS < HALF


def in_window(psn: int, start: int, packets: int) -> bool:
    """Whether ``psn`` is one of the ``packets`` PSNs that begin at ``start``."""
    return (psn - start) % MODULUS < packets
