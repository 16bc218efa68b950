"""GPUDirect: what GPUs and the libraries on them send, as packets of emulated adapters.

A :class:`CollectiveRun` does a collective operation as NCCL does, in virtual time; the results are
compared with NumPy's. :mod:`rdmawire.gpudirect.transfer` has transfers by each path, and
:mod:`rdmawire.gpudirect.kernel` kernels that start the work; both need no NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rdmawire.gpudirect.collective import (
        PROTOCOLS,
        CollectiveRun,
        CollectiveSpec,
        MessageProtocol,
    )
    from rdmawire.gpudirect.flow_model import (
        LOCAL_PATHS,
        FlowReport,
        LocalPath,
        flow_run,
        local_time,
    )
    from rdmawire.gpudirect.ring import Collective, RingStep, bytes_sent, ring_steps

__all__ = [
    "LOCAL_PATHS",
    "PROTOCOLS",
    "Collective",
    "CollectiveRun",
    "CollectiveSpec",
    "FlowReport",
    "LocalPath",
    "MessageProtocol",
    "RingStep",
    "bytes_sent",
    "flow_run",
    "local_time",
    "ring_steps",
]

_MODULES = {
    "collective": ("PROTOCOLS", "CollectiveRun", "CollectiveSpec", "MessageProtocol"),
    "flow_model": ("LOCAL_PATHS", "FlowReport", "LocalPath", "flow_run", "local_time"),
    "ring": ("Collective", "RingStep", "bytes_sent", "ring_steps"),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
