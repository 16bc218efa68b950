"""Runs the tests of a mutant, in a copy of the tree that has this one change."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from tools.mutants.mutation import Mutant

COPIED = ("rdmawire", "layers", "tests", "tools", "captures", "docs")
_MIN_TIMEOUT_S = 60
_TIMEOUT_FACTOR = 10
"""Tests of a mutant may take this many times the time of their baseline."""


class Status(Enum):
    """Whether tests detect a mutant, and how."""

    KILLED = "killed"
    TIMEOUT = "killed: its tests hang"
    SURVIVED = "survived"


class MutantRun(NamedTuple):
    """The status of a mutant, and the test that fails with it."""

    status: Status
    test: str = ""


class Sandbox:
    """A copy of the tree in ``folder``, where mutants are tested. The tree is only read."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        self._baseline_s: dict[Sequence[str], float] = {}
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

    def run_baseline(self, tests: Sequence[str]) -> None:
        """Run tests without a mutant, and note their time; ``ValueError`` if they fail."""
        if tests in self._baseline_s:
            return
        start = time.monotonic()
        done = self._pytest(tests)
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-5:])
            raise ValueError(f"tests fail without any mutant:\n{tail}")
        self._baseline_s[tests] = time.monotonic() - start

    def run(self, file: str, mutant: Mutant, stages: Sequence[Sequence[str]]) -> MutantRun:
        """Run the tests of a mutant, stage after stage, until one kills it.

        ``ValueError`` if tests fail without it.
        """
        for tests in stages:
            self.run_baseline(tests)
            result = self._run_stage(file, mutant, tests)
            if result.status is not Status.SURVIVED:
                return result
        return MutantRun(Status.SURVIVED)

    def _run_stage(self, file: str, mutant: Mutant, tests: Sequence[str]) -> MutantRun:
        timeout_s = max(_MIN_TIMEOUT_S, _TIMEOUT_FACTOR * self._baseline_s[tests])
        with self._mutated(file, mutant):
            try:
                done = self._pytest(tests, timeout_s)
            except subprocess.TimeoutExpired:
                return MutantRun(Status.TIMEOUT)
        if not done.returncode:
            return MutantRun(Status.SURVIVED)
        return MutantRun(Status.KILLED, failed_test(done.stdout))

    @contextmanager
    def _mutated(self, file: str, mutant: Mutant) -> Iterator[None]:
        path, before = self._folder / file, self.source(file)
        path.write_text(mutant.applied(before), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")

    def _pytest(
        self, tests: Sequence[str], timeout_s: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"}
        return run_pytest(self._folder, tests, environment, timeout_s)


def run_pytest(
    folder: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run tests in ``folder``, up to the first that fails; always by the same seed."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    options += ["--hypothesis-profile=mutants"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def failed_test(output: str) -> str:
    """The first test that failed, from the summary of pytest; "" if none did."""
    lines = (line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return next(lines, "").partition(" ")[2].partition(" - ")[0]
