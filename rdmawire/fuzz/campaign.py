"""Campaigns: many runs of a fuzzer over processes, findings kept as they come.

Work is given out in batches of run numbers; a batch depends on the seed and its numbers alone, so
it does not matter where it runs, and a batch that is lost with its process is run again. Findings
are minimised, kept once per signature, and written at once. ``campaign.json`` holds what is done:
a campaign that is started again in the same folder goes on.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from rdmawire.errors import Ended
from rdmawire.fuzz.batch_pool import BatchExecutor, BatchPool, BatchQueue, run_batch
from rdmawire.fuzz.campaign_state import STATE, CampaignState, check_same, read_state, write_state
from rdmawire.fuzz.finding import Finding, as_finding, findings_in, write_finding
from rdmawire.fuzz.fuzzer import Batch, Found, Fuzzer, Spec, make_fuzzer
from rdmawire.fuzz.minimise import MAX_TRIALS, Trials
from rdmawire.fuzz.oracle import TIME
from rdmawire.worker_process import signals_deferred

RUNS_OF_BATCH: Final = 200
"""Runs of one batch, at most: fewer would cost more time between processes."""
BATCH_S: Final = 2.0
"""Seconds after which a batch ends with fewer runs: a process that dies loses no more work."""
_FIRST_BATCH_S: Final = 0.2
"""Seconds of the first batches: later ones take at most as long as all before them.

So little is lost at an early end, and a batch that was lost is run again in short parts.
"""
_LIMIT_CHECK_S: Final = 1.0
"""Seconds between two checks of the limits while no batch is done."""
FREE_TRIALS: Final = 20_000
"""Cases that a campaign plays to minimise, besides one for each run.

So a target that shows a violation in each case is not fuzzed much more slowly than others.
"""
_MINIMISE_S: Final = 5.0
"""Seconds after the time limit in which a finding is still minimised, if its calls are not slow."""
_BETWEEN_SAVES: Final = 10.0
"""Seconds after which what is done is saved, so that a killed campaign repeats little."""


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
        self._tell: Callable[[Finding], object] = lambda _: None
        self._elapsed, self._earlier = 0.0, 0
        if self.folder is not None:
            self._resume(self.folder)
        self._begun = self._limited = self._ready = self._saved = self.clock()
        self._before = self.done

    def check(self) -> None:
        """Raise :class:`FuzzError` if the target cannot be fuzzed at all: a program is missing."""
        self._fuzzer.check()

    # State.

    def _resume(self, folder: Path) -> None:
        """Go on with a campaign that was begun in the folder, if there is one."""
        state = read_state(folder)
        if state is None or not state.runs:
            return  # it ended before its first case: another may begin here
        check_same(folder, state, self.spec, self.seed)
        self.done, self.executed = state.runs, state.executed
        self._earlier = self.done
        self._elapsed, self._next = state.seconds, state.next
        self.findings = list(findings_in(folder))

    def save(self) -> None:
        """Write what is done to the folder. Raises :class:`FuzzError` if it cannot be written."""
        if self.folder is None:
            return
        if self._is_saved and not (self.folder / STATE).exists():
            self._write_again(self.folder)
        self._saved = self.clock()
        seconds = round(self.progress.seconds, 3)
        done = self.done, self.executed, seconds, self._next
        write_state(self.folder, CampaignState(dict(self.spec), self.seed, *done))
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
        return self._has_enough or self._is_late()

    def _is_late(self, grace: float = 0.0) -> bool:
        """Whether the time limit was reached ``grace`` seconds ago."""
        return self.seconds is not None and self._passed >= self.seconds + grace

    @property
    def _passed(self) -> float:
        """Seconds that count for the time limit."""
        return self.clock() - self._limited

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
        executor: BatchExecutor | None = None,
        report: Callable[[Progress], object] = lambda _: None,
        tell: Callable[[Finding], object] = lambda _: None,
    ) -> list[Finding]:
        """Run until a limit is reached; return the findings.

        ``jobs`` processes are used, or ``executor``, which may be that of a cluster. ``report`` is
        called after each batch, and each second; ``tell`` with each finding when it is written. At
        least one case is played, if there is one left. Findings up to then are kept when an
        exception, such as ``KeyboardInterrupt``, ends the run; one that was being minimised, also
        at the end of the time, is kept as it was found.
        """
        self.check()
        self.save()  # a folder that cannot be written is reported before the work
        self._tell = tell
        self._limited = self._ready = self.clock()
        self._before = self.done
        try:
            if executor is None and jobs == 1:
                self._run_here(report)
            else:
                self._run_over(jobs, executor, report)
        finally:
            with signals_deferred():
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
        self, jobs: int, executor: BatchExecutor | None, report: Callable[[Progress], object]
    ) -> None:
        """Run batches in an executor; those lost with a process are run again."""
        queue = BatchQueue(self._batches())
        if executor is not None:
            self._feed(executor, jobs, queue, report)
        elif not self._has_enough:
            while not self._run_in_pool(jobs, queue, report):
                queue.lost()

    def _run_in_pool(
        self, jobs: int, queue: BatchQueue, report: Callable[[Progress], object]
    ) -> bool:
        """Run batches in new processes; return false if one of them was killed.

        The time limit counts from when they are ready.
        """
        pool, begun = BatchPool(jobs), self.clock()
        try:
            pool.wait_until_ready(dict(self.spec))
            self._ready = self.clock()
            self._limited += self._ready - begun
            self._feed(pool, jobs, queue, report)
        except BrokenProcessPool:
            return False
        finally:
            pool.end()
        return True

    def _feed(
        self,
        pool: BatchExecutor,
        jobs: int,
        queue: BatchQueue,
        report: Callable[[Progress], object],
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
            is_over = self._has_enough or (self._is_late() and self.done > self._before)
        for work in queue.running:
            work.cancel()

    @property
    def _batch_seconds(self) -> float:
        """Seconds that a batch may take that is given out now."""
        most = min(BATCH_S, max(_FIRST_BATCH_S, self.clock() - self._ready))
        return most if self.seconds is None else min(most, max(self.seconds - self._passed, 0.0))

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
            self._fuzzer = make_fuzzer(self.spec)  # the target may be in any state
            self._add(found)
            raise
        self._add(smallest)
        return True

    def _add(self, found: Found) -> None:
        """Write a finding, unless one with its signature is there.

        It is a finding, too, if it cannot be written.
        """
        finding = as_finding(self.spec, self.seed, found)
        if finding.violation.signature in self._known():
            return
        with signals_deferred():
            self.findings.append(finding)
            try:
                if self.folder is not None:
                    write_finding(self.folder, finding, self._fuzzer)
            finally:
                self._tell(finding)
            self.save()

    def _known(self) -> set[str]:
        """The signatures of the findings."""
        if len(self._signatures) != len(self.findings):
            self._signatures = {finding.violation.signature for finding in self.findings}
        return self._signatures

    def _minimised(self, found: Found) -> Found:
        """Minimise a finding, as far as the campaign may play cases for that."""
        grace = 0.0 if found.violation.what == TIME else _MINIMISE_S
        left = min(max(FREE_TRIALS + self.done - self._trials, 0), MAX_TRIALS)
        trials = Trials(left, partial(self._is_late, grace))
        smallest = self._fuzzer.minimised(found, trials)
        self._trials += left - trials.left
        return smallest
