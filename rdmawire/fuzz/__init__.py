"""Fuzzing: random packets that mean something to an adapter, and a model of what must follow.

A :class:`Case` is a :class:`Setup` and inputs: packets relative to what the target expects,
receives that its application posts, and time. :func:`judge` plays it on a :class:`Target` and on a
model of the standard, and returns the first :class:`Violation`. A :class:`Campaign` plays random
cases, and keeps what it finds as folders::

    campaign = Campaign({"kind": "engine"}, seed=1, runs=1000)
    assert campaign.run() == []

The other role is fuzzed by a :class:`RequesterFuzzer`: it posts work (:class:`WorkInput`) on a
:class:`RequesterTarget`, and answers it (:class:`AnswerInput`).

Another adapter is fuzzed through a class with the methods of :class:`Target`, or, if its memory and
completions can be seen, of :class:`ObservableTarget`: ``EngineFuzzer({"kind": "engine"}, target)``,
with ``"service": "uc"``, ``"ud"`` or ``"xrc"`` for another service than RC.
"""

from rdmawire.fuzz.campaign import Campaign, Progress
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.exchange import Numbers
from rdmawire.fuzz.finding import Finding, read_finding, replay, write_finding
from rdmawire.fuzz.fuzzer import (
    FUZZERS,
    Batch,
    EngineFuzzer,
    Found,
    Frame,
    Fuzzer,
    RequesterFuzzer,
    make_fuzzer,
)
from rdmawire.fuzz.inputs import (
    AnswerInput,
    Case,
    ChecksumState,
    PacketInput,
    ReceiveInput,
    WaitInput,
    WorkInput,
)
from rdmawire.fuzz.minimise import minimise
from rdmawire.fuzz.oracle import Violation, judge
from rdmawire.fuzz.planted_bugs import PLANTED_BUGS, PlantedBug, planted
from rdmawire.fuzz.setup import (
    AREAS,
    ARENA,
    FRESH_ARENA,
    PEER_QPN,
    SHARED_QUEUES,
    WINDOW,
    Area,
    Network,
    Setup,
    SharedQueue,
)
from rdmawire.fuzz.target import (
    Completion,
    CountingRequesterTarget,
    CountingTarget,
    HoldingTarget,
    ObservableTarget,
    RequesterTarget,
    Target,
)

__all__ = [
    "AREAS",
    "ARENA",
    "FRESH_ARENA",
    "FUZZERS",
    "PEER_QPN",
    "PLANTED_BUGS",
    "SHARED_QUEUES",
    "WINDOW",
    "AnswerInput",
    "Area",
    "Batch",
    "Campaign",
    "Case",
    "ChecksumState",
    "Completion",
    "CountingRequesterTarget",
    "CountingTarget",
    "EngineFuzzer",
    "EngineTarget",
    "Finding",
    "Found",
    "Frame",
    "Fuzzer",
    "HoldingTarget",
    "Network",
    "Numbers",
    "ObservableTarget",
    "PacketInput",
    "PlantedBug",
    "Progress",
    "ReceiveInput",
    "RequesterFuzzer",
    "RequesterTarget",
    "Setup",
    "SharedQueue",
    "Target",
    "Violation",
    "WaitInput",
    "WorkInput",
    "judge",
    "make_fuzzer",
    "minimise",
    "planted",
    "read_finding",
    "replay",
    "write_finding",
]
