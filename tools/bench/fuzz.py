"""How soon the fuzzer finds each planted bug: ``python -m tools.bench.fuzz [--write]``.

Each bug is looked for by packets alone, as in an adapter under test: by its replies, its memory and
its completions. Seeds are fixed, so the packets that it takes are the same on each machine.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from rdmawire.fuzz import (
    PLANTED_BUGS,
    EngineFuzzer,
    Finding,
    Found,
    Fuzzer,
    PlantedBug,
    make_fuzzer,
)
from tools.bench.machine import machine
from tools.bench.rate import Figure, best_rate

PAGE = Path(__file__).parents[2] / "docs" / "planted-bugs.md"
SEED = 1
BUDGET = 25_000
_RUNS = 20
_BATCH = 300


class Row(NamedTuple):
    """What it took to find a bug; ``inputs`` is the size of the minimised case."""

    bug: PlantedBug
    packets: int
    seconds: float
    inputs: int
    what: str

    def text(self) -> str:
        """Return the row of a Markdown table."""
        bug = self.bug
        named = bug.kind in ("parser", "cm", "mpa")
        service = bug.service if named else bug.service.upper()
        cells = (f"`{bug.name}`", bug.about, bug.kind, service, bug.clause)
        counts = (f"{self.packets:,}", f"{self.seconds:.2f}", str(self.inputs), self.what)
        return f"| {' | '.join((*cells, *counts))} |"


def rows() -> Iterator[Row]:
    """Yield a row for each planted bug. Raises ``LookupError`` for one that is not found."""
    for bug in PLANTED_BUGS.values():
        fuzzer = make_fuzzer(bug.spec)
        begun = time.perf_counter()
        found, packets = _first(fuzzer, bug.name)
        seconds = time.perf_counter() - begun
        smallest = fuzzer.minimised(found)
        finding = Finding(dict(bug.spec), SEED, smallest.run, smallest.violation, smallest.case)
        yield Row(bug, packets, seconds, finding.inputs, smallest.violation.what)


def _first(fuzzer: Fuzzer, name: str) -> tuple[Found, int]:
    """Return the first finding, and how many packets were played up to it."""
    packets = first = 0
    while packets < BUDGET:
        for part in fuzzer.parts(SEED, first, _RUNS):
            packets += part.executed
            if part.found:
                return part.found[0], packets
        first += _RUNS
    raise LookupError(f"{name} is not found by {packets} packets")


_HEAD = f"""# Planted bugs

Bugs planted in the software RNIC: its [rules](design.md#the-software-rnic) with one row replaced.
`rdmawire fuzz run TARGET --bug NAME` finds each by packets alone: by replies, memory and
completions, as in an adapter under test. Bugs of the target `parser` are in small parsers: a
rule or a row of a table is replaced, so that the parser finds other values than the codec or raises
an exception. Bugs of `cm` are in the rules of a connection manager, those of `mpa` in a small MPA
reader. The column *service, part* has the transport service, the parser, or the role of the
connection manager, and *violates* the clause that the bug violates: a finding names the clause of
what was seen, which may be another one. With seed {SEED} each is found within {BUDGET:,} packets
by `rdmawire fuzz run TARGET --bug NAME --seed {SEED} --max-findings 1`, for the targets `engine`
and `requester` with the `--service` of the table.
*Packets* and *inputs* (of the minimised case) are the same on each machine; seconds are those of
one process on the machine below. Regenerate this page with `python -m tools.bench.fuzz --write`.

| bug | what it does | target | service, part | violates | packets | seconds | inputs | shown by |
|---|---|---|---|---|---|---|---|---|
"""


def page(found: list[Row]) -> str:
    """Return the text of the page."""
    return _HEAD + "\n".join(row.text() for row in found) + f"\n\nMachine: {machine()}.\n"


def measure() -> list[Figure]:
    """Measure how many packets a second a fuzzer plays on a healthy adapter, all included."""
    fuzzer = EngineFuzzer({"kind": "engine", "service": "rc"})
    fuzzer.batch(SEED, 0, _BATCH)
    rate = best_rate(lambda: fuzzer.batch(SEED, 0, _BATCH).executed)
    return [Figure("fuzz, packets judged by the model", rate, unit="packets/s").shown()]


@click.command()
@click.option("--write", is_flag=True, help=f"Write the table to docs/{PAGE.name}.")
def main(*, write: bool) -> None:
    """Look for each planted bug, and print what it took."""
    measure()
    found = []
    for row in rows():
        click.echo(row.text())
        found.append(row)
    if write:
        PAGE.write_text(page(found))


if __name__ == "__main__":
    main()
