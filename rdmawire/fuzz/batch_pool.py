"""Processes of a campaign: they run batches of cases, and may be killed.

A batch depends on the seed and its run numbers alone: one that is lost with its process is run
again.
"""

import gc
import json
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import lru_cache
from time import monotonic
from typing import Any, Final, Protocol

from rdmawire.errors import FuzzError
from rdmawire.fuzz.fuzzer import Batch, Fuzzer, joined, make_fuzzer
from rdmawire.process_pool import ProcessPool
from rdmawire.terminal import plural

_MAX_LOST: Final = 5
"""Times that the process of a batch may be killed before the campaign ends with an error."""


class BatchExecutor(Protocol):
    """What batches are given to: an executor, such as that of a cluster."""

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Call a function in another process."""
        ...


class BatchPool(ProcessPool):
    """Processes that run batches, until :meth:`end`."""

    def wait_until_ready(self, spec: dict[str, Any]) -> None:
        """Start all processes, and wait until one has the fuzzer of a specification."""
        started = [self.submit(prepare, spec) for _ in range(self.processes)]
        for first in wait(started, return_when=FIRST_COMPLETED).done:
            first.result()


class BatchQueue:
    """Batches to run, each its first run and how many; and those that run, by their future."""

    def __init__(self, batches: Iterator[tuple[int, int]]) -> None:
        self._batches = batches
        self._again: list[tuple[int, int]] = []
        self._times: dict[int, int] = {}
        self._starts = 0
        self.running: dict[Future[Batch], tuple[int, int]] = {}

    def take(self) -> tuple[int, int] | None:
        """Return the next batch, first those that were lost; ``None`` if there are no more."""
        return self._again.pop() if self._again else next(self._batches, None)

    def finish(self, work: Future[Batch], runs: int) -> None:
        """Note that a batch has ended after ``runs`` runs; what is left of it is run again."""
        self._starts = 0
        first, wanted = self.running.pop(work)
        self._times.pop(first, None)
        if runs < wanted:
            self._again.append((first + runs, wanted - runs))

    def lost(self) -> None:
        """Note that the batches that run were lost with their process.

        Raises :class:`FuzzError` for a batch, or a start of processes, that was lost too often.
        """
        self._again += self.running.values()
        self._starts += not self.running
        for first, runs in self.running.values():
            self._times[first] = self._times.get(first, 0) + 1
            if self._times[first] == _MAX_LOST:
                raise _lost_too_often(f"in {plural(runs, 'case')} from case {first} on")
        if self._starts == _MAX_LOST:
            raise _lost_too_often("while they started")
        self.running.clear()


def _lost_too_often(when: str) -> FuzzError:
    return FuzzError(f"the campaign ends: its processes were killed {_MAX_LOST} times {when}")


def run_batch(spec: dict[str, Any], seed: int, first: int, runs: int, seconds: float) -> Batch:
    """Run a batch in this process, with fewer runs if they take more than ``seconds``."""
    parts = _fuzzer(json.dumps(spec, sort_keys=True)).parts(seed, first, runs)
    return joined(first, _until(monotonic() + seconds, parts))


def prepare(spec: dict[str, Any]) -> None:
    """Make the fuzzer of a specification in this process, which keeps it."""
    _fuzzer(json.dumps(spec, sort_keys=True))


@lru_cache(maxsize=8)
def _fuzzer(spec: str) -> Fuzzer:
    """Return the fuzzer of a specification in JSON, which this process keeps."""
    fuzzer = make_fuzzer(json.loads(spec))
    gc.freeze()  # the garbage collector need not visit what stays
    return fuzzer


def _until(end: float, parts: Iterator[Batch]) -> Iterator[Batch]:
    """Yield parts, at least one, and none after the time ``end``."""
    for part in parts:
        yield part
        if monotonic() >= end:
            return
