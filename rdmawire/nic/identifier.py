"""Identifiers that are drawn: numbers that nothing else has at the moment."""

from collections.abc import Callable
from errno import ENOMEM
from itertools import chain
from typing import Final, Protocol

from rdmawire.errors import VerbsError

MAX_DRAWS: Final = 8
"""How often a number is drawn before it is counted up: a source may repeat itself for ever."""


class Randomness(Protocol):
    """Where identifiers come from: ``random.Random(seed)``, or ``random.SystemRandom()``."""

    def getrandbits(self, k: int, /) -> int: ...


def unused(draw: Callable[[], int], taken: Callable[[int], bool], first: int, end: int) -> int:
    """A number from ``first`` to ``end - 1`` that is not ``taken``.

    It is drawn at most :data:`MAX_DRAWS` times, then counted up from the last draw, and round.
    ``VerbsError`` ENOMEM where all are taken.
    """
    number = first
    for _ in range(MAX_DRAWS):
        number = draw()
        if first <= number < end and not taken(number):
            return number
    start = min(max(number, first), end)
    for candidate in chain(range(start, end), range(first, start)):
        if not taken(candidate):
            return candidate
    raise VerbsError(f"all numbers from {first:#x} to {end - 1:#x} are in use", ENOMEM)
