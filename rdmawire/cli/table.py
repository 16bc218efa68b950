"""Tables: drawn in a terminal, aligned columns elsewhere."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TextIO

import click

from rdmawire.terminal import escape

if TYPE_CHECKING:
    from rich.console import Console

    from rdmawire.stats.table import ReportTable
    from rdmawire.traffic.summary import TrafficSummary


def show(table: "ReportTable") -> None:
    """Print a table and the number of rows it leaves out."""
    click.echo()
    draw(table)
    if table.left_out:
        click.echo(f"... and {table.left_out} more; --top 0 shows all")


def draw(table: "ReportTable") -> None:
    """Print a table: drawn in a terminal, else in aligned columns."""
    if sys.stdout.isatty():
        _rich(table)
    else:
        click.echo("".join(f"{line}\n" for line in _plain(table)), nl=False)


def _plain(table: "ReportTable") -> list[str]:
    rows = [[column.name for column in table.columns], *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [table.title, *(_line(table, row, widths) for row in rows)]


def _line(table: "ReportTable", row: list[str], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if column.is_number else cell.ljust(width)
        for column, cell, width in zip(table.columns, map(escape, row), widths, strict=True)
    ]
    return "  ".join(cells).rstrip()


def aligned(rows: Sequence[Sequence[str]], left: frozenset[int]) -> Iterator[str]:
    """Yield the lines of a table; columns of these numbers are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            text.ljust(width) if number in left else text.rjust(width)
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


_GAP = 3
"""Characters that rich puts between two columns."""


def parts(table: "ReportTable", width: int) -> "Iterator[ReportTable]":
    """Split a table between columns to fit ``width``; each part repeats the key columns."""
    widths = [
        max(map(len, column)) + _GAP
        for column in zip([column.name for column in table.columns], *table.rows, strict=True)
    ]
    keys = list(range(table.keys))
    chosen = list(keys)
    for at in range(table.keys, len(widths)):
        if len(chosen) > len(keys) and sum(widths[each] for each in [*chosen, at]) > width:
            yield table.select(chosen)
            chosen = list(keys)
        chosen.append(at)
    yield table.select(chosen)


def _rich(table: "ReportTable") -> None:
    from rich.console import Console

    console = Console()
    for part in parts(table, console.width):
        _draw_table(part, console)


def _draw_table(table: "ReportTable", console: "Console") -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in table.columns:
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        drawn.add_column(column.name, justify=justify, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(escape(cell)) for cell in row))
    console.print(drawn)


_SECOND = 1_000_000_000
_COUNTS = (
    "messages",
    "bytes",
    "mads",
    "frames",
    "frame_bytes",
    "retransmits",
    "naks",
    "rnr_naks",
    "cnps",
    "marks",
    "lost",
    "failed",
    "refused",
)
_WORDS = {
    "bytes": "bytes",
    "mads": "MADs",
    "frame_bytes": "bytes on the wire",
    "naks": "NAKs",
    "rnr_naks": "RNR NAKs",
    "cnps": "CNPs",
    "marks": "ECN marks",
    "lost": "frames lost",
    "failed": "messages failed",
    "refused": "connections failed",
}
_QUIET = {"mads", "marks", "lost", "failed", "refused", "rnr_naks"}
"""Counts that are left out of the table when they are 0."""
_NO_PARTIES: Mapping[str, int] = MappingProxyType({})
_PATHS = {"host": "host memory", "gpu_direct": "GPUDirect", "bounce": "bounce buffers"}


def write_summary(
    summary: "TrafficSummary",
    *,
    as_json: bool,
    to: TextIO | None = None,
    more: Iterable[tuple[str, str]] = (),
    parties: Mapping[str, int] = _NO_PARTIES,
) -> None:
    """Print a summary to ``to``, by default standard output. A table ends with the rows ``more``.

    ``parties`` are the numbers of clients, servers and flows by name; they come first.
    """
    stream = sys.stdout if to is None else to
    if as_json:
        stream.write(json.dumps({**parties, **as_object(summary)}, indent=1) + "\n")
        return
    lines = [(name, f"{count:,}") for name, count in parties.items()]
    lines += [*rows(summary), *more]
    if stream.isatty():
        _draw(lines, stream)
    else:
        stream.writelines(f"{name:<26}{value}\n" for name, value in lines)


def as_object(summary: "TrafficSummary") -> dict[str, object]:
    """Return the summary as a JSON object: every count by its name."""
    found = summary._asdict()
    return {**found, "paths": {name: path._asdict() for name, path in summary.paths.items()}}


def rows(summary: "TrafficSummary") -> Iterator[tuple[str, str]]:
    """Yield a row for each count; counts of errors only if they are not 0."""
    for name in _COUNTS:
        count: int = getattr(summary, name)
        if count or name not in _QUIET:
            yield _WORDS.get(name, name), f"{count:,}"
    for name, path in summary.paths.items():
        counts = f"{path.bytes:,} bytes in {path.transactions:,} DMAs, {path.copies:,} copies"
        yield f"by {_PATHS.get(name, name)}", counts
    yield "virtual time", f"{summary.virtual_ns / _SECOND:.9f} s"
    yield "wall time", f"{summary.wall_s:.3f} s"


def _draw(lines: Iterable[tuple[str, str]], stream: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=box.SIMPLE, show_header=False)
    drawn.add_column(style="cyan")
    drawn.add_column(justify="right")
    for name, value in lines:
        drawn.add_row(name, value)
    Console(file=stream).print(drawn)
