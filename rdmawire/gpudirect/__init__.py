"""GPUDirect: what GPUs and the libraries on them send, as packets of emulated adapters.

A :class:`CollectiveRun` does a collective operation as NCCL does, in virtual time; the results are
compared with NumPy's.
"""

from rdmawire.gpudirect.collective import (
    PROTOCOLS,
    CollectiveRun,
    CollectiveSpec,
    MessageProtocol,
)
from rdmawire.gpudirect.ring import Collective, RingStep, bytes_sent, ring_steps

__all__ = [
    "PROTOCOLS",
    "Collective",
    "CollectiveRun",
    "CollectiveSpec",
    "MessageProtocol",
    "RingStep",
    "bytes_sent",
    "ring_steps",
]
