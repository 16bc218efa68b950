"""Kernels that answer echo requests in GPU memory, and the operating system beside them."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from rdmawire.fabric import Place
from rdmawire.gpudirect.kernel.echo import (
    CHANGED,
    GPU_TTL,
    HEADERS,
    MIN_FRAME,
    EchoProtocol,
    echo_reply,
    os_reply,
)
from rdmawire.gpudirect.kernel.echo_spec import LANES, GpuEchoSpec
from rdmawire.gpudirect.kernel.gpu_host import ENTRIES, ForgottenStep, GpuHost
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
from rdmawire.gpudirect.kernel.run import POLL, Kernel, Warp
from rdmawire.units import ms, us
from rdmawire.verbs import Sge
from rdmawire.wire.inet import Ethernet, IPv4

_FLUSH: Final = 1000
"""Time (ns) of a read through the adapter."""
_INTERRUPT: Final = us(2)
"""Time (ns) between two looks of the operating system at its queue."""
_FLAG: Final = 8
STUCK: Final = ms(10)
"""Time (ns) after which a kernel that waits is stuck."""


class QueueCount(NamedTuple):
    """Packets of a receive queue: ``ignored`` ones are no echo requests."""

    received: int
    answered: int
    ignored: int
    discarded: int


class EchoQueue:
    """A receive and a send queue with buffers, and how often each thing happened there."""

    def __init__(self, host: GpuHost, buffers: PacketBuffers, *, on_gpu: bool) -> None:
        self.buffers = buffers
        self.receives = raw_queue(host, on_gpu=on_gpu)
        self.sends = raw_queue(host, on_gpu=on_gpu)
        self.received = self.answered = self.ignored = 0

    def receiver(self, warp: Warp) -> ReceiveQueue:
        """Return the receive queue as a warp uses it."""
        return ReceiveQueue(self.receives, self.buffers, warp)

    def transmitter(self, warp: Warp) -> TransmitQueue:
        """Return the send queue as a warp uses it."""
        return TransmitQueue(self.sends, warp, STUCK)

    def add(self, received: int, answered: int) -> None:
        """Count packets, and those of them that were answered."""
        self.received += received
        self.answered += answered
        self.ignored += received - answered

    @property
    def count(self) -> QueueCount:
        """What was counted; the adapter counts frames that found no buffer."""
        discarded = self.receives.qp.counters.out_of_buffer
        return QueueCount(self.received, self.answered, self.ignored, discarded)


class ExitFlag:
    """A flag in GPU memory by which the host ends its kernels."""

    def __init__(self, host: GpuHost) -> None:
        self._at = host.allocate(_FLAG)

    def is_set(self, warp: Warp) -> bool:
        """Load the flag."""
        return any(warp.read(self._at, _FLAG))

    def set(self, warp: Warp) -> None:
        """Store the flag."""
        warp.store(self._at, (1).to_bytes(_FLAG, "little"))


class EchoKernels:
    """The kernels of one receive queue: :meth:`echo`, or :meth:`receive` and :meth:`process`."""

    def __init__(self, spec: GpuEchoSpec, host: GpuHost, size: int, exit_flag: ExitFlag) -> None:
        buffers = PacketBuffers.on(host, spec.buffers, size)
        self.queue = EchoQueue(host, buffers, on_gpu=spec.queues_on_gpu)
        self._spec = spec
        self._host = host
        self._exit = exit_flag
        self._semaphore = Semaphore(host)

    # One kernel.

    def echo(self, warp: Warp) -> Kernel:
        """Receive packets, answer them, and post their buffers again when the replies were sent."""
        spec = self._spec
        receive, transmit = self.queue.receiver(warp), self.queue.transmitter(warp)
        yield from receive.post(range(spec.buffers))
        while not self._exit.is_set(warp):
            found = yield from receive.receive(spec.batch, spec.timeout)
            free: list[int] = []
            if found:
                warp.note(f"{len(found)} received")
                yield from self._acquire(warp)
                buffers = [packet.buffer for packet in found]
                replies = yield from self._answer(warp, buffers)
                free += [buffer for buffer in buffers if buffer not in replies]
                yield from self._send(transmit, replies, list(replies))
            transmit.poll()
            yield from receive.post(free + transmit.taken())

    # Two kernels.

    def receive(self, warp: Warp) -> Kernel:
        """Receive packets, and pass them on; post buffers again that were processed."""
        spec, item = self._spec, 0
        receive = self.queue.receiver(warp)
        passed: deque[tuple[int, list[int]]] = deque()
        yield from receive.post(range(spec.buffers))
        while not self._exit.is_set(warp):
            found = yield from receive.receive(spec.batch, spec.timeout)
            if found:
                passed.append((item, [packet.buffer for packet in found]))
                yield from self._pass_on(warp, item, found)
                item += 1
            while passed and self._has(warp, passed[0][0], SemaphoreStatus.DONE):
                oldest, buffers = passed.popleft()
                self._semaphore.set_status(warp, oldest, SemaphoreStatus.FREE)
                yield from receive.post(buffers)

    def _pass_on(self, warp: Warp, item: int, packets: Sequence[Received]) -> Kernel:
        """Say in an item which packets there are; their buffers follow one another."""
        yield from warp.wait(lambda: self._has(warp, item, SemaphoreStatus.FREE), STUCK)
        info = PacketInfo(len(packets), packets[0].buffer)
        fence = self._spec.needs(ForgottenStep.SEMAPHORE_FENCE)
        yield from self._semaphore.set_packet_info(warp, item, info, fence=fence)
        warp.note(f"{len(packets)} received: item {item} is READY")

    def _has(self, warp: Warp, item: int, status: SemaphoreStatus) -> bool:
        return self._semaphore.status(warp, item) is status

    def process(self, warp: Warp) -> Kernel:
        """Answer the packets of each item; it is DONE when the replies were sent."""
        item, transmit = 0, self.queue.transmitter(warp)
        while not self._exit.is_set(warp):
            done: list[int] = []
            if self._has(warp, item, SemaphoreStatus.READY):
                yield from self._acquire(warp)
                replies = yield from self._answer(warp, self._buffers(warp, item))
                yield from self._send(transmit, replies, [item])
                done += [] if replies else [item]
                item += 1
            transmit.poll()
            for processed in transmit.taken() + done:
                self._semaphore.set_status(warp, processed, SemaphoreStatus.DONE)
            yield POLL

    def _buffers(self, warp: Warp, item: int) -> list[int]:
        """Return the buffers of an item; a wrong number of packets is cut."""
        info, total = self._semaphore.packet_info(warp, item), self.queue.buffers.total
        return [(info.first + number) % total for number in range(min(info.packets, total))]

    # Steps of both.

    def _acquire(self, warp: Warp) -> Kernel:
        """Let loads see the packets of completions: flush the adapter's writes, and fence."""
        if not self._spec.queues_on_gpu and self._spec.needs(ForgottenStep.FLUSH):
            yield _FLUSH
            self._host.flush()
        if self._spec.needs(ForgottenStep.READER_FENCE):
            yield from warp.fence()

    def _answer(self, warp: Warp, numbers: Sequence[int]) -> Generator[int, None, dict[int, Sge]]:
        """Make replies in their buffers. Return what to send, by buffer."""
        yield self._spec.work * -(-len(numbers) // LANES)
        buffers, replies = self.queue.buffers, dict[int, Sge]()
        for number in numbers:
            at = buffers.address(number)
            reply = gpu_reply(self._spec, _load(warp, at, buffers.stride))
            if reply is not None:
                for place in CHANGED:
                    warp.store(at + place.start, reply[place.start : place.stop])
                replies[number] = buffers.sge(number, len(reply))
        self.queue.add(len(numbers), len(replies))
        return replies

    def _send(self, transmit: TransmitQueue, replies: dict[int, Sge], tag: Sequence[int]) -> Kernel:
        """Send replies, if there are any."""
        if replies:
            yield from transmit.send(
                list(replies.values()),
                tag,
                self._spec.forgotten,
            )
            transmit.warp.note(f"{len(replies)} answered: the doorbell is rung")


def _load(warp: Warp, at: int, most: int) -> bytes:
    """Load a frame; its length is that of its IP header, as in DOCA's kernels."""
    headers = warp.load(at, HEADERS)
    length = Ethernet.SIZE + IPv4.parse(headers, Ethernet.SIZE).total_length
    return headers + warp.load(at + HEADERS, min(max(length, MIN_FRAME), most) - HEADERS)


def gpu_reply(spec: GpuEchoSpec, frame: bytes) -> bytes | None:
    """Return the reply of the kernels to a frame, or ``None``."""
    port = spec.port if spec.protocol is EchoProtocol.UDP else None
    return echo_reply(frame, GPU_TTL, port)


class OperatingSystem:
    """The operating system of a host: it answers what the GPU does not take, and ends kernels.

    ``is_done`` says when.
    """

    def __init__(
        self,
        host: GpuHost,
        place: Place,
        size: int,
        exit_flag: ExitFlag,
        is_done: Callable[[], bool],
    ) -> None:
        buffers = PacketBuffers.on(host, ENTRIES, size, on_gpu=False)
        self.queue = EchoQueue(host, buffers, on_gpu=False)
        self._place = place
        self._exit = exit_flag
        self._is_done = is_done

    def run(self, warp: Warp) -> Kernel:
        """Look at the queue from time to time, as after interrupts."""
        receive, transmit = self.queue.receiver(warp), self.queue.transmitter(warp)
        yield from receive.post(range(ENTRIES))
        while not self._is_done():
            yield _INTERRUPT
            free: list[int] = []
            for packet in receive.poll(ENTRIES):
                reply = self._reply(warp, packet)
                if reply is None:
                    free.append(packet.buffer)
                else:
                    yield from transmit.send([reply], [packet.buffer])
                    warp.note("a frame is answered by the operating system")
            transmit.poll()
            yield from receive.post(free + transmit.taken())
        self._exit.set(warp)

    def _reply(self, warp: Warp, packet: Received) -> Sge | None:
        """Make the reply to a frame in its buffer. Return it, if there is one."""
        at = self.queue.buffers.address(packet.buffer)
        reply = os_reply(warp.load(at, packet.length), self._place)
        self.queue.add(1, 0 if reply is None else 1)
        if reply is None:
            return None
        warp.store(at, reply)
        return self.queue.buffers.sge(packet.buffer, len(reply))
