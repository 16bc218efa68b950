"""Campaigns: many runs of a fuzzer over processes, findings kept as they come.

Work is given out in batches of run numbers; a batch depends on the seed and its numbers alone, so
it does not matter where it runs, and a batch that is lost with its process is run again. Findings
are minimised, kept once per signature, and written at once. ``campaign.json`` holds what is done:
a campaign that is started again in the same folder goes on.
"""

import gc
import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.finding import Finding, as_finding, findings_in, read_json, write_finding
from rdmawire.fuzz.fuzzer import Batch, CaseFuzzer, Found, Fuzzer, Spec, make_fuzzer
from rdmawire.fuzz.minimise import MAX_TRIALS, Trials

RUNS_OF_BATCH: Final = 200
"""Runs of one batch: fewer would cost more time between processes.

A fuzzer whose runs take longer has an attribute ``runs_of_batch``.
"""
_STATE: Final = "campaign.json"
_LIMIT_CHECK_S: Final = 1.0
"""Seconds between two checks of the limits while no batch is done."""
FREE_TRIALS: Final = 20_000
"""Cases that a campaign plays to minimise, besides one for each run.

So a target that shows a violation in each case is not fuzzed much more slowly than others.
"""
_BETWEEN_SAVES: Final = 10.0
"""Seconds after which what is done is saved, so that a killed campaign repeats little."""
_MAX_SECONDS: Final = 1e12
"""Seconds of a campaign, at most: NaN and infinity are none."""
_MAX_LOST: Final = 5
"""Process pools that may break before the campaign ends with an error."""


class Progress(NamedTuple):
    """What a campaign has done: ``runs``, packets ``executed``, seconds, and findings.

    ``reached`` counts the different behaviours reached since it was started.
    """

    runs: int
    executed: int
    seconds: float
    findings: int
    reached: int = 0

    @property
    def rate(self) -> float:
        """Packets a second."""
        return self.executed / self.seconds if self.seconds > 0 else 0.0


@dataclass
class Campaign:
    """One campaign.

    - ``spec``: what is fuzzed (:func:`rdmawire.fuzz.fuzzer.make_fuzzer`).
    - ``seed``: of all random values.
    - ``folder``: where findings are written; ``None`` keeps them in memory.
    - ``runs``, ``seconds``: when it ends, whichever comes first; ``None`` for no limit.
    - ``max_findings``: it ends when it has as many different findings; ``None`` for no limit.
    - ``clock``: the time in seconds.
    """

    spec: Spec
    seed: int = 0
    folder: Path | None = None
    runs: int | None = None
    seconds: float | None = None
    max_findings: int | None = None
    clock: Callable[[], float] = monotonic
    findings: list[Finding] = field(default_factory=list)
    done: int = 0
    executed: int = 0

    def __post_init__(self) -> None:
        self._fuzzer: Fuzzer = make_fuzzer(self.spec)
        self._next = 0
        self._finished: dict[int, int] = {}
        self._reached: set[Any] = set()
        self._trials = 0
        self._signatures: set[str] = set()
        self._elapsed = 0.0
        if self.folder is not None:
            self._resume(self.folder)
        self._begun = self._saved = self.clock()

    # State.

    def _resume(self, folder: Path) -> None:
        """Go on with a campaign that was begun in the folder, if there is one."""
        path = folder / _STATE
        if not path.exists():
            return
        state = _read_state(path)
        if not state["runs"]:
            return  # it ended before its first case: another may begin here
        if (state["target"], state["seed"]) != (dict(self.spec), self.seed):
            raise FuzzError(
                f"{path}: a campaign of another target or seed: use another folder, or that "
                f"campaign's options: {_words(state['target'])}, seed {state['seed']}"
            )
        self.done, self.executed = state["runs"], state["executed"]
        self._elapsed, self._next = state["seconds"], state["next"]
        self.findings = list(findings_in(folder))

    def save(self) -> None:
        """Write what is done to the folder."""
        if self.folder is None:
            return
        self._saved = self.clock()
        state = {
            "target": dict(self.spec),
            "seed": self.seed,
            "runs": self.done,
            "executed": self.executed,
            "seconds": round(self.progress.seconds, 3),
            "next": self._complete_up_to(),
        }
        beside = self.folder / f".{_STATE}.{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(state, indent=1) + "\n")
            beside.replace(self.folder / _STATE)
        except OSError as error:
            raise FuzzError(f"{self.folder}: cannot write: {error.strerror or error}") from error

    def _complete_up_to(self) -> int:
        """The first run number that is not complete."""
        first = self._next
        while first in self._finished:
            first += self._finished[first]
        return first

    @property
    def progress(self) -> Progress:
        """What is done so far."""
        seconds = self._elapsed + self.clock() - self._begun
        return Progress(self.done, self.executed, seconds, len(self.findings), len(self._reached))

    @property
    def _over(self) -> bool:
        timed = self.seconds is not None and self.clock() - self._begun >= self.seconds
        return self._has_enough or timed

    @property
    def _has_enough(self) -> bool:
        return self.max_findings is not None and len(self.findings) >= self.max_findings

    # Running.

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Yield batches not done yet: the first run number, and how many."""
        first, end = self._next, None if self.runs is None else self._next + self.runs
        size = getattr(self._fuzzer, "runs_of_batch", RUNS_OF_BATCH)
        while end is None or first < end:
            yield first, size if end is None else min(size, end - first)
            first += size

    def run(
        self,
        jobs: int = 1,
        executor: Executor | None = None,
        report: Callable[[Progress], object] = lambda _: None,
    ) -> list[Finding]:
        """Run until a limit is reached; return the findings.

        ``jobs`` processes are used, or ``executor``, which may be that of a cluster. ``report`` is
        called after each batch. Findings up to then are kept when an exception, such as
        ``KeyboardInterrupt``, ends the run.
        """
        self.save()  # a folder that cannot be written is reported before the work
        try:
            if executor is None and jobs == 1:
                self._run_here(report)
            else:
                self._run_over(jobs, executor, report)
        finally:
            self.save()
        return self.findings

    def _run_here(self, report: Callable[[Progress], object]) -> None:
        for first, runs in self._batches():
            if self._over:
                return
            self._take(self._fuzzer.batch(self.seed, first, runs))
            report(self.progress)

    def _run_over(
        self, jobs: int, executor: Executor | None, report: Callable[[Progress], object]
    ) -> None:
        """Run batches in an executor; those lost with a process are run again."""
        queue = _Queue(self._batches())
        if executor is not None:
            self._feed(executor, jobs, queue, report)
            return
        for _ in range(_MAX_LOST):
            others = set(active_children())
            context = get_context("spawn")
            pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker)
            try:
                self._feed(pool, jobs, queue, report)
                return
            except BrokenProcessPool:
                queue.lost()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in set(active_children()) - others:
                    worker.terminate()
        raise FuzzError(f"{_MAX_LOST} times a process of the campaign was killed: it ends")

    def _feed(
        self, pool: Executor, jobs: int, queue: "_Queue", report: Callable[[Progress], object]
    ) -> None:
        """Keep the processes busy until all batches are done, or a limit is reached."""
        while not self._over:
            while len(queue.running) < 2 * jobs and (batch := queue.take()) is not None:
                queue.running[pool.submit(run_batch, dict(self.spec), self.seed, *batch)] = batch
            if not queue.running:
                return
            for work in wait(queue.running, _LIMIT_CHECK_S, FIRST_COMPLETED).done:
                self._take(work.result())
                del queue.running[work]
                report(self.progress)
        for work in queue.running:
            work.cancel()

    def _take(self, batch: Batch) -> None:
        """Count a batch and keep what it found.

        It is finished only after all that it found is written: otherwise it is run again when the
        campaign goes on.
        """
        self.done += batch.runs
        self.executed += batch.executed
        self._reached |= batch.reached
        if all(self._keep(found) for found in batch.found):
            self._finished[batch.first] = batch.runs
        if self.clock() - self._saved >= _BETWEEN_SAVES:
            self.save()

    def _keep(self, found: Found) -> bool:
        """Minimise and write a finding, unless one with its signature is there.

        Return false if it is not kept because there are enough findings.
        """
        if found.violation.signature in self._known():
            return True
        if self._has_enough:
            return False
        finding = as_finding(self.spec, self.seed, self._minimised(found))
        if finding.violation.signature not in self._known():
            if self.folder is not None:
                write_finding(self.folder, finding, self._fuzzer)
            self.findings.append(finding)
            self.save()
        return True

    def _known(self) -> set[str]:
        """The signatures of the findings."""
        if len(self._signatures) != len(self.findings):
            self._signatures = {finding.violation.signature for finding in self.findings}
        return self._signatures

    def _minimised(self, found: Found) -> Found:
        """Minimise a finding, as far as the campaign may play cases for that."""
        fuzzer = self._fuzzer
        if not isinstance(fuzzer, CaseFuzzer):
            return fuzzer.minimised(found)
        left = max(FREE_TRIALS + self.done - self._trials, 0)
        most = min(left, MAX_TRIALS)
        trials = Trials(most)
        smallest = fuzzer.minimised(found, trials)
        self._trials += most - trials.left
        return smallest


class _Queue:
    """Batches to run, and those that run, by their future."""

    def __init__(self, batches: Iterator[tuple[int, int]]) -> None:
        self._batches = batches
        self._again: list[tuple[int, int]] = []
        self.running: dict[Future[Batch], tuple[int, int]] = {}

    def take(self) -> tuple[int, int] | None:
        """Return the next batch, first those that were lost; ``None`` if there are no more."""
        return self._again.pop() if self._again else next(self._batches, None)

    def lost(self) -> None:
        """Note that the batches that run were lost with their process."""
        self._again += self.running.values()
        self.running.clear()


def _begin_worker() -> None:
    """Prepare a worker process: Ctrl-C is for the main process, whose end also ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


_fuzzers: dict[str, Fuzzer] = {}


def run_batch(spec: dict[str, Any], seed: int, first: int, runs: int) -> Batch:
    """Run a batch in this process, which keeps the fuzzer for the next."""
    key = json.dumps(spec, sort_keys=True)
    if key not in _fuzzers:
        _fuzzers[key] = make_fuzzer(spec)
        gc.freeze()  # the garbage collector need not visit what stays
    return _fuzzers[key].batch(seed, first, runs)


def _words(target: dict[str, Any]) -> str:
    """Write what a campaign fuzzes."""
    more = (f"{name} {value}" for name, value in target.items() if name != "kind")
    return ", ".join([f"target {target.get('kind')}", *more])


def seed_of(folder: Path) -> int | None:
    """Return the seed of the campaign that was begun in a folder, or ``None``."""
    path = folder / _STATE
    return int(_read_state(path)["seed"]) if path.exists() else None


def _read_state(path: Path) -> dict[str, Any]:
    state = read_json(path)
    if not isinstance(state, dict) or not isinstance(state.get("target"), dict):
        raise FuzzError(f"{path}: no state of a campaign: use another folder")
    for name in ("runs", "executed", "next", "seed"):
        if type(state.get(name)) is not int or state[name] < 0:
            raise FuzzError(f"{path}: {name} is missing or not an integer: use another folder")
    if type(state.get("seconds")) not in (int, float) or not 0 <= state["seconds"] < _MAX_SECONDS:
        raise FuzzError(f"{path}: seconds are missing or not a number: use another folder")
    return state
