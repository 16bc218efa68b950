"""`rdmawire dissect`: the frames of captures, decoded and checked."""

import os
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TextIO

import click

from rdmawire.capture import Reader, open_capture
from rdmawire.capture.io import STREAM, OutputFile, display_path, open_output, write_error
from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option, use_color
from rdmawire.cli.progress import dissected, texts_with_bar
from rdmawire.cli.streams import ByteWriter, EscapingTerminal, complain, write_encoded
from rdmawire.dissect.dissection import Dissection, Severity
from rdmawire.dissect.output import (
    CountLines,
    CountObjects,
    Counts,
    Fields,
    FrameCounts,
    Lines,
    Objects,
    Output,
    Separators,
    plain,
)
from rdmawire.dissect.select import Bound, BoundError, Selection, Window
from rdmawire.errors import CaptureError

if TYPE_CHECKING:
    from rdmawire.columns import Columns
    from rdmawire.columns.arrow import TableFile
    from rdmawire.columns.frame_printer import FramePrinter
    from rdmawire.columns.read import Request
    from rdmawire.filter import Filter


_LARGE = 1 << 20
"""Size in bytes from which importing NumPy pays off."""
_PER_JOB = 2 << 20
"""Bytes of a file for each process: the start of one takes as long as a small part of them."""
_MAX_JOBS = 8
"""Processes by default at most: each takes about 30 MiB of memory of its own."""
_FEW = 2000
"""Frames that are dissected in the time in which NumPy is imported."""


def _size(path: str) -> int:
    """Return the bytes of a file, 0 if that is not known."""
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return 0


class Demands(NamedTuple):
    """What makes a run fail: bad checksums of these names, and malformed frames."""

    checksums: Collection[str] = ()
    malformed: bool = False


class DissectOutput(NamedTuple):
    """The output of a run: frames unless they are only counted, and counts with their stream."""

    frames: Output | None
    counts: Counts | None
    counts_to: TextIO


class FileDissection:
    """Writes the frames of files, and counts them.

    ``count`` limits the frames of all files together; ``ports`` are the UDP destination ports of
    RoCEv2. Frames that do not match the filter ``passes`` are neither shown nor counted. ``jobs``
    is the maximum number of processes, by default the cores, at most eight.
    """

    def __init__(
        self,
        show: DissectOutput,
        window: Window,
        count: int | None,
        ports: Collection[int],
        demands: Demands,
        *,
        passes: "Filter | None" = None,
        jobs: int | None = None,
    ) -> None:
        self._show = show
        self._window = window
        self._left = count
        self._ports = ports
        self._demands = demands
        self._passes = passes
        self._jobs = min(options.usable_cores(), _MAX_JOBS) if jobs is None else jobs
        self._progress = False
        self._read = 0

    def files(self, paths: Collection[str], *, progress: bool) -> int:
        """Write all files in order; return the exit status."""
        self._progress = progress
        self._begin()
        status, total = 0, FrameCounts()
        for path in paths:
            if self._left == 0:
                break
            tally = FrameCounts()
            status |= self._file(path, tally, alone=len(paths) == 1)
            total.include(tally)
        self._end(total)
        return status

    def _begin(self) -> None:
        if self._show.frames:
            sys.stdout.write(self._show.frames.head())
        if self._show.counts:
            self._show.counts_to.write(self._show.counts.head())

    def _end(self, total: FrameCounts) -> None:
        if self._show.frames:
            sys.stdout.write(self._show.frames.tail())
        if self._show.counts:
            self._count(self._show.counts.total(self._read, total) + self._show.counts.tail())

    def _file(self, path: str, tally: FrameCounts, *, alone: bool) -> int:
        """Write one file up to any damage; return 1 if it is damaged or fails the demands."""
        name, damage = display_path(path), ""
        try:
            if (printer := self._printer(path, tally)) is not None:
                self._print(printer, path, alone=alone)
                return self._conclude(name, tally, damage)
            with open_capture(path) as reader:
                name = reader.name
                self._read += 1
                if self._show.frames and not alone:
                    sys.stdout.write(self._show.frames.heading(name))
                self._frames(reader, tally)
        except CaptureError as error:
            damage = str(error)
        except MemoryError:
            damage = f"{name}: out of memory for a frame"
        return self._conclude(name, tally, damage)

    def _printer(self, path: str, tally: FrameCounts) -> "FramePrinter | None":
        """Return what prints many frames at once; ``None`` to dissect them one by one."""
        frames, encoding = self._show.frames, sys.stdout.encoding or "utf-8"
        few = self._left is not None and self._left < _FEW and self._passes is None
        if few or _size(path) < _LARGE or not _extends_ascii(encoding):
            return None
        if isinstance(frames, Fields) and self._demands != Demands():
            return None
        from rdmawire.columns.frame_printer import open_printer
        from rdmawire.columns.query import FrameSelection

        return open_printer(
            path, frames, tally, self._ports,
            selection=FrameSelection(self._window, self._passes), max_frames=self._left,
            jobs=max(min(self._jobs, _size(path) // _PER_JOB), 1), encoding=encoding,
        )  # fmt: skip

    def _print(self, printer: "FramePrinter", path: str, *, alone: bool) -> None:
        """Print a file, many frames at once."""
        self._read += 1
        frames = self._show.frames
        if frames and not alone:
            sys.stdout.write(frames.heading(display_path(path)))
        texts = printer.texts()
        if self._progress:
            texts = texts_with_bar(texts, path, lambda: printer.position)
        try:
            write_encoded(frames.following(texts) if isinstance(frames, Objects) else texts)
        finally:
            self._left = printer.left

    def _frames(self, reader: Reader, tally: FrameCounts) -> None:
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

    def _conclude(self, name: str, tally: FrameCounts, damage: str) -> int:
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
        """Write counts, after the frames that they count."""
        if text:
            sys.stdout.flush()
            self._show.counts_to.write(text)
            self._show.counts_to.flush()


FORMS = ("csv", "parquet", "arrow")


class _Filler:
    """Writes up to ``count`` rows of captures to a file; all for ``None``.

    ``read`` becomes true when a capture could be read, ``status`` becomes 1 when one is damaged or
    cannot be read.
    """

    def __init__(self, request: "Request", file: "TableFile", count: int | None) -> None:
        self.status = 0
        self.read = False
        self._request = request
        self._file = file
        self._left = count

    def captures(self, paths: Collection[str]) -> None:
        """Write captures in order until ``count`` is reached."""
        for path in paths:
            if self._left == 0:
                break
            try:
                self._capture(path)
            except CaptureError as error:
                complain(str(error))
                self.status = 1

    def _capture(self, path: str) -> None:
        for block in self._request.blocks(path, self._left):
            self.read = True
            self._write(block)
            if self._left == 0:
                break
        self.read = True

    def _write(self, block: "Columns") -> None:
        if self._left is not None:
            block = block.at(slice(self._left))
            self._left -= block.rows
        self._file.write(block)


@dataclass(frozen=True, slots=True)
class Export:
    """A table of the fields ``names``, by default those of ``DEFAULT_FIELDS``.

    A ``row`` is a frame or an FPDU; ``count`` limits the rows of all captures together.
    """

    form: str
    names: tuple[str, ...]
    row: str
    ports: tuple[int, ...]
    window: Window
    where: "Filter | None"
    count: int | None

    def write(self, paths: Collection[str], output: str) -> int:
        """Write one file of all captures, report damaged ones, and return the exit status.

        If no capture can be read, an existing file of this name is kept.
        """
        _check_output(paths, output)
        request = self._request()
        sink = open_output(output)
        try:
            filled = self._fill(request, self._stream(sink, output), paths)
            sink.commit() if filled.read else sink.discard()
        except BaseException as error:
            sink.discard()
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise write_error(error, sink.name) from error
            raise
        return filled.status

    def _stream(self, sink: OutputFile, output: str) -> ByteWriter:
        """Return the stream to write to; on a terminal it escapes control characters."""
        on_terminal = self.form == "csv" and output == STREAM and sys.stdout.isatty()
        return EscapingTerminal(sink) if on_terminal else sink

    def _request(self) -> "Request":
        try:
            import rdmawire.columns.arrow  # noqa: F401 - a missing library is reported first
            from rdmawire.columns import DEFAULT_FIELDS, RowUnit
            from rdmawire.columns.query import FrameSelection, Query
            from rdmawire.columns.read import Request
        except ImportError as error:
            raise click.UsageError(f"-T {self.form}: {error}") from None
        choice = FrameSelection(self.window, self.where)
        return Request(Query(self.names or DEFAULT_FIELDS), RowUnit(self.row), self.ports, choice)

    def _fill(self, request: "Request", sink: ByteWriter, paths: Collection[str]) -> _Filler:
        from rdmawire.columns.arrow import table_file

        file = table_file(self.form, sink, request.nothing())
        filler = _Filler(request, file, self.count)
        try:
            filler.captures(paths)
            file.close()
        except BaseException:
            file.abandon()
            raise
        return filler


def _check_output(paths: Collection[str], output: str) -> None:
    if output != STREAM and any(_is_same(path, output) for path in paths):
        raise click.UsageError(
            f"{display_path(output)} is a capture to read; name another file with -w"
        )


def _is_same(path: str, output: str) -> bool:
    """Return whether writing ``output`` would replace the capture ``path``."""
    try:
        return os.path.isfile(output) and os.path.samefile(0 if path == STREAM else path, output)
    except (OSError, ValueError):  # missing: reading or writing it reports that
        return False


_STYLES = {
    Severity.COMMENT: "dim",
    Severity.CHAT: "cyan",
    Severity.WARN: "yellow",
    Severity.ERROR: "bold red",
}
_OBJECTS = {"json", "ndjson"}


def _extends_ascii(encoding: str) -> bool:
    """Whether parts of a text in this encoding can be joined."""
    return "\n".encode(encoding) == b"\n"


class OutputOptions(NamedTuple):
    """The options of output; :meth:`check` rejects those that do not go together."""

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
        """Whether the output is a table."""
        return self.format in FORMS

    def show(self) -> DissectOutput:
        """Return what to print, and where."""
        if self.quiet:
            return DissectOutput(None, self._counts(), sys.stdout)
        counts = CountLines() if self.format == "text" else None
        return DissectOutput(self._output(), counts, sys.stderr)

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


_CLASHES: tuple[tuple[Callable[[OutputOptions], object], str], ...] = (
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
        "-x goes with -T text, json or ndjson; plain hex is in the `bytes` of -T ndjson -x",
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
        "-T parquet and arrow are binary: name a file with -w FILE",
    ),
    (lambda form: form.format != "fields" and form.separators, "-E goes with -T fields"),
)
"""Conflicting options, each with its message."""


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _painter(color: str) -> Callable[[Severity, str], str]:
    """Return the function that colours lines; ``auto`` colours in a terminal only."""
    if not (use_color(sys.stdout) if color == "auto" else color == "always"):
        return plain
    from rich.style import Style

    styles = {severity: Style.parse(style) for severity, style in _STYLES.items()}
    return lambda severity, text: styles[severity].render(text) if severity in styles else text


@click.command(
    "dissect",
    cls=Command,
    examples=(
        "rdmawire dissect capture.pcapng",
        "rdmawire dissect -V --from 17 --to 17 capture.pcapng",
        'rdmawire dissect -Y "infiniband.bth.opcode == RC_ACKNOWLEDGE" capture.pcap',
        "rdmawire dissect -T fields -e frame.number -e infiniband.bth.psn capture.pcap",
        "rdmawire dissect -T ndjson capture.pcap.zst | jq .malformed",
        "rdmawire dissect -T parquet -w capture.parquet capture.pcap",
        "rdmawire dissect -q --fail-on-bad-checksum --checksums icrc,mpa *.pcap",
        "tcpdump -i eth0 -w - udp port 4791 | rdmawire dissect -",
    ),
)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@options.READ
@options.PORTS
@options.DISPLAY_FILTER
@option(
    "Selection", "--from", "start", metavar="POSITION", callback=options.bound,
    help="First frame: a number, a time since the first frame (1.5s, 20ms), or a date.",
)  # fmt: skip
@option(
    "Selection", "--to", "end", metavar="POSITION", callback=options.bound,
    help="Last frame, given in the same way.",
)  # fmt: skip
@option(
    "Selection", "-c", "--count", type=IntegerType(min=1),
    help="Stop after this many frames of all files together.",
)  # fmt: skip
@option("Output", "-V", "--tree", "trees", is_flag=True, help="Show all fields with byte offsets.")
@option("Output", "-x", "--hex", "with_bytes", is_flag=True, help="Show the bytes of frames too.")
@option(
    "Output", "-T", "--format", "form",
    type=click.Choice(["text", "fields", "json", "ndjson", *FORMS]),
    help="text: a line per frame; fields: the -e fields, tab-separated; csv, parquet, arrow: a "
    "table of the -e fields.  [default: text, or fields with -e]",
)  # fmt: skip
@option("Output", "--json", "as_json", is_flag=True, help="The same as -T json.")
@option(
    "Output", "-e", "--field", "selection", multiple=True, metavar="FIELD",
    callback=options.selection, shell_complete=options.complete_field,
    help="Print FIELD, a name from `rdmawire fields`. Repeatable.",
)  # fmt: skip
@option(
    "Output", "-E", "separators", multiple=True, metavar="NAME=VALUE", callback=options.separators,
    help="Format of -T fields: header=y, separator=CHAR, aggregator=CHAR, occurrence=a|f|l, "
    "quote=d|s|n. Repeatable.",
)  # fmt: skip
@option(
    "Output", "--row", type=click.Choice(["frame", "fpdu"]),
    help="What a row of a table is: a frame, or an iWARP FPDU.  [default: frame]",
)  # fmt: skip
@options.written(
    "output", "Write the table of -T csv, parquet or arrow to FILE.  [default: standard output]"
)
@option(
    "Output", "-q", "--quiet", is_flag=True,
    help="Print only counts: a line per file, or an object with -T json.",
)  # fmt: skip
@option(
    "Output", "--color", type=click.Choice(["auto", "always", "never"]), default="auto",
    show_default=True, help="Colour lines; auto: only in a terminal.",
)  # fmt: skip
@option(
    "Work", "-j", "--jobs", type=IntegerType(min=1, max=1024),
    help=f"Number of processes for a large file.  [default: the cores, at most {_MAX_JOBS}]",
)  # fmt: skip
@options.PROGRESS
@option(
    "Exit status", "--fail-on-bad-checksum", is_flag=True, help="Exit with 1 if a checksum is bad."
)
@option(
    "Exit status", "--checksums", "checksums", metavar="NAME,...", callback=options.checksum_names,
    default="all", show_default=True,
    help=f"Checksums for --fail-on-bad-checksum: {', '.join(options.CHECKSUMS)}.",
)  # fmt: skip
@option(
    "Exit status", "--fail-on-malformed", is_flag=True, help="Exit with 1 if a frame is malformed."
)
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
    jobs: int | None,
    progress: bool | None,
) -> int:
    """Show the frames of each FILE: pcap or pcapng, also compressed; - is standard input.

    Every checksum is verified: ICRC, VCRC, the CRC of MPA, and those of IPv4, UDP and TCP. A
    malformed frame is shown up to the error, with the reason.
    """
    if options.json_is_asked(form, as_json=as_json):
        form = "json"
    form = form or ("fields" if selection else "text")
    demanding = fail_on_bad_checksum or fail_on_malformed
    shape = OutputOptions(
        form, trees, with_bytes, selection, separators, quiet, color, output, row, demanding
    )
    shape.check()
    window, paths = _window(start, end), _paths(read + files)
    if shape.is_table:
        names = tuple(selection.names) if selection else ()
        table = Export(form, names, row or "frame", ports, window, wanted, count)
        return table.write(paths, STREAM if output is None else output)
    demands = Demands(checksums if fail_on_bad_checksum else (), fail_on_malformed)
    bar = progress if progress is not None else sys.stderr.isatty() and not sys.stdout.isatty()
    dissection = FileDissection(
        shape.show(), window, count, ports, demands, passes=wanted, jobs=jobs
    )
    return dissection.files(paths, progress=bar)


def _window(start: Bound | None, end: Bound | None) -> Window:
    try:
        return Window(start, end)
    except BoundError as error:
        raise click.BadParameter(str(error), param_hint="--from and --to") from None


def _paths(named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files to read, by default standard input, unless it is a terminal."""
    if not named and sys.stdin is not None and sys.stdin.isatty():
        raise click.UsageError("no FILE is given, and standard input is a terminal")
    return named or (STREAM,)
