"""`rdmawire dissect`: the frames of captures, decoded and checked."""

import os
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import click

from rdmawire.capture import Reader, open_capture
from rdmawire.capture.source import STREAM
from rdmawire.cli import options
from rdmawire.cli.export import FORMS, Export
from rdmawire.cli.options import OnceCommand
from rdmawire.cli.progress import dissected
from rdmawire.cli.streams import complain
from rdmawire.dissect.node import Dissection
from rdmawire.dissect.output import (
    CountLines,
    CountObjects,
    Counts,
    Fields,
    Lines,
    Objects,
    Output,
    Separators,
    Tally,
    plain,
)
from rdmawire.dissect.select import Bound, BoundError, Selection, Window
from rdmawire.dissect.summary import Mood
from rdmawire.errors import CaptureError

if TYPE_CHECKING:
    from rdmawire.filter import Filter


_LARGE = 8 << 20
"""Bytes of a file that are worth the import of NumPy."""


def field_lines(
    path: str, output: Fields, wanted: "Filter | None", ports: Collection[int]
) -> Iterator[str] | None:
    """The lines of a capture; ``None`` if they are to be written frame by frame.

    That is small files and what is no pcap file, fields of no fixed place, and where there is no
    NumPy. Both ways give the same lines.
    """
    if not _is_large(path):
        return None
    try:
        from rdmawire.columns.query import EVERY_FRAME, FrameSelection
        from rdmawire.columns.text import FieldLines
    except ImportError:
        return None
    choice = EVERY_FRAME if wanted is None else FrameSelection(where=wanted)
    how = output.separators
    fields = FieldLines(output.names, choice, output.line, how.separator, how.quote)
    return fields.lines(path, ports)


def _is_large(path: str) -> bool:
    try:
        return os.stat(path).st_size >= _LARGE
    except (OSError, ValueError):
        return False


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


_STYLES = {Mood.RDMA: "cyan", Mood.TROUBLE: "yellow", Mood.BAD: "bold red"}
_OBJECTS = {"json", "ndjson"}


@dataclass(frozen=True, slots=True)
class Form:
    """What the options ask for; :meth:`check` refuses those that say nothing together."""

    format: str
    trees: bool
    bytes: bool
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
            return Lines(trees=self.trees, with_bytes=self.bytes, paint=_painter(self.color))
        if self.format == "fields" and self.selection:
            return Fields(self.selection, self.separators or Separators())
        return Objects(self.selection, array=self.format == "json", with_bytes=self.bytes)

    def _counts(self) -> Counts:
        if self.format in _OBJECTS:
            return CountObjects(array=self.format == "json")
        return CountLines()


_CLASHES: tuple[tuple[Callable[[Form], object], str], ...] = (
    (
        lambda form: form.quiet and (form.trees or form.bytes or form.selection),
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
        lambda form: form.bytes and form.format not in {"text", *_OBJECTS},
        "-x goes with -T text, json or ndjson; plain hex stands in the `bytes` of -T ndjson -x",
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


@click.command("dissect", cls=OnceCommand)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@options.READ
@options.DISPLAY_FILTER
@click.option("-V", "--tree", "trees", is_flag=True, help="All fields, with byte offsets.")
@click.option("-x", "--hex", "with_bytes", is_flag=True, help="The bytes of each frame as well.")
@click.option(
    "-T", "--format", "form", type=click.Choice(["text", "fields", "json", "ndjson", *FORMS]),
    help="text (a line per frame), fields (the -e fields, with tabs), json, ndjson; tables of "
    "the -e fields, or the usual ones: csv, parquet, arrow.",
)  # fmt: skip
@click.option(
    "-e", "--field", "selection", multiple=True, metavar="FIELD", callback=options.selection,
    shell_complete=options.complete_field,
    help="A field to print, by its name in `rdmawire fields`.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as -T json.")
@options.written("output", "Where -T csv, parquet and arrow write to, if not to standard output.")
@click.option(
    "--row", type=click.Choice(["frame", "fpdu"]),
    help="What a row of these tables is: a frame, or an FPDU of iWARP.  [default: frame]",
)  # fmt: skip
@click.option(
    "-E", "separators", multiple=True, metavar="NAME=VALUE", callback=options.separators,
    help="For fields: header=y, separator=CHAR, aggregator=CHAR, occurrence=a|f|l, quote=d|s|n.",
)  # fmt: skip
@click.option(
    "-c",
    "--count",
    type=options.WholeNumber(min=1),
    help="Stop after so many frames, of all files together.",
)
@click.option(
    "--from", "start", metavar="WHERE", callback=options.bound,
    help="First frame: a number, a time since the first (1.5s, 20ms), or a date.",
)  # fmt: skip
@click.option("--to", "end", metavar="WHERE", callback=options.bound, help="Last frame, likewise.")
@options.PORTS
@click.option(
    "--fail-on-bad-checksum", is_flag=True, help="Exit with 1 if any checksum does not hold."
)
@click.option(
    "--checksums", "checksums", metavar="KIND,...", callback=options.checksum_names, default="all",
    help=f"What --fail-on-bad-checksum minds: {', '.join(options.CHECKSUMS)}; all if not given.",
)  # fmt: skip
@click.option(
    "--fail-on-malformed", is_flag=True, help="Exit with 1 if any frame does not parse to its end."
)
@click.option(
    "-q", "--quiet", is_flag=True, help="Only count: a line per file, or an object with -T json."
)
@click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True
)
@options.PROGRESS
def command(
    files: tuple[str, ...],
    *,
    read: tuple[str, ...],
    wanted: "Filter | None",
    trees: bool,
    with_bytes: bool,
    form: str | None,
    as_json: bool,
    selection: Selection | None,
    output: str | None,
    row: str | None,
    separators: Separators | None,
    count: int | None,
    start: Bound | None,
    end: Bound | None,
    ports: tuple[int, ...],
    fail_on_bad_checksum: bool,
    checksums: tuple[str, ...],
    fail_on_malformed: bool,
    quiet: bool,
    color: str,
    progress: bool | None,
) -> int:
    """Show the frames of each FILE (pcap or pcapng, also compressed; - is standard input).

    Every checksum is verified: ICRC, VCRC, MPA's CRC, and those of IPv4, UDP and TCP. What does
    not parse is shown up to where it breaks, with the reason.

    \b
    Examples:
      rdmawire dissect capture.pcapng
      rdmawire dissect -V --from 17 --to 17 capture.pcapng
      rdmawire dissect -Y "infiniband.bth.opcode == RC_ACKNOWLEDGE" capture.pcap
      rdmawire dissect -T fields -e frame.number -e infiniband.bth.psn capture.pcap
      rdmawire dissect -T ndjson capture.pcap.zst | jq .malformed
      rdmawire dissect -T parquet -w capture.parquet capture.pcap
      rdmawire dissect -q --fail-on-bad-checksum --checksums icrc,mpa *.pcap
      tcpdump -i eth0 -w - udp port 4791 | rdmawire dissect -
    """  # noqa: D301 - click keeps the lines behind a backspace
    if options.json_is_asked(form, as_json=as_json):
        form = "json"
    form = form or ("fields" if selection else "text")
    demanding = fail_on_bad_checksum or fail_on_malformed
    asked = Form(
        form, trees, with_bytes, selection, separators, quiet, color, output, row, demanding
    )
    asked.check()
    window, paths = _window(start, end), _paths(read + files)
    if asked.is_table:
        names = tuple(selection.names) if selection else ()
        table = Export(form, names, row or "frame", ports, window, wanted, count)
        return table.write(paths, STREAM if output is None else output)
    demands = Demands(checksums if fail_on_bad_checksum else (), fail_on_malformed)
    bar = progress if progress is not None else sys.stderr.isatty() and not sys.stdout.isatty()
    return Run(asked.show(), window, count, ports, demands, passes=wanted).files(
        paths, progress=bar
    )


def _window(start: Bound | None, end: Bound | None) -> Window:
    try:
        return Window(start, end)
    except BoundError as error:
        raise click.BadParameter(str(error), param_hint="--from and --to") from None


def _paths(named: tuple[str, ...]) -> tuple[str, ...]:
    """The files asked for; standard input if none is, unless somebody would have to type it."""
    if not named and sys.stdin is not None and sys.stdin.isatty():
        raise click.UsageError("no FILE is given, and standard input is a terminal")
    return named or (STREAM,)
