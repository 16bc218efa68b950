"""Mutate the adapter, and see whether the fuzzer finds it: ``python -m tools.mutants.fuzzed``.

Each mutant of the modules that decide about requests and responses is loaded into a process of its
own, which runs the fuzzers with fixed seeds; a violation, an exception or a hang kills it. The
share of killed mutants is printed, and each that survives with file, line and change.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from random import Random
from types import CodeType, ModuleType

import click

from tools.mutants.__main__ import Suspect, shown, suspects
from tools.mutants.trial import Verdict

ROOT = Path(__file__).parents[2]
FILES = tuple(
    f"rdmawire/ib/{name}.py"
    for name in (
        *("checks", "execute", "responder", "responder_state", "responses", "service"),
        *("completer", "retransmit"),
    )
)
"""What is mutated: checks, execution, state, responses and reactions, and the requester's part."""

SPECS = ({"kind": "engine"}, {"kind": "requester"})
"""The fuzzers that a mutant must pass."""
SEEDS = (1, 2)
HANG_S = 120


class _Mutated(MetaPathFinder, Loader):
    """Imports one module from a changed source."""

    def __init__(self, file: str, source: str) -> None:
        self._name = file.removesuffix(".py").replace("/", ".")
        self._file = ROOT / file
        self._source = source

    def find_spec(self, name: str, _: object, __: object = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        return spec_from_file_location(name, self._file, loader=self)

    def create_module(self, _: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        code: CodeType = compile(self._source, str(self._file), "exec")
        exec(code, module.__dict__)


def _suspect(file: str, number: int) -> Suspect:
    return suspects(file, (ROOT / file).read_text("utf-8"))[number]


def trial(file: str, number: int, runs: int) -> int:
    """Run the fuzzers on one mutant in this process; 1 if they find it."""
    mutant = _suspect(file, number).mutant
    source = mutant.applied((ROOT / file).read_text("utf-8"))
    sys.meta_path.insert(0, _Mutated(file, source))
    from rdmawire.fuzz import make_fuzzer

    for seed in SEEDS:
        for spec in SPECS:
            if make_fuzzer(spec).batch(seed, 0, runs // len(SEEDS)).found:
                return 1
    return 0


def _tried(file: str, number: int, runs: int) -> Verdict:
    command = [sys.executable, "-m", "tools.mutants.fuzzed", "--runs", str(runs)]
    command += ["--trial", file, str(number)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=HANG_S)
    except subprocess.TimeoutExpired:
        return Verdict.HANGS
    return Verdict.KILLED if done.returncode else Verdict.SURVIVED


def _chosen(files: tuple[str, ...], share: float) -> list[tuple[str, int]]:
    """Mutants by file and number; a share of them, always the same ones."""
    every = [
        (file, number)
        for file in files
        for number in range(len(suspects(file, (ROOT / file).read_text("utf-8"))))
    ]
    return every if share >= 1 else Random(0).sample(every, int(len(every) * share))


def _verdicts(
    chosen: list[tuple[str, int]], jobs: int, runs: int
) -> Iterator[tuple[str, int, Verdict]]:
    with ThreadPoolExecutor(jobs) as pool:
        tried = pool.map(lambda one: _tried(one[0], one[1], runs), chosen)
        for (file, number), verdict in zip(chosen, tried, strict=True):
            yield file, number, verdict


@click.command()
@click.option("--jobs", default=2, show_default=True, help="Mutants at a time.")
@click.option("--runs", default=3000, show_default=True, help="Random cases for each mutant.")
@click.option("--share", default=1.0, show_default=True, help="Share of the mutants to try.")
@click.option("--file", "files", multiple=True, type=click.Choice(FILES))
@click.option("--trial", "one", type=(click.Choice(FILES), int), hidden=True)
def main(
    jobs: int, runs: int, share: float, files: tuple[str, ...], one: tuple[str, int] | None
) -> None:
    """Put small faults into the adapter, and see whether the fuzzer finds them by packets alone."""
    if one is not None:
        sys.exit(trial(*one, runs))
    begun, killed = time.monotonic(), 0
    chosen = _chosen(files or FILES, share)
    for file, number, verdict in _verdicts(chosen, jobs, runs):
        if verdict is Verdict.SURVIVED:
            click.echo(f"survived  {shown(_suspect(file, number))}")
        killed += verdict is not Verdict.SURVIVED
    share_killed = 100 * killed / max(len(chosen), 1)
    seconds = time.monotonic() - begun
    click.echo(
        f"{killed} of {len(chosen)} mutants killed ({share_killed:.1f} %) in {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
