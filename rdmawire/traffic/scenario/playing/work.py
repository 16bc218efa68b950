"""The steps of a scenario while they are done: what is posted where, how often, and what ended.

A step is done by one job for each queue pair of its end. A queue of a queue pair has its jobs in
the order in which they began; the first one posts until nothing of it is left to post, then the
next. What bounds a job is its depth, the room in the queue, and a round that others have to finish
first.
"""

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from rdmawire.traffic.scenario.model import StepPlan
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.tables import SUCCESS
from rdmawire.traffic.scenario.verbs import VERBS
from rdmawire.verbs.wr import RecvWR, SendWR


class Wrong(NamedTuple):
    """How a step first ended otherwise than it should: what was expected, what came, and where."""

    expected: str
    found: str
    lane: Lane | None
    frame: int | None
    point: str


class Run:
    """One step. ``endings`` counts how it ended, by status or errno.

    ``waits`` counts the steps that must be complete first; ``followers`` wait for this one.
    ``limit`` is how often each queue pair may post by now: no more than a round, with a barrier.
    """

    def __init__(self, step: StepPlan, number: int) -> None:
        self.step = step
        self.number = number
        self.jobs: list[Job] = []
        self.begun = False
        self.waits = 0
        self.followers: list[Run] = []
        self.posted = self.ended = 0
        self.total = 0
        self.endings: Counter[str] = Counter()
        self.wrong: Wrong | None = None
        self.round = (step.depth or 1) if step.barrier else step.times
        self.limit = self.round
        self._arrived = 0

    @property
    def title(self) -> str:
        """As messages call it."""
        return f"{self.step.name} ({self.step.verb})" if self.step.name else self.step.verb

    @property
    def waited_for(self) -> bool:
        """Whether each time it is done ends with a completion."""
        step = self.step
        if VERBS[step.verb].work is None:
            return step.status is not None
        return step.status not in (None, SUCCESS) or (
            step.status == SUCCESS and "SIGNALED" in step.flags
        )

    @property
    def is_to_fail(self) -> bool:
        """Whether its work is to be refused, or to end in an error."""
        return self.step.refused is not None or self.step.status not in (None, SUCCESS)

    @property
    def over(self) -> bool:
        """Whether all of it has ended."""
        return self.begun and self.ended == self.total

    def arrive(self, job: "Job") -> bool:
        """A job may have finished the round; whether all have, so that the next one begins."""
        if job.ended < self.limit or self.limit >= self.step.times:
            return False
        self._arrived += 1
        if self._arrived < len(self.jobs):
            return False
        self._arrived = 0
        self.limit = min(self.limit + self.round, self.step.times)
        return True


class Job:
    """A step at one queue pair. ``work`` is what it posts each time, but for the number."""

    __slots__ = ("ended", "lane", "number", "posted", "run", "work")

    def __init__(self, run: Run, lane: Lane, number: int) -> None:
        self.run = run
        self.lane = lane
        self.number = number
        self.posted = 0
        self.ended = 0
        self.work: SendWR | RecvWR | None = None

    @property
    def all_posted(self) -> bool:
        """Whether nothing is left to post."""
        return self.posted >= self.run.step.times

    @property
    def may_post(self) -> bool:
        """Whether depth and round allow one more."""
        depth = self.run.step.depth
        if self.posted >= self.run.limit:
            return False
        return depth is None or self.posted - self.ended < depth


class Queue:
    """A work queue of a queue pair, as its application sees it.

    ``room`` says for how much more of a job there is room, ``post`` posts one piece of its work.
    """

    def __init__(self, room: Callable[[Job], int], post: Callable[[Job], None]) -> None:
        self.jobs: deque[Job] = deque()
        self._room = room
        self._post = post

    def pump(self) -> None:
        """Post all that may be posted now."""
        jobs = self.jobs
        while jobs:
            job = jobs[0]
            while job.may_post and self._room(job) > 0:
                self._post(job)
            if not job.all_posted:
                return
            jobs.popleft()
