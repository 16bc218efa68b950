"""The mutation score of the fuzzers: ``python -m tools.mutants.score``.

Each mutant of the modules that decide about requests and responses is given to the fuzzers. One
that they do not find is given to the tests of its module. What neither finds must behave as the
code does, and have a row in :data:`tools.mutants.targets.EQUIVALENT` that says why. The results
are kept in a file, so that a run that was stopped can be continued.
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import click

from tools.mutants.fuzzed import Outcome, fuzz_mutant
from tools.mutants.mutation import ROOT, Mutant, described, mutants
from tools.mutants.sandbox import Sandbox, Status
from tools.mutants.targets import EQUIVALENT, TARGETS

FILES = tuple(
    f"rdmawire/ib/{name}.py"
    for name in (
        *("checks", "execute", "responder", "responder_state", "responses", "service"),
        *("completer", "retransmit"),
    )
)
"""What is mutated: checks, execution, state, responses and reactions, and the requester's part."""
PAGE = ROOT / "docs" / "mutation-score.md"
RESULTS = Path(__file__).with_name("results.jsonl")


class Key(NamedTuple):
    """A mutant by its text, which stays when lines are added elsewhere: the ``nth`` such change."""

    file: str
    line: str
    was: str
    becomes: str
    nth: int


class Result(NamedTuple):
    """What the fuzzers did with a mutant, and the test that fails with it if they found nothing."""

    outcome: Outcome
    by: str = ""
    test: str = ""


class Results:
    """The results known so far, in a file of JSON lines; the last line of a mutant counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: dict[Key, Result] = {}
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            *key, outcome, by, test = json.loads(line)
            self.known[Key(*key)] = Result(Outcome[outcome], by, test)

    def add(self, key: Key, result: Result) -> None:
        """Add a result, in memory and in the file."""
        self.known[key] = result
        with self._path.open("a", encoding="utf-8") as out:
            out.write(_line(key, result))

    def tidy(self, keys: Iterable[Key]) -> None:
        """Write the file again, with a line for each of ``keys`` that has a result."""
        lines = (_line(key, self.known[key]) for key in keys if key in self.known)
        beside = self._path.with_name(f".{self._path.name}")
        beside.write_text("".join(lines), "utf-8")
        beside.replace(self._path)


def _line(key: Key, result: Result) -> str:
    return json.dumps([*key, result.outcome.name, result.by, result.test]) + "\n"


class KeyedMutant(NamedTuple):
    """A mutant of a file: its key, its index, and the reason if it behaves as the code does."""

    key: Key
    number: int
    mutant: Mutant
    reason: str


def keyed_mutants(file: str) -> Iterator[KeyedMutant]:
    """Yield the mutants of a file."""
    source = (ROOT / file).read_text("utf-8")
    lines, counted = source.splitlines(), Counter[tuple[str, str, str]]()
    for number, mutant in enumerate(mutants(source)):
        what = (lines[mutant.line - 1].strip(), mutant.was, mutant.becomes)
        equal = (each.reason for each in EQUIVALENT if each.matches(file, source, mutant))
        yield KeyedMutant(Key(file, *what, counted[what]), number, mutant, next(equal, ""))
        counted[what] += 1


def fuzz_all(left: list[KeyedMutant], results: Results, jobs: int, end: float) -> None:
    """Give mutants to the fuzzers, until the time ``end``."""

    def fuzz(one: KeyedMutant) -> None:
        if time.monotonic() < end:
            before = results.known.get(one.key)
            result = Result(*fuzz_mutant(one.key.file, one.number))
            if before is not None and result.outcome is Outcome.SURVIVED:
                result = result._replace(test=before.test)
            results.add(one.key, result)

    with ThreadPoolExecutor(jobs) as pool, click.progressbar(length=len(left), label="fuzz") as bar:
        for _ in pool.map(fuzz, left):
            bar.update(1)


def test_all(drawn: list[KeyedMutant], results: Results, jobs: int, end: float) -> None:
    """Give the mutants that survived the fuzzers to the tests, until the time ``end``."""
    left = [one for one in drawn if _is_untested(results.known.get(one.key))]
    with ExitStack() as stack:
        sandboxes = SimpleQueue[Sandbox]()
        for _ in range(min(jobs, len(left))):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rdmawire-mutants-"))
            sandboxes.put(Sandbox(ROOT, Path(folder)))

        def test(one: KeyedMutant) -> None:
            if time.monotonic() > end:
                return
            sandbox = sandboxes.get()
            try:
                found = sandbox.run(one.key.file, one.mutant, TARGETS[one.key.file])
            finally:
                sandboxes.put(sandbox)
            if found.status is not Status.SURVIVED:
                test = found.test or found.status.value
                results.add(one.key, results.known[one.key]._replace(test=test))

        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        bar = stack.enter_context(click.progressbar(length=len(left), label="tests"))
        for _ in pool.map(test, left):
            bar.update(1)


def _is_untested(result: Result | None) -> bool:
    return result is not None and result.outcome is Outcome.SURVIVED and not result.test


class FileScore(NamedTuple):
    """Numbers of mutants of a file: all, and those with each result."""

    file: str
    mutants: int
    invalid: int
    found: int
    tests: int
    equivalent: int
    left: int

    @property
    def share(self) -> float:
        """The share of mutants that the fuzzers find, in percent.

        Those count that can be imported and behave in another way than the code.
        """
        return 100 * self.found / max(self.mutants - self.invalid - self.equivalent, 1)

    def text(self) -> str:
        """The row of the table."""
        return f"| {' | '.join(map(str, self[:6]))} | {self.share:.0f} % |"


def count(file: str, drawn: Iterable[KeyedMutant], results: Results) -> FileScore:
    """Count the mutants of a file by their results."""
    every = list(drawn)
    known = [results.known.get(one.key) for one in every if not one.reason]
    outcomes = Counter(result.outcome for result in known if result is not None)
    found = outcomes[Outcome.FOUND] + outcomes[Outcome.HANGS]
    invalid = outcomes[Outcome.INVALID]
    tests = sum(result is not None and bool(result.test) for result in known)
    return FileScore(
        file, len(every), invalid, found, tests, len(every) - len(known),
        len(known) - invalid - found - tests,
    )  # fmt: skip


def survivors(drawn: Iterable[KeyedMutant], results: Results) -> Iterator[tuple[KeyedMutant, str]]:
    """Yield the mutants that the fuzzers do not find, each with the reason, or with ``""``."""
    for one in drawn:
        result = results.known.get(one.key)
        if one.reason:
            yield one, f"equivalent: {one.reason}"
        elif result is None or result.outcome is Outcome.SURVIVED:
            yield one, f"`{result.test}`" if result is not None and result.test else ""


_HEAD = """# Mutation score of the fuzzers

Each mutant of a module is one small change: a comparison, an operator, a number, a condition, a
returned value, a statement that is left out. The fuzzers of responders and requesters of all
services and of sequences of verbs, with the profiles `ibta`, `rxe` and `rxe-6.1`, run on each
mutant with one seed. They observe what they observe of an adapter under test: frames, completions,
memory, counters. Mutants that they do not find are given to the tests of the module, and those
that behave as the code does are listed with the reason. Regenerate this page with
`python -m tools.mutants.score --write`; results that are known already are in
`tools/mutants/results.jsonl`, and are measured again after a line of a mutant is deleted there.

| module | mutants | not importable | found by fuzzers | found by tests alone | equivalent | share |
|---|---|---|---|---|---|---|
"""
_LIST = """
The share is that of the mutants that can be imported and behave in another way than the code.

## Mutants that the fuzzers do not find

| module | line | change | test that finds it, or reason |
|---|---|---|---|
"""


def page(rows: list[FileScore], left: list[tuple[KeyedMutant, str]]) -> str:
    """Return the text of the page."""
    total = FileScore(
        "all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))
    )
    listed = (_listed(one, reason) for one, reason in left)
    table = "\n".join(row.text() for row in (*rows, total))
    return _HEAD + table + "\n" + _LIST + "\n".join(listed) + "\n"


def _listed(one: KeyedMutant, reason: str) -> str:
    file, line, was, becomes, _ = one.key
    change = "left out" if becomes == "pass" else f"{_code(was)} → {_code(becomes)}"
    return f"| {Path(file).stem} | {_code(line)} | {change} | {reason or 'none'} |"


def _code(text: str) -> str:
    joined = " ".join(text.split()).replace("|", "\\|")
    return f"`{joined}`"


@click.command()
@click.option(
    "--results", "path", default=RESULTS, type=click.Path(dir_okay=False, path_type=Path),
    help="File with the results; it is written as they come.  [default: results.jsonl here]",
)  # fmt: skip
@click.option("--file", "files", multiple=True, type=click.Choice(FILES))
@click.option("--jobs", default=2, show_default=True, help="Mutants at a time.")
@click.option(
    "--minutes",
    default=240.0,
    show_default=True,
    help="Start no mutant after this time, in minutes.",
)
@click.option("--again", is_flag=True, help="Fuzz again what survived.")
@click.option("--tests/--no-tests", default=True, help="Give survivors to the tests, too.")
@click.option("--write", is_flag=True, help=f"Write docs/{PAGE.name}.")
def main(
    path: Path,
    files: tuple[str, ...],
    jobs: int,
    minutes: float,
    *,
    again: bool,
    tests: bool,
    write: bool,
) -> None:
    """Put small faults into the adapter, and see which of them the fuzzers find."""
    end, results = time.monotonic() + 60 * minutes, Results(path)
    drawn = {file: list(keyed_mutants(file)) for file in files or FILES}
    every = [one for of_file in drawn.values() for one in of_file]
    fuzz_all(list(_to_fuzz(every, results, again=again)), results, jobs, end)
    if tests:
        test_all(every, results, jobs, end)
    rows = [count(file, of_file, results) for file, of_file in drawn.items()]
    left = list(survivors(every, results))
    for row in rows:
        click.echo(row.text())
    for one, reason in left:
        if not reason:
            click.echo(described(one.key.file, one.mutant))
    if write:
        PAGE.write_text(page(rows, left), "utf-8")
        results.tidy(one.key for one in every)
    if unknown := sum(not reason for _, reason in left):
        raise click.ClickException(f"{unknown} mutants have no reason why nothing finds them")


def _to_fuzz(
    drawn: Iterable[KeyedMutant], results: Results, *, again: bool
) -> Iterator[KeyedMutant]:
    """Yield the mutants without a result; with ``again``, also those that survived."""
    for one in drawn:
        known = results.known.get(one.key)
        survived = known is not None and known.outcome is Outcome.SURVIVED
        if not one.reason and (known is None or (again and survived)):
            yield one


if __name__ == "__main__":
    main()
