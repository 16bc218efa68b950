"""Mutate the code, and see whether its tests find it: ``python -m tools.mutants --minutes N``.

The mutants of a sample, drawn by ``--seed``, are tested one by one in a copy of the tree. Those
that survive are printed with file, line and change. The exit status is 1 if fewer are killed than
``--percent``.
"""

import random
import tempfile
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import click

from tools.mutants.mutation import ROOT, Mutant, described, mutants
from tools.mutants.sandbox import Sandbox, Status
from tools.mutants.targets import EQUIVALENT, TARGETS


class FileMutant(NamedTuple):
    """A mutant of a file."""

    file: str
    mutant: Mutant


def file_mutants(file: str, source: str) -> list[FileMutant]:
    """The mutants of a file, without those that are known to be equivalent."""
    return [
        FileMutant(file, mutant)
        for mutant in mutants(source)
        if not any(each.matches(file, source, mutant) for each in EQUIVALENT)
    ]


def sample(files: tuple[str, ...], seed: int) -> list[FileMutant]:
    """All mutants of these files, in an order drawn by ``seed``; packages take turns."""
    packages: dict[str, list[FileMutant]] = {}
    for file in files:
        found = file_mutants(file, (ROOT / file).read_text("utf-8"))
        packages.setdefault(str(Path(file).parent), []).extend(found)
    for name, found in packages.items():
        random.Random(f"{seed} {name}").shuffle(found)
    turns = zip_longest(*(packages[name] for name in sorted(packages)))
    return [one for turn in turns for one in turn if one is not None]


@click.command()
@click.option(
    "--minutes", default=10.0, show_default=True,
    help="Start no mutant after this time, in minutes.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed that selects the mutants.")
@click.option("--count", type=int, help="How many mutants to run at most.")
@click.option(
    "--percent", default=95.0, show_default=True,
    help="Fail if fewer percent of the mutants are killed.",
)  # fmt: skip
@click.option("--all", "prints_all", is_flag=True, help="Print those that are killed, too.")
@click.option("--file", "files", multiple=True, type=click.Choice(list(TARGETS)))
def main(
    minutes: float,
    seed: int,
    count: int | None,
    percent: float,
    files: tuple[str, ...],
    *,
    prints_all: bool,
) -> None:
    """Put small faults into a copy of the code, and see whether its tests find them."""
    end = time.monotonic() + minutes * 60
    drawn = sample(files or tuple(TARGETS), seed)
    with tempfile.TemporaryDirectory(prefix="rdmawire-mutants-") as folder:
        run_all = _run(Sandbox(ROOT, Path(folder)), drawn[:count], end, prints_all=prints_all)
        statuses = list(run_all)
    survived = statuses.count(Status.SURVIVED)
    run = len(statuses)
    killed = 100 * (run - survived) / max(run, 1)
    click.echo(
        f"{run - survived} of {run} mutants killed ({killed:.1f} %); {len(drawn)} mutants in all"
    )
    if not run or killed < percent:
        raise click.ClickException(f"less than {percent:g} % of the mutants were killed")


def _run(
    sandbox: Sandbox, drawn: list[FileMutant], end: float, *, prints_all: bool
) -> Iterator[Status]:
    """Run the tests of mutants, and yield the status of each, until the time ``end``."""
    for one in drawn:
        if time.monotonic() > end:
            return
        try:
            status, test = sandbox.run(one.file, one.mutant, TARGETS[one.file])
        except ValueError as error:
            raise click.ClickException(str(error)) from error
        if status is Status.SURVIVED or prints_all:
            click.echo(f"{status.name.lower():8}  {described(*one)}  {test}".rstrip())
        yield status


if __name__ == "__main__":
    main()
