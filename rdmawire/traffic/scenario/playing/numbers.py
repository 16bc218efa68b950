"""Numbers of frames in a capture, by the very frames."""

from collections import OrderedDict
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
        self._known: OrderedDict[int, tuple[bytes, int]] = OrderedDict()
        self._octets = 0

    def add(self, frame: bytes, number: int) -> None:
        """A frame has this number, and no other any more."""
        if self._known.pop(id(frame), None) is None:
            self._octets += len(frame)
        self._known[id(frame)] = frame, number
        while self._octets > MOST_OCTETS:
            _, (oldest, _) = self._known.popitem(last=False)
            self._octets -= len(oldest)

    def of(self, frame: bytes) -> int | None:
        """The number of a frame; ``None`` where the capture does not have it."""
        known = self._known.get(id(frame))
        return None if known is None else known[1]

    def becomes(self, frame: bytes, became: bytes) -> None:
        """A frame that was changed on its way still has its number."""
        number = self.of(frame)
        if number is not None and became is not frame:
            self.add(became, number)
