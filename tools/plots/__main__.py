"""Measure what the plots show and keep it: ``python -m tools.plots [NAME ...]``.

The site's build draws what stands under ``docs/data``.
"""

import json
from pathlib import Path
from typing import Any

import click

from tools.plots.curves import CURVES

DATA = Path(__file__).parents[2] / "docs" / "data"


def text_of(value: Any, depth: int = 0) -> str:
    """JSON with a line for each key, and lists of numbers on one."""
    if not isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    space = " " * (depth + 1)
    rows = (f"{space}{json.dumps(key)}: {text_of(one, depth + 1)}" for key, one in value.items())
    return "{\n" + ",\n".join(rows) + "\n" + " " * depth + "}"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(CURVES)))
def plots(names: tuple[str, ...]) -> None:
    """Measure curves anew, all of them if none is named."""
    for name in names or CURVES:
        path = DATA / f"{name}.json"
        path.write_text(text_of(CURVES[name]()) + "\n")
        click.echo(f"{path.relative_to(DATA.parents[1])}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    plots()
