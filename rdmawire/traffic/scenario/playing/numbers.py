"""Numbers of frames in a capture, by the numbers that they have in the fabric."""

from collections import OrderedDict
from typing import Final

from rdmawire.fabric.frame import Envelope

MAX_FRAMES: Final = 1 << 19
"""Frames that are remembered, the last ones: more than what is under way mostly has."""


class Numbers:
    """Which number a frame has in the capture, wherever else it comes by later.

    A frame is known by the id of its envelope, which switches and faults keep. ``needed`` says that
    somebody is going to ask.
    """

    def __init__(self) -> None:
        self.needed = False
        self._known: OrderedDict[int, int] = OrderedDict()

    def add(self, frame: Envelope, number: int) -> None:
        """A frame has this number, and no other any more."""
        self._known[frame.id] = number
        self._known.move_to_end(frame.id)
        if len(self._known) > MAX_FRAMES:
            self._known.popitem(last=False)

    def of(self, id_: int) -> int | None:
        """The number of the frame with an id; ``None`` where the capture does not have it."""
        return self._known.get(id_)
