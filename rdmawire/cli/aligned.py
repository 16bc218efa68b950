"""Tables on a terminal, and as aligned columns wherever else they go."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import click

from rdmawire.screen import safe

if TYPE_CHECKING:
    from rich.console import Console

    from rdmawire.analysis.statistics.table import Table


def show(table: "Table") -> None:
    """Print a table, and how many rows it leaves out."""
    click.echo()
    if sys.stdout.isatty():
        _rich(table)
    else:
        click.echo("".join(f"{line}\n" for line in _plain(table)), nl=False)
    if table.left_out:
        click.echo(f"... and {table.left_out} more; --top 0 shows all")


def _plain(table: "Table") -> list[str]:
    rows = [[head.name for head in table.heads], *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [table.title, *(_line(table, row, widths) for row in rows)]


def _line(table: "Table", row: list[str], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if head.is_number else cell.ljust(width)
        for head, cell, width in zip(table.heads, map(safe, row), widths, strict=True)
    ]
    return "  ".join(cells).rstrip()


_BETWEEN = 3
"""What rich puts between two columns."""


def parts(table: "Table", width: int) -> "Iterator[Table]":
    """The table cut between columns so that each part fits, if it can; its keys are in each."""
    widths = [
        max(map(len, column)) + _BETWEEN
        for column in zip([head.name for head in table.heads], *table.rows, strict=True)
    ]
    keys = list(range(table.keys))
    chosen = list(keys)
    for at in range(table.keys, len(widths)):
        if len(chosen) > len(keys) and sum(widths[each] for each in [*chosen, at]) > width:
            yield table.columns(chosen)
            chosen = list(keys)
        chosen.append(at)
    yield table.columns(chosen)


def _rich(table: "Table") -> None:
    from rich.console import Console

    console = Console()
    for part in parts(table, console.width):
        _draw(part, console)


def _draw(table: "Table", console: "Console") -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
    for head in table.heads:
        justify: Literal["left", "right"] = "right" if head.is_number else "left"
        drawn.add_column(head.name, justify=justify, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(safe(cell)) for cell in row))
    console.print(drawn)
