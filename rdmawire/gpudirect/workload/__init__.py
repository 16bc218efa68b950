"""Workloads of others as packets or flows: GOAL schedules, MSCCL algorithms, Chakra's traces.

::

    from rdmawire.gpudirect.workload import WorkloadRun, WorkloadSpec, read_trace

    workload = read_trace(["ring.goal"])
    report = WorkloadRun(workload, WorkloadSpec(flows=True)).run()

Whatever the trace, a :class:`Workload` has the operations of each rank, with their dependencies.
"""

from rdmawire.errors import WorkloadError
from rdmawire.gpudirect.nccl.collective import Collective
from rdmawire.gpudirect.workload.algorithm import (
    Block,
    MscclAlgorithm,
    MscclStep,
    Program,
    Ref,
    ring_algorithm,
)
from rdmawire.gpudirect.workload.chakra import parse_chakra, parse_groups
from rdmawire.gpudirect.workload.goal import parse_goal
from rdmawire.gpudirect.workload.goal_binary import parse_goal_binary
from rdmawire.gpudirect.workload.graph import ANY, Call, Kind, Operation, Workload, check_workload
from rdmawire.gpudirect.workload.msccl import parse_msccl
from rdmawire.gpudirect.workload.placement import LinkId, RankPlace
from rdmawire.gpudirect.workload.run import WorkloadReport, WorkloadRun, WorkloadSpec
from rdmawire.gpudirect.workload.trace import read_trace

__all__ = [
    "ANY",
    "Block",
    "Call",
    "Collective",
    "Kind",
    "LinkId",
    "MscclAlgorithm",
    "MscclStep",
    "Operation",
    "Program",
    "RankPlace",
    "Ref",
    "Workload",
    "WorkloadError",
    "WorkloadReport",
    "WorkloadRun",
    "WorkloadSpec",
    "check_workload",
    "parse_chakra",
    "parse_goal",
    "parse_goal_binary",
    "parse_groups",
    "parse_msccl",
    "read_trace",
    "ring_algorithm",
]
