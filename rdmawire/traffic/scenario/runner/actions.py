"""The actions of scenario steps: a table of verbs that post work, and one of verbs that control.

Refusals by an adapter or a connection manager are a ``VerbsError``.
"""

from collections.abc import Callable
from errno import EFAULT, EINVAL
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.fabric.host import ALL_ACCESS
from rdmawire.memory.fast_reg import FastRegistration
from rdmawire.memory.key import WINDOW_FLAGS, Access, next_variant
from rdmawire.memory.mw import Bind
from rdmawire.traffic.scenario.model import Content, Span, StepPlan
from rdmawire.traffic.scenario.model.step import VERBS
from rdmawire.traffic.scenario.runner.buffers import NamedBuffer, access_of
from rdmawire.traffic.scenario.runner.connect import ConnectionSetup
from rdmawire.traffic.scenario.runner.host_runtime import QueuePairRuntime
from rdmawire.traffic.scenario.runner.posted_work import (
    CompletionTracker,
    PostedWork,
    StepRun,
    WorkQueue,
)
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.verbs.enums import MigrationState, QPState
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.verbs.wr import SIGNALED, BindMW, RecvWR, RegMR, SendFlags, SendWR
from rdmawire.wire.ib import Placement, Selectivity

T = TypeVar("T")
_WINDOW_ACCESS: Final = ALL_ACCESS & WINDOW_FLAGS


class StepContext(NamedTuple):
    """A step, and its queue pair if it has one."""

    testbed: Testbed
    setup: ConnectionSetup
    step: StepPlan
    endpoint: QueuePairRuntime | None
    now: int

    def buffer(self, key: str) -> NamedBuffer:
        """Return the memory or window that one of the verb's values names."""
        return self.testbed.buffer(self.span(key))

    def span(self, key: str) -> Span:
        """Return a value that is a span."""
        return self.value(key, Span)

    def value(self, key: str, kind: type[T]) -> T:
        """Return one of the verb's values, checked to be of type ``kind``."""
        value = self.step.values.get(key)
        if not isinstance(value, kind):
            raise self.lacks(key)
        return value

    def lacks(self, what: str) -> VerbsError:
        """Return the error of a step without a required value; the reader rejects such files."""
        return VerbsError(f"{self.step.verb} without {what!r}", EINVAL)

    def access(self, usual: int) -> int:
        """Return the access rights given by the step, or ``usual``."""
        names: Any = self.step.values.get("access")
        return usual if names is None else access_of(names)

    def end(self) -> QueuePairRuntime:
        """The queue pair of the step."""
        if self.endpoint is None:
            raise self.lacks("at")
        return self.endpoint


# Work for send queues.


def send_work(context: StepContext) -> SendWR:
    """Return the work request that a verb posts to a send queue, without its number."""
    step, endpoint, testbed = context.step, context.end(), context.testbed
    opcode = VERBS[step.verb].work
    assert opcode is not None  # other verbs are not send work
    wr = SendWR(opcode, tuple(testbed.buffer(span).sge(span) for span in step.local))
    wr = wr._replace(flags=_flags(step), inline=step.inline or b"")
    if step.remote is not None:
        buffer = testbed.buffer(step.remote)
        wr = wr._replace(remote_address=buffer.iova + step.remote.offset, rkey=buffer.key)
    add = _ADDITIONS.get(step.verb)
    return _addressed(endpoint, wr if add is None else add(context, wr))


def _flags(step: StepPlan) -> int:
    flags = 0 if step.inline is None else SendFlags.INLINE.value
    for name in step.flags:
        flags |= SendFlags[name].value
    return flags


def _addressed(endpoint: QueuePairRuntime, wr: SendWR) -> SendWR:
    """Add the path to the peer, or its shared receive queue, if the QP type needs it."""
    peer = endpoint.peer
    if not endpoint.qp.service.connected:
        return wr._replace(ah=endpoint.path, remote_qpn=peer.qp.number, remote_qkey=peer.qp.qkey)
    if peer.srq is not None and peer.srq.xrc is not None:
        return wr._replace(remote_srqn=peer.srq.number)
    return wr


def _imm(context: StepContext, wr: SendWR) -> SendWR:
    return wr._replace(imm_data=_number(context, "imm"))


def _invalidate_peers(context: StepContext, wr: SendWR) -> SendWR:
    return wr._replace(invalidate_rkey=context.buffer("key").key)


def _invalidate_own(context: StepContext, wr: SendWR) -> SendWR:
    return wr._replace(invalidate_rkey=context.buffer("what").key)


def _compare_swap(context: StepContext, wr: SendWR) -> SendWR:
    return wr._replace(compare_add=_number(context, "compare"), swap=_number(context, "swap"))


def _fetch_add(context: StepContext, wr: SendWR) -> SendWR:
    return wr._replace(compare_add=_number(context, "add"))


def _number(context: StepContext, key: str) -> int:
    return context.value(key, int)


def _flush(context: StepContext, wr: SendWR) -> SendWR:
    values, remote = context.step.values, context.step.remote
    if remote is None:
        raise context.lacks("to")
    _, length = context.testbed.buffer(remote).extent(remote)
    placement = Placement[str(values.get("placement", Placement.GLOBAL_VISIBILITY.name))]
    selectivity = Selectivity[str(values.get("selectivity", Selectivity.MEMORY_REGION_RANGE.name))]
    return wr._replace(length=length, placement=placement, selectivity=selectivity)


def _bind(context: StepContext, wr: SendWR) -> SendWR:
    """Bind a window; set its buffer's key and memory range to the new ones."""
    buffer, target = context.buffer("what"), context.buffer("to")
    if buffer.window is None or target.region is None:
        raise VerbsError(f"{buffer.name} and {target.name}: no window, or no region", EINVAL)
    offset, length = target.extent(context.span("to"))
    access = context.access(_WINDOW_ACCESS)
    address = target.iova + offset
    buffer.key = next_variant(buffer.key)
    buffer.memory, buffer.start, buffer.length = target.memory, target.start + offset, length
    buffer.iova = 0 if access & Access.ZERO_BASED else address
    bind = Bind(address, length, access, rkey=buffer.key)
    return wr._replace(bind=BindMW(buffer.window, target.region, bind))


def _register_fast(context: StepContext, wr: SendWR) -> SendWR:
    """Register a region; set its buffer's key to the new one."""
    buffer = context.buffer("what")
    if buffer.region is None or buffer.plan is None:
        raise VerbsError(f"{buffer.name} has no region", EINVAL)
    page = buffer.plan.page
    buffer.key = next_variant(buffer.key)
    registration = FastRegistration(
        buffer.key,
        buffer.start,
        buffer.length,
        context.access(ALL_ACCESS),
        range(buffer.start, buffer.start + buffer.length, page),
        page,
    )
    return wr._replace(reg=RegMR(buffer.region, registration))


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
"""Functions that set further fields of work requests, by verb."""

RENEWED: Final = ("bind_mw", "reg_mr")
"""Verbs whose work request is rebuilt each time, because its key changes."""


# Receives.


def receive_work(context: StepContext) -> RecvWR:
    """Return the work request that ``receive`` posts, without its number."""
    buffer = context.testbed.buffer
    return RecvWR(tuple(buffer(span).sge(span) for span in context.step.local))


# Control actions.


def _register(context: StepContext) -> None:
    names: Any = context.step.values.get("access")
    registering = context.testbed.machines[context.span("what").host].registering
    registering.register(context.buffer("what"), names)


def _deregister(context: StepContext) -> None:
    registering = context.testbed.machines[context.span("what").host].registering
    registering.deregister(context.buffer("what"))


def _free(context: StepContext) -> None:
    buffer = context.buffer("what")
    if buffer.gpu is None:
        raise VerbsError(f"{buffer.name} is no GPU's", EINVAL)
    buffer.gpu.free(buffer.start)


def _fill(context: StepContext) -> None:
    content = context.value("content", Content)
    span = context.span("what")
    context.testbed.machines[span.host].fill(context.buffer("what"), span, content)


def _modify(context: StepContext) -> None:
    values = context.step.values
    attributes: Any = values.get("attributes", {})
    state = values.get("state")
    context.end().modify(dict(attributes), None if state is None else QPState[str(state)])


def _migrate(context: StepContext) -> None:
    endpoint = context.end()
    wanted = QPAttributes(path_mig_state=MigrationState.MIGRATED)
    endpoint.machine.host.nic.modify_qp(endpoint.qp, wanted, QPAttrMask.PATH_MIG_STATE)


def _disconnect(context: StepContext) -> None:
    context.setup.disconnect(context.end(), context.now)


OWNERS: Final[dict[str, Callable[[StepContext], None]]] = {
    "register": _register,
    "deregister": _deregister,
    "free": _free,
    "fill": _fill,
    "modify": _modify,
    "migrate": _migrate,
    "disconnect": _disconnect,
}
"""Actions that take effect immediately, without a queue."""


def do(context: StepContext) -> None:
    """Do a control action."""
    try:
        OWNERS[context.step.verb](context)
    except MemoryFault as fault:
        raise VerbsError(str(fault), EFAULT) from fault


_NUMBER_BITS: Final = 32
"""Bits of a work request's number for its :class:`PostedWork`; above them is a counter."""

Begin: TypeAlias = Callable[[StepPlan, QueuePairRuntime | None], StepContext]
"""Begins a step, at a queue pair if it has one."""

Post: TypeAlias = Callable[[PostedWork, int, StepContext], None]
"""Posts a work request with a number; raises ``VerbsError`` if it is refused."""


def post_send(job: PostedWork, number: int, context: StepContext) -> None:
    """Post to the send queue. The last unsignaled request that fits is sent signaled.

    Its completion shows that there is room again.
    """
    endpoint, work = job.endpoint, job.work
    if work is None or job.run.step.verb in RENEWED:
        work = job.work = send_work(context)
    assert isinstance(work, SendWR), "a receive in the send queue"
    flags = work.flags
    if not job.run.waited_for and send_room(endpoint) <= 1:
        flags |= SIGNALED
    posted = (work._replace(wr_id=number, flags=flags),)
    endpoint.machine.host.nic.post_send(endpoint.qp, posted)


def post_receive(job: PostedWork, number: int, context: StepContext) -> None:
    """Post to the receive queue, or to the shared one."""
    endpoint, nic = job.endpoint, job.endpoint.machine.host.nic
    if job.work is None:
        job.work = receive_work(context)
    work = job.work._replace(wr_id=number)
    assert isinstance(work, RecvWR), "a send in the receive queue"
    if endpoint.srq is not None:
        nic.post_srq_recv(endpoint.srq, (work,))
    else:
        nic.post_recv(endpoint.qp, (work,))


def send_room(endpoint: QueuePairRuntime) -> int:
    """Return how many sends fit the send queue and the CQ."""
    if not (endpoint.ready or endpoint.left):
        return 0
    return min(endpoint.qp.free_sends, endpoint.cq.cqe - len(endpoint.cq))


def _send_room_for(job: PostedWork) -> int:
    """Return :func:`send_room`; without a connection, 0 unless the work must fail."""
    endpoint = job.endpoint
    return 0 if endpoint.left and not (endpoint.ready or job.run.must_fail) else send_room(endpoint)


def receive_room(endpoint: QueuePairRuntime) -> int:
    """Return how many receives may be posted."""
    if endpoint.srq is not None:
        return endpoint.srq.free
    return min(endpoint.qp.free_receives, endpoint.cq.cqe - len(endpoint.cq))


class WorkPoster:
    """The work queues of all queue pairs."""

    def __init__(self, testbed: Testbed, begin: Begin, endings: CompletionTracker) -> None:
        self._testbed = testbed
        self._begin = begin
        self._endings = endings
        self._jobs: list[PostedWork] = []
        self._queues = {endpoint: self._new_queues() for endpoint in testbed.all_endpoints()}

    def _new_queues(self) -> tuple[WorkQueue, WorkQueue]:
        return (
            WorkQueue(_send_room_for, partial(self._post, post_send)),
            WorkQueue(lambda job: receive_room(job.endpoint), partial(self._post, post_receive)),
        )

    def add(self, run: StepRun) -> list[QueuePairRuntime]:
        """Queue the work of a step at each of its queue pairs, and return these."""
        endpoints = self._testbed.endpoints_of(run.step)
        receives = run.step.verb == "receive"
        for endpoint in endpoints:
            job = PostedWork(run, endpoint, len(self._jobs))
            self._jobs.append(job)
            run.jobs.append(job)
            self._queues[endpoint][receives].jobs.append(job)
        return endpoints

    def pump(self, endpoint: QueuePairRuntime) -> None:
        """Post all that a queue pair may post now."""
        for queue in self._queues[endpoint]:
            queue.pump()
        self._testbed.wake(endpoint.machine)

    def job(self, number: int) -> PostedWork:
        """Return the work that a work request belongs to, by its number."""
        return self._jobs[number % (1 << _NUMBER_BITS)]

    def _post(self, post: Post, job: PostedWork) -> None:
        """Post one work request."""
        number = job.posted << _NUMBER_BITS | job.number
        job.posted += 1
        job.run.posted += 1
        try:
            post(job, number, self._begin(job.run.step, job.endpoint))
        except VerbsError as error:
            self._endings.refused(job, error)
        else:
            self._endings.posted(job)


class ControlActions:
    """Does the control actions of steps."""

    def __init__(self, testbed: Testbed, begin: Begin, endings: CompletionTracker) -> None:
        self._testbed = testbed
        self._begin = begin
        self._endings = endings

    def act(self, run: StepRun) -> None:
        """Do the action of a step at each of its queue pairs."""
        endpoints: list[QueuePairRuntime] | list[None] = self._testbed.endpoints_of(run.step) or [
            None
        ]
        for endpoint in endpoints:
            context = self._begin(run.step, endpoint)
            for _ in range(run.step.times):
                self._endings.done(run, endpoint, _refused(context))
            if endpoint is not None:
                self._testbed.wake(endpoint.machine)


def _refused(context: StepContext) -> VerbsError | None:
    try:
        do(context)
    except VerbsError as error:
        return error
    return None
