"""Work that GPUs start: kernels as coroutines, the memory shared with adapters, and doorbells.

A :class:`GpuWrite` sends data from GPU to GPU, started by a kernel, a proxy or a stream. A
:class:`GpuEcho` answers packets that an adapter writes to GPU memory. Jobs of several GPUs are
:class:`Nvshmem` and :class:`GinJob`, which is the device API of NCCL. :data:`TESTS` are litmus
tests of the memory model.
"""

from rdmawire.gpudirect.kernel.echo import EchoProtocol, EchoRequest, echo_reply, os_reply
from rdmawire.gpudirect.kernel.echo_kernels import QueueCount
from rdmawire.gpudirect.kernel.echo_spec import FORGETTABLE_ECHO, GpuEchoSpec, Pipeline
from rdmawire.gpudirect.kernel.gfd import GFD_SIZE, Gfd, GfdOp
from rdmawire.gpudirect.kernel.gin import DevComm, Gin, GinJob, Team
from rdmawire.gpudirect.kernel.gin_job import (
    GIN_FORGETTABLE,
    Backend,
    CounterInc,
    GinSpec,
    GinWindow,
    SignalAdd,
    SignalInc,
)
from rdmawire.gpudirect.kernel.gin_run import GinAllToAll, GinPut, GinReport, GinRun, PutSignal
from rdmawire.gpudirect.kernel.gpu_echo import GpuEcho, GpuEchoReport
from rdmawire.gpudirect.kernel.gpu_host import (
    MODELS,
    DeviceQueue,
    ForgottenStep,
    GpuHost,
    system_of,
)
from rdmawire.gpudirect.kernel.gpu_write import (
    FORGETTABLE,
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
from rdmawire.gpudirect.kernel.memory_model import Agent, MemoryTarget, Order, Scope, SharedMemory
from rdmawire.gpudirect.kernel.nvshmem import (
    Comparison,
    Nvshmem,
    NvshmemSpec,
    Shmem,
    SignalOp,
    Transport,
    ring_put,
)
from rdmawire.gpudirect.kernel.raw_packet import (
    PacketBuffers,
    PacketInfo,
    Received,
    ReceiveQueue,
    Semaphore,
    SemaphoreStatus,
    TransmitQueue,
    raw_queue,
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
    "FORGETTABLE_ECHO",
    "GFD_SIZE",
    "GIN_FORGETTABLE",
    "MODELS",
    "TESTS",
    "Add",
    "Agent",
    "Backend",
    "Comparison",
    "CounterInc",
    "DevComm",
    "DeviceQueue",
    "EchoProtocol",
    "EchoRequest",
    "Fence",
    "Flush",
    "ForgottenStep",
    "Gfd",
    "GfdOp",
    "Gin",
    "GinAllToAll",
    "GinJob",
    "GinPut",
    "GinReport",
    "GinRun",
    "GinSpec",
    "GinWindow",
    "GpuEcho",
    "GpuEchoReport",
    "GpuEchoSpec",
    "GpuHost",
    "GpuWrite",
    "GpuWriteReport",
    "GpuWriteSpec",
    "Happened",
    "Kernel",
    "KernelSystem",
    "LitmusTest",
    "Load",
    "MemoryTarget",
    "Mode",
    "Nvshmem",
    "NvshmemSpec",
    "Order",
    "PacketBuffers",
    "PacketInfo",
    "Pipeline",
    "PutSignal",
    "QueueCount",
    "ReceiveQueue",
    "Received",
    "Scope",
    "Semaphore",
    "SemaphoreStatus",
    "SharedMemory",
    "SharedPeermem",
    "Shmem",
    "SignalAdd",
    "SignalInc",
    "SignalOp",
    "Store",
    "Team",
    "Thread",
    "TransmitQueue",
    "Transport",
    "Wait",
    "Warp",
    "echo_reply",
    "find",
    "os_reply",
    "outcome",
    "outcomes",
    "raw_queue",
    "ring_put",
    "system_of",
]
