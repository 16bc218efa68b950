"""What playing a scenario came to: a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rdmawire.fabric.network import Network
from rdmawire.traffic.scenario.hints import Hint
from rdmawire.traffic.scenario.model import Mark, Scenario
from rdmawire.traffic.scenario.runner.failure import Failure
from rdmawire.traffic.scenario.runner.testbed import Testbed
from rdmawire.traffic.summary import Summary


class PortCounts(NamedTuple):
    """One port, all priorities together.

    ``marks`` are frames that it marked with CE, ``drops`` those it had no room for. ``stops`` are
    pauses that it asked for, ``pauses`` how often it was stopped itself, for ``paused_ns`` in all.
    """

    marks: int
    drops: int
    stops: int
    pauses: int
    paused_ns: int


def ports_of(network: Network) -> dict[str, PortCounts]:
    """Every port of every switch, by its name (``leaf:server``)."""
    return {
        name: PortCounts(
            port.marks.total(),
            port.drops.total(),
            port.stops.total(),
            sum(port.egress.pauses),
            sum(port.egress.paused_ns),
        )
        for name, port in network.ports.items()
    }


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
    stage: Testbed

    @property
    def passed(self) -> bool:
        """Whether all came as it was expected."""
        return not self.failures
