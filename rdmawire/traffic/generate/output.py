"""Frames into a capture, counted, as many as are asked for."""

from typing import Final, Protocol

from rdmawire.capture import LinkType, Record
from rdmawire.capture.record import Options
from rdmawire.fabric.passing import BEFALLEN
from rdmawire.fabric.tap import remarks
from rdmawire.traffic.counter import FrameCounter
from rdmawire.traffic.generate.progress import Progress

ETHERNET: Final = int(LinkType.ETHERNET)
_OFTEN: Final = 1024
"""Frames after which progress is told."""
_LOST: Final[Options] = remarks((BEFALLEN["drop"],))
"""The comment on frames that never arrive, where there is room for one."""


class Taker(Protocol):
    """What records are given to: the writer of a capture, or anything else."""

    def write(self, record: Record) -> object: ...


def lost_options(writer: Taker) -> Options:
    """What is said of a frame that never arrives: a pcapng has room for it, a pcap has not."""
    return () if getattr(writer, "format", "") == "pcap" else _LOST


class Enough(Exception):
    """All frames are there that were asked for: a watcher ends the run."""


class Output:
    """Writes frames, and ends the run with the last of ``most`` (``None``: never)."""

    def __init__(self, writer: Taker, most: int | None, progress: Progress) -> None:
        self.counter = FrameCounter()
        self.losses = 0
        self._write = writer.write
        self._lost_options = lost_options(writer)
        self._most = most
        self._progress = progress

    def frame(self, frame: bytes, now: int, lost: bool) -> None:
        counter = self.counter
        counter(frame, now)
        options = self._lost_options if lost else ()
        self._write(Record(frame, now, len(frame), ETHERNET, options=options))
        if not counter.frames % _OFTEN:
            self._progress.tell(counter)
        if counter.frames == self._most:
            raise Enough

    def lost(self) -> None:
        self.losses += 1
