"""Unused identifiers: counted up, or drawn from a source of randomness.

The source is an argument: a seed gives the same numbers in each run (``random.Random(1)``), the
system's entropy gives unpredictable numbers (``random.SystemRandom()``).
"""

from collections.abc import Callable
from copy import deepcopy
from errno import ENOMEM
from itertools import chain
from typing import Final, Protocol, Self

from rdmawire.errors import VerbsError

MAX_DRAWS: Final = 8
"""Maximum draws before counting up from the last one, as a source may repeat itself."""

Taken = Callable[[int], bool]
"""Whether a number is in use."""


class Randomness(Protocol):
    """The source of identifiers: ``random.Random(seed)``, or ``random.SystemRandom()``."""

    def getrandbits(self, k: int, /) -> int: ...


class Source:
    """A source of randomness that is copied with what draws from it.

    The system's entropy has no state to copy: there, both copies draw from the same source.
    """

    def __init__(self, random: Randomness) -> None:
        self.random = random

    def getrandbits(self, k: int, /) -> int:
        return self.random.getrandbits(k)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        try:
            return type(self)(deepcopy(self.random, memo))
        except NotImplementedError:
            return type(self)(self.random)


class Count:
    """Numbers from ``first`` on, each once."""

    def __init__(self, first: int) -> None:
        self._next = first

    def __next__(self) -> int:
        number = self._next
        self._next += 1
        return number


class Numbers(Protocol):
    """Gives numbers that are not in use."""

    def unused(self, taken: Taken) -> int:
        """Return a number that is not ``taken``; ``VerbsError`` ENOMEM if all are."""


class Counted:
    """Numbers from ``first`` to ``end - 1``, counted up, and again from ``first``."""

    def __init__(self, first: int, end: int) -> None:
        self._first, self._end = first, end
        self._next = first

    def unused(self, taken: Taken) -> int:
        number = _count_up(self._next, taken, self._first, self._end)
        self._next = number + 1
        return number


class Drawn:
    """Numbers from ``first`` to ``end - 1``, drawn with ``bits`` bits each."""

    def __init__(self, random: Randomness, bits: int, first: int, end: int) -> None:
        self._random = Source(random)
        self._bits, self._first, self._end = bits, first, end

    def unused(self, taken: Taken) -> int:
        """Return a number that is not ``taken``; ``VerbsError`` ENOMEM if all are.

        It is drawn at most :data:`MAX_DRAWS` times, then counted up from the last draw.
        """
        number = self._first
        for _ in range(MAX_DRAWS):
            number = self._random.getrandbits(self._bits)
            if self._first <= number < self._end and not taken(number):
                return number
        return _count_up(number, taken, self._first, self._end)


def _count_up(start: int, taken: Taken, first: int, end: int) -> int:
    """Return the first free number from ``start`` to ``end - 1``, then from ``first`` on."""
    start = min(max(start, first), end)
    for number in chain(range(start, end), range(first, start)):
        if not taken(number):
            return number
    raise VerbsError(f"all numbers from {first:#x} to {end - 1:#x} are in use", ENOMEM)
