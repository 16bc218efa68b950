"""What all sweeps have in common: where jobs run, and tables, files and pictures of the rows."""

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from rdmawire.capture.io import OutputFile, open_output, write_error
from rdmawire.cli import options
from rdmawire.cli.command import F, IntegerType, option
from rdmawire.cli.streams import complain
from rdmawire.dissect.output import dumped
from rdmawire.errors import ClusterError, Ended, SweepError
from rdmawire.terminal import escape
from rdmawire.units import RATES, format_exactly

if TYPE_CHECKING:
    from rdmawire.columns import Column
    from rdmawire.gpudirect.plot import Line
    from rdmawire.gpudirect.sweep import Job, Sweep, SweepRow, Value

_FAILED: Final = 2
_INTERRUPTED: Final = 130
_MAX_JOBS: Final = 1024
_FORMS: Final = ("csv", "parquet", "arrow")
_REASON: Final = "reason"


class ResultColumn(NamedTuple):
    """How a table shows a result: its heading, and the cell of a value."""

    heading: str
    cell: Callable[[int], str] = str


def _microseconds(value: int) -> str:
    return f"{value / 1000:.2f}"


def _gigabytes(value: int) -> str:
    return f"{value / 1e9:.3f}"


_TIME: Final = ResultColumn("time (us)", _microseconds)


class SweepKind(NamedTuple):
    """What is swept: the names of its results, which of them tables show, and what is drawn."""

    results: Sequence[str]
    shown: Mapping[str, ResultColumn]
    speed: str
    speed_label: str


COLLECTIVES: Final = SweepKind(
    ("duration_ns", "bytes_per_s", "bus_bytes_per_s", "messages", "local_bytes"),
    {
        "duration_ns": _TIME,
        "bytes_per_s": ResultColumn("algbw (GB/s)", _gigabytes),
        "bus_bytes_per_s": ResultColumn("busbw (GB/s)", _gigabytes),
        "messages": ResultColumn("messages"),
    },
    "bus_bytes_per_s",
    "bus bandwidth",
)
TRANSFERS: Final = SweepKind(
    ("duration_ns", "bytes_per_s", "copies", "chunks", "cpu_ns", "frames", "wire_bytes"),
    {
        "duration_ns": _TIME,
        "bytes_per_s": ResultColumn("rate (GB/s)", _gigabytes),
        "copies": ResultColumn("copies"),
        "cpu_ns": ResultColumn("CPU time (us)", _microseconds),
        "frames": ResultColumn("frames"),
    },
    "bytes_per_s",
    "rate",
)
_SETTINGS: Final[Mapping[str, Callable[[Any], str]]] = {
    "rate": lambda value: format_exactly(value, RATES),
    "loss": lambda value: f"{value:.6g}",
}
"""How settings are written that are not written as they are."""
_ACROSS: Final = ("bytes", "hosts", "gpus", "channels", "qps", "chunk", "slots", "rate", "mtu")
"""Settings that a picture may have across: the first one with several values."""


def _written(name: str, value: "Value") -> str:
    return "" if value is None else _SETTINGS.get(name, str)(value)


class SweepOutput(NamedTuple):
    """The options that all sweeps have."""

    jobs: int | None
    scheduler: str | None
    path: str | None
    picture: Path | None
    as_json: bool
    quiet: bool

    def check(self) -> None:
        """Raise ``UsageError`` for options that do not go together, or name no format."""
        options.check_workers(self.scheduler)
        if self.as_json and self.quiet:
            raise click.UsageError("--json prints the rows, -q does not: give one of them")
        if self.path is not None:
            if self.form not in _FORMS:
                raise click.UsageError(
                    f"-o {escape(self.path)} must end in .csv, .parquet or .arrow"
                )
            options.check_installed("rdmawire.columns.arrow")
        options.check_drawing(self.picture)

    @property
    def form(self) -> str:
        """The format of the file of rows, by its suffix."""
        return Path(self.path or "").suffix.lower().lstrip(".")


def outputs(command: F) -> F:
    """Add the options that all sweeps have; the command gets them as ``output``."""

    @wraps(command)
    def chosen(
        *args: Any,
        jobs: int | None,
        scheduler: str | None,
        path: str | None,
        picture: Path | None,
        as_json: bool,
        quiet: bool,
        **settings: Any,
    ) -> Any:
        output = SweepOutput(jobs, scheduler, path, picture, as_json, quiet)
        output.check()
        return command(*args, output=output, **settings)

    decorators: Iterable[Callable[[Any], Any]] = (
        option(
            "Work", "-j", "--jobs", type=IntegerType(1, _MAX_JOBS),
            help="Number of processes.  [default: one for each core]",
        ),
        options.SCHEDULER,
        options.written("path", "Write the rows to FILE.csv, .parquet or .arrow."),
        options.picture("Draw times and rates by size to FILE.svg or FILE.png."),
        options.text_or_json("Print the rows as a JSON array."),
        option("Output", "-q", "--quiet", is_flag=True, help="Print no table."),
    )  # fmt: skip
    decorated: Any = chosen
    for decorate in reversed([*decorators]):
        decorated = decorate(decorated)
    return decorated  # type: ignore[no-any-return]


class Combination(NamedTuple):
    """A job, and the value of each option that it was made of."""

    job: "Job"
    axes: Mapping[str, "Value"]


def distinct(wanted: Iterable[Combination]) -> list[Combination]:
    """Return the combinations whose settings are not those of an earlier one."""
    found: dict[tuple[Any, ...], Combination] = {}
    for one in wanted:
        found.setdefault(tuple(one.job.settings.items()), one)
    return [*found.values()]


def combined(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return each combination of a value of each axis; ``UsageError`` if there are too many."""
    from rdmawire.gpudirect.sweep import combinations

    try:
        return [*combinations(axes)]
    except SweepError as error:
        raise click.UsageError(f"{error}: give fewer values") from None


def perform(kind: SweepKind, wanted: list[Combination], output: SweepOutput) -> int:
    """Do all jobs, show and write the rows, and return the exit status."""
    from rdmawire.gpudirect.sweep import Sweep

    lines = _PictureLines(kind, wanted)
    if output.picture is not None:
        lines.check()
    sink = None if output.path is None else open_output(output.path)
    sweep = Sweep([one.job for one in wanted])
    try:
        ending = _run(sweep, output)
        rows = sweep.rows
        if sink is not None:
            _commit(sink, output.form, kind, rows)
    except BaseException:
        if sink is not None:
            sink.discard()
        raise
    _show(kind, wanted, rows, output)
    if output.picture is not None and rows:
        lines.draw(rows, output.picture)
    return _status(ending, rows, len(wanted))


def _status(ending: BaseException | None, rows: "Sequence[SweepRow]", count: int) -> int:
    """Return the exit status, and say why there are not all rows; raise the signal of an end."""
    if isinstance(ending, ClusterError):
        complain(str(ending))
    if ending is not None and (rows or not isinstance(ending, ClusterError)):
        complain(f"{len(rows)} of {count} combinations are done")
    if isinstance(ending, Ended):
        raise ending
    if isinstance(ending, KeyboardInterrupt):
        return _INTERRUPTED
    return 0 if ending is None and any(row.results for row in rows) else _FAILED


def _run(sweep: "Sweep", output: SweepOutput) -> BaseException | None:
    """Do the jobs; return what ended that early: a signal, or an error of the cluster."""
    from rdmawire.cli.progress import status_line

    count = len(sweep.jobs)

    def words(done: int) -> str:
        return f"{done} of {count} combinations"

    try:
        with status_line(words) as line:
            sweep.report = line
            if output.scheduler is not None:
                _run_on_cluster(sweep, output.scheduler)
            else:
                sweep.run(min(output.jobs or options.usable_cores(), count))
    except (KeyboardInterrupt, Ended) as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the rows are written all the same
        return error
    except ClusterError as error:
        return error
    return None


def _run_on_cluster(sweep: "Sweep", scheduler: str) -> None:
    from rdmawire.cluster import cluster

    with cluster(scheduler) as found:
        sweep.run_on(found.executor, found.workers, found.killed)


# Rows as text, JSON and files.


def _show(
    kind: SweepKind, wanted: Sequence[Combination], rows: "Sequence[SweepRow]", output: SweepOutput
) -> None:
    if output.as_json:
        click.echo(dumped([row.values() for row in rows], indent=1))
    elif rows and not output.quiet:
        _show_table(kind, wanted, rows)


def _show_table(kind: SweepKind, wanted: Sequence[Combination], rows: "Sequence[SweepRow]") -> None:
    """Print a table of the settings that differ, and of the results; its title has the others."""
    from rdmawire.cli.table import draw
    from rdmawire.stats.table import ReportColumn, ReportTable

    first, names = wanted[0].job.settings, _varied([one.job.settings for one in wanted])
    same = {name: value for name, value in first.items() if name not in names and value}
    title = ", ".join(f"{name} {_written(name, value)}" for name, value in same.items())
    has_results = any(row.results for row in rows)
    shown = kind.shown if has_results else {}
    reason = [_REASON] if any(row.reason for row in rows) else []
    columns = [ReportColumn(name, _is_number(first[name])) for name in names]
    columns += [ReportColumn(column.heading) for column in shown.values()]
    columns += [ReportColumn(name, False) for name in reason]
    cells = [[*_cells(row, names, shown), *(row.reason for _ in reason)] for row in rows]
    draw(ReportTable(escape(title), columns, cells, 0, len(names)))


def _is_number(value: "Value") -> bool:
    return isinstance(value, int | float)


def _varied(settings: "Sequence[Mapping[str, Value]]") -> list[str]:
    """Return the names of the settings of which there are several values, and of the size."""
    return [
        name for name in settings[0] if name == "bytes" or len({one[name] for one in settings}) > 1
    ]


def _cells(row: "SweepRow", names: list[str], shown: Mapping[str, ResultColumn]) -> list[str]:
    settings = [_written(name, row.settings[name]) for name in names]
    results = [
        column.cell(row.results[name]) if row.results else "" for name, column in shown.items()
    ]
    return settings + results


def _commit(sink: OutputFile, form: str, kind: SweepKind, rows: "Sequence[SweepRow]") -> None:
    """Write a file of all rows."""
    from rdmawire.columns.arrow import table_file

    values = [row.values() for row in rows]
    names = dict.fromkeys([name for row in rows for name in row.settings] + [*kind.results])
    columns = {name: _column([one.get(name) for one in values]) for name in names}
    columns[_REASON] = _column([one.get(_REASON) for one in values], str)
    file = table_file(form, sink, columns)
    try:
        file.write(columns)
        file.close()
        sink.commit()
    except OSError as error:
        file.abandon()
        raise write_error(error, sink.name) from error


def _column(values: "list[Value]", kind: type = int) -> "Column":
    """Return a column of values, of a type that is known or that of the first one."""
    import numpy as np

    from rdmawire.columns import Column, ColumnType, Form

    kind = next((type(value) for value in values if value is not None), kind)
    form = Form.TEXT if kind is str else Form.NUMBER
    dtype = np.dtype({int: np.int64, float: np.float64}.get(kind, object))
    array = np.array([kind() if value is None else value for value in values], dtype)
    valid = np.array([value is not None for value in values], bool)
    return Column(ColumnType(form, dtype, kind), array, valid)


# Pictures.


class _PictureLines:
    """The lines of a picture: one for each combination of what is not across."""

    def __init__(self, kind: SweepKind, wanted: Sequence[Combination]) -> None:
        self._kind = kind
        self._wanted = wanted
        axes = [one.axes for one in wanted]
        several = [name for name in axes[0] if len({one[name] for one in axes}) > 1]
        self._across = next((name for name in _ACROSS if name in several), "bytes")
        self._names = [name for name in several if name != self._across]
        self._labels = [*dict.fromkeys(self._label(one) for one in wanted)]

    def check(self) -> None:
        """Raise ``UsageError`` for more lines than can be distinguished."""
        from rdmawire.gpudirect.plot import MAX_LINES

        if len(self._labels) > MAX_LINES:
            raise click.UsageError(
                f"--plot: {len(self._labels)} lines, at most {MAX_LINES} can be distinguished: "
                f"give fewer values of {', '.join(self._names)}"
            )

    def _label(self, one: Combination) -> str:
        parts = ((name, one.axes[name]) for name in self._names)
        return ", ".join(
            value if isinstance(value, str) else f"{name} {_written(name, value) or 'default'}"
            for name, value in parts
        )

    def draw(self, rows: "Sequence[SweepRow]", path: Path) -> None:
        """Draw the rows that have results."""
        from rdmawire.gpudirect.plot import draw_lines

        first = self._wanted[0].job.settings
        what = {str(one.job.settings.get("collective", "")) for one in self._wanted}
        title = ", ".join(sorted(what)) if "collective" in first else "From GPU to GPU"
        draw_lines(self._drawn(rows), path, title, self._across, self._kind.speed_label)

    def _drawn(self, rows: "Sequence[SweepRow]") -> "list[Line]":
        from rdmawire.gpudirect.plot import Line

        points: dict[str, list[tuple[int, int, float]]] = {label: [] for label in self._labels}
        for row in rows:
            if row.results:
                across: Any = row.settings[self._across]
                point = across, row.results["duration_ns"], row.results[self._kind.speed]
                points[self._label(self._wanted[row.number])].append(point)
        found = {label: ends for label, ends in points.items() if ends}
        return [Line(label, ends, style) for style, (label, ends) in enumerate(found.items())]
