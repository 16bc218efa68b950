"""Frames into a capture, counted, as many as are asked for."""

from typing import Final

from rdmawire.capture import LinkType, Record, Writer
from rdmawire.traffic.counter import FrameCounter
from rdmawire.traffic.generate.progress import Progress

ETHERNET: Final = int(LinkType.ETHERNET)
_OFTEN: Final = 1024
"""Frames after which progress is told."""


class Enough(Exception):
    """All frames are there that were asked for: a watcher ends the run."""


class Output:
    """Writes frames, and ends the run with the last of ``most`` (``None``: never)."""

    def __init__(self, writer: Writer, most: int | None, progress: Progress) -> None:
        self.counter = FrameCounter()
        self.losses = 0
        self._write = writer.write
        self._most = most
        self._progress = progress

    def frame(self, frame: bytes, now: int) -> None:
        counter = self.counter
        counter(frame, now)
        self._write(Record(frame, now, len(frame), ETHERNET))
        if not counter.frames % _OFTEN:
            self._progress.tell(counter)
        if counter.frames == self._most:
            raise Enough

    def lost(self) -> None:
        self.losses += 1
