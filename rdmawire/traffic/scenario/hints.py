"""Hints on scenarios: valid input that is probably not intended."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rdmawire.traffic.scenario.model import FaultPlan, Mark, PacketExpectation, Scenario
from rdmawire.wire.inet import ECN


class Hint(NamedTuple):
    """A hint, and its position in the file."""

    mark: Mark
    said: str

    def text(self, source: str) -> str:
        """Write one line that begins with the position in the file."""
        return f"{source}:{self.mark.line}:{self.mark.column}: {self.said}"


SENDS_CNPS = "dcqcn"
"""The congestion control whose receivers send CNPs at a default interval."""


def hints(scenario: Scenario) -> Iterator[Hint]:
    """Yield all hints, in the order of the file's sections."""
    yield from _unheard(scenario)
    yield from _unseen(scenario)


# Marks without CNPs.


def _unheard(scenario: Scenario) -> Iterator[Hint]:
    notified = {
        plan.name
        for plan in scenario.connections
        if plan.cnp_interval is not None or plan.congestion == SENDS_CNPS
    }
    for mark, connections in _marks(scenario):
        if connections and not notified & connections:
            which = ", ".join(sorted(connections))
            said = f"no CNP reports these marks; give a 'cnp interval' to connection {which}"
            yield Hint(mark, said)


def _marks(scenario: Scenario) -> Iterator[tuple[Mark, set[str]]]:
    """Yield where frames are marked, and the ECN-capable connections they may belong to."""
    every = {plan.name for plan in scenario.connections if plan.ecn}
    for switch in scenario.switches:
        for queue in switch.queues:
            if queue.kmin is not None:
                yield queue.mark, every
    for link in scenario.links:
        for fault in link.faults:
            if fault.do == "mark":
                yield fault.mark, _of(fault, every)


def _of(fault: FaultPlan, connections: set[str]) -> set[str]:
    return connections if fault.sent_by is None else connections & {fault.sent_by.connection}


# Frames that do not pass the point at which they are counted.

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
    """Say why no such frame can be at the point of an expectation; empty if one can."""
    if plan.link is None and any(name.partition(".")[0] in _OF_PAUSES for name in plan.where):
        return _NO_PAUSES
    if not any(_only(plan.where.get(name), ce) for name, ce in _MARKED.items()):
        return ""
    if plan.link is None:
        return _NO_MARKS
    return _NO_MARKS_YET if _markers(scenario) == {plan.link} else ""


def _only(wanted: object, value: int) -> bool:
    """Return whether ``value`` is the only expected value of a field."""
    values = wanted if isinstance(wanted, tuple | range) else (wanted,)
    return len(values) == 1 and value in values


def _markers(scenario: Scenario) -> set[str]:
    """Return the names of links with marking faults, and of marking switches."""
    links = {link.name for link in scenario.links for fault in link.faults if fault.do == "mark"}
    switches = {
        switch.name
        for switch in scenario.switches
        for queue in switch.queues
        if queue.kmin is not None
    }
    return links | switches
