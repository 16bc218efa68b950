"""Jobs of several GPUs: hosts on one switch, connections among them, and work that is posted.

:class:`GpuJob` is the base of what NVSHMEM, NCCL's device API and single writes run on.
"""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

from rdmawire.errors import KernelError
from rdmawire.fabric import (
    ATTRIBUTES,
    Envelope,
    LoopbackPort,
    Network,
    Simulator,
    connect,
    star,
)
from rdmawire.gpudirect.kernel.gpu_host import (
    CABLE,
    ENTRIES,
    TIMEOUT_66_US,
    AgentSendQueue,
    DeviceQueue,
    ForgottenStep,
    GpuHost,
    ring_doorbell,
    system_of,
)
from rdmawire.gpudirect.kernel.run import Kernel, KernelSystem, Warp
from rdmawire.verbs import SendFlags, SendOpcode, SendWR, Sge
from rdmawire.wire.management import MTU

EVENTS: Final = 50_000_000
"""Events of a simulation after which it is taken to be endless."""
_MAX_POSTED: Final = ENTRIES // 4
"""WQEs of a queue, of those with a completion, that may be incomplete."""


class GpuJob:
    """GPUs by ``names``, each with an adapter; without ``on_network`` no switch joins them.

    ``seed`` is for the times at which stores become visible, ``max_delay`` the latest of them (ns).
    With ``loopback`` an adapter can be connected to itself. ``frames`` counts what adapters send.
    """

    def __init__(
        self,
        names: Iterable[str],
        model: str,
        seed: int,
        max_delay: int,
        *,
        event_limit: int = EVENTS,
        on_network: bool = True,
        loopback: bool = False,
    ) -> None:
        self.network = Network(Simulator(event_limit=event_limit), seed=seed)
        self.hosts = [GpuHost(name, number, model) for number, name in enumerate(names, 1)]
        self.frames = 0
        if loopback:
            for host in self.hosts:
                self._loop(host)
        self.system: KernelSystem = system_of(
            self.hosts, self.network.simulator, self.network.wake, seed, max_delay
        )
        if on_network:
            star(self.network, {host.name: host for host in self.hosts}, CABLE)
            for host in self.hosts:
                self.network.tap(host.name, self._count)

    def _loop(self, host: GpuHost) -> None:
        call_at, wake = self.network.simulator.call_at, partial(self.network.wake, host.name)
        host.nic = LoopbackPort(host.host.nic, host.mac, call_at, wake)

    def _count(self, _frame: Envelope, _now: int) -> None:
        self.frames += 1

    def connected(
        self, one: int, other: int, *, on_gpu: bool = True
    ) -> tuple[DeviceQueue, DeviceQueue]:
        """Return a queue pair of each of two GPUs, by number, which are connected."""
        here, there = (DeviceQueue(self.hosts[number], on_gpu=on_gpu) for number in (one, other))
        attributes = ATTRIBUTES._replace(timeout=TIMEOUT_66_US, path_mtu=MTU.MTU_4096)
        connect(here.host.host, here.qp, there.host.host, there.qp, attributes)
        return here, there

    def simulate(self) -> int:
        """Run all; return the time (ns). :class:`KernelError` if a kernel does not end."""
        self.network.simulator.run()
        if self.system.running:
            raise KernelError(f"did not end: {', '.join(self.system.running)}")
        return self.network.simulator.now


class PostingQueue(AgentSendQueue):
    """A queue pair as one agent uses it: posts work, rings, and counts completions.

    ``posted`` counts the WQEs that will have a completion. ``forgotten`` fences are left out.
    """

    def __init__(
        self,
        queue: DeviceQueue,
        warp: Warp,
        timeout: int,
        forgotten: Collection[ForgottenStep] = (),
    ) -> None:
        super().__init__(queue, warp, timeout)
        self._doorbells = queue.host.doorbells
        self._forgotten = forgotten
        self.posted = 0

    def post(self, *work: SendWR) -> Kernel:
        """Store WQEs, the index and the doorbell, with a fence after each."""
        yield from self.until(self.posted + len(work) - _MAX_POSTED)
        for wr in work:
            self.work.post(wr)
            self.posted += bool(wr.flags & SendFlags.SIGNALED)
        yield from ring_doorbell(self.warp, self.work, self._doorbells, self._forgotten)

    def until(self, count: int) -> Kernel:
        """Poll until this many WQEs are complete, if they are not yet known to be."""
        if self.completed < count:
            yield from super().until(count)


def rdma_work(
    opcode: SendOpcode,
    memory: Sge,
    there: int,
    rkey: int,
    flags: SendFlags = SendFlags.SIGNALED,
) -> SendWR:
    """Return a WRITE or READ of the bytes at ``there`` in memory of the peer."""
    return SendWR(opcode, (memory,), remote_address=there, rkey=rkey, flags=flags)


def inline_work(data: bytes, there: int, rkey: int) -> SendWR:
    """Return a WRITE of bytes that are in the WQE itself."""
    return SendWR(
        SendOpcode.RDMA_WRITE,
        inline=data,
        remote_address=there,
        rkey=rkey,
        flags=SendFlags.SIGNALED | SendFlags.INLINE,
    )


def atomic_work(
    result: Sge, there: int, rkey: int, value: int, compare: int | None = None
) -> SendWR:
    """Return a FETCH_ADD of ``value``, or with ``compare`` a CMP_SWAP to it."""
    swaps = compare is not None
    return SendWR(
        SendOpcode.ATOMIC_CMP_AND_SWP if swaps else SendOpcode.ATOMIC_FETCH_AND_ADD,
        (result,),
        remote_address=there,
        rkey=rkey,
        compare_add=value if compare is None else compare,
        swap=value if swaps else 0,
        flags=SendFlags.SIGNALED,
    )
