"""The parts of a scenario as pydantic models: each key of a file is declared here, once.

Names are those of the file. The models run nothing. Times are ns, sizes bytes, rates bits a second.
The reader (:mod:`rdmawire.traffic.scenario.reader`) makes a :class:`Scenario` of a file, in which
every reference is valid; the runner runs it.
"""

from functools import cache
from typing import Annotated, ClassVar, Final

from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Mark
from rdmawire.traffic.scenario.model.connection import ConnectionPlan
from rdmawire.traffic.scenario.model.expectation import Expectation, Expectations
from rdmawire.traffic.scenario.model.host import HostPlan
from rdmawire.traffic.scenario.model.network import LinkPlan, SwitchPlan
from rdmawire.traffic.scenario.model.step import STEPS, StepPlan
from rdmawire.traffic.scenario.section import (
    Found,
    Given,
    Named,
    OneSection,
    Section,
    key,
    sections_in,
)
from rdmawire.traffic.scenario.types import MAX_NUMBER, TEXT, Number, Time

MAX_RUN: Final = 10**15
"""Maximum virtual time (ns)."""
_START: Final = Mark(1, 1)


class Scenario(Section):
    """One scenario. ``source`` is the name of its file in messages.

    The reader adds the link of two hosts without switches and links, so ``links`` has all. Keys are
    read in this order: a name is defined before its references, as faults of links refer to ends of
    connections.
    """

    called: ClassVar = "a scenario"

    mark: Given[Mark] = _START
    name: Annotated[str, TEXT, key("Title of the scenario.")]
    about: Annotated[str, TEXT, key("Description: what happens, and why.")] = ""
    seed: Annotated[
        int,
        Number(0, MAX_NUMBER),
        key("Seed of everything random: the same seed gives the same bytes."),
    ] = 0
    time_limit: Annotated[
        int,
        Time(1, MAX_RUN),
        key("Virtual time at which the run ends at the latest.", "time limit"),
    ] = 10**10
    hosts: Annotated[
        tuple[HostPlan, ...], Named(HostPlan, "hosts by name", "client"), key("Hosts, by name.")
    ]
    switches: Annotated[
        tuple[SwitchPlan, ...],
        Named(SwitchPlan, "switches by name", "leaf"),
        key("Switches, by name."),
    ] = ()
    connections: Annotated[
        tuple[ConnectionPlan, ...],
        Named(ConnectionPlan, "connections by name", "a"),
        key("Connections, by name. Short form: `a: client, server`."),
    ] = ()
    links: Annotated[
        tuple[LinkPlan, ...],
        Named(LinkPlan, "links by name", "client-leaf"),
        key("Links, named by their ends: `client-leaf`. Two hosts without a switch need none."),
    ] = ()
    steps: Annotated[
        tuple[StepPlan, ...], STEPS, key("Steps to run: work requests and control actions.", "work")
    ] = ()
    expectations: Annotated[
        tuple[Expectation, ...],
        OneSection(Expectations),
        key("Expected results.", "expect"),
    ] = ()
    source: Given[str] = ""

    def finish(self, found: Found, context: ParseContext) -> "Scenario":  # noqa: ARG002
        return self.model_copy(update={"mark": _START})


@cache
def homes() -> dict[str, tuple[str, ...]]:
    """Return the sections that have each key, for messages about misplaced keys."""
    found: dict[str, tuple[str, ...]] = {}
    for section in sections_in(Scenario):
        keys = section.keys()
        for name in keys:
            found[name] = (*found.get(name, ()), section.called)
    return found
