"""What is heard of adapters and managers: completions, connections, and what is only counted."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from rdmawire.ib.cm.event import CMEvent, Rejected, Unresolved
from rdmawire.traffic.scenario.playing.connecting import Introductions
from rdmawire.traffic.scenario.playing.ending import Endings
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.playing.machine import Machine
from rdmawire.traffic.scenario.playing.posting import Posting
from rdmawire.traffic.scenario.playing.schedule import Schedule
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.traffic.scenario.tables import reason_of
from rdmawire.verbs.async_event import CompletionEvent, Event
from rdmawire.verbs.enums import WCStatus, WorkCompletion
from rdmawire.verbs.srq import SharedReceiveQueue

_POLL: Final = 1 << 12


def _names_of(event: Event | CMEvent) -> Iterator[str]:
    """By what names an event is counted: with why it came, too, if it says so."""
    name = type(event).__name__
    yield name
    if isinstance(event, Rejected | Unresolved):
        yield f"{name}.{reason_of(event)}"


class Hearing:
    """Hears of all hosts, from :meth:`begin` on."""

    def __init__(
        self,
        stage: Stage,
        schedule: Schedule,
        endings: Endings,
        posting: Posting,
        introductions: Introductions,
    ) -> None:
        self._stage = stage
        self._schedule = schedule
        self._endings = endings
        self._posting = posting
        self._introductions = introductions
        self._fellows: dict[SharedReceiveQueue, list[Lane]] = {}

    def begin(self) -> None:
        """Be told of events, and of the first completion of each queue."""
        for machine in self._stage.machines.values():
            machine.port.on_event = partial(self._hear, machine)
        for lane in self._stage.all_lanes():
            lane.cq.request_notify()
            if lane.srq is not None:
                self._fellows.setdefault(lane.srq, []).append(lane)

    def _hear(self, machine: Machine, event: Event | CMEvent) -> None:
        if isinstance(event, CompletionEvent):
            self._poll(machine, event.cq)
            return
        machine.events.update(_names_of(event))
        if isinstance(event, CMEvent):
            self._introductions.hear(machine, event, self._stage.network.simulator.now)

    def _poll(self, machine: Machine, number: int) -> None:
        """Take all completions, and ask to be told of the next."""
        cq = machine.host.nic.device.cqs[number]
        while done := cq.poll(_POLL):
            for completion in done:
                self._complete(completion)
        cq.request_notify()
        self._schedule.settle()

    def _complete(self, completion: WorkCompletion) -> None:
        """There is room again: at the queue pair, and for all who share its receives."""
        job = self._posting.job(completion.wr_id)
        self._endings.completed(job, WCStatus(completion.status))
        self._schedule.stir((job.lane,))
        if job.lane.srq is not None:
            self._schedule.stir(self._fellows[job.lane.srq])
