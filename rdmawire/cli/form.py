"""What `dissect` prints: which of its options go together, and the output that they ask for."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import click

from rdmawire.analysis.counts import CountLines, CountObjects, Counts
from rdmawire.analysis.mood import Mood
from rdmawire.analysis.output import Fields, Lines, Objects, Output, Separators, plain
from rdmawire.analysis.selection import Selection
from rdmawire.cli.run import Show

_STYLES = {Mood.RDMA: "cyan", Mood.TROUBLE: "yellow", Mood.BAD: "bold red"}
_OBJECTS = {"json", "ndjson"}


@dataclass(frozen=True, slots=True)
class Form:
    """What the options ask for; :meth:`show` refuses those that say nothing together."""

    format: str
    trees: bool
    octets: bool
    selection: Selection | None
    separators: Separators | None
    quiet: bool
    color: str

    def show(self) -> Show:
        """What to print where; :class:`click.UsageError` for options that clash."""
        for clash, reason in _CLASHES:
            if clash(self):
                raise click.UsageError(reason)
        if self.quiet:
            return Show(None, self._counts(), sys.stdout)
        counts = CountLines() if self.format == "text" else None
        return Show(self._output(), counts, sys.stderr)

    def _output(self) -> Output:
        if self.format == "text":
            return Lines(trees=self.trees, octets=self.octets, paint=_painter(self.color))
        if self.format == "fields" and self.selection:
            return Fields(self.selection, self.separators or Separators())
        return Objects(self.selection, array=self.format == "json", octets=self.octets)

    def _counts(self) -> Counts:
        if self.format in _OBJECTS:
            return CountObjects(array=self.format == "json")
        return CountLines()


_CLASHES: tuple[tuple[Callable[[Form], object], str], ...] = (
    (
        lambda form: form.quiet and (form.trees or form.octets or form.selection),
        "-q only counts frames; leave out -V, -x and -e, or leave out -q",
    ),
    (
        lambda form: form.format == "text" and form.selection,
        "-e FIELD goes with -T fields, json or ndjson",
    ),
    (
        lambda form: form.format == "fields" and not form.selection,
        "-T fields needs at least one -e FIELD",
    ),
    (lambda form: form.format != "text" and form.trees, "-V goes with -T text, and without -e"),
    (lambda form: form.format == "fields" and form.octets, "-x goes with -T text, json or ndjson"),
    (lambda form: form.format != "fields" and form.separators, "-E goes with -T fields"),
)
"""Options that do not go together, and what to say then."""


def _painter(color: str) -> Callable[[Mood, str], str]:
    """What colours lines: only in a terminal, unless asked for."""
    wanted = (
        sys.stdout.isatty() and "NO_COLOR" not in os.environ
        if color == "auto"
        else color == "always"
    )
    if not wanted:
        return plain
    from rich.style import Style

    styles = {mood: Style.parse(style) for mood, style in _STYLES.items()}
    return lambda mood, text: styles[mood].render(text) if mood in styles else text
