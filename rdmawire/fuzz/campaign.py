"""Campaigns: many runs of a fuzzer over processes, findings kept as they come.

Work is given out in batches of run numbers; a batch depends on the seed and its numbers alone, so
it does not matter where it runs, and a batch that is lost with its process is run again. Findings
are minimised, kept once per signature, and written at once. ``campaign.json`` holds what is done:
a campaign that is started again in the same folder goes on.
"""

import gc
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import active_children, get_context
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from rdmawire.errors import Ended, FuzzError
from rdmawire.fuzz.finding import Finding, as_finding, findings_in, read_json, write_finding
from rdmawire.fuzz.fuzzer import Batch, CaseFuzzer, Found, Fuzzer, Spec, joined, make_fuzzer
from rdmawire.fuzz.minimise import MAX_TRIALS, Trials
from rdmawire.worker_process import begin_worker

RUNS_OF_BATCH: Final = 200
"""Runs of one batch, at most: fewer would cost more time between processes."""
BATCH_S: Final = 2.0
"""Seconds after which a batch ends with fewer runs: a process that dies loses no more work."""
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

    ``earlier`` of the runs were done before it was started this time. ``reached`` counts the
    different behaviours reached since then.
    """

    runs: int
    executed: int
    seconds: float
    findings: int
    reached: int = 0
    earlier: int = 0

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
    - ``max_findings``: it ends when it has this number of different findings; ``None`` for no
      limit.
    - ``clock``: the time in seconds.
    """

    spec: Spec
    seed: int = 0
    folder: Path | None = None
    runs: int | None = None
    seconds: float | None = None
    max_findings: int | None = None
    clock: Callable[[], float] = monotonic
    findings: list[Finding] = field(init=False, default_factory=list)
    done: int = field(init=False, default=0)
    executed: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._fuzzer: Fuzzer = make_fuzzer(self.spec)
        self._next = 0
        self._finished: dict[int, int] = {}
        self._is_saved = False
        self._reached: set[Any] = set()
        self._trials = 0
        self._signatures: set[str] = set()
        self._elapsed, self._earlier = 0.0, 0
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
        theirs = {**state["target"], "seed": state["seed"]}
        if other := _differing({**self.spec, "seed": self.seed}, theirs):
            raise FuzzError(
                f"{path}: another campaign: {other}: use another folder, or the options of that "
                f"campaign: {_words(theirs)}"
            )
        self.done, self.executed = state["runs"], state["executed"]
        self._earlier = self.done
        self._elapsed, self._next = state["seconds"], state["next"]
        self.findings = list(findings_in(folder))

    def save(self) -> None:
        """Write what is done to the folder."""
        if self.folder is None:
            return
        if self._is_saved and not (self.folder / _STATE).exists():
            self._write_again(self.folder)
        self._saved = self.clock()
        state = {
            "target": dict(self.spec),
            "seed": self.seed,
            "runs": self.done,
            "executed": self.executed,
            "seconds": round(self.progress.seconds, 3),
            "next": self._next,
        }
        beside = self.folder / f".{_STATE}.{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(state, indent=1) + "\n")
            beside.replace(self.folder / _STATE)
        except OSError as error:
            raise FuzzError(f"{self.folder}: cannot write: {error.strerror or error}") from error
        self._is_saved = True

    def _write_again(self, folder: Path) -> None:
        """Write all findings to a folder that was removed meanwhile."""
        for finding in self.findings:
            if not (folder / finding.name).exists():
                write_finding(folder, finding, self._fuzzer)

    @property
    def progress(self) -> Progress:
        """What is done so far."""
        seconds = self._elapsed + self.clock() - self._begun
        findings, reached = len(self.findings), len(self._reached)
        return Progress(self.done, self.executed, seconds, findings, reached, self._earlier)

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
        while end is None or first < end:
            yield first, RUNS_OF_BATCH if end is None else min(RUNS_OF_BATCH, end - first)
            first += RUNS_OF_BATCH

    def run(
        self,
        jobs: int = 1,
        executor: Executor | None = None,
        report: Callable[[Progress], object] = lambda _: None,
    ) -> list[Finding]:
        """Run until a limit is reached; return the findings.

        ``jobs`` processes are used, or ``executor``, which may be that of a cluster. ``report`` is
        called after each batch, and each second. At least one case is played, if there is one
        left. Findings up to then are kept when an exception, such as ``KeyboardInterrupt``, ends
        the run; one that was being minimised is kept as it was found.
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
        if self._has_enough:
            return
        for first, runs in self._batches():
            reported = self.clock()
            for part in self._fuzzer.parts(self.seed, first, runs):
                self._take(part)
                if self._over:
                    return
                if self.clock() - reported >= _LIMIT_CHECK_S:
                    reported = self.clock()
                    report(self.progress)
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
            pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=begin_worker)
            try:
                self._feed(pool, jobs, queue, report)
                return
            except BrokenProcessPool:
                queue.lost()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in set(active_children()) - others:
                    worker.terminate()
        raise FuzzError(f"the campaign ends: its processes were killed {_MAX_LOST} times")

    def _feed(
        self, pool: Executor, jobs: int, queue: "_Queue", report: Callable[[Progress], object]
    ) -> None:
        """Keep the processes busy until all batches are done, or a limit is reached."""
        spec, is_over = dict(self.spec), self._has_enough
        while not is_over:
            while len(queue.running) < 2 * jobs and (batch := queue.take()) is not None:
                work = pool.submit(run_batch, spec, self.seed, *batch, self._batch_seconds)
                queue.running[work] = batch
            if not queue.running:
                return
            for work in wait(queue.running, _LIMIT_CHECK_S, FIRST_COMPLETED).done:
                done = work.result()
                self._take(done)
                queue.finish(work, done.runs)
                report(self.progress)
            is_over = self._over
        for work in queue.running:
            work.cancel()

    @property
    def _batch_seconds(self) -> float:
        """Seconds that a batch may take that is given out now."""
        if self.seconds is None:
            return BATCH_S
        return min(BATCH_S, max(self.seconds - (self.clock() - self._begun), 0.0))

    def _take(self, batch: Batch) -> None:
        """Count a batch and keep what it found.

        It is finished only after all that it found is written: otherwise it is run again when the
        campaign goes on.
        """
        self.done += batch.runs
        self.executed += batch.executed
        self._reached |= batch.reached
        if all(self._keep(found) for found in batch.found):
            self._finish(batch.first, batch.runs)
        if self.clock() - self._saved >= _BETWEEN_SAVES:
            self.save()

    def _finish(self, first: int, runs: int) -> None:
        """Note that runs are done; ``_next`` is the first run that is not."""
        self._finished[first] = runs
        while self._next in self._finished:
            self._next += self._finished.pop(self._next)

    def _keep(self, found: Found) -> bool:
        """Minimise and write a finding, unless one with its signature is there.

        Return false if it is not kept because there are enough findings.
        """
        if found.violation.signature in self._known():
            return True
        if self._has_enough:
            return False
        try:
            smallest = self._minimised(found)
        except (KeyboardInterrupt, Ended):
            self._add(found)
            raise
        self._add(smallest)
        return True

    def _add(self, found: Found) -> None:
        """Write a finding, unless one with its signature is there."""
        finding = as_finding(self.spec, self.seed, found)
        if finding.violation.signature not in self._known():
            if self.folder is not None:
                write_finding(self.folder, finding, self._fuzzer)
            self.findings.append(finding)
            self.save()

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

    def finish(self, work: Future[Batch], runs: int) -> None:
        """Note that a batch has ended after ``runs`` runs; what is left of it is run again."""
        first, wanted = self.running.pop(work)
        if runs < wanted:
            self._again.append((first + runs, wanted - runs))

    def lost(self) -> None:
        """Note that the batches that run were lost with their process."""
        self._again += self.running.values()
        self.running.clear()


def run_batch(spec: dict[str, Any], seed: int, first: int, runs: int, seconds: float) -> Batch:
    """Run a batch in this process, with fewer runs if they take more than ``seconds``."""
    parts = _fuzzer(json.dumps(spec, sort_keys=True)).parts(seed, first, runs)
    return joined(first, _until(monotonic() + seconds, parts))


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


def _differing(ours: Spec, theirs: Spec) -> str:
    """Write which options of two campaigns differ; ``""`` for none."""
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    return ", ".join(
        f"{'target' if name == 'kind' else name} {theirs.get(name, 'not given')} there and "
        f"{ours.get(name, 'not given')} here"
        for name in names
    )


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
        raise FuzzError(f"{path}: not the state of a campaign: use another folder")
    for name in ("runs", "executed", "next", "seed"):
        if type(state.get(name)) is not int or state[name] < 0:
            raise FuzzError(f"{path}: {name} is missing or not an integer: use another folder")
    if type(state.get("seconds")) not in (int, float) or not 0 <= state["seconds"] < _MAX_SECONDS:
        raise FuzzError(f"{path}: seconds are missing or not a number: use another folder")
    return state
