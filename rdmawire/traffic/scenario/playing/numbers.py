"""Numbers of frames in a capture, by the very frames."""

from collections import deque
from typing import Final

MOST_OCTETS: Final = 1 << 25
"""Octets of frames that are remembered, the last ones: more than what is under way mostly has."""


class Numbers:
    """Which number a frame has in the capture, wherever else it comes by later.

    A frame is known by its identity, not by its octets: one that is sent again looks the same.
    What becomes of it on its way has its number. ``needed`` says that somebody is going to ask.
    """

    def __init__(self) -> None:
        self.needed = False
        self._known: dict[int, int] = {}
        self._frames: deque[bytes] = deque()
        self._octets = 0

    def add(self, frame: bytes, number: int) -> None:
        """A frame has this number, and no other any more."""
        self._known[id(frame)] = number
        self._frames.append(frame)
        self._octets += len(frame)
        while self._octets > MOST_OCTETS:
            oldest = self._frames.popleft()
            self._octets -= len(oldest)
            self._known.pop(id(oldest), None)

    def of(self, frame: bytes) -> int | None:
        """The number of a frame; ``None`` where the capture does not have it."""
        return self._known.get(id(frame))

    def becomes(self, frame: bytes, became: bytes) -> None:
        """A frame that was changed on its way still has its number."""
        number = self.of(frame)
        if number is not None and became is not frame:
            self.add(became, number)
