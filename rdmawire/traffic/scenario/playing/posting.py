"""Work on its way into the queues of queue pairs, and how much of it they still take."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from rdmawire.errors import VerbsError
from rdmawire.traffic.scenario.model import StepPlan
from rdmawire.traffic.scenario.playing.doing import RENEWED, Doing, receive_work, send_work
from rdmawire.traffic.scenario.playing.ending import Endings
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.traffic.scenario.playing.work import Job, Queue, Run
from rdmawire.verbs.wr import SIGNALED, RecvWR, SendWR

_NUMBER_BITS: Final = 32
"""A work request's number has its job's in the lower bits, and above them how often."""

Begin: TypeAlias = Callable[[StepPlan, Lane | None], Doing]
"""Begins a step at a queue pair, where it is of one."""

Post: TypeAlias = Callable[[Job, int, Doing], None]
"""Posts one piece of a job's work, with a number; a ``VerbsError`` where that is refused."""


def post_send(job: Job, number: int, doing: Doing) -> None:
    """Post to the send queue. Of work without completions the last that fits has one.

    So it is known when there is room again.
    """
    lane, work = job.lane, job.work
    if work is None or job.run.step.verb in RENEWED:
        work = job.work = send_work(doing)
    assert isinstance(work, SendWR), "a receive in the send queue"
    flags = work.flags
    if not job.run.waited_for and send_room(lane) <= 1:
        flags |= SIGNALED
    posted = (work._replace(wr_id=number, flags=flags),)
    lane.machine.host.nic.post_send(lane.qp, posted, doing.now)


def post_receive(job: Job, number: int, doing: Doing) -> None:
    """Post to the receive queue, or to the shared one."""
    lane, nic = job.lane, job.lane.machine.host.nic
    if job.work is None:
        job.work = receive_work(doing)
    work = job.work._replace(wr_id=number)
    assert isinstance(work, RecvWR), "a send in the receive queue"
    if lane.srq is not None:
        nic.post_srq_recv(lane.srq, (work,))
    else:
        nic.post_recv(lane.qp, (work,), doing.now)


def send_room(lane: Lane) -> int:
    """How many sends may be posted, so that none is refused and no completion is lost."""
    if not (lane.ready or lane.left):
        return 0
    return min(lane.qp.free_sends, lane.cq.cqe - len(lane.cq))


def _send_room_for(job: Job) -> int:
    """As above. Where there never was a connection, only what is to fail is tried."""
    lane = job.lane
    return 0 if lane.left and not (lane.ready or job.run.is_to_fail) else send_room(lane)


def receive_room(lane: Lane) -> int:
    """How many receives may be posted."""
    if lane.srq is not None:
        return lane.srq.free
    return min(lane.qp.free_receives, lane.cq.cqe - len(lane.cq))


class Posting:
    """The queues of all queue pairs, and the jobs that stand in them."""

    def __init__(self, stage: Stage, begin: Begin, endings: Endings) -> None:
        self._stage = stage
        self._begin = begin
        self._endings = endings
        self._jobs: list[Job] = []
        self._queues = {lane: self._new_queues() for lane in stage.all_lanes()}

    def _new_queues(self) -> tuple[Queue, Queue]:
        return (
            Queue(_send_room_for, partial(self._post, post_send)),
            Queue(lambda job: receive_room(job.lane), partial(self._post, post_receive)),
        )

    def add(self, run: Run) -> list[Lane]:
        """Have a job for a step in the queue of each of its queue pairs, which it gives."""
        lanes = self._stage.lanes_of(run.step)
        receives = run.step.verb == "receive"
        for lane in lanes:
            job = Job(run, lane, len(self._jobs))
            self._jobs.append(job)
            run.jobs.append(job)
            self._queues[lane][receives].jobs.append(job)
        return lanes

    def pump(self, lane: Lane) -> None:
        """Post all that a queue pair may post now."""
        for queue in self._queues[lane]:
            queue.pump()
        self._stage.wake(lane.machine)

    def job(self, number: int) -> Job:
        """The one that a work request is of, by its number."""
        return self._jobs[number % (1 << _NUMBER_BITS)]

    def _post(self, post: Post, job: Job) -> None:
        """Post one piece of a job's work."""
        number = job.posted << _NUMBER_BITS | job.number
        job.posted += 1
        job.run.posted += 1
        try:
            post(job, number, self._begin(job.run.step, job.lane))
        except VerbsError as error:
            self._endings.refused(job, error)
        else:
            self._endings.posted(job)
