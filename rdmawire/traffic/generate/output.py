"""Frames into a capture, counted, as many as are asked for."""

from typing import Final

from rdmawire.capture import LinkType, Record, Writer
from rdmawire.traffic.counter import FrameCounter

ETHERNET: Final = int(LinkType.ETHERNET)


class Output:
    """Writes frames up to ``most`` (``None``: all). Of what comes after, nothing is counted."""

    def __init__(self, writer: Writer, most: int | None) -> None:
        self.counter = FrameCounter()
        self.losses = 0
        self._write = writer.write
        self._most = most

    @property
    def full(self) -> bool:
        return self._most is not None and self.counter.frames >= self._most

    def frame(self, frame: bytes, now: int) -> None:
        if not self.full:
            self.counter(frame, now)
            self._write(Record(frame, now, len(frame), ETHERNET))

    def lost(self) -> None:
        if not self.full:
            self.losses += 1
