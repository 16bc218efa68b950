"""The reference page of test vectors: the index of the captures, and every golden case."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rdmawire.vectors.index import TABLES

MOST = 4
"""Captures named in one row; the number of others follows."""

Place = Sequence[Any]


def page(captures: Path) -> Iterator[str]:
    """Each table of the index, then the cases of each golden capture."""
    yield "# Test vectors\n"
    yield (
        "The captures in `captures/` that contain each opcode, syndrome, message and code, each "
        "with the number of the first such frame. [Test vectors](../howto/test-vectors.md) "
        "explains how to use them. Generated from `captures/index.toml`; a test verifies that "
        "every row of the tables in `rdmawire.wire` has a frame.\n"
    )
    index = tomllib.loads((captures / "index.toml").read_text())
    for name, table in TABLES.items():
        yield from _table(table.title, index[name])
    yield "\n## Golden cases\n"
    yield "The cases of each golden capture, from the JSON beside it.\n"
    manifest = tomllib.loads((captures / "golden" / "manifest.toml").read_text())
    for entry in manifest["capture"]:
        yield from _cases(captures / "golden" / entry["file"], entry["shows"])


def _table(title: str, rows: Mapping[str, Sequence[Place]]) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield "| name | capture and frame |"
    yield "|---|---|"
    for row, places in rows.items():
        yield f"| `{row}` | {_places(places)} |"


def _places(places: Sequence[Place]) -> str:
    shown = ", ".join(f"`{file}` {number}" for file, number in places[:MOST])
    more = len(places) - MOST
    return f"{shown}, and {more} more" if more > 0 else shown


def _cases(capture: Path, shows: str) -> Iterator[str]:
    told = json.loads(capture.with_suffix(".json").read_text())
    yield f"\n### {capture.name}: {shows}\n"
    yield "| frames | case | shows | completion errors and drops |"
    yield "|---|---|---|---|"
    for case in told["cases"]:
        first, last = case["frames"]
        ends = "; ".join(_ends(case))
        yield f"| {first} to {last} | `{case['name']}` | {case['shows']} | {ends} |"


def _ends(case: Mapping[str, Any]) -> Iterator[str]:
    """The completion errors and drops of each end."""
    for who, end in case.get("comes_to", {}).items():
        statuses = dict.fromkeys(done["status"] for done in end["completions"])
        wrong = [f"`{status}`" for status in statuses if status != "SUCCESS"]
        dropped = [f"drops as `{reason}`" for reason in end.get("drops", {})]
        if said := ", ".join(wrong + dropped):
            yield f"{who}: {said}"
