"""The parts of a scenario as pydantic models: each key of a file is declared here, once.

Names are those of the file. The models run nothing. Times are ns, sizes bytes, rates bits a second.
The reader (:mod:`rdmawire.traffic.scenario.reader`) makes a :class:`Scenario` of a file, in which
every reference is valid; the runner runs it.
"""

from rdmawire.traffic.scenario.context import link_called
from rdmawire.traffic.scenario.document import Mark
from rdmawire.traffic.scenario.model.connection import ConnectionPlan, ReceivePlan
from rdmawire.traffic.scenario.model.expectation import (
    CounterExpectation,
    EventExpectation,
    Expectation,
    MemoryExpectation,
    PacketExpectation,
    StateExpectation,
    TimeExpectation,
)
from rdmawire.traffic.scenario.model.host import GpuPlan, HostPlan, MemoryPlan, SrqPlan, WindowPlan
from rdmawire.traffic.scenario.model.network import FaultPlan, LinkPlan, QueuePlan, SwitchPlan
from rdmawire.traffic.scenario.model.scenario import Scenario
from rdmawire.traffic.scenario.model.step import StepPlan
from rdmawire.traffic.scenario.types import Content, End, Fill, Range, Span

__all__ = [
    "ConnectionPlan",
    "Content",
    "CounterExpectation",
    "End",
    "EventExpectation",
    "Expectation",
    "FaultPlan",
    "Fill",
    "GpuPlan",
    "HostPlan",
    "LinkPlan",
    "Mark",
    "MemoryExpectation",
    "MemoryPlan",
    "PacketExpectation",
    "QueuePlan",
    "Range",
    "ReceivePlan",
    "Scenario",
    "Span",
    "SrqPlan",
    "StateExpectation",
    "StepPlan",
    "SwitchPlan",
    "TimeExpectation",
    "WindowPlan",
    "link_called",
]
