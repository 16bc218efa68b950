"""The application of all hosts: begins steps, posts work, hears of completions, and goes on.

Nothing here waits: all happens when the world is about to run, when a port tells, or when an
appointment comes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import Final, Protocol

from rdmawire.errors import VerbsError
from rdmawire.nic.cm.event import CMEvent
from rdmawire.nic.completion import WCStatus, WorkCompletion
from rdmawire.nic.event import CompletionEvent, Event
from rdmawire.nic.srq import SharedReceiveQueue
from rdmawire.traffic.scenario.model import ConnectionPlan, ReceivePlan, StepPlan
from rdmawire.traffic.scenario.playing.connecting import Introductions
from rdmawire.traffic.scenario.playing.doing import OWNERS, Doing, do
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.playing.machine import Machine, errno_name, refusal
from rdmawire.traffic.scenario.playing.posting import (
    Post,
    post_receive,
    post_send,
    receive_room,
    send_room,
)
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.traffic.scenario.playing.work import SUCCESS, Job, Queue, Run, Wrong

_POLL: Final = 1 << 12
_NUMBER_BITS: Final = 32
"""A work request's number has its job's in the lower bits, and above them how often."""

Progress = Callable[[int, int], None]
"""Told how many pieces of work have ended, of how many."""


class Witness(Protocol):
    """Who knows the frames that were seen: the one that explains an ending, and where it is."""

    def explain(self, lane: Lane, status: WCStatus) -> tuple[int | None, str]: ...


class Player:
    """Plays the steps of a scenario on its stage. ``runs`` are the steps, in order."""

    def __init__(self, stage: Stage, witness: Witness, progress: Progress | None = None) -> None:
        self.stage = stage
        self.failed = 0
        self.runs = [Run(step, number) for number, step in enumerate(stage.scenario.steps)]
        self._witness = witness
        self._progress = progress
        self._world = stage.network.world
        self._jobs: list[Job] = []
        self._queues: dict[Lane, tuple[Queue, Queue]] = {}
        self._fellows: dict[SharedReceiveQueue, list[Lane]] = {}
        self._due: deque[Run] = deque()
        self._stirred: dict[Lane, None] = {}
        self._settling = False
        self._done = 0
        self._introductions = Introductions(self._connected)
        self._link_steps()
        for machine in stage.machines.values():
            machine.port.hear = partial(self._hear, machine)
        for lane in stage.all_lanes():
            lane.cq.request_notify()
            self._queues[lane] = self._queues_of(lane)
            if lane.srq is not None:
                self._fellows.setdefault(lane.srq, []).append(lane)
        for run in self.runs:
            run.total = run.step.times * max(1, len(self._lanes(run.step)))
        self._all = sum(run.total for run in self.runs)

    def _lanes(self, step: StepPlan) -> list[Lane]:
        return [] if step.end is None else self.stage.lanes_at(step.end)

    def _queues_of(self, lane: Lane) -> tuple[Queue, Queue]:
        return (
            Queue(partial(send_room, lane), partial(self._post, post_send)),
            Queue(partial(receive_room, lane), partial(self._post, post_receive)),
        )

    def _link_steps(self) -> None:
        """Let steps wait for those that they come after."""
        named = {run.step.name: run for run in self.runs if run.step.name}
        for run in self.runs:
            for name in run.step.after:
                named[name].followers.append(run)
                run.waits += 1

    # The beginning.

    def start(self) -> None:
        """Connect, post the receives that connections have, and begin the first steps."""
        connections = self.stage.scenario.connections
        for order, plan in enumerate(connections):
            self._prepare(plan, order)
        for plan in connections:
            for receive in plan.receives:
                self._post_receives(receive)
        self._settle()
        for order, plan in enumerate(connections):
            self._ask(plan, order)
        for run in self.runs:
            self._plan(run)
        self._settle()

    def _prepare(self, plan: ConnectionPlan, order: int) -> None:
        """Connect at once, or have the manager wait for requests."""
        lanes = self.stage.lanes[plan.name]
        if plan.connect == "cm":
            self._introductions.prepare(lanes, order)
            return
        for lane in lanes:
            lane.bring_up()
            lane.peer.bring_up()

    def _ask(self, plan: ConnectionPlan, order: int) -> None:
        if plan.connect == "cm":
            for lane in self.stage.lanes[plan.name]:
                self._introductions.ask(lane, order)

    def _plan(self, run: Run) -> None:
        """A step that waits for nothing has its time; the first one that says none begins now."""
        if run.step.at is not None and not run.waits:
            self._world.at(run.step.at, partial(self._begin_now, run))
        elif not run.number and _says_nothing(run):
            self._due.extend(self._with(run))

    def _post_receives(self, plan: ReceivePlan) -> None:
        step = StepPlan(
            verb="receive",
            mark=plan.mark,
            end=plan.at,
            local=plan.into,
            times=plan.count,
            status=None,
        )
        self._begin_jobs(Run(step, -1))

    def _begin_now(self, run: Run) -> None:
        self._due.extend(self._with(run))
        self._settle()

    def _with(self, run: Run) -> Iterator[Run]:
        """A step, and those behind it that say nothing of when."""
        yield run
        yield from takewhile(_says_nothing, self.runs[run.number + 1 :])

    def _settle(self) -> None:
        """Begin what is due and post what may be posted, until neither leads to more."""
        if self._settling:
            return
        self._settling = True
        while self._stirred or self._due:
            if self._stirred:
                self._pump(next(iter(self._stirred)))
            else:
                self._begin(self._due.popleft())
        self._settling = False

    def _pump(self, lane: Lane) -> None:
        del self._stirred[lane]
        for queue in self._queues[lane]:
            queue.pump()
        self._wake(lane.machine)

    def _begin(self, run: Run) -> None:
        run.begun = True
        if run.step.verb in OWNERS:
            self._do(run)
        else:
            self._begin_jobs(run)

    def _begin_jobs(self, run: Run) -> None:
        lanes = self._lanes(run.step)
        receives = run.step.verb == "receive"
        for lane in lanes:
            job = Job(run, lane, len(self._jobs))
            self._jobs.append(job)
            run.jobs.append(job)
            self._queues[lane][receives].jobs.append(job)
            self._stirred[lane] = None

    def _wake(self, machine: Machine) -> None:
        if machine.name in self.stage.network.stations:
            self.stage.network.wake(machine.name)

    # What owners do.

    def _do(self, run: Run) -> None:
        lanes: list[Lane] | list[None] = self._lanes(run.step) or [None]
        for lane in lanes:
            doing = Doing(self.stage, self._introductions, run.step, lane, self._world.now)
            for _ in range(run.step.times):
                self._try(run, lane, partial(do, doing))
            if lane is not None:
                self._wake(lane.machine)

    def _try(self, run: Run, lane: Lane | None, act: Callable[[], None]) -> None:
        """Do what may be refused; it has ended then."""
        error: VerbsError | None = None
        try:
            act()
        except VerbsError as refused:
            error = refused
        ending = SUCCESS if error is None else errno_name(error)
        run.endings[ending] += 1
        if (error and ending) != run.step.refused:
            self._blame(run, lane, run.step.refused or "no refusal", refusal(error))
        self._end(run)

    # Work.

    def _post(self, post: Post, job: Job) -> None:
        """Post one piece of a job's work; a refusal ends it."""
        run, number = job.run, job.posted << _NUMBER_BITS | job.number
        job.posted += 1
        run.posted += 1
        doing = Doing(self.stage, self._introductions, run.step, job.lane, self._world.now)
        try:
            post(job, number, doing)
        except VerbsError as error:
            self._refused(job, error)
            return
        if run.step.refused is not None:
            self._blame(run, job.lane, run.step.refused, refusal(None))
        if not run.waited_for:
            self._end_job(job)

    def _refused(self, job: Job, error: VerbsError) -> None:
        run = job.run
        run.endings[errno_name(error)] += 1
        if run.step.refused != errno_name(error):
            self._blame(run, job.lane, run.step.refused or "no refusal", refusal(error))
        self._end_job(job)

    # What is heard.

    def _hear(self, machine: Machine, event: Event | CMEvent) -> None:
        if isinstance(event, CompletionEvent):
            self._poll(machine, event.cq)
            return
        machine.events[type(event).__name__] += 1
        if isinstance(event, CMEvent):
            self._introductions.hear(machine, event, self._world.now)

    def _poll(self, machine: Machine, number: int) -> None:
        """Take all completions, and ask to be told of the next."""
        cq = machine.host.nic.device.cqs[number]
        while done := cq.poll(_POLL):
            for completion in done:
                self._complete(completion)
        cq.request_notify()
        self._settle()

    def _complete(self, completion: WorkCompletion) -> None:
        job = self._jobs[completion.wr_id % (1 << _NUMBER_BITS)]
        run, status = job.run, WCStatus(completion.status)
        if status is not WCStatus.SUCCESS:
            self.failed += 1
        if run.waited_for:
            run.endings[status.name] += 1
            if status.name != run.step.status and run.step.refused is None:
                self._judge(run, job.lane, status, run.step.status or "")
            self._end_job(job)
        elif status is not WCStatus.SUCCESS and run.number >= 0:
            run.endings[status.name] += 1
            self._judge(run, job.lane, status, "no completion")
        self._stirred[job.lane] = None
        if job.lane.srq is not None:
            self._stirred.update(dict.fromkeys(self._fellows[job.lane.srq]))

    def _judge(self, run: Run, lane: Lane, status: WCStatus, expected: str) -> None:
        """A completion is not what it should be."""
        if run.wrong is None:
            frame, point = self._witness.explain(lane, status)
            run.wrong = Wrong(expected, status.name, lane, frame, point)

    @staticmethod
    def _blame(run: Run, lane: Lane | None, expected: str, found: str) -> None:
        if run.wrong is None:
            run.wrong = Wrong(expected, found, lane, None, "")

    # What follows.

    def _end_job(self, job: Job) -> None:
        job.ended += 1
        run = job.run
        if run.arrive(job):
            for other in run.jobs:
                self._stirred[other.lane] = None
        self._end(run)

    def _end(self, run: Run) -> None:
        """One more time is over; who waits for all of it begins then."""
        run.ended += 1
        self._done += 1
        if self._progress is not None and run.number >= 0:
            self._progress(self._done, self._all)
        if not run.over or run.number < 0:
            return
        for follower in run.followers:
            follower.waits -= 1
            if not follower.waits:
                self._begin_later(follower)

    def _begin_later(self, run: Run) -> None:
        at = run.step.at
        if at is not None and at > self._world.now:
            self._world.at(at, partial(self._begin_now, run))
        else:
            self._due.extend(self._with(run))

    def _connected(self, lane: Lane) -> None:
        self._stirred[lane] = None
        self._settle()


def _says_nothing(run: Run) -> bool:
    """Whether a step begins with the one before it."""
    return run.step.at is None and not run.step.after
