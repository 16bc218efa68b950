"""Ethernet queues of a GPU: frames in buffers of its memory, and semaphores between its kernels.

As of DOCA GPUNetIO: a warp polls the completions of a receive queue, another one may process the
packets, and both know of each other by the items of a semaphore. The names of what a kernel does
are those of ``doca_gpu_dev_eth_rxq``, ``doca_gpu_dev_eth_txq`` and ``doca_gpu_dev_semaphore``.
"""

from collections import deque
from collections.abc import Collection, Generator, Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from rdmawire.errors import KernelError
from rdmawire.gpudirect.kernel.gpu_host import (
    ENTRIES,
    AgentSendQueue,
    DeviceQueue,
    ForgottenStep,
    GpuHost,
    ring_doorbell,
)
from rdmawire.gpudirect.kernel.memory_model import Scope
from rdmawire.gpudirect.kernel.run import POLL, Kernel, Warp
from rdmawire.verbs import (
    QPAttributes,
    QPType,
    RecvWR,
    SendFlags,
    SendOpcode,
    SendWR,
    Sge,
    WCStatus,
    WorkCompletion,
)
from rdmawire.wire.header import Header, bits

_ALIGNMENT: Final = 256


class PacketBuffers(NamedTuple):
    """``total`` buffers for frames, each of ``stride`` bytes, from the address ``base`` on."""

    base: int
    stride: int
    total: int
    lkey: int

    @classmethod
    def on(cls, host: GpuHost, total: int, size: int, *, on_gpu: bool = True) -> "PacketBuffers":
        """Allocate and register buffers for frames of up to ``size`` bytes."""
        stride = size + -size % _ALIGNMENT
        base = host.allocate(total * stride, on_gpu=on_gpu)
        return cls(base, stride, total, host.register(base, total * stride).lkey)

    def address(self, buffer: int) -> int:
        """Return the address of a buffer."""
        return self.base + buffer * self.stride

    def sge(self, buffer: int, length: int) -> Sge:
        """Return the first bytes of a buffer, for work requests."""
        return Sge(self.address(buffer), length, self.lkey)


def raw_queue(host: GpuHost, *, on_gpu: bool = True) -> DeviceQueue:
    """Return a raw packet queue pair that is ready to send and receive."""
    queue = DeviceQueue(host, on_gpu=on_gpu, qp_type=QPType.RAW_PACKET)
    host.host.bring_up(queue.qp, QPAttributes())
    return queue


class Received(NamedTuple):
    """A frame of ``length`` bytes in a buffer, by number."""

    buffer: int
    length: int


class ReceiveQueue:
    """A receive queue as one warp uses it: each buffer is posted, filled, and posted again."""

    def __init__(self, queue: DeviceQueue, buffers: PacketBuffers, warp: Warp) -> None:
        self.warp = warp
        self._buffers = buffers
        self._work = queue.receives(warp)
        self._completions = queue.completions(warp)
        self._doorbells = queue.host.doorbells
        self._posted: dict[int, int] = {}

    def post(self, buffers: Iterable[int]) -> Kernel:
        """Post buffers, if there are any, and ring the doorbell."""
        numbers = list(buffers)
        for buffer in numbers:
            wr = RecvWR((self._buffers.sge(buffer, self._buffers.stride),))
            self._posted[self._work.post(wr)] = buffer
        if numbers:
            yield from ring_doorbell(self.warp, self._work, self._doorbells)

    def poll(self, most: int) -> list[Received]:
        """Return the frames that have arrived, at most ``most``.

        :class:`KernelError` if a receive failed.
        """
        return [self._taken(completion) for completion in self._completions.poll(most)]

    def _taken(self, completion: WorkCompletion) -> Received:
        if completion.status is not WCStatus.SUCCESS:
            raise KernelError(f"{self.warp.agent.name}: a receive: {completion.status.name}")
        self._work.retire(completion.wr_id)
        return Received(self._posted.pop(completion.wr_id), completion.byte_len)

    def receive(self, most: int, timeout: int) -> Generator[int, None, list[Received]]:
        """Wait for ``most`` frames; return what has arrived after ``timeout`` (ns).

        As ``doca_gpu_dev_eth_rxq_receive_warp``: its ``max_rx_pkts`` and ``timeout_ns``.
        """
        end = self.warp.now + timeout
        found = self.poll(most)
        while len(found) < most and self.warp.now < end:
            yield POLL
            found += self.poll(most - len(found))
        return found


class TransmitQueue(AgentSendQueue):
    """A send queue as one warp uses it: batches of frames, of which the last one is signaled."""

    def __init__(self, queue: DeviceQueue, warp: Warp, timeout: int) -> None:
        super().__init__(queue, warp, timeout)
        self._done: list[int] = []
        self._doorbells = queue.host.doorbells
        self._tags: deque[Sequence[int]] = deque()

    def send(
        self,
        frames: Sequence[Sge],
        tag: Sequence[int],
        forgotten: Collection[ForgottenStep] = (),
    ) -> Kernel:
        """Post frames, wait for free WQEs before if needed, and ring the doorbell.

        As ``doca_gpu_dev_eth_txq_send_enqueue``, ``commit`` and ``push``. ``tag`` are
        the numbers that :meth:`taken` returns when all were sent.
        """
        yield from self.warp.wait(lambda: self._is_free(len(frames)), self._timeout)
        last = len(frames) - 1
        for number, frame in enumerate(frames):
            flags = SendFlags.SIGNALED if number == last else SendFlags(0)
            self.work.post(SendWR(SendOpcode.SEND, (frame,), flags=flags))
        self._tags.append(tag)
        yield from ring_doorbell(self.warp, self.work, self._doorbells, forgotten)

    def _is_free(self, count: int) -> bool:
        self.poll()
        return self.work.free >= count

    def complete(self, completion: WorkCompletion) -> None:
        super().complete(completion)
        self._done += self._tags.popleft()

    def taken(self) -> list[int]:
        """Remove and return the numbers of the batches whose frames were sent, in order."""
        done, self._done = self._done, []
        return done


class SemaphoreStatus(IntEnum):
    """The status of an item: the numbers of ``doca_gpu_semaphore_status``."""

    FREE = 0
    READY = 1
    DONE = 2
    HOLD = 3
    ERROR = 4
    EXIT = 5


class PacketInfo(Header, clause="rdmawire", label="packet_info"):
    """The packets of an item: how many, and the number of the first one's buffer."""

    packets: int = bits(32)
    first: int = bits(32)


_STATUS: Final = 8
"""Bytes of a status, in front of the packet info."""


class Semaphore:
    """A ring of ``items`` in GPU memory, by which kernels pass packets on.

    A kernel may use an item whose status is FREE: it stores what the packets are, and then the
    status READY. The other kernel sets DONE when it has processed them.
    """

    def __init__(self, host: GpuHost, items: int = ENTRIES) -> None:
        self.items = items
        self._stride = _STATUS + PacketInfo.SIZE
        self._base = host.allocate(items * self._stride)

    def _at(self, item: int) -> int:
        return self._base + item % self.items * self._stride

    def status(self, warp: Warp, item: int) -> SemaphoreStatus:
        """Load the status of an item."""
        return SemaphoreStatus(int.from_bytes(warp.read(self._at(item), _STATUS), "little"))

    def set_status(self, warp: Warp, item: int, status: SemaphoreStatus) -> None:
        """Store the status of an item."""
        warp.store(self._at(item), status.to_bytes(_STATUS, "little"))

    def packet_info(self, warp: Warp, item: int) -> PacketInfo:
        """Load what the packets of an item are: a weak load, behind a fence of the caller."""
        return PacketInfo.parse(warp.load(self._at(item) + _STATUS, PacketInfo.SIZE))

    def set_packet_info(
        self, warp: Warp, item: int, info: PacketInfo, *, fence: bool = True
    ) -> Kernel:
        """Store what the packets of an item are, and then the status READY."""
        warp.store(self._at(item) + _STATUS, info.build())
        if fence:
            yield from warp.fence(Scope.GPU)
        self.set_status(warp, item, SemaphoreStatus.READY)
