"""The actions of scenario steps: a table of verbs that post work, and one of verbs that control.

What an adapter or a connection manager refuses is a ``VerbsError``.
"""

from collections.abc import Callable
from errno import EFAULT, EINVAL
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.fabric.host import ALL_ACCESS
from rdmawire.memory.access import WINDOW_FLAGS, Access
from rdmawire.memory.fast_reg import FastRegistration
from rdmawire.memory.key import next_variant
from rdmawire.memory.mw import Bind
from rdmawire.traffic.scenario.model import Content, Span, StepPlan
from rdmawire.traffic.scenario.runner.buffers import Held, access_of
from rdmawire.traffic.scenario.runner.connect import Introductions
from rdmawire.traffic.scenario.runner.host_runtime import QueuePairRuntime
from rdmawire.traffic.scenario.runner.posted_work import CompletionTracker, Job, Queue, Run
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.traffic.scenario.verbs import VERBS
from rdmawire.verbs.enums import MigrationState, QPState
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.verbs.wr import SIGNALED, BindMW, RecvWR, RegMR, SendFlags, SendWR
from rdmawire.wire.ib import Placement, Selectivity

T = TypeVar("T")
_WINDOW_ACCESS: Final = ALL_ACCESS & WINDOW_FLAGS


class StepContext(NamedTuple):
    """A step at one queue pair, where it is of one."""

    stage: Testbed
    introductions: Introductions
    step: StepPlan
    lane: QueuePairRuntime | None
    now: int

    def held(self, key: str) -> Held:
        """The memory or window that one of the verb's values names."""
        return self.stage.held(self.span(key))

    def span(self, key: str) -> Span:
        """A value that is a span."""
        return self.value(key, Span)

    def value(self, key: str, kind: type[T]) -> T:
        """One of the verb's values, of the kind that it needs."""
        value = self.step.values.get(key)
        if not isinstance(value, kind):
            raise self.lacks(key)
        return value

    def lacks(self, what: str) -> VerbsError:
        """What is said of a step that lacks something; no scenario from a file does."""
        return VerbsError(f"{self.step.verb} without {what!r}", EINVAL)

    def access(self, usual: int) -> int:
        """The rights that the step gives."""
        names: Any = self.step.values.get("access")
        return usual if names is None else access_of(names)

    def end(self) -> QueuePairRuntime:
        """The queue pair that the step is of."""
        if self.lane is None:
            raise self.lacks("at")
        return self.lane


# Work for send queues.


def send_work(doing: StepContext) -> SendWR:
    """What a verb posts to a send queue, but for its number."""
    step, lane, stage = doing.step, doing.end(), doing.stage
    opcode = VERBS[step.verb].work
    assert opcode is not None  # or it were no verb of a send queue
    wr = SendWR(opcode, tuple(stage.held(span).sge(span) for span in step.local))
    wr = wr._replace(flags=_flags(step), inline=step.inline or b"")
    if step.remote is not None:
        held = stage.held(step.remote)
        wr = wr._replace(remote_address=held.iova + step.remote.offset, rkey=held.key)
    add = _ADDITIONS.get(step.verb)
    return _addressed(lane, wr if add is None else add(doing, wr))


def _flags(step: StepPlan) -> int:
    flags = 0 if step.inline is None else SendFlags.INLINE.value
    for name in step.flags:
        flags |= SendFlags[name].value
    return flags


def _addressed(lane: QueuePairRuntime, wr: SendWR) -> SendWR:
    """With the way to the peer, or to its shared receive queue, where the type needs that."""
    peer = lane.peer
    if not lane.qp.service.connected:
        return wr._replace(ah=lane.path, remote_qpn=peer.qp.number, remote_qkey=peer.qp.qkey)
    if peer.srq is not None and peer.srq.xrc is not None:
        return wr._replace(remote_srqn=peer.srq.number)
    return wr


def _imm(doing: StepContext, wr: SendWR) -> SendWR:
    return wr._replace(imm_data=_number(doing, "imm"))


def _invalidate_peers(doing: StepContext, wr: SendWR) -> SendWR:
    return wr._replace(invalidate_rkey=doing.held("key").key)


def _invalidate_own(doing: StepContext, wr: SendWR) -> SendWR:
    return wr._replace(invalidate_rkey=doing.held("what").key)


def _compare_swap(doing: StepContext, wr: SendWR) -> SendWR:
    return wr._replace(compare_add=_number(doing, "compare"), swap=_number(doing, "swap"))


def _fetch_add(doing: StepContext, wr: SendWR) -> SendWR:
    return wr._replace(compare_add=_number(doing, "add"))


def _number(doing: StepContext, key: str) -> int:
    return doing.value(key, int)


def _flush(doing: StepContext, wr: SendWR) -> SendWR:
    values, remote = doing.step.values, doing.step.remote
    if remote is None:
        raise doing.lacks("to")
    _, length = doing.stage.held(remote).extent(remote)
    placement = Placement[str(values.get("placement", Placement.GLOBAL_VISIBILITY.name))]
    selectivity = Selectivity[str(values.get("selectivity", Selectivity.MEMORY_REGION_RANGE.name))]
    return wr._replace(length=length, placement=placement, selectivity=selectivity)


def _bind(doing: StepContext, wr: SendWR) -> SendWR:
    """The window is known by its new key, and has the memory's bytes, from now on."""
    held, target = doing.held("what"), doing.held("to")
    if held.window is None or target.region is None:
        raise VerbsError(f"{held.name} and {target.name}: no window, or no region", EINVAL)
    offset, length = target.extent(doing.span("to"))
    access = doing.access(_WINDOW_ACCESS)
    address = target.iova + offset
    held.key = next_variant(held.key)
    held.memory, held.start, held.length = target.memory, target.start + offset, length
    held.iova = 0 if access & Access.ZERO_BASED else address
    bind = Bind(address, length, access, rkey=held.key)
    return wr._replace(bind=BindMW(held.window, target.region, bind))


def _register_fast(doing: StepContext, wr: SendWR) -> SendWR:
    """The region is known by its new key from now on."""
    held = doing.held("what")
    if held.region is None or held.plan is None:
        raise VerbsError(f"{held.name} has no region", EINVAL)
    page = held.plan.page
    held.key = next_variant(held.key)
    registration = FastRegistration(
        held.key,
        held.start,
        held.length,
        doing.access(ALL_ACCESS),
        range(held.start, held.start + held.length, page),
        page,
    )
    return wr._replace(reg=RegMR(held.region, registration))


_ADDITIONS: Final[dict[str, Callable[[StepContext, SendWR], SendWR]]] = {
    "write_imm": _imm,
    "send_imm": _imm,
    "send_inv": _invalidate_peers,
    "compare_swap": _compare_swap,
    "fetch_add": _fetch_add,
    "flush": _flush,
    "bind_mw": _bind,
    "reg_mr": _register_fast,
    "local_inv": _invalidate_own,
}
"""What verbs say beyond local and remote memory."""

RENEWED: Final = ("bind_mw", "reg_mr")
"""Work that is another each time it is posted: its key changes."""


# Receives.


def receive_work(doing: StepContext) -> RecvWR:
    """What ``receive`` posts, but for its number."""
    held = doing.stage.held
    return RecvWR(tuple(held(span).sge(span) for span in doing.step.local))


# What owners do.


def _register(doing: StepContext) -> None:
    names: Any = doing.step.values.get("access")
    registering = doing.stage.machines[doing.span("what").host].registering
    registering.register(doing.held("what"), names)


def _deregister(doing: StepContext) -> None:
    registering = doing.stage.machines[doing.span("what").host].registering
    registering.deregister(doing.held("what"))


def _free(doing: StepContext) -> None:
    held = doing.held("what")
    if held.gpu is None:
        raise VerbsError(f"{held.name} is no GPU's", EINVAL)
    held.gpu.free(held.start)


def _fill(doing: StepContext) -> None:
    content = doing.value("content", Content)
    span = doing.span("what")
    doing.stage.machines[span.host].fill(doing.held("what"), span, content)


def _modify(doing: StepContext) -> None:
    values = doing.step.values
    attributes: Any = values.get("attributes", {})
    state = values.get("state")
    doing.end().modify(dict(attributes), None if state is None else QPState[str(state)])


def _migrate(doing: StepContext) -> None:
    lane = doing.end()
    wanted = QPAttributes(path_mig_state=MigrationState.MIGRATED)
    lane.machine.host.nic.modify_qp(lane.qp, wanted, QPAttrMask.PATH_MIG_STATE)


def _disconnect(doing: StepContext) -> None:
    doing.introductions.disconnect(doing.end(), doing.now)


OWNERS: Final[dict[str, Callable[[StepContext], None]]] = {
    "register": _register,
    "deregister": _deregister,
    "free": _free,
    "fill": _fill,
    "modify": _modify,
    "migrate": _migrate,
    "disconnect": _disconnect,
}
"""What is done at once, and posted to no queue."""


def do(doing: StepContext) -> None:
    """What an owner does."""
    try:
        OWNERS[doing.step.verb](doing)
    except MemoryFault as fault:
        raise VerbsError(str(fault), EFAULT) from fault


_NUMBER_BITS: Final = 32
"""A work request's number has its job's in the lower bits, and above them how often."""

Begin: TypeAlias = Callable[[StepPlan, QueuePairRuntime | None], StepContext]
"""Begins a step at a queue pair, where it is of one."""

Post: TypeAlias = Callable[[Job, int, StepContext], None]
"""Posts one piece of a job's work, with a number; a ``VerbsError`` where that is refused."""


def post_send(job: Job, number: int, doing: StepContext) -> None:
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
    lane.machine.host.nic.post_send(lane.qp, posted)


def post_receive(job: Job, number: int, doing: StepContext) -> None:
    """Post to the receive queue, or to the shared one."""
    lane, nic = job.lane, job.lane.machine.host.nic
    if job.work is None:
        job.work = receive_work(doing)
    work = job.work._replace(wr_id=number)
    assert isinstance(work, RecvWR), "a send in the receive queue"
    if lane.srq is not None:
        nic.post_srq_recv(lane.srq, (work,))
    else:
        nic.post_recv(lane.qp, (work,))


def send_room(lane: QueuePairRuntime) -> int:
    """How many sends may be posted, so that none is refused and no completion is lost."""
    if not (lane.ready or lane.left):
        return 0
    return min(lane.qp.free_sends, lane.cq.cqe - len(lane.cq))


def _send_room_for(job: Job) -> int:
    """As above. Where there never was a connection, only what is to fail is tried."""
    lane = job.lane
    return 0 if lane.left and not (lane.ready or job.run.is_to_fail) else send_room(lane)


def receive_room(lane: QueuePairRuntime) -> int:
    """How many receives may be posted."""
    if lane.srq is not None:
        return lane.srq.free
    return min(lane.qp.free_receives, lane.cq.cqe - len(lane.cq))


class Posting:
    """The queues of all queue pairs, and the jobs that stand in them."""

    def __init__(self, stage: Testbed, begin: Begin, endings: CompletionTracker) -> None:
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

    def add(self, run: Run) -> list[QueuePairRuntime]:
        """Have a job for a step in the queue of each of its queue pairs, which it gives."""
        lanes = self._stage.lanes_of(run.step)
        receives = run.step.verb == "receive"
        for lane in lanes:
            job = Job(run, lane, len(self._jobs))
            self._jobs.append(job)
            run.jobs.append(job)
            self._queues[lane][receives].jobs.append(job)
        return lanes

    def pump(self, lane: QueuePairRuntime) -> None:
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


class ControlActions:
    """The owner of all hosts."""

    def __init__(self, stage: Testbed, begin: Begin, endings: CompletionTracker) -> None:
        self._stage = stage
        self._begin = begin
        self._endings = endings

    def act(self, run: Run) -> None:
        """Do what a step says. What is refused has ended, too."""
        lanes: list[QueuePairRuntime] | list[None] = self._stage.lanes_of(run.step) or [None]
        for lane in lanes:
            doing = self._begin(run.step, lane)
            for _ in range(run.step.times):
                self._endings.done(run, lane, _refused(doing))
            if lane is not None:
                self._stage.wake(lane.machine)


def _refused(doing: StepContext) -> VerbsError | None:
    try:
        do(doing)
    except VerbsError as error:
        return error
    return None
