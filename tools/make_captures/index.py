"""Which frame of which capture shows what: every row of :mod:`rdmawire.vectors.index`.

A row without a frame is a vector that is missing: a test says so.
"""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from rdmawire.vectors.index import TABLES, frames

FOLDERS = ("golden", "generated")
"""Those that are indexed, the more telling one first."""

Places = dict[str, dict[str, list[tuple[str, int]]]]
"""By table and row: captures, each with the first frame that shows it."""


def places(folder: Path) -> Places:
    """Where each row of each table is seen first, capture by capture."""
    found: Places = {name: {row: [] for row in table.rows} for name, table in TABLES.items()}
    for file in (file for name in FOLDERS for file in _captures(folder, name)):
        _note(found, folder / file, file)
    return found


def _captures(folder: Path, name: str) -> Iterator[str]:
    """The captures of a folder in the order of its manifest."""
    manifest = tomllib.loads((folder / name / "manifest.toml").read_text())
    return (f"{name}/{entry['file']}" for entry in manifest["capture"])


def _note(found: Places, path: Path, file: str) -> None:
    for seen in frames(path):
        for name, table in TABLES.items():
            for row in table.shows(seen):
                known = found[name].get(row)
                if known is not None and not (known and known[-1][0] == file):
                    known.append((file, seen.dissection.number))


def index(folder: Path) -> str:
    """The index of the captures in a folder, as TOML."""
    lines = ["# Which frame of which capture shows what. `make captures` makes it."]
    for name, rows in places(folder).items():
        lines += ["", f"[{name}]"]
        for row, found in rows.items():
            shown = ", ".join(f"[{json.dumps(file)}, {number}]" for file, number in found)
            lines.append(f"{json.dumps(row)} = [{shown}]")
    return "\n".join(lines) + "\n"
