"""Mutants on trial: each stands in a copy of the tree, alone, while its tests run there."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from tools.mutants.mutation import Mutant

COPIED = ("rdmawire", "layers", "tests", "tools", "captures", "docs")
_MIN_WAIT_S = 60
_WAITS = 10
"""How many times the usual time tests may take before they are taken to hang."""


class Verdict(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    HANGS = "killed: its tests hang"
    SURVIVED = "survived"


class Trial(NamedTuple):
    """A verdict, and the test that fails with the mutant."""

    verdict: Verdict
    test: str = ""


class Court:
    """A copy of the tree in ``folder``. The tree itself is only read."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        self._usual: dict[Sequence[str], float] = {}
        for name in COPIED:
            shutil.copytree(
                root / name, folder / name, symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )  # fmt: skip
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
            shutil.copy(root / name, folder / name)

    def source(self, file: str) -> str:
        """The text of a file as it is in the tree."""
        return (self._folder / file).read_text(encoding="utf-8")

    def rehearse(self, tests: Sequence[str]) -> None:
        """Run tests without any mutant, to know how long they take; ``ValueError`` if they fail."""
        if tests in self._usual:
            return
        begun = time.monotonic()
        done = self._run(tests, None)
        if done.returncode:
            said = "\n".join(done.stdout.splitlines()[-5:])
            raise ValueError(f"tests fail without any mutant:\n{said}")
        self._usual[tests] = time.monotonic() - begun

    def tried(self, file: str, mutant: Mutant, stages: Sequence[Sequence[str]]) -> Trial:
        """Try a mutant: each stage of tests runs if those before it found nothing.

        ``ValueError`` if tests fail without it.
        """
        for tests in stages:
            self.rehearse(tests)
            trial = self._tried(file, mutant, tests)
            if trial.verdict is not Verdict.SURVIVED:
                return trial
        return Trial(Verdict.SURVIVED)

    def _tried(self, file: str, mutant: Mutant, tests: Sequence[str]) -> Trial:
        wait_s = max(_MIN_WAIT_S, _WAITS * self._usual[tests])
        with self._mutated(file, mutant):
            try:
                done = self._run(tests, wait_s)
            except subprocess.TimeoutExpired:
                return Trial(Verdict.HANGS)
        if not done.returncode:
            return Trial(Verdict.SURVIVED)
        return Trial(Verdict.KILLED, _failed(done.stdout))

    @contextmanager
    def _mutated(self, file: str, mutant: Mutant) -> Iterator[None]:
        path, before = self._folder / file, self.source(file)
        path.write_text(mutant.applied(before), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")

    def _run(self, tests: Sequence[str], wait_s: float | None) -> subprocess.CompletedProcess[str]:
        """Run tests in the copy, up to the first that fails; always by the same seed."""
        options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        options += ["--hypothesis-profile=mutants"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=wait_s,
        )


def _failed(output: str) -> str:
    """The first test that failed, from the summary of pytest."""
    lines = (line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return next(lines, "").partition(" ")[2].partition(" - ")[0]
