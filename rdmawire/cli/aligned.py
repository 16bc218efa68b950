"""Tables on a terminal, and as aligned columns wherever else they go."""

import sys
from typing import TYPE_CHECKING

import click

from rdmawire.screen import safe

if TYPE_CHECKING:
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


def _rich(table: "Table") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    for head in table.heads:
        drawn.add_column(head.name, justify="right" if head.is_number else "left")
    for row in table.rows:
        drawn.add_row(*(Text(safe(cell)) for cell in row))
    Console().print(drawn)
