"""A host whose GPU has queues of its adapter: memory of both, doorbells, and queue pairs.

GPUDirect Async: the queues of a queue pair are in memory of the GPU (or the host), and the page of
doorbells is mapped for the GPU. NVSHMEM (IBGDA), NCCL (GIN, GDAKI) and DOCA GPUNetIO work so.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

from rdmawire.errors import KernelError
from rdmawire.fabric import ALL_ACCESS, CAP, Cable, Host, NotifyingPort, Simulator, place_of
from rdmawire.gpudirect.kernel.memory_model import Agent, MemoryTarget, Order
from rdmawire.gpudirect.kernel.run import MAX_DELAY, Kernel, KernelSystem, SharedPeermem, Warp
from rdmawire.ib import QPInit, QueuePair
from rdmawire.memory.gpu import A100, H200
from rdmawire.memory.region import Region
from rdmawire.units import gbps, us
from rdmawire.verbs import CompletionRing, QPType, Sge, WCStatus, WorkCompletion, WorkRing
from rdmawire.verbs.wqe import BLOCK_SIZE, CQE

GPU_MEMORY: Final = 1 << 28
HOST_MEMORY: Final = 1 << 26
_HOST_SHIFT: Final = 40
_HOST_AT: Final = 1 << 38
_DOORBELLS_AT: Final = 1 << 39
_PAGE: Final = 1 << 12
ENTRIES: Final = 64
"""Blocks of a work queue, and entries of a completion queue."""

CABLE: Final = Cable(latency=us(1), rate=gbps(400))
"""Each cable between an adapter and the switch."""
TIMEOUT_66_US: Final = 4
"""Code of the time after which a packet is sent again: IBA 9.7.6.1.3."""
PROXY: Final = 500
"""Time (ns) in which a thread of the host posts work."""
MODELS: Final[Mapping[str, Order]] = {
    profile.name: Order.POSTED if profile.posts_writes else Order.TOTAL for profile in (A100, H200)
}
"""GPUs, and the order in which writes of an adapter become visible on its host.

Before compute capability 9.0 a write to GPU memory may become visible after a later one to host
memory, as the GPUDirect RDMA guide says; from then on it does not.
"""


Wake = Callable[[str], None]
"""Function called with the name of a host that has something to transmit."""


class GpuHost:
    """A host with one GPU and one adapter; ``name`` is that of the host, ``model`` of the GPU.

    Its memory is at addresses that no other host has, from ``gpu_base`` and ``host_base`` on.
    ``doorbells`` is the address of the adapter's page.
    """

    def __init__(self, name: str, number: int, model: str = "H200") -> None:
        self.name = name
        self.host = Host(place=place_of(number))
        self.mac = self.host.mac
        self.nic = NotifyingPort(self.host.nic)
        self.gpu = f"{name}.GPU0"
        self.gpu_base = number << _HOST_SHIFT
        self.host_base = self.gpu_base + _HOST_AT
        self.doorbells = self.gpu_base + _DOORBELLS_AT
        self.adapter = Agent(f"{name}.adapter", MODELS[model])
        self.processor = Agent(f"{name}.processor", Order.TOTAL, name)
        self._free = {self.gpu: self.gpu_base, name: self.host_base}
        self._system: KernelSystem | None = None
        self._wake: Wake = _nothing

    def targets(self) -> list[MemoryTarget]:
        """Return the memory and the registers of this host."""
        return [
            MemoryTarget(self.gpu, self.gpu, self.gpu_base, GPU_MEMORY),
            MemoryTarget(self.name, self.name, self.host_base, HOST_MEMORY),
            MemoryTarget(
                f"{self.name} doorbells", self.adapter.name, self.doorbells, _PAGE, self._ring
            ),
        ]

    def _ring(self, _: int, doorbell: bytes) -> None:
        """Execute a doorbell that has become visible to the adapter."""
        self.system.note(self.adapter.name, "a doorbell arrives")
        self.host.nic.ring(doorbell)
        self._wake(self.name)

    @property
    def system(self) -> KernelSystem:
        """The memory of all hosts."""
        assert self._system is not None
        return self._system

    def join(self, system: KernelSystem, wake: Wake) -> None:
        """Become a part of a system; ``wake`` is called with its name when it has to transmit."""
        self._system = system
        self._wake = wake
        self.host.nic.memory.clients.append(SharedPeermem(system, self.adapter, self.name))

    def warp(self, name: str = "warp") -> Agent:
        """Return an agent for a kernel of the GPU."""
        return Agent(f"{self.name}.{name}", Order.WEAK, self.gpu)

    def allocate(self, size: int, *, on_gpu: bool = True) -> int:
        """Return the address of free memory."""
        owner = self.gpu if on_gpu else self.name
        address = self._free[owner]
        self._free[owner] = address + size + -size % _PAGE
        return address

    def register(self, address: int, size: int, iova: int | None = None) -> Region:
        """Register memory with the adapter, at its address or at ``iova``."""
        return self.host.pd.reg_mr(address, size, ALL_ACCESS, iova)

    def flush(self) -> None:
        """Read from GPU memory through the adapter: its earlier writes become visible.

        NCCL posts an RDMA READ of one byte on a loopback queue pair.
        """
        self.system.memory.flush(self.adapter, self.gpu)


def _nothing(_: str) -> None:
    """Do nothing: the host is in no network."""


class _Layout(NamedTuple):
    """Offsets of the parts of a queue pair in its memory."""

    sends: int = 0
    receives: int = ENTRIES * BLOCK_SIZE
    completions: int = 2 * ENTRIES * BLOCK_SIZE
    record: int = 2 * ENTRIES * BLOCK_SIZE + ENTRIES * CQE.SIZE
    cq_record: int = 2 * ENTRIES * BLOCK_SIZE + ENTRIES * CQE.SIZE + 8
    size: int = 2 * ENTRIES * BLOCK_SIZE + ENTRIES * CQE.SIZE + 16


class DeviceQueue:
    """A queue pair whose queues are in memory of the GPU, or with ``on_gpu`` false of the host."""

    def __init__(self, host: GpuHost, *, on_gpu: bool = True, qp_type: QPType = QPType.RC) -> None:
        self.host = host
        self._layout = _Layout()
        self._base = host.allocate(self._layout.size, on_gpu=on_gpu)
        self.region = host.register(self._base, self._layout.size)
        nic, pd = host.host.nic, host.host.pd
        layout = self._layout
        cq = nic.create_cq(
            ENTRIES,
            cq_buffer=self._sge(layout.completions, ENTRIES * CQE.SIZE),
            doorbell_record=self._sge(layout.cq_record, 8),
        )
        self.qp: QueuePair = nic.create_qp(
            qp_type,
            QPInit(pd, cq, cq, CAP._replace(max_send_wr=ENTRIES, max_recv_wr=ENTRIES)),
            sq_buffer=self._sge(layout.sends, ENTRIES * BLOCK_SIZE),
            rq_buffer=self._sge(layout.receives, ENTRIES * BLOCK_SIZE),
            doorbell_record=self._sge(layout.record, 8),
        )
        host.system.memory.drain(host.adapter, host.adapter.pending)

    def _sge(self, offset: int, length: int) -> Sge:
        return Sge(self._base + offset, length, self.region.lkey)

    def sends(self, warp: Warp) -> WorkRing:
        """Return the send queue as a kernel uses it."""
        return self._ring(warp, self._layout.sends, receives=False)

    def receives(self, warp: Warp) -> WorkRing:
        """Return the receive queue as a kernel uses it."""
        return self._ring(warp, self._layout.receives, receives=True)

    def _ring(self, warp: Warp, offset: int, *, receives: bool) -> WorkRing:
        return WorkRing(
            warp,
            self._base + offset,
            ENTRIES * BLOCK_SIZE,
            self._base + self._layout.record,
            self.qp.qp_num,
            receives=receives,
        )

    def completions(self, warp: Warp) -> CompletionRing:
        """Return the completion queue as a kernel polls it."""
        layout = self._layout
        at, record = self._base + layout.completions, self._base + layout.cq_record
        return CompletionRing(warp, at, ENTRIES, record)


class ForgottenStep(Enum):
    """A step that can be forgotten."""

    DATA_FENCE = "data-fence"
    WQE_FENCE = "wqe-fence"
    RECORD_FENCE = "record-fence"
    READER_FENCE = "reader-fence"
    FLUSH = "flush"
    SEMAPHORE_FENCE = "semaphore-fence"
    SOURCE_FLUSH = "source-flush"

    @property
    def meaning(self) -> str:
        """What the step is for."""
        return _MEANINGS[self]


_MEANINGS: Final[Mapping[ForgottenStep, str]] = {
    ForgottenStep.DATA_FENCE: (
        "the adapter may read the data before the kernel's stores are visible"
    ),
    ForgottenStep.WQE_FENCE: (
        "the adapter may see the index before the WQE, or the WQE before its data"
    ),
    ForgottenStep.RECORD_FENCE: "the doorbell may arrive before the index: the work is not found",
    ForgottenStep.READER_FENCE: (
        "loads may return what the memory was before the flag or completion"
    ),
    ForgottenStep.FLUSH: "a completion in host memory may be visible before data in GPU memory",
    ForgottenStep.SEMAPHORE_FENCE: "the status of a semaphore may be visible before its packets",
    ForgottenStep.SOURCE_FLUSH: "the adapter may read the source after the kernel has changed it",
}


def ring_doorbell(
    warp: Warp, work: WorkRing, doorbells: int, forgotten: Collection[ForgottenStep] = ()
) -> Kernel:
    """Store the index behind the WQEs, and the doorbell, with a fence before each.

    A ``forgotten`` fence is left out.
    """
    if ForgottenStep.WQE_FENCE not in forgotten:
        yield from warp.fence()
    doorbell = work.publish()
    if ForgottenStep.RECORD_FENCE not in forgotten:
        yield from warp.fence()
    warp.store(doorbells, doorbell)


class AgentSendQueue:
    """The send queue of a queue pair as one agent uses it; ``completed`` counts completions.

    A wait ends with an error after ``timeout`` (ns). What a completion means is that of
    :meth:`complete`.
    """

    def __init__(self, queue: DeviceQueue, warp: Warp, timeout: int) -> None:
        self.work = queue.sends(warp)
        self.completed = 0
        self.warp = warp
        self._completions = queue.completions(warp)
        self._timeout = timeout

    def poll(self) -> bool:
        """Take completions; return whether there were any."""
        found = self._completions.poll(ENTRIES)
        for completion in found:
            self.complete(completion)
            self.work.retire(completion.wr_id)
            self.completed += 1
        return bool(found)

    def complete(self, completion: WorkCompletion) -> None:
        """Look at a completion; :class:`KernelError` if the work failed."""
        if completion.status is not WCStatus.SUCCESS:
            raise KernelError(f"{self.warp.agent.name}: {completion.status.name}")

    def until(self, count: int) -> Kernel:
        """Poll until this many completions were taken."""

        def is_complete() -> bool:
            self.poll()
            return self.completed >= count

        yield from self.warp.wait(is_complete, self._timeout)


def system_of(
    hosts: list[GpuHost], simulator: Simulator, wake: Wake, seed: int, max_delay: int = MAX_DELAY
) -> KernelSystem:
    """Return a system of these hosts, which join it."""
    targets = [target for host in hosts for target in host.targets()]
    system = KernelSystem(simulator, targets, seed=seed, max_delay=max_delay)
    for host in hosts:
        host.join(system, wake)
    return system
