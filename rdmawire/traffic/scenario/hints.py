"""What a scenario may have been meant to say: no mistakes, but worth a line."""

from collections.abc import Iterator
from typing import NamedTuple

from rdmawire.traffic.scenario.model import FaultPlan, Mark, Scenario


class Hint(NamedTuple):
    """What is odd, and where it stands."""

    mark: Mark
    said: str

    def text(self, source: str) -> str:
        """One line, with its place in the file."""
        return f"{source}:{self.mark.line}:{self.mark.column}: {self.said}"


TELLS_BY_ITSELF = "dcqcn"
"""The scheme whose receivers tell of marks without an interval of their own."""


def hints(scenario: Scenario) -> Iterator[Hint]:
    """All of them, in the order of the file's parts."""
    told = {
        plan.name
        for plan in scenario.connections
        if plan.cnp_interval is not None or plan.congestion == TELLS_BY_ITSELF
    }
    for mark, connections in _marks(scenario):
        if connections and not told & connections:
            which = ", ".join(sorted(connections))
            said = f"nobody is told of these marks; give a 'cnp interval' to connection {which}"
            yield Hint(mark, said)


def _marks(scenario: Scenario) -> Iterator[tuple[Mark, set[str]]]:
    """Where frames are marked, and the connections whose frames they may be."""
    everybody = {plan.name for plan in scenario.connections}
    for switch in scenario.switches:
        for queue in switch.queues:
            if queue.kmin is not None:
                yield queue.mark, everybody
    for link in scenario.links:
        for fault in link.faults:
            if fault.do == "mark":
                yield fault.mark, _of(fault) or everybody


def _of(fault: FaultPlan) -> set[str]:
    return set() if fault.sent_by is None else {fault.sent_by.connection}
