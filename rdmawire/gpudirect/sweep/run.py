"""The jobs of a sweep, and how they are spread over processes or the workers of a cluster.

What a job gives depends on the job alone, which includes its seed: so it does not matter where it
runs, nor how many others there are, and a job that is lost with its process is run again.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple, Protocol

from rdmawire.errors import ClusterError, RdmaError, SweepError
from rdmawire.process_pool import ProcessPool

MAX_JOBS: Final = 10_000
"""Combinations of a sweep, at most."""

Value = int | float | str | None


class Job(Protocol):
    """One combination of a sweep. It can be pickled."""

    @property
    def settings(self) -> Mapping[str, Value]:
        """What is done, by name; ``None`` where nothing was asked for."""
        ...

    def run(self) -> Mapping[str, int]:
        """Do it, and return what it took, by name. Raises :class:`RdmaError` if it cannot be."""
        ...


class SweepRow(NamedTuple):
    """A job that is done: its number, its settings, and its results, or why there are none."""

    number: int
    settings: Mapping[str, Value]
    results: Mapping[str, int]
    reason: str = ""

    def values(self) -> dict[str, Value]:
        """Return the row as JSON has it."""
        found = {**self.settings, **self.results}
        return found | {"reason": self.reason} if self.reason else found


class JobOutcome(NamedTuple):
    """The results of a job, or why there are none."""

    results: Mapping[str, int]
    reason: str = ""


_NO_RESULTS: Final[Mapping[str, int]] = {}
_KILLED: Final = JobOutcome(
    _NO_RESULTS, "its process was killed each time: perhaps there is not enough memory"
)


def combinations(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield each combination of a value of each axis; the last axis changes fastest.

    Raises :class:`SweepError` if there are more than :data:`MAX_JOBS`.
    """
    count = prod(len(values) for values in axes.values())
    if count > MAX_JOBS:
        several = (f"{len(values)} of {name}" for name, values in axes.items() if len(values) > 1)
        found = ", ".join(several)
        raise SweepError(f"{count} combinations ({found}); at most {MAX_JOBS} are supported")
    return (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def outcome(job: Job) -> JobOutcome:
    """Do a job in this process."""
    try:
        return JobOutcome(job.run())
    except RdmaError as error:
        return JobOutcome(_NO_RESULTS, str(error))
    except MemoryError:
        return JobOutcome(_NO_RESULTS, "there is not enough memory")


class Sweep:
    """Jobs, and what they gave.

    ``report`` is called with the number of jobs that are done, whenever some are. What is done is
    kept when an exception, such as ``KeyboardInterrupt``, ends a run. Raises :class:`SweepError`
    for more than :data:`MAX_JOBS` jobs.
    """

    def __init__(self, jobs: Sequence[Job], report: Callable[[int], object] = lambda _: None):
        if len(jobs) > MAX_JOBS:
            raise SweepError(f"{len(jobs)} jobs; at most {MAX_JOBS} are supported")
        self.jobs = jobs
        self.report = report
        self._done: dict[int, JobOutcome] = {}
        self._running: dict[Future[JobOutcome], int] = {}

    @property
    def rows(self) -> list[SweepRow]:
        """A row for each job that is done, in the order of the jobs."""
        return [
            SweepRow(number, self.jobs[number].settings, *self._done[number])
            for number in sorted(self._done)
        ]

    def run(self, processes: int = 1) -> None:
        """Do the jobs that are not done, in this process or in several others.

        Jobs whose process was killed are run again, each alone. One whose process is killed then,
        too, is done, with this reason.
        """
        waiting = self._undone()
        if processes == 1:
            for number in waiting:
                self._finish(number, outcome(self.jobs[number]))
            return
        while waiting:
            for number in self._run_in_pool(min(processes, len(waiting)), waiting):
                if self._run_in_pool(1, deque([number])):
                    self._finish(number, _KILLED)

    def run_on(
        self, executor: Executor, workers: int, killed: type[Exception] = BrokenProcessPool
    ) -> None:
        """Do the jobs that are not done on an executor with ``workers`` workers.

        ``killed`` is the error of a future whose workers were killed, one after the other. Raises
        :class:`ClusterError` if the executor cancels jobs.
        """
        try:
            self._feed(executor, 2 * workers, self._undone(), killed)
        except CancelledError:
            raise ClusterError("the cluster has ended, or cancelled what it was to do") from None
        finally:
            for work in self._running:
                work.cancel()
            self._running.clear()

    def _undone(self) -> deque[int]:
        return deque(number for number in range(len(self.jobs)) if number not in self._done)

    def _run_in_pool(self, processes: int, waiting: deque[int]) -> list[int]:
        """Run jobs in new processes; return those that were lost if one of these was killed."""
        pool = ProcessPool(processes)
        try:
            self._feed(pool, 2 * processes, waiting)
        except BrokenProcessPool:
            return [number for number in self._running.values() if number not in self._done]
        finally:
            pool.end()
            self._running.clear()
        return []

    def _feed(
        self,
        executor: Executor | ProcessPool,
        most: int,
        waiting: deque[int],
        *killed: type[Exception],
    ) -> None:
        """Keep the processes busy with up to ``most`` jobs until all are done."""
        while waiting or self._running:
            while waiting and len(self._running) < most:
                work = executor.submit(outcome, self.jobs[waiting[0]])
                self._running[work] = waiting.popleft()
            for work in wait(self._running, return_when=FIRST_COMPLETED).done:
                try:
                    found = work.result()
                except killed:
                    found = _KILLED
                self._finish(self._running[work], found)
                del self._running[work]

    def _finish(self, number: int, found: JobOutcome) -> None:
        self._done[number] = found
        self.report(len(self._done))
