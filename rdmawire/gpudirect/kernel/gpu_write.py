"""WRITEs from GPU to GPU that a kernel, a proxy of the host or a stream starts, step by step.

A kernel makes data, RDMA WRITEs carry it and a flag (or a completion at the target), and a kernel
of the target waits, loads the data and compares it. Steps can be forgotten: the run then shows what
happens, for a seed.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from rdmawire.errors import FabricError, KernelError
from rdmawire.fabric import ATTRIBUTES, connect
from rdmawire.gpudirect.kernel.gpu_host import (
    ENTRIES,
    MODELS,
    PROXY,
    TIMEOUT_66_US,
    AgentSendQueue,
    DeviceQueue,
    ForgottenStep,
    GpuHost,
    ring_doorbell,
)
from rdmawire.gpudirect.kernel.job import GpuJob
from rdmawire.gpudirect.kernel.run import Happened, Kernel, Warp
from rdmawire.units import us
from rdmawire.verbs import RecvWR, SendFlags, SendOpcode, SendWR, Sge, WCStatus, WorkCompletion

MAX_SIZE: Final = 1 << 20
MAX_MESSAGES: Final = 4096
_FLAG: Final = 8
_WORK: Final = 300
"""Time (ns) in which a kernel makes the data of a message."""
_FLUSH: Final = 1000
"""Time (ns) of a read through the adapter."""
_RNR_10_US: Final = 1
"""Code of the RNR timer: IBA 9.7.5.2.8, table 46."""
_TIMEOUT: Final = us(2000)
"""Time (ns) after which a kernel that waits is stuck."""


class Mode(Enum):
    """The agent that posts the work and rings the doorbell."""

    KERNEL = "kernel"
    PROXY = "proxy"
    STREAM = "stream"


FORGETTABLE: Final[Mapping[Mode, tuple[ForgottenStep, ...]]] = {
    Mode.KERNEL: (
        ForgottenStep.WQE_FENCE,
        ForgottenStep.RECORD_FENCE,
        ForgottenStep.READER_FENCE,
        ForgottenStep.FLUSH,
    ),
    Mode.PROXY: (ForgottenStep.DATA_FENCE, ForgottenStep.READER_FENCE, ForgottenStep.FLUSH),
    Mode.STREAM: (ForgottenStep.READER_FENCE, ForgottenStep.FLUSH),
}
"""The steps of each mode. The end of a kernel in a stream is a fence that cannot be forgotten."""


class GpuWriteSpec(NamedTuple):
    """What is done: ``messages`` of ``size`` bytes each, of which ``depth`` may be on their way.

    ``queues_on_gpu`` says where the queues of the sender are. With ``by_completion`` the target
    waits for a completion in host memory instead of a flag in GPU memory. ``max_delay`` is the
    latest time (ns) after which a store is visible.
    """

    mode: Mode = Mode.KERNEL
    size: int = 4096
    messages: int = 8
    depth: int = 4
    model: str = "H200"
    queues_on_gpu: bool = True
    by_completion: bool = False
    forgotten: frozenset[ForgottenStep] = frozenset()
    seed: int = 0
    max_delay: int = 2000


class GpuWriteReport(NamedTuple):
    """The result of a run: ``wrong`` are the messages whose data was not right when it was loaded.

    ``stuck`` is what waited for ever, or nothing. ``duration`` is in ns.
    """

    spec: GpuWriteSpec
    duration: int
    wrong: list[int]
    stuck: str
    frames: int
    timeline: list[Happened]

    @property
    def is_right(self) -> bool:
        """Whether all data was right."""
        return not self.wrong and not self.stuck


class GpuWrite(GpuJob):
    """A run; :meth:`run` may be called once. ``network`` carries the packets."""

    def __init__(self, spec: GpuWriteSpec) -> None:
        _check(spec)
        self.spec = spec
        super().__init__(
            "ab", spec.model, spec.seed, spec.max_delay, event_limit=_event_limit(spec)
        )
        sender, target = self.hosts
        self._queue = DeviceQueue(sender, on_gpu=spec.queues_on_gpu)
        self._target_queue = DeviceQueue(target, on_gpu=False)
        attributes = ATTRIBUTES._replace(min_rnr_timer=_RNR_10_US, timeout=TIMEOUT_66_US)
        connect(sender.host, self._queue.qp, target.host, self._target_queue.qp, attributes)
        self._source = self._memory(sender)
        self._sink = self._memory(target)
        self._command = sender.allocate(16, on_gpu=False)
        self._done: list[int] = []
        self._wrong: list[int] = []

    def _memory(self, host: GpuHost) -> "_Memory":
        size = self.spec.size + -self.spec.size % _FLAG + _FLAG
        address = host.allocate(size * self.spec.depth)
        region = host.register(address, size * self.spec.depth)
        return _Memory(address, size, self.spec.depth, region.lkey, region.rkey)

    def run(self) -> GpuWriteReport:
        """Send all messages, and return the result."""
        sender, target = self.hosts
        producer = {
            Mode.KERNEL: self._kernel,
            Mode.PROXY: self._asking_kernel,
            Mode.STREAM: self._stream,
        }[self.spec.mode]
        self.system.launch(producer, sender.warp())
        if self.spec.mode is Mode.PROXY:
            self.system.launch(self._proxy, sender.processor)
        self.system.launch(self._reader, target.warp())
        stuck = ""
        try:
            self.network.simulator.run()
        except (KernelError, FabricError) as error:
            stuck = str(error)
        return GpuWriteReport(
            self.spec,
            self.network.simulator.now,
            self._wrong,
            stuck,
            self.frames,
            self.system.timeline,
        )

    # The sender.

    def _data(self, number: int) -> bytes:
        """Return the data of a message: each byte says which message it is of."""
        return bytes([number % 251 + 1]) * self.spec.size

    def _needs(self, step: ForgottenStep) -> bool:
        return step not in self.spec.forgotten

    def _fence(self, warp: Warp, step: ForgottenStep) -> Kernel:
        if self._needs(step):
            yield from warp.fence()

    def _make(self, warp: Warp, number: int) -> Kernel:
        """Make the data of a message, as a kernel computes it."""
        yield _WORK
        warp.store(self._source.data(number), self._data(number))
        warp.note(f"data of message {number} is stored")

    def _writes(self, number: int) -> Iterator[SendWR]:
        """Yield the work of a message: the data, and the flag behind it."""
        source, sink, size = self._source, self._sink, self.spec.size
        opcode = SendOpcode.RDMA_WRITE
        if self.spec.by_completion:
            opcode = SendOpcode.RDMA_WRITE_WITH_IMM
        yield SendWR(
            opcode,
            (Sge(source.data(number), size, source.lkey),),
            remote_address=sink.data(number),
            rkey=sink.rkey,
            imm_data=number if self.spec.by_completion else 0,
            flags=SendFlags.SIGNALED if self.spec.by_completion else SendFlags(0),
        )
        if not self.spec.by_completion:
            yield SendWR(
                SendOpcode.RDMA_WRITE,
                inline=number.to_bytes(_FLAG, "little"),
                remote_address=sink.flag(number),
                rkey=sink.rkey,
                flags=SendFlags.SIGNALED | SendFlags.INLINE,
            )

    def _kernel(self, warp: Warp) -> Kernel:
        """Make data, post WQEs, ring the doorbell and poll for completions."""
        queue = _Messages(self._queue, warp, _TIMEOUT)
        for number in range(1, self.spec.messages + 1):
            yield from self._until_free(warp, queue, number)
            yield from self._make(warp, number)
            queue.post(self._writes(number))
            warp.note(f"WQEs of message {number} are stored")
            doorbells = self.hosts[0].doorbells
            yield from ring_doorbell(warp, queue.work, doorbells, self.spec.forgotten)
            warp.note("the doorbell is rung")
        yield from queue.until(self.spec.messages)

    def _until_free(self, warp: Warp, queue: "_Messages", number: int) -> Kernel:
        """Wait until the slot of a message is free: completed here, and read by the target."""
        before = number - self.spec.depth
        yield from queue.until(before)
        yield from warp.wait(lambda: len(self._done) >= before, _TIMEOUT)

    def _asking_kernel(self, warp: Warp) -> Kernel:
        """Make data, and ask the proxy of the host by a number in its memory."""
        depth = self.spec.depth
        for number in range(1, self.spec.messages + 1):
            yield from warp.wait(partial(self._is_answered, warp, number - depth), _TIMEOUT)
            yield from self._make(warp, number)
            yield from self._fence(warp, ForgottenStep.DATA_FENCE)
            warp.store(self._command, number.to_bytes(_FLAG, "little"))
            warp.note(f"the proxy is asked for message {number}")

    def _is_answered(self, warp: Warp, number: int) -> bool:
        answer = int.from_bytes(warp.read(self._command + _FLAG, _FLAG), "little")
        return answer >= number and len(self._done) >= number

    def _proxy(self, warp: Warp) -> Kernel:
        """Post the work that the kernel asks for, as a thread of the host does."""
        queue = _Messages(self._queue, warp, _TIMEOUT)
        for number in range(1, self.spec.messages + 1):
            yield from warp.wait(partial(self._is_asked, warp, queue, number), 2 * _TIMEOUT)
            yield PROXY
            queue.post(self._writes(number))
            warp.store(self.hosts[0].doorbells, queue.work.publish())
            warp.note("the doorbell is rung")
        yield from queue.until(self.spec.messages)

    def _is_asked(self, warp: Warp, queue: "_Messages", number: int) -> bool:
        """Pass completions on to the kernel, and return whether it asks for a message."""
        if queue.poll():
            warp.store(self._command + _FLAG, queue.completed.to_bytes(_FLAG, "little"))
        return int.from_bytes(warp.read(self._command, _FLAG), "little") >= number

    def _stream(self, warp: Warp) -> Kernel:
        """Run kernels in a stream, with operations that write the doorbell and wait for the CQE.

        The end of a kernel, and each operation of a stream, is a fence of the system.
        """
        queue = _Messages(self._queue, warp, _TIMEOUT)
        for number in range(1, self.spec.messages + 1):
            yield from self._until_free(warp, queue, number)
            queue.post(self._writes(number))
            yield from self._make(warp, number)
            yield from warp.fence()
            warp.note("the kernel ends")
            doorbell = queue.work.publish()
            yield from warp.fence()
            warp.store(self.hosts[0].doorbells, doorbell)
            warp.note("the stream rings the doorbell")
        yield from queue.until(self.spec.messages)

    # The target.

    def _reader(self, warp: Warp) -> Kernel:
        """Wait for each message, load its data, and compare it."""
        queue = _Receives(self._target_queue, warp, self.hosts[1].doorbells)
        if self.spec.by_completion:
            yield from queue.post(min(self.spec.depth, self.spec.messages))
        for number in range(1, self.spec.messages + 1):
            if self.spec.by_completion:
                yield from self._completion(warp, queue, number)
            else:
                yield from self._flag(warp, number)
            if self._needs(ForgottenStep.READER_FENCE):
                yield from warp.fence()
            loaded = warp.load(self._sink.data(number), self.spec.size)
            self._compare(warp, number, loaded)
            if self.spec.by_completion:
                yield from queue.post(1)
            self._done.append(number)

    def _compare(self, warp: Warp, number: int, loaded: bytes) -> None:
        is_right = loaded == self._data(number)
        warp.note(f"data of message {number} is loaded: {'right' if is_right else 'WRONG'}")
        if not is_right:
            self._wrong.append(number)

    def _flag(self, warp: Warp, number: int) -> Kernel:
        wanted, at = number.to_bytes(_FLAG, "little"), self._sink.flag(number)
        yield from warp.wait(lambda: warp.read(at, _FLAG) == wanted, 2 * _TIMEOUT)
        warp.note(f"the flag of message {number} is seen")

    def _completion(self, warp: Warp, queue: "_Receives", number: int) -> Kernel:
        """Wait for a completion in host memory, and flush the adapter's writes."""
        yield from warp.wait(queue.poll, 2 * _TIMEOUT)
        warp.note(f"the completion of message {number} is seen")
        if self._needs(ForgottenStep.FLUSH):
            yield _FLUSH
            self.hosts[1].flush()


class _Memory(NamedTuple):
    """Slots in GPU memory for data and a flag behind it, with their keys."""

    base: int
    stride: int
    slots: int
    lkey: int
    rkey: int

    def data(self, number: int) -> int:
        """Return the address of the data of a message."""
        return self.base + number % self.slots * self.stride

    def flag(self, number: int) -> int:
        """Return the address of the flag of a message."""
        return self.data(number) + self.stride - _FLAG


class _Messages(AgentSendQueue):
    """The queue pair of the sender: each message has one completion."""

    def post(self, work: Iterator[SendWR]) -> None:
        """Store the WQEs of a message."""
        for wr in work:
            self.work.post(wr)

    def complete(self, completion: WorkCompletion) -> None:
        _check_completion(completion)
        self.warp.note(f"the completion of message {self.completed + 1} is seen")


class _Receives:
    """The receive queue of the target, whose messages have their data elsewhere."""

    def __init__(self, queue: DeviceQueue, warp: Warp, doorbells: int) -> None:
        self._work = queue.receives(warp)
        self._completions = queue.completions(warp)
        self._warp = warp
        self._doorbells = doorbells

    def post(self, count: int) -> Kernel:
        """Post receives, and ring the doorbell."""
        for _ in range(count):
            self._work.post(RecvWR())
        yield from ring_doorbell(self._warp, self._work, self._doorbells)

    def poll(self) -> bool:
        """Take a completion; return whether there was one."""
        for completion in self._completions.poll(1):
            _check_completion(completion)
            self._work.retire(completion.wr_id)
            return True
        return False


def _check_completion(completion: WorkCompletion) -> None:
    if completion.status is not WCStatus.SUCCESS:
        raise KernelError(f"a WQE failed: {completion.status.name}")


def _event_limit(spec: GpuWriteSpec) -> int:
    """Return more events than a run can have: polls up to the timeout, and packets."""
    return 100_000 + spec.messages * (200_000 + spec.size // 16)


def _check(spec: GpuWriteSpec) -> None:
    if not 0 < spec.size <= MAX_SIZE:
        raise KernelError(f"messages of {spec.size} bytes; 1 to {MAX_SIZE} are supported")
    if not 0 < spec.messages <= MAX_MESSAGES:
        raise KernelError(f"{spec.messages} messages; 1 to {MAX_MESSAGES} are supported")
    if spec.model not in MODELS:
        raise KernelError(f"{spec.model} is no GPU that is known: {', '.join(MODELS)}")
    most = ENTRIES // 4
    if not 0 < spec.depth <= most:
        raise KernelError(f"{spec.depth} messages on their way; 1 to {most} are supported")
    for step in sorted(spec.forgotten - set(FORGETTABLE[spec.mode]), key=lambda one: one.value):
        raise KernelError(f"a {spec.mode.value} has no {step.value}, which could be forgotten")
    if ForgottenStep.FLUSH in spec.forgotten and not spec.by_completion:
        raise KernelError("there is no flush to forget: the target waits for a flag")
