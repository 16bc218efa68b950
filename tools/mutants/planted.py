"""Planted bugs against the tests of the engine: ``python -m tools.mutants.planted --count 40``.

The fuzzers have to find each planted bug (``tests/fuzz``); here the tests of ``rdmawire/ib`` do. A
process of pytest has the rules of all adapters replaced by those with the bug: it loads this module
as a plugin, and finds the name of the bug in the environment.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import fields

import click

from rdmawire.fuzz.planted_bugs import PLANTED_BUGS, planted_rules
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from tools.mutants.mutation import ROOT
from tools.mutants.sandbox import failed_test, run_pytest

_NAME = "RDMAWIRE_PLANTED_BUG"
_TESTS = ("tests/ib", "tests/memory", "tests/verbs")
_ADAPTER = ("engine", "requester")


def pytest_configure() -> None:
    """Plant the bug, if this module is a plugin of pytest."""
    if name := os.environ.get(_NAME):
        wrong = planted_rules(name)
        for field in fields(Rules):
            object.__setattr__(STANDARD, field.name, getattr(wrong, field.name))


def sample(count: int, seed: int) -> list[str]:
    """Return the names of ``count`` bugs of adapters, drawn by ``seed``."""
    names = [bug.name for bug in PLANTED_BUGS.values() if bug.kind in _ADAPTER]
    return random.Random(seed).sample(names, min(count, len(names)))


def failing_test(name: str) -> str:
    """Return the first test that fails with a planted bug; "" if none does."""
    done = run_pytest(ROOT, ["-p", "tools.mutants.planted", *_TESTS], {_NAME: name})
    return failed_test(done.stdout) if done.returncode else ""


def _run(names: list[str]) -> Iterator[bool]:
    for name in names:
        test = failing_test(name)
        click.echo(f"{'found' if test else 'missed':8}  {name}  {test}".rstrip())
        yield bool(test)


@click.command()
@click.option("--count", default=40, show_default=True, help="How many bugs.")
@click.option("--seed", default=0, show_default=True, help="Seed that selects the bugs.")
def main(count: int, seed: int) -> None:
    """Plant bugs in the rules of all adapters, and see whether the engine's tests find them."""
    found = list(_run(sample(count, seed)))
    click.echo(f"{sum(found)} of {len(found)} planted bugs found")


if __name__ == "__main__":
    main()
