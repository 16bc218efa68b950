"""The application of all hosts: connects, begins steps, and goes on with what follows.

Nothing here waits: all happens when the world is about to run, when a port tells, or when an
appointment comes.
"""

from rdmawire.traffic.scenario.model import ReceivePlan, StepPlan
from rdmawire.traffic.scenario.playing.connecting import Introductions
from rdmawire.traffic.scenario.playing.doing import OWNERS, Doing
from rdmawire.traffic.scenario.playing.ending import Endings, Progress, Witness
from rdmawire.traffic.scenario.playing.hearing import Hearing
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.playing.owner import Owner
from rdmawire.traffic.scenario.playing.posting import Posting
from rdmawire.traffic.scenario.playing.schedule import Schedule
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.traffic.scenario.playing.way import WAYS
from rdmawire.traffic.scenario.playing.work import Run


class Player:
    """Plays the steps of a scenario on its stage. ``runs`` are the steps, in order."""

    def __init__(self, stage: Stage, witness: Witness, progress: Progress | None = None) -> None:
        self.stage = stage
        self.runs = _runs(stage)
        self._introductions = talks = Introductions(self._settled)
        self._schedule = Schedule(self.runs, stage.network.simulator, self._begin, self._pump)
        self.endings = Endings(self._schedule, witness, progress)
        self._owner = Owner(stage, self._doing, self.endings)
        self._posting = Posting(stage, self._doing, self.endings)
        self._hearing = Hearing(stage, self._schedule, self.endings, self._posting, talks)

    def start(self) -> None:
        """Connect, post the receives that connections have, and begin the first steps."""
        self._hearing.begin()
        connections = self.stage.scenario.connections
        for order, plan in enumerate(connections):
            WAYS[plan.connect].prepare(self._introductions, self.stage.lanes[plan.name], order)
        for plan in connections:
            for receive in plan.receives:
                self._begin_jobs(Run(_step_of(receive), -1))
        self._schedule.settle()
        for order, plan in enumerate(connections):
            WAYS[plan.connect].ask(self._introductions, self.stage.lanes[plan.name], order)
        self._schedule.start()

    def _begin(self, run: Run) -> None:
        run.begun = True
        if run.step.verb in OWNERS:
            self._owner.act(run)
        else:
            self._begin_jobs(run)

    def _begin_jobs(self, run: Run) -> None:
        self._schedule.stir(self._posting.add(run))

    def _doing(self, step: StepPlan, lane: Lane | None) -> Doing:
        return Doing(self.stage, self._introductions, step, lane, self.stage.network.simulator.now)

    def _pump(self, lane: Lane) -> None:
        self._posting.pump(lane)

    def _settled(self, lane: Lane) -> None:
        self._schedule.stir((lane,))
        self._schedule.settle()


def _runs(stage: Stage) -> list[Run]:
    """All steps, and how often each is to be done."""
    runs = [Run(step, number) for number, step in enumerate(stage.scenario.steps)]
    for run in runs:
        run.total = run.step.times * max(1, len(stage.lanes_of(run.step)))
    return runs


def _step_of(plan: ReceivePlan) -> StepPlan:
    """The receives of a connection, as a step would have them."""
    return StepPlan(
        verb="receive",
        mark=plan.mark,
        end=plan.at,
        local=plan.into,
        times=plan.count,
        status=None,
    )
