"""The running steps of a scenario: the posted and completed work of each queue pair.

A step has one :class:`PostedWork` for each queue pair of its end. A work queue posts the oldest one
completely, then the next. Its depth, the room in the queue, and a barrier limit how much is posted
at a time.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from rdmawire.errors import VerbsError
from rdmawire.fabric.simulator import Simulator
from rdmawire.terminal import plural
from rdmawire.traffic.scenario.model.step import SUCCESS, VERBS, StepPlan
from rdmawire.traffic.scenario.runner.endpoint import QueuePairRuntime
from rdmawire.traffic.scenario.runner.host_runtime import errno_name, refusal
from rdmawire.verbs.enums import WCFlags, WCStatus, WorkCompletion
from rdmawire.verbs.wr import RecvWR, SendWR


class Deviation(NamedTuple):
    """The first deviation of a step: what was expected, what was found, and where."""

    expected: str
    found: str
    endpoint: QueuePairRuntime | None
    frame: int | None
    point: str


class StepRun:
    """A running step.

    - ``endings``: number of completions by status, and of errors by errno.
    - ``waits``: number of steps that must complete first; ``followers`` wait for this one.
    - ``limit``: how often each queue pair may post by now; with a barrier, no more than a round.
    """

    def __init__(self, step: StepPlan, number: int) -> None:
        self.step = step
        self.number = number
        self.jobs: list[PostedWork] = []
        self.begun = False
        self.waits = 0
        self.followers: list[StepRun] = []
        self.posted = self.ended = 0
        self.total = 0
        self.endings: Counter[str] = Counter()
        self.deviation: Deviation | None = None
        self.round = (step.depth or 1) if step.barrier else step.times
        self.limit = self.round
        self._arrived = 0

    @property
    def title(self) -> str:
        return f"{self.step.name} ({self.step.verb})" if self.step.name else self.step.verb

    @property
    def waited_for(self) -> bool:
        """Whether each work request ends with a completion."""
        step = self.step
        if VERBS[step.verb].work is None:
            return step.status is not None
        return step.status not in (None, SUCCESS) or (
            step.status == SUCCESS and "SIGNALED" in step.flags
        )

    @property
    def must_fail(self) -> bool:
        """Whether its work must be refused or complete with an error."""
        return self.step.refused is not None or self.step.status not in (None, SUCCESS)

    @property
    def is_complete(self) -> bool:
        return self.begun and self.ended == self.total

    def arrive(self, job: "PostedWork") -> bool:
        """Record that a queue pair finished the round; return whether all have."""
        if job.ended < self.limit or self.limit >= self.step.times:
            return False
        self._arrived += 1
        if self._arrived < len(self.jobs):
            return False
        self._arrived = 0
        self.limit = min(self.limit + self.round, self.step.times)
        return True


class PostedWork:
    """A step at one queue pair. ``work`` is the work request that it posts, without its number."""

    __slots__ = ("ended", "endpoint", "number", "posted", "run", "work")

    def __init__(self, run: StepRun, endpoint: QueuePairRuntime, number: int) -> None:
        self.run = run
        self.endpoint = endpoint
        self.number = number
        self.posted = 0
        self.ended = 0
        self.work: SendWR | RecvWR | None = None

    @property
    def is_posted(self) -> bool:
        return self.posted >= self.run.step.times

    @property
    def may_post(self) -> bool:
        """Whether depth and barrier allow one more."""
        depth = self.run.step.depth
        if self.posted >= self.run.limit:
            return False
        return depth is None or self.posted - self.ended < depth


class WorkQueue:
    """A work queue of a queue pair, as its application sees it.

    ``room`` returns how many more work requests fit, ``post`` posts one.
    """

    def __init__(
        self, room: Callable[[PostedWork], int], post: Callable[[PostedWork], None]
    ) -> None:
        self.jobs: deque[PostedWork] = deque()
        self._room = room
        self._post = post

    def pump(self) -> None:
        jobs = self.jobs
        while jobs:
            job = jobs[0]
            while job.may_post and self._room(job) > 0:
                self._post(job)
            if not job.is_posted:
                return
            jobs.popleft()


class Schedule:
    """Starts steps in their order with ``begin``, and posts work of queue pairs with ``pump``."""

    def __init__(
        self,
        runs: list[StepRun],
        simulator: Simulator,
        begin: Callable[[StepRun], None],
        pump: Callable[[QueuePairRuntime], None],
    ) -> None:
        self.runs = runs
        self.simulator = simulator
        self._begin = begin
        self._pump = pump
        self._due: deque[StepRun] = deque()
        self._dirty: dict[QueuePairRuntime, None] = {}
        self._running = False
        named = {run.step.name: run for run in runs if run.step.name}
        for run in runs:
            for name in run.step.after:
                named[name].followers.append(run)
                run.waits += 1

    def start(self) -> None:
        """Start the first steps, and schedule those that have a time."""
        for run in self.runs:
            if run.step.at is not None and not run.waits:
                self.simulator.call_at(run.step.at, partial(self._begin_now, run))
            elif not run.number and _says_nothing(run):
                self._due.extend(self._with(run))
        self.run_pending()

    def _begin_now(self, run: StepRun) -> None:
        self._due.extend(self._with(run))
        self.run_pending()

    def _with(self, run: StepRun) -> Iterator[StepRun]:
        """Yield a step and the steps after it that start with it."""
        yield run
        yield from takewhile(_says_nothing, self.runs[run.number + 1 :])

    def mark_dirty(self, endpoints: Iterable[QueuePairRuntime]) -> None:
        """Mark queue pairs that may be able to post."""
        self._dirty.update(dict.fromkeys(endpoints))

    def run_pending(self) -> None:
        """Start steps that are due and post what is possible, until nothing changes."""
        if self._running:
            return
        self._running = True
        while self._dirty or self._due:
            if self._dirty:
                endpoint = next(iter(self._dirty))
                del self._dirty[endpoint]
                self._pump(endpoint)
            else:
                self._begin(self._due.popleft())
        self._running = False

    def follow(self, run: StepRun) -> None:
        """Start the steps that waited only for this one."""
        for follower in run.followers:
            follower.waits -= 1
            at = follower.step.at or 0
            if not follower.waits and at > self.simulator.now:
                self.simulator.call_at(at, partial(self._begin_now, follower))
            elif not follower.waits:
                self._due.extend(self._with(follower))


def _says_nothing(run: StepRun) -> bool:
    """Whether a step starts with the preceding one."""
    return run.step.at is None and not run.step.after


Progress = Callable[[int, int], object]
"""Called with the number of ended work requests, and of all."""

NO_REFUSAL: Final = refusal(None)

_NO_FAILURE: Final = (WCStatus.SUCCESS, WCStatus.WR_FLUSH_ERR)


class FrameSource(Protocol):
    """Finds the frame that explains a completion status."""

    def explain(self, endpoint: QueuePairRuntime, status: WCStatus) -> tuple[int | None, str]: ...


class CompletionTracker:
    """Tracks completions. ``last`` is when work last ended (ns).

    ``failed`` counts messages that completed with an error of their own. Flushed work, and work
    that sends nothing, does not count.
    """

    def __init__(self, schedule: Schedule, witness: FrameSource, progress: Progress | None) -> None:
        self.failed = 0
        self.last = 0
        self._schedule = schedule
        self._witness = witness
        self._progress = progress
        self._done = 0
        self._all = sum(run.total for run in schedule.runs)

    def completed(self, job: PostedWork, completion: WorkCompletion) -> None:
        run, status = job.run, WCStatus(completion.status)
        self.failed += status not in _NO_FAILURE and VERBS[run.step.verb].sends
        if run.waited_for:
            run.endings[status.name] += 1
            if status.name != run.step.status and run.step.refused is None:
                self._judge(job, status, run.step.status or "")
            elif status is WCStatus.SUCCESS:
                _check_values(job, completion)
            self._end_once(job)
        elif status is not WCStatus.SUCCESS and run.number >= 0:
            run.endings[status.name] += 1
            self._judge(job, status, "no completion")

    def _end_once(self, job: PostedWork) -> None:
        """End a completed work request; a further completion of one that ended is a deviation."""
        if job.ended < job.posted:
            self.end_job(job)
            return
        expected = plural(job.posted, "completion")
        _deviate(job, expected, plural(job.posted + 1, "completion"))

    def posted(self, job: PostedWork) -> None:
        """Handle a posted work request; without a completion to wait for, it has ended."""
        if job.run.step.refused is not None:
            _blame(job.run, job.endpoint, None)
        if not job.run.waited_for:
            self.end_job(job)

    def refused(self, job: PostedWork, error: VerbsError) -> None:
        """Handle a refused work request, which has ended."""
        job.run.endings[errno_name(error)] += 1
        if errno_name(error) != job.run.step.refused:
            _blame(job.run, job.endpoint, error)
        self.end_job(job)

    def done(
        self, run: StepRun, endpoint: QueuePairRuntime | None, error: VerbsError | None
    ) -> None:
        refused = None if error is None else errno_name(error)
        run.endings[refused or SUCCESS] += 1
        if refused != run.step.refused:
            _blame(run, endpoint, error)
        self._end(run)

    def _judge(self, job: PostedWork, status: WCStatus, expected: str) -> None:
        """Record a completion with an unexpected status."""
        if job.run.deviation is None:
            frame, point = self._witness.explain(job.endpoint, status)
            job.run.deviation = Deviation(expected, status.name, job.endpoint, frame, point)

    def end_job(self, job: PostedWork) -> None:
        """Count an ended work request of a queue pair."""
        job.ended += 1
        if job.run.arrive(job):
            self._schedule.mark_dirty(other.endpoint for other in job.run.jobs)
        self._end(job.run)

    def _end(self, run: StepRun) -> None:
        """Count an ended work request of a step, and start its followers after the last."""
        run.ended += 1
        if run.number < 0:
            return
        self._done += 1
        self.last = self._schedule.simulator.now
        if self._progress is not None:
            self._progress(self._done, self._all)
        if run.is_complete:
            self._schedule.follow(run)


def _check_values(job: PostedWork, completion: WorkCompletion) -> None:
    """Compare a completion with the values that a receive expects."""
    expected = job.run.step.values
    length, imm = expected.get("byte_len"), expected.get("imm")
    if job.run.step.verb != "receive":
        return
    if length is not None and completion.byte_len != length:
        _deviate(job, f"byte_len {length}", f"byte_len {completion.byte_len}")
    if imm is None:
        return
    if not completion.wc_flags & WCFlags.WITH_IMM:
        _deviate(job, f"imm {imm:#x}", "no immediate data")
    elif completion.imm_data != imm:
        _deviate(job, f"imm {imm:#x}", f"imm {completion.imm_data:#x}")


def _deviate(job: PostedWork, expected: str, found: str) -> None:
    """Record the first deviation of a step."""
    if job.run.deviation is None:
        job.run.deviation = Deviation(expected, found, job.endpoint, None, "")


def _blame(run: StepRun, endpoint: QueuePairRuntime | None, error: VerbsError | None) -> None:
    """Record an unexpected error, or that an expected one is missing."""
    if run.deviation is None:
        run.deviation = Deviation(
            run.step.refused or NO_REFUSAL, refusal(error), endpoint, None, ""
        )
