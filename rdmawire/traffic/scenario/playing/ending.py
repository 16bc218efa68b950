"""How steps end: what is counted, what is wrong, who is told, and what follows."""

from collections.abc import Callable
from typing import Final, Protocol

from rdmawire.errors import VerbsError
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.playing.machine import errno_name, refusal
from rdmawire.traffic.scenario.playing.schedule import Schedule
from rdmawire.traffic.scenario.playing.work import Job, Run, Wrong
from rdmawire.traffic.scenario.tables import SUCCESS
from rdmawire.traffic.scenario.verbs import VERBS
from rdmawire.verbs.enums import WCStatus

Progress = Callable[[int, int], object]
"""Told how many pieces of work have ended, of how many."""

NO_REFUSAL: Final = refusal(None)

_NO_FAILURE: Final = (WCStatus.SUCCESS, WCStatus.WR_FLUSH_ERR)


class Witness(Protocol):
    """Who knows the frames that were seen: the one that explains an ending, and where it is."""

    def explain(self, lane: Lane, status: WCStatus) -> tuple[int | None, str]: ...


class Endings:
    """``failed`` counts messages that ended with an error of their own.

    Work that was flushed behind another, or that sends nothing, is none of them.
    """

    def __init__(self, schedule: Schedule, witness: Witness, progress: Progress | None) -> None:
        self.failed = 0
        self._schedule = schedule
        self._witness = witness
        self._progress = progress
        self._done = 0
        self._all = sum(run.total for run in schedule.runs)

    def completed(self, job: Job, status: WCStatus) -> None:
        """A piece of work completed."""
        run = job.run
        self.failed += status not in _NO_FAILURE and VERBS[run.step.verb].sends
        if run.waited_for:
            run.endings[status.name] += 1
            if status.name != run.step.status and run.step.refused is None:
                self._judge(job, status, run.step.status or "")
            self.end_job(job)
        elif status is not WCStatus.SUCCESS and run.number >= 0:
            run.endings[status.name] += 1
            self._judge(job, status, "no completion")

    def posted(self, job: Job) -> None:
        """A piece of work was taken; what is not waited for has ended then."""
        if job.run.step.refused is not None:
            _blame(job.run, job.lane, None)
        if not job.run.waited_for:
            self.end_job(job)

    def refused(self, job: Job, error: VerbsError) -> None:
        """A piece of work was refused, and has ended."""
        job.run.endings[errno_name(error)] += 1
        if errno_name(error) != job.run.step.refused:
            _blame(job.run, job.lane, error)
        self.end_job(job)

    def done(self, run: Run, lane: Lane | None, error: VerbsError | None) -> None:
        """An owner did something, or was refused."""
        refused = None if error is None else errno_name(error)
        run.endings[refused or SUCCESS] += 1
        if refused != run.step.refused:
            _blame(run, lane, error)
        self._end(run)

    def _judge(self, job: Job, status: WCStatus, expected: str) -> None:
        """A completion is not what it should be."""
        if job.run.wrong is None:
            frame, point = self._witness.explain(job.lane, status)
            job.run.wrong = Wrong(expected, status.name, job.lane, frame, point)

    def end_job(self, job: Job) -> None:
        """One more time is over at a queue pair."""
        job.ended += 1
        if job.run.arrive(job):
            self._schedule.stir(other.lane for other in job.run.jobs)
        self._end(job.run)

    def _end(self, run: Run) -> None:
        """One more time is over; who waits for all of it begins then."""
        run.ended += 1
        if run.number < 0:
            return
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._all)
        if run.over:
            self._schedule.follow(run)


def _blame(run: Run, lane: Lane | None, error: VerbsError | None) -> None:
    """A refusal, or that there was none, is not what it should be."""
    if run.wrong is None:
        run.wrong = Wrong(run.step.refused or NO_REFUSAL, refusal(error), lane, None, "")
