"""The reference page of test vectors: the index of the captures, and every golden case."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rdmawire.vectors.index import TABLES

MOST = 4
"""Captures named in one row; how many more there are is said."""

Place = Sequence[Any]


def page(captures: Path) -> Iterator[str]:
    """Each table of the index, then the cases of each golden capture."""
    yield "# Test vectors\n"
    yield (
        "Which frame shows what: a capture under `captures/`, and the number of its first frame "
        "with it. [Test vectors for your test bench](../howto/test-vectors.md) says what to do "
        "with them. Made from `captures/index.toml`; a test holds every row of the tables of "
        "`rdmawire.wire` and of the dissection to have its frame.\n"
    )
    index = tomllib.loads((captures / "index.toml").read_text())
    for name, table in TABLES.items():
        yield from _table(table.title, index[name])
    yield "\n## Golden cases\n"
    yield "What each golden capture holds, from the JSON beside it.\n"
    manifest = tomllib.loads((captures / "golden" / "manifest.toml").read_text())
    for entry in manifest["capture"]:
        yield from _cases(captures / "golden" / entry["file"], entry["shows"])


def _table(title: str, rows: Mapping[str, Sequence[Place]]) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield "| what | capture and frame |"
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
    yield "| frames | case | shows | comes to |"
    yield "|---|---|---|---|"
    for case in told["cases"]:
        first, last = case["frames"]
        ends = "; ".join(_ends(case))
        yield f"| {first} to {last} | `{case['name']}` | {case['shows']} | {ends} |"


def _ends(case: Mapping[str, Any]) -> Iterator[str]:
    """What became of work and receives at each end, where it was not all well."""
    for who, end in case.get("comes_to", {}).items():
        statuses = dict.fromkeys(done["status"] for done in end["completions"])
        wrong = [f"`{status}`" for status in statuses if status != "SUCCESS"]
        dropped = [f"drops as `{reason}`" for reason in end.get("drops", {})]
        if said := ", ".join(wrong + dropped):
            yield f"{who}: {said}"
