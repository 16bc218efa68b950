"""A run over captures: their frames to standard output, what they amount to beside them."""

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from rdmawire.analysis.counts import Counts
from rdmawire.analysis.node import Dissection
from rdmawire.analysis.output import Fields, Output
from rdmawire.analysis.tally import Tally
from rdmawire.analysis.window import Window
from rdmawire.capture import Reader, open_capture
from rdmawire.cli.at_once import field_lines
from rdmawire.cli.source import dissected
from rdmawire.cli.streams import complain
from rdmawire.errors import CaptureError

if TYPE_CHECKING:
    from rdmawire.analysis.filter import Filter


@dataclass(frozen=True, slots=True)
class Demands:
    """What makes a run fail: bad checksums of these names, and frames that do not parse."""

    checksums: Collection[str] = ()
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class Show:
    """What a run prints: frames, unless they are only counted, and counts with a place for them."""

    frames: Output | None
    counts: Counts | None
    counts_to: TextIO


class Run:
    """Writes the frames of files, and counts them.

    ``count`` is how many frames to show at most, over all files; ``ports`` are the UDP ports of
    RoCEv2. Frames that ``passes`` refuses are read, but neither shown nor counted.
    """

    def __init__(
        self,
        show: Show,
        window: Window,
        count: int | None,
        ports: Collection[int],
        demands: Demands,
        *,
        passes: "Filter | None" = None,
    ) -> None:
        self._show = show
        self._window = window
        self._left = count
        self._ports = ports
        self._demands = demands
        self._passes = passes
        self._progress = False
        self._read = 0

    def files(self, paths: Collection[str], *, progress: bool) -> int:
        """All files, one after the other; the exit status."""
        self._progress = progress
        self._begin()
        status, total = 0, Tally()
        for path in paths:
            if self._left == 0:
                break
            tally = Tally()
            status |= self._file(path, tally, alone=len(paths) == 1)
            total.include(tally)
        self._end(total)
        return status

    def _begin(self) -> None:
        if self._show.frames:
            sys.stdout.write(self._show.frames.head())
        if self._show.counts:
            self._show.counts_to.write(self._show.counts.head())

    def _end(self, total: Tally) -> None:
        if self._show.frames:
            sys.stdout.write(self._show.frames.tail())
        if self._show.counts:
            self._count(self._show.counts.total(self._read, total) + self._show.counts.tail())

    def _file(self, path: str, tally: Tally, *, alone: bool) -> int:
        """One file; 1 if it is damaged, after what stands before the damage, or objected to."""
        name, damage = path, ""
        try:
            if lines := self._lines_at_once(path):
                sys.stdout.writelines(lines)
                return 0
            with open_capture(path) as reader:
                name = reader.name
                self._read += 1
                if self._show.frames and not alone:
                    sys.stdout.write(self._show.frames.heading(name))
                self._frames(reader, tally)
        except CaptureError as error:
            damage = str(error)
        except MemoryError:
            damage = f"{name}: a frame takes more memory than there is"
        return self._conclude(name, tally, damage)

    def _lines_at_once(self, path: str) -> Iterator[str] | None:
        """The fields of all frames that pass, where that is all that is asked."""
        fields = self._show.frames
        part = self._left is not None or self._window != Window() or self._demands != Demands()
        if part or not isinstance(fields, Fields):
            return None
        return field_lines(path, fields, self._passes, self._ports)

    def _frames(self, reader: Reader, tally: Tally) -> None:
        for frame in dissected(reader, self._ports, progress=self._progress):
            if frame in self._window and (self._passes is None or self._passes(frame)):
                tally.add(frame)
                self._frame(frame)
            if self._left == 0 or self._window.is_over(frame):
                break

    def _frame(self, frame: Dissection) -> None:
        if self._left is not None:
            self._left -= 1
        if self._show.frames:
            sys.stdout.writelines(self._show.frames.frame(frame))

    def _conclude(self, name: str, tally: Tally, damage: str) -> int:
        if self._show.counts:
            self._count(self._show.counts.of(name, tally, damage))
        demands = self._demands
        found = tally.objections(demands.checksums, malformed=demands.malformed)
        complaints = [f"{name}: {objection}" for objection in found]
        complaints += [damage] if damage else []
        for complaint in complaints:
            sys.stdout.flush()
            complain(complaint)
        return 1 if complaints else 0

    def _count(self, text: str) -> None:
        """Counts, behind the frames that they are of."""
        if text:
            sys.stdout.flush()
            self._show.counts_to.write(text)
            self._show.counts_to.flush()
