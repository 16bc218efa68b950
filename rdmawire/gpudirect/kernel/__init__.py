"""Work that GPUs start: kernels as coroutines, the memory shared with adapters, and doorbells.

A :class:`GpuWrite` sends data from GPU to GPU, started by a kernel, a proxy or a stream.
:data:`TESTS` are litmus tests of the memory model.
"""

from rdmawire.gpudirect.kernel.gpu_host import MODELS, DeviceQueue, GpuHost, system_of
from rdmawire.gpudirect.kernel.gpu_write import (
    FORGETTABLE,
    Forgotten,
    GpuWrite,
    GpuWriteReport,
    GpuWriteSpec,
    Mode,
)
from rdmawire.gpudirect.kernel.litmus import (
    TESTS,
    Add,
    Fence,
    Flush,
    LitmusTest,
    Load,
    Store,
    Thread,
    Wait,
    find,
    outcome,
    outcomes,
)
from rdmawire.gpudirect.kernel.memory_model import Agent, Order, Scope, SharedMemory, Target
from rdmawire.gpudirect.kernel.nvshmem import (
    Comparison,
    Nvshmem,
    NvshmemSpec,
    Shmem,
    SignalOp,
    Transport,
    ring_put,
)
from rdmawire.gpudirect.kernel.run import (
    Happened,
    Kernel,
    KernelSystem,
    SharedPeermem,
    Warp,
)

__all__ = [
    "FORGETTABLE",
    "MODELS",
    "TESTS",
    "Add",
    "Agent",
    "Comparison",
    "DeviceQueue",
    "Fence",
    "Flush",
    "Forgotten",
    "GpuHost",
    "GpuWrite",
    "GpuWriteReport",
    "GpuWriteSpec",
    "Happened",
    "Kernel",
    "KernelSystem",
    "LitmusTest",
    "Load",
    "Mode",
    "Nvshmem",
    "NvshmemSpec",
    "Order",
    "Scope",
    "SharedMemory",
    "SharedPeermem",
    "Shmem",
    "SignalOp",
    "Store",
    "Target",
    "Thread",
    "Transport",
    "Wait",
    "Warp",
    "find",
    "outcome",
    "outcomes",
    "ring_put",
    "system_of",
]
