"""A worker of UCX with one endpoint: active messages, RDMA READs and WRITEs, and copies.

Descriptors for sends and buffers of receives are in pinned memory of the host. What is posted is
noted with its time.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from rdmawire.errors import TransferError
from rdmawire.fabric import CAP, Registered, Simulator
from rdmawire.gpudirect.transfer.host import TransferHost
from rdmawire.gpudirect.transfer.host_pair import HostPair
from rdmawire.gpudirect.transfer.rdma_endpoint import RdmaEndpoint, Wake, connect_endpoints
from rdmawire.gpudirect.transfer.stage import Chunk, Stage, StageKind
from rdmawire.gpudirect.ucx.am import TRANSPORTS, ActiveMessage, AmId, MemoryType
from rdmawire.gpudirect.ucx.config import UcxConfig
from rdmawire.gpudirect.ucx.protocol import BufferMemory
from rdmawire.memory.address_space import HostMemory
from rdmawire.memory.gpu import Gpu
from rdmawire.verbs import RecvWR, SendFlags, SendOpcode, SendWR, Sge, WCOpcode, WorkCompletion

Done = Callable[[], None]
"""Function called when something is complete."""
_MAX_INLINE: Final = 1024


class UserBuffer:
    """Memory of the application: of a host or its GPU, registered if the adapter may access it.

    ``reason`` says why it is not.
    """

    def __init__(self, host: TransferHost, memory_type: MemoryType, size: int) -> None:
        self.size = size
        self.reason = ""
        self.registered: Registered | None = None
        self._memory: HostMemory | Gpu
        if memory_type is MemoryType.HOST:
            buffer = host.host.buffer(max(size, 1))
            self.registered = buffer
            self.address = buffer.address
            self._memory = buffer.memory
        else:
            self.address = host.gpu.allocate(max(size, 1)).address
            self._memory = host.gpu
            self._register(host)
        self.memory = BufferMemory(memory_type, self.registered is not None)

    def _register(self, host: TransferHost) -> None:
        try:
            self.registered = host.register(self.address, max(self.size, 1))
        except TransferError as error:
            self.reason = str(error)

    @property
    def is_flushed(self) -> bool:
        """Whether writes of the adapter must be made visible to kernels."""
        return self.memory.type is MemoryType.CUDA

    def read(self, offset: int, size: int) -> bytes:
        """Read a part, as the application or a copy does."""
        return self._memory.read(self.address + offset, size)

    def write(self, offset: int, data: bytes) -> None:
        """Write a part, as the application or a copy does."""
        self._memory.write(self.address + offset, data)

    def sge(self, offset: int, size: int) -> Sge:
        """Return an SGE of a part; the buffer is registered."""
        assert self.registered is not None
        return self.registered.sge(size, offset)


_COPY_OUT: Final = {MemoryType.HOST: StageKind.MEMCPY, MemoryType.CUDA: StageKind.COPY_OUT}
_COPY_IN: Final = {MemoryType.HOST: StageKind.MEMCPY, MemoryType.CUDA: StageKind.COPY_IN}


class Copies:
    """Copies between memory of the application and pinned memory, one after the other.

    ``copied`` counts their bytes.
    """

    def __init__(self, kind: StageKind, host: TransferHost, simulator: Simulator) -> None:
        self.copied = 0
        self._stage = Stage(kind, host, simulator)
        self._stage.after = self._end
        self._actions: deque[Callable[[Chunk], None]] = deque()
        self._number = 0

    def put(self, offset: int, data: bytes, action: Callable[[Chunk], None]) -> None:
        """Copy data of this offset, and then call a function with it."""
        self.copied += len(data)
        self._actions.append(action)
        self._stage.put(Chunk(self._number, offset, data))
        self._number += 1

    def _end(self, chunk: Chunk) -> None:
        self._actions.popleft()(chunk)


class PostedOperation(NamedTuple):
    """What was posted: the time (ns), by whom, its name and its bytes."""

    time: int
    who: str
    what: str
    size: int


class Worker:
    """A worker of a host. ``handlers`` are called with the messages that it receives.

    ``depth`` is the number of its receives; what it posts is added to ``posted``.
    """

    def __init__(  # noqa: PLR0917
        self,
        host: TransferHost,
        simulator: Simulator,
        wake: Wake,
        config: UcxConfig,
        depth: int,
        posted: list[PostedOperation],
    ) -> None:
        self.host = host
        self.handlers: dict[AmId, Callable[[ActiveMessage], None]] = {}
        self._simulator = simulator
        self._transport = TRANSPORTS[config.tls]
        self._segment = config.rc_seg_size
        self._posted = posted
        self._numbers = 0
        self._done: dict[int, Done] = {}
        self._free: dict[int, list[Registered]] = {}
        cap = CAP._replace(max_send_wr=2 * depth, max_recv_wr=depth, max_inline_data=_MAX_INLINE)
        self.end = RdmaEndpoint(host, simulator, wake, cap)
        self.end.on_completion = self._completed
        self._receives = host.host.buffer(depth * self._segment)
        self._depth = depth

    def receive_all(self) -> None:
        """Post all receives."""
        for slot in range(self._depth):
            self._receive(slot)

    def copies_out(self, memory: MemoryType) -> Copies:
        """Return copies from memory of the application."""
        return Copies(_COPY_OUT[memory], self.host, self._simulator)

    def copies_in(self, memory: MemoryType) -> Copies:
        """Return copies to memory of the application."""
        return Copies(_COPY_IN[memory], self.host, self._simulator)

    # Buffers.

    def take(self, size: int) -> Registered:
        """Return a buffer of pinned memory that is not used."""
        free = self._free.setdefault(size, [])
        return free.pop() if free else self.host.host.buffer(size)

    def give_back(self, buffer: Registered) -> None:
        """Keep a buffer for the next use."""
        self._free[buffer.region.length].append(buffer)

    # What is posted.

    def send(
        self, message: ActiveMessage, *sges: Sge, inline: bool = False, done: Done | None = None
    ) -> None:
        """Send an active message, with data of the application after it (``am_zcopy``).

        ``inline`` data is a part of the WQE (``am_short``); else it is in a descriptor.
        """
        data = message.build(self._transport)
        size = len(data) + sum(sge.length for sge in sges)
        self._note(message.am_id.name, size)
        flags = SendFlags.SIGNALED | SendFlags.SOLICITED
        if inline and len(data) <= _MAX_INLINE:
            work = SendWR(SendOpcode.SEND, inline=data, flags=flags | SendFlags.INLINE)
            self._post(work, done)
            return
        descriptor = self.take(self._segment)
        descriptor.write(data)
        work = SendWR(SendOpcode.SEND, (descriptor.sge(len(data)), *sges), flags=flags)
        self._post(work, partial(self._sent, descriptor, done))

    def _sent(self, descriptor: Registered, done: Done | None) -> None:
        self.give_back(descriptor)
        if done is not None:
            done()

    def rdma(
        self, opcode: SendOpcode, sge: Sge, remote_address: int, rkey: int, done: Done | None
    ) -> None:
        """Post an RDMA READ or WRITE."""
        self._note(opcode.name, sge.length)
        self._post(SendWR(opcode, (sge,), remote_address=remote_address, rkey=rkey), done)

    def _note(self, what: str, size: int) -> None:
        time = round(self.end.next_post())
        self._posted.append(PostedOperation(time, self.host.name, what, size))

    def _post(self, work: SendWR, done: Done | None) -> None:
        self._numbers += 1
        if done is not None:
            self._done[self._numbers] = done
        self.end.post(work._replace(wr_id=self._numbers))

    def _receive(self, slot: int) -> None:
        sge = self._receives.sge(self._segment, slot * self._segment)
        self.end.queue.post_recv((RecvWR((sge,), slot),))

    # What is complete.

    def _completed(self, completion: WorkCompletion) -> None:
        if completion.opcode is WCOpcode.RECV:
            self.end.later(0.0, partial(self._received, completion.wr_id, completion.byte_len))
        elif completion.wr_id in self._done:
            self.end.later(0.0, self._done.pop(completion.wr_id))

    def _received(self, slot: int, length: int) -> None:
        data = self._receives.read(length, slot * self._segment)
        message = ActiveMessage.parse(data, self._transport)
        self._receive(slot)
        if message.am_id not in self.handlers:
            raise TransferError(f"{self.host.name} received {message.am_id.name}")
        self.handlers[message.am_id](message)

    def visible(self, buffer: UserBuffer, action: Done) -> None:
        """Do something when kernels see what the adapter wrote to a buffer."""
        delay = self.end.flush_time() if buffer.is_flushed else 0.0
        self.end.after(delay, action)


class _WorkerSpec(Protocol):
    """What workers need of a specification."""

    @property
    def config(self) -> UcxConfig: ...

    @property
    def mtu(self) -> int: ...


def connected_workers(
    pair: HostPair, spec: _WorkerSpec, depths: tuple[int, int], posted: list[PostedOperation]
) -> list[Worker]:
    """Return workers of two hosts, whose endpoints are connected; ``depths`` are their receives."""
    simulator, wake = pair.network.simulator, pair.network.wake
    workers = [
        Worker(host, simulator, wake, spec.config, depth, posted)
        for host, depth in zip(pair.hosts, depths, strict=True)
    ]
    connect_endpoints(workers[0].end, workers[1].end, spec.mtu)
    for worker in workers:
        worker.receive_all()
    return workers
