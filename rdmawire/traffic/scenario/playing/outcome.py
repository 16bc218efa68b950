"""What playing a scenario came to: a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rdmawire.traffic.scenario.hints import Hint
from rdmawire.traffic.scenario.model import Mark, Scenario
from rdmawire.traffic.scenario.playing.failure import Failure
from rdmawire.traffic.scenario.playing.ports import PortCounts
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.traffic.summary import Summary


class StepOutcome(NamedTuple):
    """What became of a step: how often it was done, and how that ended, by status.

    ``begun`` says whether its time ever came. Verbs that were refused count by their errno.
    """

    name: str
    verb: str
    mark: Mark
    begun: bool
    posted: int
    endings: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One scenario, played. ``frames`` is how many the capture has, or would have.

    ``hints`` are what was odd about it, though no failure: faults that befell no frame.
    ``ports`` has what switches' ports counted, by their names (``leaf:server``); ``counters`` has
    every counter of which a scenario may expect something (``client.retransmits``).

    ``stage`` has its network, hosts and queue pairs as they are in the end.
    """

    scenario: Scenario
    failures: tuple[Failure, ...]
    steps: tuple[StepOutcome, ...]
    summary: Summary
    frames: int
    hints: tuple[Hint, ...]
    ports: Mapping[str, PortCounts]
    counters: Mapping[str, int]
    stage: Stage

    @property
    def passed(self) -> bool:
        """Whether all came as it was expected."""
        return not self.failures
