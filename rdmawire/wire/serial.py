"""Serial arithmetic: numbers of so many bits, the highest of which is followed by zero. RFC 1982.

Packet sequence numbers have their own module, :mod:`rdmawire.wire.psn`.
"""

from dataclasses import dataclass


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
