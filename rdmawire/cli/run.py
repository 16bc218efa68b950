"""A run over captures: frames to standard output, what they amount to beside it."""

import sys
from collections.abc import Iterable

import click

from rdmawire.analysis.node import Dissection
from rdmawire.analysis.output import Output
from rdmawire.analysis.tally import Tally
from rdmawire.analysis.window import Window
from rdmawire.cli.source import dissected
from rdmawire.errors import CaptureError


class Run:
    """Writes the frames of files, and counts them.

    ``count`` is how many frames to show at most. ``quiet`` shows none and counts only;
    ``talkative`` says on standard error what each file amounts to.
    """

    def __init__(
        self, output: Output, window: Window, count: int | None, *, quiet: bool, talkative: bool
    ) -> None:
        self._output = output
        self._window = window
        self._left = count
        self._quiet = quiet
        self._talkative = talkative

    def files(
        self, paths: tuple[str, ...], ports: tuple[int, ...], *, progress: bool, strict: bool
    ) -> int:
        """All files, one after the other; the exit status."""
        status, total = 0, Tally()
        self._write((self._output.head(),))
        for path in paths:
            if self._left == 0:
                break
            tally = Tally()
            damaged = self._file(path, ports, tally, progress=progress)
            if tally.frames or not damaged:
                status |= self._conclude(path, tally, strict=strict)
            status |= damaged
            total.include(tally)
        self._write((self._output.tail(),))
        if len(paths) > 1:
            self._say(f"{len(paths)} files", total)
        return status

    def _file(self, path: str, ports: tuple[int, ...], tally: Tally, *, progress: bool) -> int:
        """One file; 1 if it is damaged, after what stands before the damage."""
        try:
            for frame in dissected(path, ports, progress=progress):
                if frame in self._window:
                    tally.add(frame)
                    self._show(frame)
                if self._left == 0 or self._window.is_over(frame):
                    break
        except CaptureError as error:
            sys.stdout.flush()
            click.echo(f"rdmawire: {error}", err=True)
            return 1
        return 0

    def _show(self, frame: Dissection) -> None:
        if self._left is not None:
            self._left -= 1
        self._write(self._output.frame(frame))

    def _write(self, pieces: Iterable[str]) -> None:
        if not self._quiet:
            sys.stdout.writelines(pieces)

    def _conclude(self, path: str, tally: Tally, *, strict: bool) -> int:
        self._say(path, tally)
        if strict and tally.verdict:
            click.echo(f"rdmawire: {path}: {tally.verdict}", err=True)
            return 1
        return 0

    def _say(self, what: str, tally: Tally) -> None:
        """What something amounts to."""
        if self._quiet or self._talkative:
            sys.stdout.flush()
            click.echo(f"{what}: {tally}", err=not self._quiet)
