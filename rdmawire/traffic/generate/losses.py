"""Which frames are lost: drawn for each frame that is put on the link, in order."""

from collections import deque
from collections.abc import Collection
from itertools import takewhile
from random import Random
from typing import Final, Protocol

_AHEAD: Final = 256
"""Frames that are drawn for at once."""


class Losses(Protocol):
    """Asked once for each frame, in the order in which they are sent."""

    def takes_next(self) -> bool:
        """Whether the next frame is lost."""


class Chance:
    """Each frame with the same chance (0.0 to 1.0). It may be asked ahead of time."""

    def __init__(self, share: float, random: Random) -> None:
        self._share = share
        self._random = random
        self._drawn = 0
        self._sent = 0
        self._lost: deque[int] = deque()  # numbers of frames, of those that were not sent yet

    def within(self, frames: int) -> tuple[int, ...]:
        """Which of the next so many frames are lost: their places among these, from 0 on."""
        end = self._sent + frames
        self._draw(end)
        return tuple(takewhile(frames.__gt__, (number - self._sent for number in self._lost)))

    def first(self, frames: int) -> int | None:
        """The place of the first that is lost among the next so many, if one is."""
        end = self._sent + frames
        while not self._lost and self._drawn < end:
            self._draw(min(self._drawn + _AHEAD, end))
        return self._lost[0] - self._sent if self._lost and self._lost[0] < end else None

    def pass_by(self, frames: int) -> None:
        """So many frames were sent."""
        self._draw(self._sent + frames)
        self._sent += frames
        while self._lost and self._lost[0] < self._sent:
            self._lost.popleft()

    def takes_next(self) -> bool:
        lost = bool(self.within(1))
        self.pass_by(1)
        return lost

    def _draw(self, end: int) -> None:
        """Draw for all frames up to this number."""
        if not self._share:
            self._drawn = max(self._drawn, end)
        draw, share = self._random.random, self._share
        while self._drawn < end:
            if draw() < share:
                self._lost.append(self._drawn)
            self._drawn += 1


class Pattern:
    """The frames at these places, from 0 on."""

    def __init__(self, places: Collection[int]) -> None:
        self._places = frozenset(places)
        self._sent = 0

    def takes_next(self) -> bool:
        self._sent += 1
        return self._sent - 1 in self._places
