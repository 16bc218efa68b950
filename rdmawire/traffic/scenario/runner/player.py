"""The application on all hosts: it connects, starts steps, and handles completions.

Nothing here blocks: all is done before the simulator runs, when a port reports an event, or at a
scheduled time.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from rdmawire.ib.cm.event import CMEvent, Rejected, Unresolved
from rdmawire.traffic.scenario.model import ReceivePlan, StepPlan
from rdmawire.traffic.scenario.model.expectation import reason_of
from rdmawire.traffic.scenario.runner.actions import OWNERS, ControlActions, StepContext, WorkPoster
from rdmawire.traffic.scenario.runner.connect import WAYS, ConnectionSetup
from rdmawire.traffic.scenario.runner.host_runtime import HostRuntime, QueuePairRuntime
from rdmawire.traffic.scenario.runner.posted_work import (
    CompletionTracker,
    FrameSource,
    Progress,
    Schedule,
    StepRun,
)
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.verbs.async_event import CompletionEvent, Event
from rdmawire.verbs.enums import WCStatus, WorkCompletion
from rdmawire.verbs.srq import SharedReceiveQueue

_POLL: Final = 1 << 12


def _names_of(event: Event | CMEvent) -> Iterator[str]:
    """Yield the names under which an event counts: its class, and with its reason if it has one."""
    name = type(event).__name__
    yield name
    if isinstance(event, Rejected | Unresolved):
        yield f"{name}.{reason_of(event)}"


class EventDispatcher:
    """Handles the events of all hosts after :meth:`begin`."""

    def __init__(
        self,
        testbed: Testbed,
        schedule: Schedule,
        endings: CompletionTracker,
        posting: WorkPoster,
        setup: ConnectionSetup,
    ) -> None:
        self._testbed = testbed
        self._schedule = schedule
        self._endings = endings
        self._posting = posting
        self._setup = setup
        self._sharing: dict[SharedReceiveQueue, list[QueuePairRuntime]] = {}

    def begin(self) -> None:
        """Subscribe to events, and request notification of each queue's first completion."""
        for machine in self._testbed.machines.values():
            machine.port.on_event = partial(self._hear, machine)
        for endpoint in self._testbed.all_endpoints():
            endpoint.cq.req_notify()
            if endpoint.srq is not None:
                self._sharing.setdefault(endpoint.srq, []).append(endpoint)

    def _hear(self, machine: HostRuntime, event: Event | CMEvent) -> None:
        if isinstance(event, CompletionEvent):
            self._poll(machine, event.cq)
            return
        machine.events.update(_names_of(event))
        if isinstance(event, CMEvent):
            self._setup.on_event(machine, event, self._testbed.network.simulator.now)

    def _poll(self, machine: HostRuntime, number: int) -> None:
        """Poll all completions, and request notification of the next."""
        cq = machine.host.nic.device.cqs[number]
        while done := cq.poll(_POLL):
            for completion in done:
                self._complete(completion)
        cq.req_notify()
        self._schedule.run_pending()

    def _complete(self, completion: WorkCompletion) -> None:
        """Handle a completion: its queue pair, and all with the same SRQ, have room again."""
        job = self._posting.job(completion.wr_id)
        self._endings.completed(job, WCStatus(completion.status))
        self._schedule.mark_dirty((job.endpoint,))
        if job.endpoint.srq is not None:
            self._schedule.mark_dirty(self._sharing[job.endpoint.srq])


class Runner:
    """Runs the steps of a scenario on its test bed. ``runs`` has one entry for each step."""

    def __init__(
        self, testbed: Testbed, witness: FrameSource, progress: Progress | None = None
    ) -> None:
        self.testbed = testbed
        self.runs = _runs(testbed)
        self._setup = talks = ConnectionSetup(self._on_settled)
        self._schedule = Schedule(self.runs, testbed.network.simulator, self._begin, self._pump)
        self.endings = CompletionTracker(self._schedule, witness, progress)
        self._owner = ControlActions(testbed, self._doing, self.endings)
        self._posting = WorkPoster(testbed, self._doing, self.endings)
        self._dispatcher = EventDispatcher(
            testbed, self._schedule, self.endings, self._posting, talks
        )

    def start(self) -> None:
        """Connect, post the receives that connections have, and begin the first steps."""
        self._dispatcher.begin()
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

    def _begin(self, run: StepRun) -> None:
        run.begun = True
        if run.step.verb in OWNERS:
            self._owner.act(run)
        else:
            self._begin_jobs(run)

    def _begin_jobs(self, run: StepRun) -> None:
        self._schedule.mark_dirty(self._posting.add(run))

    def _doing(self, step: StepPlan, endpoint: QueuePairRuntime | None) -> StepContext:
        return StepContext(
            self.testbed, self._setup, step, endpoint, self.testbed.network.simulator.now
        )

    def _pump(self, endpoint: QueuePairRuntime) -> None:
        self._posting.pump(endpoint)

    def _on_settled(self, endpoint: QueuePairRuntime) -> None:
        self._schedule.mark_dirty((endpoint,))
        self._schedule.run_pending()


def _runs(testbed: Testbed) -> list[StepRun]:
    """Make an entry for each step, with the number of completions it needs."""
    runs = [StepRun(step, number) for number, step in enumerate(testbed.scenario.steps)]
    for run in runs:
        run.total = run.step.times * max(1, len(testbed.endpoints_of(run.step)))
    return runs


def _step_of(plan: ReceivePlan) -> StepPlan:
    """Return a step that posts the receives of a connection."""
    return StepPlan(
        verb="receive", mark=plan.mark, end=plan.at, local=plan.into, times=plan.count, status=None
    )
