"""What owners do besides posting work: at once, as often as a step says, at each of its ends."""

from rdmawire.errors import VerbsError
from rdmawire.traffic.scenario.playing.doing import Doing, do
from rdmawire.traffic.scenario.playing.ending import Endings
from rdmawire.traffic.scenario.playing.lane import Lane
from rdmawire.traffic.scenario.playing.posting import Begin
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.traffic.scenario.playing.work import Run


class Owner:
    """The owner of all hosts."""

    def __init__(self, stage: Stage, begin: Begin, endings: Endings) -> None:
        self._stage = stage
        self._begin = begin
        self._endings = endings

    def act(self, run: Run) -> None:
        """Do what a step says. What is refused has ended, too."""
        lanes: list[Lane] | list[None] = self._stage.lanes_of(run.step) or [None]
        for lane in lanes:
            doing = self._begin(run.step, lane)
            for _ in range(run.step.times):
                self._endings.done(run, lane, _refused(doing))
            if lane is not None:
                self._stage.wake(lane.machine)


def _refused(doing: Doing) -> VerbsError | None:
    try:
        do(doing)
    except VerbsError as error:
        return error
    return None
