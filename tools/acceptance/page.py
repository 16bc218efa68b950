"""Writes results as JSON, and as a page of the documentation, which is made from the JSON."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tools.acceptance.case import Case, Result, Verdict
from tools.acceptance.trial import Plan, Trial

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "acceptance.md"
DATA: Final = PAGE.with_suffix(".json")

Row = dict[str, Any]
"""A result as plain values."""
_KEY: Final = ("package", "program", "transport", "network")

_HEAD: Final = """# Programs that run on `rdmawire verbs`

Unmodified programs of Debian's packages and of PyPI, and the test suites of bindings for Rust and
Python, each run on the devices of a `rdmawire verbs serve` of its own, with a capture of all
frames. `make acceptance` runs them again and writes this page and
[acceptance.json](acceptance.json), which has each test of the test suites. It prints which packages
are missing; a program that cannot be run keeps its row. `PYTHON=FILE` names the Python of a virtual
environment with packages of PyPI, `SOURCES=FOLDER` a folder with checkouts. Bindings were compiled
with the crates of Debian 13 and its headers of rdma-core 56, sideway without the tests of what must
not compile. [The settings that programs need](#settings-of-programs) are below.

The programs were also run on Debian 13 (rdma-core 56.1 with its 321 tests, perftest 25.01, UCX
1.18.1, libfabric 2.1). The same pass there; `cmtime` needs the device's address for TCP, and
`ucx_perftest` needs `-P 0`.

- *passed*: server and client end with status 0 in time and print what is expected; the capture has
  frames, none with a bad ICRC and none malformed.
- *refused*: the program needs what the library refuses, and ends with the error shown.
- The tests of rdma-core send raw packets, too; some have malformed headers on purpose.
- *frames* are those of the capture, every ICRC verified by `rdmawire dissect -q`. tshark reads the
  first 1,000 of them, without its guesses at protocols in payloads
  (`-o infiniband.identify_payload:FALSE --disable-protocol rpcordma`).

The JSON also has what bandwidth and latency programs measured, in runs that capture every frame and
that share the machine with other work: `make bench` measures them without a capture.
"""
SETTINGS: Final = Path(__file__).with_name("settings.md")
"""The settings that programs need, and the programs that could not be run: a part of the page."""
_COLUMNS: Final = ("program", "transport", "network", "verdict", "reason", "frames")
_ROBUSTNESS: Final = """## Many processes, many queue pairs, sudden ends, endurance

Afterwards the service must have as many file descriptors, threads and mappings of shared memory as
before, and no queue pair, completion queue, memory region or context. In the trials of endurance
programs start and end all the time, three at once, for some minutes (`--minutes`). They send SENDs,
WRITEs, READs and atomics of up to 65,536 bytes over reliable and unreliable connections and as
datagrams, and compare every byte. Some end by errors, which must be the expected ones, and some are
killed. Programs of small messages send WRITEs, SENDs, READs and atomics of up to 64 bytes in both
directions at once, with 512 of them in flight.
"""


def plain(result: Result, version: str) -> Row:
    """Return a result as a row."""
    case = result.case
    row: Row = {
        "package": case.package.title,
        "version": version,
        "program": case.options,
        "transport": case.transport,
        "network": case.where,
        "verdict": result.verdict.value,
        "reason": result.reason,
        "figure": result.figure,
        "seconds": result.seconds,
        "frames": asdict(result.frames),
    }
    if result.tests:
        row["tests"] = [asdict(test) for test in result.tests]
    return row


def merged(old: Iterable[Row], new: Iterable[Row], cases: Iterable[Case]) -> list[Row]:
    """Return a row for each case, in their order: the new one, else the old one.

    A case that cannot be run now keeps its old row.
    """
    rows = {_key(row): row for row in old}
    rows |= {
        _key(row): row for row in new if row["verdict"] != Verdict.MISSING or _key(row) not in rows
    }
    keys = ((case.package.title, case.options, case.transport, case.where) for case in cases)
    return [rows[key] for key in keys if key in rows]


def merged_trials(old: Iterable[Row], new: Iterable[Row], plans: Iterable[Plan]) -> list[Row]:
    """Return the result of each trial, in their order: the new one, else the old one."""
    rows = {row["name"]: row for row in (*old, *new)}
    return [rows[plan.name] for plan in plans if plan.name in rows]


def _key(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in _KEY)


def write(
    rows: Sequence[Row],
    trials: Sequence[Trial],
    cases: Iterable[Case],
    plans: Iterable[Plan],
    machine: str,
) -> None:
    """Write the data and the page. What was not run now stays as it was."""
    old = json.loads(DATA.read_text()) if DATA.exists() else {"results": [], "robustness": []}
    tried = merged_trials(old["robustness"], map(asdict, trials), plans)
    results = merged(old["results"], rows, cases)
    data = {"machine": machine, "results": results, "robustness": tried}
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    DATA.write_text(json.dumps(data, indent=1) + "\n")
    PAGE.write_text(page(data))


def page(data: Mapping[str, Any]) -> str:
    """Return the text of the page."""
    parts = [_HEAD, _summary(data["results"])]
    for title, rows in groupby(data["results"], key=_title):
        parts += [f"## {title}\n", _table(_COLUMNS, map(_cells, rows))]
    parts.append(SETTINGS.read_text())
    if data["robustness"]:
        columns = "trial", "verdict", "what came of it"
        parts += [_ROBUSTNESS, _table(columns, map(_trial, data["robustness"]))]
    parts.append(f"Machine: {data['machine']}.\n")
    return "\n".join(parts)


def _title(row: Row) -> str:
    return f"{row['package']} {row['version']}".strip()


def _summary(rows: Iterable[Row]) -> str:
    counts = Counter(row["verdict"] for row in rows)
    return f"In all: {', '.join(f'{counts[one]} {one}' for one in Verdict if counts[one])}.\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines: Iterator[Sequence[str]] = iter((columns, ["---"] * len(columns), *rows))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cells(row: Row) -> tuple[str, ...]:
    verdict = f"**{row['verdict']}**" if row["verdict"] == Verdict.FAILED else row["verdict"]
    reason = _escaped(row["reason"])
    count = row["frames"]["count"]
    frames = f"{count:,}" if count else ""
    return f"`{row['program']}`", row["transport"], row["network"], verdict, reason, frames


def _trial(trial: Row) -> tuple[str, ...]:
    verdict = Verdict.PASSED if trial["passed"] else Verdict.FAILED
    return trial["name"], verdict, _escaped(trial["what"])


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_<>|[" else letter for letter in text)
