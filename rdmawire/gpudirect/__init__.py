"""GPUDirect: what GPUs and the libraries on them send, as packets of emulated adapters.

A :class:`CollectiveRun` does a collective operation as NCCL does, in virtual time; the results are
compared with NumPy's; a :class:`HostedCollective` does it on hosts of another network.
:mod:`rdmawire.gpudirect.transfer` has transfers by each path, and
:mod:`rdmawire.gpudirect.kernel` kernels that start the work; both need no NumPy.
"""

from typing import TYPE_CHECKING

from rdmawire.lazy_names import lazy_names

if TYPE_CHECKING:
    from rdmawire.gpudirect.nccl.collective import Algorithm, Collective, CollectiveSpec, bytes_sent
    from rdmawire.gpudirect.nccl.connection import NetSettings
    from rdmawire.gpudirect.nccl.flow import flow_run, local_time
    from rdmawire.gpudirect.nccl.flow_events import CollectiveFlowReport
    from rdmawire.gpudirect.nccl.hosted import HostedCollective, RankAdapter
    from rdmawire.gpudirect.nccl.layout import LOCAL_PATHS, HostLayout, LocalPath
    from rdmawire.gpudirect.nccl.protocol import PROTOCOLS, MessageProtocol
    from rdmawire.gpudirect.nccl.ring import RingStep, ring_steps
    from rdmawire.gpudirect.nccl.run import CollectiveRun
    from rdmawire.gpudirect.nccl.tree import tree_parent

__all__ = [
    "LOCAL_PATHS",
    "PROTOCOLS",
    "Algorithm",
    "Collective",
    "CollectiveFlowReport",
    "CollectiveRun",
    "CollectiveSpec",
    "HostLayout",
    "HostedCollective",
    "LocalPath",
    "MessageProtocol",
    "NetSettings",
    "RankAdapter",
    "RingStep",
    "bytes_sent",
    "flow_run",
    "local_time",
    "ring_steps",
    "tree_parent",
]

_MODULES = {
    "nccl.collective": ("Algorithm", "Collective", "CollectiveSpec", "bytes_sent"),
    "nccl.connection": ("NetSettings",),
    "nccl.flow": ("flow_run", "local_time"),
    "nccl.flow_events": ("CollectiveFlowReport",),
    "nccl.hosted": ("HostedCollective", "RankAdapter"),
    "nccl.layout": ("LOCAL_PATHS", "HostLayout", "LocalPath"),
    "nccl.protocol": ("PROTOCOLS", "MessageProtocol"),
    "nccl.ring": ("RingStep", "ring_steps"),
    "nccl.run": ("CollectiveRun",),
    "nccl.tree": ("tree_parent",),
}

__getattr__ = lazy_names(__name__, _MODULES)
