"""One mutant against the fuzzers: ``python -m tools.mutants.fuzzed FILE NUMBER``.

The mutant is loaded into a process of its own, which runs the fuzzers with fixed seeds. They see
what a fuzzer of a NIC sees: frames, completions, memory and counters.
"""

import json
import signal
import subprocess
import sys
from enum import Enum
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType
from typing import NamedTuple

from tools.mutants.mutation import ROOT, mutants

SPECS = (
    ({"kind": "engine", "service": "all", "counters": "yes"}, 2400),
    ({"kind": "engine", "profile": "rxe", "accept": "all", "counters": "yes"}, 1200),
    ({"kind": "engine", "profile": "rxe-6.1", "accept": "all", "counters": "yes"}, 1200),
    ({"kind": "requester", "service": "all", "counters": "yes"}, 800),
    ({"kind": "requester", "profile": "rxe-6.1", "accept": "all", "counters": "yes"}, 400),
    ({"kind": "state"}, 60),
)
"""The fuzzers that are run on a mutant, each with its number of runs."""
SEED = 1
_BATCH = 20
BATCH_S = 15
"""Seconds of processor time after which a batch ends; usually it takes less than one."""
TIMEOUT_S = 600
_INVALID = 3


class Outcome(Enum):
    """Whether the fuzzers detect a mutant, and how."""

    INVALID = "not importable"
    FOUND = "found by the fuzzers"
    HANGS = "hangs"
    SURVIVED = "survived"


class FuzzRun(NamedTuple):
    """The outcome, and the signature of what the fuzzers found, or the text of an exception."""

    outcome: Outcome
    by: str = ""


class _MutantImporter(MetaPathFinder, Loader):
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


def fuzz_mutant(file: str, number: int) -> FuzzRun:
    """Run the fuzzers on a mutant, given by its index in a file, in another process."""
    command = [sys.executable, "-m", "tools.mutants.fuzzed", file, str(number)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return FuzzRun(Outcome.HANGS)
    if done.returncode == 0:
        by = json.loads(done.stdout)
        return FuzzRun(Outcome.SURVIVED if by is None else Outcome.FOUND, by or "")
    if done.returncode == -signal.SIGVTALRM:
        return FuzzRun(Outcome.HANGS)
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return FuzzRun(Outcome.INVALID if done.returncode == _INVALID else Outcome.FOUND, last)


def _fuzz() -> str | None:
    """Run the fuzzers; return the signature of their first finding."""
    from rdmawire.fuzz import make_fuzzer

    for spec, runs in SPECS:
        fuzzer = make_fuzzer(spec)
        for first in range(0, runs, _BATCH):
            signal.setitimer(signal.ITIMER_VIRTUAL, BATCH_S)  # its signal ends the process
            found = fuzzer.batch(SEED, first, _BATCH).found
            if found:
                return found[0].violation.signature
    return None


def _import(file: str) -> bool:
    """Import the mutant; return ``False`` if that raises an exception, which is printed."""
    try:
        __import__(file.removesuffix(".py").replace("/", "."))
        __import__("rdmawire.fuzz.engine_target")
    except Exception as error:  # a mutant may raise any
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return False
    return True


def main(file: str, number: int) -> int:
    """Fuzz one mutant in this process; print the signature of the finding, or ``null``."""
    source = (ROOT / file).read_text("utf-8")
    sys.meta_path.insert(0, _MutantImporter(file, mutants(source)[number].applied(source)))
    if not _import(file):
        return _INVALID
    sys.stdout.write(json.dumps(_fuzz()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
