"""Where the frames of scenarios are written to."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

import click

from rdmawire.capture.source import STANDARD_INPUT, STREAM
from rdmawire.capture.writer import format_named
from rdmawire.cli.suffix import check_suffix
from rdmawire.errors import CaptureError
from rdmawire.screen import safe

_FOLDER = "captures/"
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


@dataclass(frozen=True, slots=True)
class Target:
    """Where frames are written to, and those of which points; all that hosts send, if none."""

    capture: str | None
    points: tuple[str, ...]
    _: KW_ONLY
    arrived: bool

    def check(self, names: Sequence[str]) -> None:
        """:class:`click.UsageError` for options that say nothing together."""
        if self.capture is None and (self.points or self.arrived):
            raise click.UsageError("--tap and --arrived say what -w FILE takes; name one")
        if self.arrived and not self.points:
            raise click.UsageError(
                "--arrived needs a --tap POINT where frames arrive: a link, a host, a switch's port"
            )
        if self.capture and len(names) > 1 and not self.is_folder:
            said = f"-w {safe(self.capture)} is one file, for {len(names)} scenarios"
            raise click.UsageError(f"{said}; name a folder, such as {_FOLDER}")
        self._check_files(names)
        if self.capture is not None and not self.is_folder:
            check_suffix(self.capture)
            self._check_room(self.capture)

    def _check_room(self, capture: str) -> None:
        """Only a pcapng says which point a frame is of."""
        if len(self.points) > 1 and capture != STREAM and format_named(capture) != "pcapng":
            points = len(self.points)
            said = f"-w {safe(capture)} is a pcap and has one interface, for {points} --tap"
            raise click.UsageError(f"{said}; write a .pcapng")

    def _check_files(self, names: Sequence[str]) -> None:
        """No file is written twice, and none that is read."""
        files = [file for file in map(self.of, names) if file]
        if twice := next((file for file in files if files.count(file) > 1), None):
            raise click.UsageError(f"{safe(twice)} would be written twice")
        for file in () if self.is_output else files:
            if any(_is_one(name, file) for name in names):
                raise click.UsageError(f"{safe(file)} is a SCENARIO; -w would write over it")

    def of(self, name: str) -> str | None:
        """The file of one scenario, by the word that asked for it."""
        if self.capture is None or not self.is_folder:
            return self.capture
        word = STANDARD_INPUT if name == STREAM else name
        stem, _ = os.path.splitext(os.path.basename(word))
        return os.path.join(self.capture, f"{stem}.pcapng")

    @property
    def is_folder(self) -> bool:
        """Whether it is one, or has the name of one: each scenario has its own file then."""
        capture = self.capture or ""
        return capture.endswith(_SEPARATORS) or os.path.isdir(capture)

    def prepare(self) -> None:
        """Make the folder if it is not there; ``CaptureError`` if it cannot be made."""
        if self.capture is None or not self.is_folder:
            return
        try:
            os.makedirs(self.capture, exist_ok=True)
        except OSError as error:
            raise CaptureError(f"{safe(self.capture)}: {error.strerror or error}") from error

    @property
    def is_output(self) -> bool:
        """Whether frames go to standard output, so that all else has to go elsewhere."""
        return self.capture == STREAM


def _is_one(name: str, file: str) -> bool:
    """Whether a file, by whatever name, is what a scenario is read from."""
    with suppress(OSError, ValueError):  # one of the two is not there yet, or no name of a file
        return os.path.isfile(file) and os.path.samefile(0 if name == STREAM else name, file)
    return False
