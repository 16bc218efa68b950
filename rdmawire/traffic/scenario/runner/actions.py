"""The application on all hosts: it connects, starts steps, does them, and handles completions.

A table has the verbs that post work, another the verbs that control. Refusals by an adapter or a
connection manager are a ``VerbsError``. Nothing here blocks: all is done before the simulator runs,
when a port reports an event, or at a scheduled time.
"""

from collections.abc import Callable, Iterator
from errno import EFAULT, EINVAL
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from rdmawire.errors import MemoryFault, VerbsError
from rdmawire.fabric.host import ALL_ACCESS
from rdmawire.ib.cm.event import CMEvent, Rejected, Unresolved
from rdmawire.memory.fast_reg import FastRegistration
from rdmawire.memory.key import WINDOW_FLAGS, Access, next_variant
from rdmawire.memory.mw import Bind
from rdmawire.traffic.scenario.document import Failure, Mark
from rdmawire.traffic.scenario.model.collective import COLLECTIVES
from rdmawire.traffic.scenario.model.connection import ReceivePlan
from rdmawire.traffic.scenario.model.expectation import reason_of
from rdmawire.traffic.scenario.model.step import VERBS, StepPlan
from rdmawire.traffic.scenario.runner.collective import CollectiveSteps
from rdmawire.traffic.scenario.runner.crafted_packet import PacketCrafter, RemoteSpan
from rdmawire.traffic.scenario.runner.endpoint import WAYS, ConnectionSetup, QueuePairRuntime
from rdmawire.traffic.scenario.runner.host_runtime import HostRuntime, NamedBuffer, access_of
from rdmawire.traffic.scenario.runner.posted_work import (
    CompletionTracker,
    FrameSource,
    PostedWork,
    Progress,
    Schedule,
    StepRun,
    WorkQueue,
)
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.traffic.scenario.types import Content, Span
from rdmawire.verbs.async_event import CompletionEvent, Event
from rdmawire.verbs.enums import MigrationState, QPState, WorkCompletion
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.verbs.srq import SharedReceiveQueue
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
        return self.testbed.buffer(self.value(key, Span))

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
        names: Any = self.step.values.get("access")
        return usual if names is None else access_of(names)

    def end(self) -> QueuePairRuntime:
        if self.endpoint is None:
            raise self.lacks("at")
        return self.endpoint


# Work for send queues.


def send_work(context: StepContext) -> SendWR:
    """Return the work request that a verb posts to a send queue, without its number."""
    step, endpoint, testbed = context.step, context.end(), context.testbed
    opcode = VERBS[step.verb].work
    assert opcode is not None  # other verbs are not send work
    flags = 0 if step.inline is None else SendFlags.INLINE.value
    for name in step.flags:
        flags |= SendFlags[name].value
    sges = tuple(testbed.buffer(span).sge(span) for span in step.local)
    wr = SendWR(opcode, sges)._replace(flags=flags, inline=step.inline or b"")
    if step.remote is not None:
        buffer = testbed.buffer(step.remote)
        wr = wr._replace(remote_address=buffer.iova + step.remote.offset, rkey=buffer.key)
    if step.verb in _ADDITIONS:
        wr = wr._replace(**_ADDITIONS[step.verb](context))
    return _addressed(endpoint, wr)


def _addressed(endpoint: QueuePairRuntime, wr: SendWR) -> SendWR:
    """Add the path to the peer, or its shared receive queue, if the QP type needs it."""
    peer = endpoint.peer
    if not endpoint.qp.service.connected:
        return wr._replace(ah=endpoint.path, remote_qpn=peer.qp.qp_num, remote_qkey=peer.qp.qkey)
    if peer.srq is not None and peer.srq.xrc is not None:
        return wr._replace(remote_srqn=peer.srq.number)
    return wr


def _flush(context: StepContext) -> dict[str, Any]:
    values, remote = context.step.values, context.step.remote
    if remote is None:
        raise context.lacks("to")
    _, length = context.testbed.buffer(remote).extent(remote)
    placement = Placement[str(values.get("placement", Placement.GLOBAL_VISIBILITY.name))]
    selectivity = Selectivity[str(values.get("selectivity", Selectivity.MEMORY_REGION_RANGE.name))]
    return {"length": length, "placement": placement, "selectivity": selectivity}


def _bind(context: StepContext) -> dict[str, Any]:
    """Bind a window; set its buffer's key and memory range to the new ones."""
    buffer, target = context.buffer("what"), context.buffer("to")
    if buffer.window is None or target.region is None:
        raise VerbsError(f"{buffer.name} and {target.name}: no window, or no region", EINVAL)
    offset, length = target.extent(context.value("to", Span))
    access = context.access(_WINDOW_ACCESS)
    address = target.iova + offset
    buffer.key = next_variant(buffer.key)
    buffer.memory, buffer.start, buffer.length = target.memory, target.start + offset, length
    buffer.iova = 0 if access & Access.ZERO_BASED else address
    bind = Bind(address, length, access, rkey=buffer.key)
    return {"bind": BindMW(buffer.window, target.region, bind)}


def _register_fast(context: StepContext) -> dict[str, Any]:
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
    return {"reg": RegMR(buffer.region, registration)}


_ADDITIONS: Final[dict[str, Callable[[StepContext], dict[str, Any]]]] = {
    "write_imm": lambda context: {"imm_data": context.value("imm", int)},
    "send_imm": lambda context: {"imm_data": context.value("imm", int)},
    "send_inv": lambda context: {"invalidate_rkey": context.buffer("key").key},
    "compare_swap": lambda context: {
        "compare_add": context.value("compare", int),
        "swap": context.value("swap", int),
    },
    "fetch_add": lambda context: {"compare_add": context.value("add", int)},
    "flush": _flush,
    "bind_mw": _bind,
    "reg_mr": _register_fast,
    "local_inv": lambda context: {"invalidate_rkey": context.buffer("what").key},
}
"""Further fields of work requests, by verb."""

RENEWED: Final = ("bind_mw", "reg_mr")
"""Verbs whose work request is rebuilt each time, because its key changes."""


# Control actions.


def _owner(context: StepContext) -> HostRuntime:
    """Return the host of the memory that the step is about."""
    return context.testbed.machines[context.value("what", Span).host]


def _register(context: StepContext) -> None:
    names: Any = context.step.values.get("access")
    _owner(context).registering.register(context.buffer("what"), names)


def _deregister(context: StepContext) -> None:
    _owner(context).registering.deregister(context.buffer("what"))


def _free(context: StepContext) -> None:
    buffer = context.buffer("what")
    if buffer.gpu is None:
        raise VerbsError(f"{buffer.name} is no GPU's", EINVAL)
    buffer.gpu.free(buffer.start)


def _fill(context: StepContext) -> None:
    span, content = context.value("what", Span), context.value("content", Content)
    _owner(context).fill(context.buffer("what"), span, content)


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


def _inject(context: StepContext) -> None:
    endpoint, testbed = context.end(), context.testbed
    packet = PacketCrafter(endpoint, context.step.values, _remote_span(context), testbed.protocols)
    random = testbed.network.random(f"packet of {endpoint.name} at {context.now} ns")
    testbed.network.send(endpoint.machine.name, packet.frame(random))


def _remote_span(context: StepContext) -> RemoteSpan:
    """Return the memory of the peer that the step names, with its key."""
    span = context.step.remote
    if span is None:
        return RemoteSpan()
    buffer = context.testbed.buffer(span)
    offset, length = buffer.extent(span)
    return RemoteSpan(buffer.iova + offset, buffer.key, length)


OWNERS: Final[dict[str, Callable[[StepContext], None]]] = {
    "register": _register,
    "deregister": _deregister,
    "free": _free,
    "fill": _fill,
    "modify": _modify,
    "migrate": _migrate,
    "disconnect": _disconnect,
    "inject": _inject,
}
"""Actions that take effect immediately, without a queue."""


_NUMBER_BITS: Final = 32
"""Bits of a work request's number for its :class:`PostedWork`; above them is a counter."""

Begin: TypeAlias = Callable[[StepPlan, QueuePairRuntime | None], StepContext]
"""Begins a step, at a queue pair if it has one."""

Post: TypeAlias = Callable[[PostedWork, int, StepContext], None]
"""Posts a work request with a number; raises ``VerbsError`` if it is refused."""


def _post_send(job: PostedWork, number: int, context: StepContext) -> None:
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


def _post_receive(job: PostedWork, number: int, context: StepContext) -> None:
    """Post to the receive queue, or to the shared one."""
    endpoint, nic = job.endpoint, job.endpoint.machine.host.nic
    if job.work is None:
        buffer = context.testbed.buffer
        job.work = RecvWR(tuple(buffer(span).sge(span) for span in context.step.local))
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


def _room_for_send(job: PostedWork) -> int:
    """Return :func:`send_room`; without a connection, 0 unless the work must fail."""
    endpoint = job.endpoint
    return 0 if endpoint.left and not (endpoint.ready or job.run.must_fail) else send_room(endpoint)


def _room_for_receive(job: PostedWork) -> int:
    endpoint = job.endpoint
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
        self._queues = {
            endpoint: (
                WorkQueue(_room_for_send, partial(self._post, _post_send)),
                WorkQueue(_room_for_receive, partial(self._post, _post_receive)),
            )
            for endpoint in testbed.all_endpoints()
        }

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
        for queue in self._queues[endpoint]:
            queue.pump()
        self._testbed.wake(endpoint.machine)

    def job(self, number: int) -> PostedWork | None:
        """Return the work that a work request belongs to, by its number; ``None`` if no such."""
        place = number % (1 << _NUMBER_BITS)
        return self._jobs[place] if place < len(self._jobs) else None

    def _post(self, post: Post, job: PostedWork) -> None:
        number = job.posted << _NUMBER_BITS | job.number
        job.posted += 1
        job.run.posted += 1
        try:
            post(job, number, self._begin(job.run.step, job.endpoint))
        except VerbsError as error:
            self._endings.refused(job, error)
        else:
            self._endings.posted(job)


def _refused(context: StepContext) -> VerbsError | None:
    """Do a control action; return the error if it is refused."""
    try:
        OWNERS[context.step.verb](context)
    except MemoryFault as fault:
        return VerbsError(str(fault), EFAULT)
    except VerbsError as error:
        return error
    return None


# The application.

_POLL: Final = 1 << 12


def _names_of(event: Event | CMEvent) -> Iterator[str]:
    """Yield the names under which an event counts: its class, and with its reason if it has one."""
    name = type(event).__name__
    yield name
    if isinstance(event, Rejected | Unresolved):
        yield f"{name}.{reason_of(event)}"


class Runner:
    """The application of all hosts. ``runs`` has one entry for each step of the scenario."""

    def __init__(
        self, testbed: Testbed, witness: FrameSource, progress: Progress | None = None
    ) -> None:
        self.testbed = testbed
        self.runs = [StepRun(step, number) for number, step in enumerate(testbed.scenario.steps)]
        for run in self.runs:
            run.total = run.step.times * max(1, len(testbed.endpoints_of(run.step)))
        self._setup = ConnectionSetup(self._on_settled)
        self._schedule = Schedule(self.runs, testbed.network.simulator, self._begin, self._pump)
        self.endings = CompletionTracker(self._schedule, witness, progress)
        self._posting = WorkPoster(testbed, self._doing, self.endings)
        self._collectives = CollectiveSteps(testbed, self._end_collective)
        self._sharing: dict[SharedReceiveQueue, list[QueuePairRuntime]] = {}

    def finish(self) -> None:
        """Check what is checked after the end of the simulation."""
        self._collectives.finish()

    def start(self) -> None:
        """Connect, post the receives that connections have, and begin the first steps."""
        self._subscribe()
        connections = self.testbed.scenario.connections
        for order, plan in enumerate(connections):
            WAYS[plan.connect].prepare(self._setup, self.testbed.endpoints[plan.name], order)
        for plan in connections:
            for receive in plan.receives:
                self._begin_jobs(StepRun(_step_of(receive), -1))
        self._schedule.run_pending()
        for order, plan in enumerate(connections):
            WAYS[plan.connect].ask(self._setup, self.testbed.endpoints[plan.name], order)
        self._schedule.start()

    # Steps.

    def _begin(self, run: StepRun) -> None:
        run.begun = True
        if run.step.verb in COLLECTIVES:
            self._collectives.begin(run)
            return
        if run.step.verb not in OWNERS:
            self._begin_jobs(run)
            return
        for endpoint in self.testbed.endpoints_of(run.step) or (None,):
            context = self._doing(run.step, endpoint)
            for _ in range(run.step.times):
                self.endings.done(run, endpoint, _refused(context))
            if endpoint is not None:
                self.testbed.wake(endpoint.machine)

    def _end_collective(self, run: StepRun, error: VerbsError | None) -> None:
        self.endings.done(run, None, error)
        self._schedule.run_pending()

    def _begin_jobs(self, run: StepRun) -> None:
        self._schedule.mark_dirty(self._posting.add(run))

    def _doing(self, step: StepPlan, endpoint: QueuePairRuntime | None) -> StepContext:
        now = self.testbed.network.simulator.now
        return StepContext(self.testbed, self._setup, step, endpoint, now)

    def _pump(self, endpoint: QueuePairRuntime) -> None:
        self._posting.pump(endpoint)

    # Events.

    def _subscribe(self) -> None:
        """Subscribe to events, and request notification of each queue's first completion."""
        for machine in self.testbed.machines.values():
            machine.port.on_event = partial(self._on_event, machine)
        for endpoint in self.testbed.all_endpoints():
            endpoint.cq.req_notify()
            if endpoint.srq is not None:
                self._sharing.setdefault(endpoint.srq, []).append(endpoint)

    def _on_event(self, machine: HostRuntime, event: Event | CMEvent) -> None:
        if isinstance(event, CompletionEvent):
            self._poll(machine, event.cq)
            return
        machine.events.update(_names_of(event))
        if isinstance(event, CMEvent):
            self._setup.on_event(machine, event, self.testbed.network.simulator.now)

    def _on_settled(self, endpoint: QueuePairRuntime) -> None:
        self._schedule.mark_dirty((endpoint,))
        self._schedule.run_pending()

    def _poll(self, machine: HostRuntime, number: int) -> None:
        """Poll all completions, and request notification of the next."""
        cq = machine.host.nic.device.cqs[number]
        while done := cq.poll(_POLL):
            for completion in done:
                self._complete(machine, completion)
        cq.req_notify()
        self._schedule.run_pending()

    def _complete(self, machine: HostRuntime, completion: WorkCompletion) -> None:
        """Handle a completion: its queue pair, and all with the same SRQ, have room again."""
        job = self._posting.job(completion.wr_id)
        if job is None:
            what, found = f"completion on {machine.name}", f"wr_id {completion.wr_id:#x}"
            failure = Failure(Mark(1, 1), what, "that of a posted work request", found)
            self.testbed.failures.append(failure)
            return
        self.endings.completed(job, completion)
        self._schedule.mark_dirty((job.endpoint,))
        if job.endpoint.srq is not None:
            self._schedule.mark_dirty(self._sharing[job.endpoint.srq])


def _step_of(plan: ReceivePlan) -> StepPlan:
    given = {"mark": plan.mark, "end": plan.at, "local": plan.into, "times": plan.count}
    return StepPlan.model_validate({"verb": "receive", "status": None, **given})
