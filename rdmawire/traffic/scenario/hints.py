"""What a scenario may have been meant to say: no mistakes, but worth a line."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rdmawire.traffic.scenario.model import FaultPlan, Mark, PacketExpectation, Scenario
from rdmawire.wire.inet import ECN


class Hint(NamedTuple):
    """What is odd, and where it stands."""

    mark: Mark
    said: str

    def text(self, source: str) -> str:
        """One line, with its place in the file."""
        return f"{source}:{self.mark.line}:{self.mark.column}: {self.said}"


SENDS_CNPS = "dcqcn"
"""The scheme whose receivers send CNPs without an interval of their own."""


def hints(scenario: Scenario) -> Iterator[Hint]:
    """All of them, in the order of the file's parts."""
    yield from _unheard(scenario)
    yield from _unseen(scenario)


# Marks that no sender learns of.


def _unheard(scenario: Scenario) -> Iterator[Hint]:
    notified = {
        plan.name
        for plan in scenario.connections
        if plan.cnp_interval is not None or plan.congestion == SENDS_CNPS
    }
    for mark, connections in _marks(scenario):
        if connections and not notified & connections:
            which = ", ".join(sorted(connections))
            said = f"nobody is told of these marks; give a 'cnp interval' to connection {which}"
            yield Hint(mark, said)


def _marks(scenario: Scenario) -> Iterator[tuple[Mark, set[str]]]:
    """Where frames are marked, and the ECN-capable connections whose frames they may be."""
    everybody = {plan.name for plan in scenario.connections if plan.ecn}
    for switch in scenario.switches:
        for queue in switch.queues:
            if queue.kmin is not None:
                yield queue.mark, everybody
    for link in scenario.links:
        for fault in link.faults:
            if fault.do == "mark":
                yield fault.mark, _of(fault, everybody)


def _of(fault: FaultPlan, connections: set[str]) -> set[str]:
    return connections if fault.sent_by is None else connections & {fault.sent_by.connection}


# Frames that cannot be where they are counted.

_OF_PAUSES: Final = ("macc", "pause", "pfc")
_MARKED: Final = {"ip.ecn": ECN.CE, "ipv6.ecn": ECN.CE}

_NO_PAUSES = "hosts send no pauses; say 'on' which link they are counted"
_NO_MARKS = "hosts send no frame with CE; say 'on' which link after the mark, or 'arrived: true'"
_NO_MARKS_YET = "this link marks what is put on it, so CE is seen with 'arrived: true'"


def _unseen(scenario: Scenario) -> Iterator[Hint]:
    for plan in scenario.expectations:
        if isinstance(plan, PacketExpectation) and not plan.arrived:
            said = _unseen_by(scenario, plan)
            if said:
                yield Hint(plan.mark, said)


def _unseen_by(scenario: Scenario, plan: PacketExpectation) -> str:
    """Why there is no such frame where this expectation looks, if that is so."""
    if plan.link is None and any(name.partition(".")[0] in _OF_PAUSES for name in plan.where):
        return _NO_PAUSES
    if not any(_only(plan.where.get(name), ce) for name, ce in _MARKED.items()):
        return ""
    if plan.link is None:
        return _NO_MARKS
    return _NO_MARKS_YET if _markers(scenario) == {plan.link} else ""


def _only(wanted: object, value: int) -> bool:
    """Whether a field may have this value alone."""
    values = wanted if isinstance(wanted, tuple | range) else (wanted,)
    return len(values) == 1 and value in values


def _markers(scenario: Scenario) -> set[str]:
    """What marks frames: links by their faults, and switches."""
    links = {link.name for link in scenario.links for fault in link.faults if fault.do == "mark"}
    switches = {
        switch.name
        for switch in scenario.switches
        for queue in switch.queues
        if queue.kmin is not None
    }
    return links | switches
