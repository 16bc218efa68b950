"""Work on its way into the queues of a queue pair, and how much of it they still take."""

from collections.abc import Callable
from typing import TypeAlias

from rdmawire.nic.work import SIGNALED, RecvWR, SendWR
from rdmawire.traffic.scenario.playing.doing import RENEWED, Doing, receive_work, send_work
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.playing.work import Job

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
    if not lane.ready:
        return 0
    return min(lane.cap.max_send_wr - len(lane.qp.sq), lane.cq.cqe - len(lane.cq))


def receive_room(lane: Lane) -> int:
    """How many receives may be posted."""
    if lane.srq is not None:
        return lane.srq.max_wr - len(lane.srq)
    return min(lane.cap.max_recv_wr - len(lane.qp.rq), lane.cq.cqe - len(lane.cq))
