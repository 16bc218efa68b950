"""Mutate the code, and see whether its tests find it: ``python -m tools.mutants --minutes N``.

A sample of the mutants, drawn by ``--seed``, is tried one by one in a copy of the tree. Those that
survive are printed with file, line and change. The exit status is 1 if fewer are killed than
``--percent``.
"""

import random
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click

from tools.mutants.mutation import Mutant, mutants
from tools.mutants.targets import EQUIVALENT, TARGETS
from tools.mutants.trial import Court, Verdict

ROOT = Path(__file__).parents[2]


class Suspect(NamedTuple):
    """A mutant of a file."""

    file: str
    mutant: Mutant


def suspects(file: str, source: str) -> list[Suspect]:
    """The mutants of a file, but for those that are known to behave as the code does."""
    return [
        Suspect(file, mutant)
        for mutant in mutants(source)
        if not any(each.is_it(file, source, mutant) for each in EQUIVALENT)
    ]


def sample(files: tuple[str, ...], seed: int) -> list[Suspect]:
    """All mutants of these files, in an order drawn by ``seed``."""
    found = list(
        chain.from_iterable(suspects(file, (ROOT / file).read_text("utf-8")) for file in files)
    )
    random.Random(seed).shuffle(found)
    return found


def shown(suspect: Suspect) -> str:
    """Where a mutant is, and what it changes."""
    file, mutant = suspect
    return f"{file}:{mutant.line}\n  - {mutant.was}\n  + {mutant.becomes}"


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="No mutant is begun later.")
@click.option("--seed", default=0, show_default=True, help="Draws the sample.")
@click.option("--count", type=int, help="How many mutants to try at most.")
@click.option("--percent", default=95.0, show_default=True, help="To be killed, of those tried.")
@click.option("--file", "files", multiple=True, type=click.Choice(list(TARGETS)))
def main(
    minutes: float, seed: int, count: int | None, percent: float, files: tuple[str, ...]
) -> None:
    """Put small faults into a copy of the code, and see whether its tests find them."""
    end = time.monotonic() + minutes * 60
    drawn = sample(files or tuple(TARGETS), seed)
    with tempfile.TemporaryDirectory(prefix="rdmawire-mutants-") as folder:
        verdicts = list(_tried(Court(ROOT, Path(folder)), drawn[:count], end))
    survived = verdicts.count(Verdict.SURVIVED)
    tried = len(verdicts)
    killed = 100 * (tried - survived) / max(tried, 1)
    click.echo(
        f"{tried - survived} of {tried} mutants killed ({killed:.1f} %); of {len(drawn)} all"
    )
    if not tried or killed < percent:
        raise click.ClickException(f"less than {percent:g} % of the mutants were killed")


def _tried(court: Court, drawn: list[Suspect], end: float) -> Iterator[Verdict]:
    """The verdicts of mutants one by one, until the time is up."""
    for suspect in drawn:
        if time.monotonic() > end:
            return
        try:
            verdict = court.tried(suspect.file, suspect.mutant, TARGETS[suspect.file]).verdict
        except ValueError as error:
            raise click.ClickException(str(error)) from error
        if verdict is Verdict.SURVIVED:
            click.echo(f"survived  {shown(suspect)}")
        yield verdict


if __name__ == "__main__":
    main()
