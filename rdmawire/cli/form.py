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
from rdmawire.cli.captures import Show
from rdmawire.cli.export import FORMS

_STYLES = {Mood.RDMA: "cyan", Mood.TROUBLE: "yellow", Mood.BAD: "bold red"}
_OBJECTS = {"json", "ndjson"}


@dataclass(frozen=True, slots=True)
class Form:
    """What the options ask for; :meth:`check` refuses those that say nothing together."""

    format: str
    trees: bool
    octets: bool
    selection: Selection | None
    separators: Separators | None
    quiet: bool
    color: str
    output: str | None
    row: str | None
    demanding: bool

    def check(self) -> None:
        """:class:`click.UsageError` for options that clash."""
        for clash, reason in _CLASHES:
            if clash(self):
                raise click.UsageError(reason)

    @property
    def is_table(self) -> bool:
        """Whether frames become the rows of a table."""
        return self.format in FORMS

    def show(self) -> Show:
        """What to print where."""
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
    (
        lambda form: form.octets and form.format not in {"text", *_OBJECTS},
        "-x goes with -T text, json or ndjson; plain hex stands in the `octets` of -T ndjson -x",
    ),
    (
        lambda form: form.is_table and (form.quiet or form.demanding),
        "-T csv, parquet and arrow only write tables; for -q and --fail-on-..., leave out -T",
    ),
    (
        lambda form: (form.output is not None or form.row) and not form.is_table,
        "-w and --row go with -T csv, parquet or arrow",
    ),
    (
        lambda form: form.format in {"parquet", "arrow"} and form.output is None and _is_terminal(),
        "what -T parquet and arrow write is no text: name a file with -w FILE",
    ),
    (lambda form: form.format != "fields" and form.separators, "-E goes with -T fields"),
)
"""Options that do not go together, and what to say then."""


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


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
