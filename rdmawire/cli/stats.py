"""`rdmawire stats`: opcodes, endpoints, queue pairs and throughput of captures."""

import json
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rdmawire.capture.io import STANDARD_INPUT, STREAM, display_path
from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.progress import file_bar
from rdmawire.cli.streams import complain
from rdmawire.cli.table import show
from rdmawire.errors import CaptureError
from rdmawire.units import parse_duration

if TYPE_CHECKING:
    from rdmawire.filter import Filter
    from rdmawire.stats import Statistics
    from rdmawire.stats.report import Report, Throughput


_LONG = 64 << 20
"""Size in bytes from which a file gets a progress bar."""


@dataclass(frozen=True)
class CaptureStatistics:
    """The statistics of captures, and their names."""

    statistics: "Statistics"
    names: list[str]

    @cached_property
    def report(self) -> "Report":
        """The report of these captures."""
        from rdmawire.stats.collector import report_of

        return report_of(self.statistics, self.names)

    def throughput(self, most: int) -> "Throughput":
        """Return throughput in at most ``most`` intervals."""
        from rdmawire.stats.collector import throughput_of

        return throughput_of(self.statistics, most)


class Counting:
    """Counts groups of captures; ``status`` becomes 1 where one is damaged or cannot be read."""

    def __init__(
        self,
        interval: int | None,
        ports: Collection[int],
        wanted: "Filter | None",
        *,
        points: bool,
        progress: bool,
    ) -> None:
        self.status = 0
        self._interval = interval
        self._ports = ports
        self._wanted = wanted
        self._points = points
        self._progress = progress

    def group(self, files: Collection[str]) -> CaptureStatistics | None:
        """Count captures together; return ``None`` if none could be read."""
        from rdmawire.stats import Statistics
        from rdmawire.stats.throughput import IntervalError

        statistics = Statistics(interval=self._interval, points=self._points)
        try:
            read = [_name(file) for file in files if self._is_counted(file, statistics)]
        except IntervalError as error:
            self._complain(f"{', '.join(map(_name, files))}: {error}")
            return None
        return CaptureStatistics(statistics, read) if read else None

    def _is_counted(self, file: str, statistics: "Statistics") -> bool:
        """Count a capture; return whether it was read, at least up to its damage."""
        before = statistics.frames
        try:
            with file_bar(file, _LONG, wanted=self._progress) as progress:
                statistics.read(file, ports=self._ports, where=self._wanted, progress=progress)
        except CaptureError as error:
            self._complain(str(error))
            return statistics.frames > before
        return True

    def _complain(self, text: str) -> None:
        self.status = 1
        sys.stdout.flush()
        complain(text)


def _name(file: str) -> str:
    return STANDARD_INPUT if file == STREAM else display_path(file)


_SHOWN = 20
"""Intervals of throughput in a table, unless --interval gives their width."""
_MAX_INTERVAL = 1 << 63
"""Exclusive, in nanoseconds: times are int64."""


def _interval(ctx: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    with suppress(ValueError):
        if 0 < (width := parse_duration(text)) < _MAX_INTERVAL:
            return width
    raise click.BadParameter(f"{text!r} is not a duration such as 100ms or 1.5s", ctx, parameter)


@click.command(
    "stats",
    cls=Command,
    examples=(
        "rdmawire stats capture.pcap",
        'rdmawire stats -Y "ip.addr == 10.77.0.1" capture.pcap',
        "rdmawire stats --plot capture.svg capture.pcap",
        "rdmawire stats --json capture.pcap | jq '.captures[].flows[].requests.gaps'",
    ),
)
@click.argument("files", nargs=-1, metavar="FILE...")
@options.READ
@option("Input", "--together", is_flag=True, help="Count all FILEs as one capture.")
@options.PORTS
@options.DISPLAY_FILTER
@options.text_or_json("Print one JSON object.")
@options.picture("Draw throughput, PSNs over time and opcodes to FILE.svg or FILE.png.")
@option(
    "Output", "--interval", metavar="DURATION", callback=_interval,
    help="Width of the intervals of throughput: 100ms, 1s.  [default: about 20 intervals]",
)  # fmt: skip
@option(
    "Output", "--top", type=IntegerType(min=0), default=40, show_default=True,
    help="Maximum rows of a table, the largest first; 0 for all.",
)  # fmt: skip
@options.PROGRESS
def command(
    files: tuple[str, ...],
    *,
    read: tuple[str, ...],
    wanted: "Filter | None",
    as_json: bool,
    picture: Path | None,
    together: bool,
    interval: int | None,
    top: int,
    ports: tuple[int, ...],
    progress: bool | None,
) -> int:
    """Count what each FILE holds: opcodes, endpoints, queue pairs, throughput over time.

    For each queue pair: frames, bytes, first and last PSN, duplicates, gaps, NAKs by code, RNR
    NAKs, CNPs and ECN marks. Queue pairs are matched by which one acknowledges the PSNs of the
    other. FILE is a pcap or pcapng file, also compressed; - is standard input.
    """
    files = read + files
    if not files:
        raise click.UsageError("Missing argument 'FILE...'")
    if picture is not None and len(files) > 1 and not together:
        raise click.UsageError("--plot draws one picture: give one FILE, or --together")
    options.check_drawing(picture)
    bar = progress if progress is not None else sys.stderr.isatty()
    counting = Counting(interval, ports, wanted, points=picture is not None, progress=bar)
    groups = [files] if together else [(file,) for file in files]
    found = (group for group in map(counting.group, groups) if group is not None)
    write = _write_json if as_json else partial(_write_tables, top=top, fixed=interval is not None)
    last = write(found)
    if picture is not None and last is not None:
        _draw(last, picture)
    return counting.status


def _write_json(found: Iterator[CaptureStatistics]) -> CaptureStatistics | None:
    """Write one object, capture by capture; return the last capture."""
    last, before = None, '{"captures": ['
    for last in found:
        sys.stdout.write(before)
        sys.stdout.writelines(_encoded(last.report))
        before = ",\n"
    sys.stdout.write("]}\n" if last else f"{before}]}}\n")
    return last


def _encoded(report: "Report") -> Iterator[str]:
    """Yield a report as JSON, a line for each member and for each element of its lists."""
    from rdmawire.stats.report import shallow

    encode = partial(json.dumps, default=shallow)
    before = "{"
    for name, value in shallow(report).items():
        yield f"{before}\n {encode(name)}: "
        before = ","
        if isinstance(value, list):
            yield "["
            yield from (f"{',' if at else ''}\n  {encode(one)}" for at, one in enumerate(value))
            yield "]"
        else:
            yield encode(value)
    yield "\n}"


def _write_tables(
    found: Iterator[CaptureStatistics], *, top: int, fixed: bool
) -> CaptureStatistics | None:
    """Write the tables of each capture as soon as it is counted; return the last capture."""
    from rdmawire.stats.table import heading, tables

    last = None
    for last in found:
        click.echo(heading(last.report))
        throughput = last.report.throughput if fixed else last.throughput(_SHOWN)
        for table in tables(last.report, throughput, top):
            show(table)
        click.echo()
    return last


def _draw(counted: CaptureStatistics, picture: Path) -> None:
    from rdmawire.stats.plot import draw

    assert counted.statistics.points is not None
    draw(counted.report, counted.statistics.points, picture)
