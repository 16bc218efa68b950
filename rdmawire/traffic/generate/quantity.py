"""What is asked for in words: sizes of messages, rates of links, shares of frames.

Units are those of scenarios: ``4k`` or ``4 KiB``, ``100G`` or ``100 Gbit/s``.
"""

from random import Random
from typing import Final, NamedTuple, Self

from rdmawire.errors import RdmaError
from rdmawire.screen import quoted, shortened
from rdmawire.units import QuantityError, parse_quantity, parse_share, rate_factor, size_factor
from rdmawire.verbs.wr import LONGEST_MESSAGE

MOST_SIZES: Final = 64


class OrderError(RdmaError):
    """Traffic that cannot be made: what was found, and what is allowed."""


class Sizes(NamedTuple):
    """Lengths of messages in octets: any within one of these ranges, both ends included."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``64``, ``4k``, ``4 KiB``, a range such as ``64-4k``, or several with commas."""
        words = text.split(",")
        if len(words) > MOST_SIZES:
            raise OrderError(f"{len(words)} sizes, {MOST_SIZES} are allowed")
        return cls(tuple(_range(word, text) for word in words))

    @property
    def largest(self) -> int:
        return max(high for _, high in self.ranges)

    @property
    def varied(self) -> bool:
        """Whether there is more than one size."""
        return len({end for ends in self.ranges for end in ends}) > 1

    def pick(self, random: Random) -> int:
        """One of them: each range as likely as the others, and each size in it."""
        low, high = random.choice(self.ranges) if len(self.ranges) > 1 else self.ranges[0]
        return random.randint(low, high) if low < high else low


def _range(word: str, text: str) -> tuple[int, int]:
    low, dash, high = word.strip().partition("-")
    ends = _size(low, text), _size(high, text) if dash else _size(low, text)
    if ends[0] > ends[1]:
        raise OrderError(f"{quoted(text)}: {shortened(low)} is more than {shortened(high)}")
    return ends


def _size(word: str, text: str) -> int:
    try:
        octets = parse_quantity(word.strip(), size_factor)
    except QuantityError:
        octets = None
    if octets is None or not octets.exact:
        raise OrderError(f"{quoted(text)} is no size such as 64, 4k, 1M, 4 KiB, 64-4k or 64,1k")
    if octets.value > LONGEST_MESSAGE:
        raise OrderError(f"{quoted(text)}: a message has at most 2 GiB ({LONGEST_MESSAGE})")
    return octets.value


def rate(text: str) -> int:
    """Bits a second, from ``100G``, ``100 Gbit/s``, ``100Gbps``, ``2.5G`` or ``400000000``."""
    try:
        bits = parse_quantity(text.strip(), rate_factor).value
    except QuantityError:
        raise OrderError(f"{quoted(text)} is no rate such as 100G or 25 Gbit/s") from None
    if not SLOWEST <= bits <= FASTEST:
        raise OrderError(f"{quoted(text)} is not within 1M..10T bits a second")
    return bits


SLOWEST: Final = 10**6
FASTEST: Final = 10**13
"""Bits a second."""


def share(text: str, most: float) -> float:
    """A share of frames, from ``1%`` or ``0.01``, up to ``most``."""
    try:
        value = parse_share(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= most:
        raise OrderError(
            f"{quoted(text)} is no share of frames such as 1% or 0.01, up to {most:.0%}"
        )
    return value
