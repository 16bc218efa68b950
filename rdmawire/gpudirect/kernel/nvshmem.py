"""NVSHMEM: a symmetric heap on all GPUs, and one-sided operations on it from kernels and hosts.

A processing element (PE) is a GPU. Between hosts operations are RDMA of the GPU's adapter, posted
by the kernel itself (IBGDA) or by a proxy thread of the host; within a host they are loads and
stores over NVLink. Names and rules are those of the NVSHMEM API (NVSHMEM 3.2 documentation);
operations that wait are generators, for ``yield from``.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, NamedTuple

from rdmawire.errors import KernelError
from rdmawire.gpudirect.kernel.gpu_host import PROXY, DeviceQueue
from rdmawire.gpudirect.kernel.job import (
    GpuJob,
    PostingQueue,
    atomic_work,
    inline_work,
    rdma_work,
)
from rdmawire.gpudirect.kernel.memory_model import Agent
from rdmawire.gpudirect.kernel.run import Kernel, Warp
from rdmawire.units import us
from rdmawire.verbs import SendOpcode, SendWR, Sge

MAX_PES: Final = 64
MAX_HEAP: Final = 1 << 26
MAX_RCS: Final = 32
_WORD: Final = 8
_BARRIERS: Final = 64
"""Bytes for the signals of barriers: one for each round among up to 256 PEs."""
_SCRATCH: Final = 64
"""Bytes for results of atomics."""
_RESERVED: Final = _BARRIERS + _SCRATCH
_TIMEOUT: Final = us(20_000)


class Transport(Enum):
    """What carries operations between hosts."""

    IBGDA = "ibgda"
    PROXY = "proxy"


class Comparison(Enum):
    """Conditions of ``wait_until`` and ``test``: ``NVSHMEM_CMP_EQ`` and the others."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GE = "ge"
    LT = "lt"
    LE = "le"


_COMPARE: Final[dict[Comparison, Callable[[int, int], bool]]] = {
    Comparison.EQ: eq,
    Comparison.NE: ne,
    Comparison.GT: gt,
    Comparison.GE: ge,
    Comparison.LT: lt,
    Comparison.LE: le,
}


class SignalOp(Enum):
    """What becomes of a signal: ``NVSHMEM_SIGNAL_SET`` or ``NVSHMEM_SIGNAL_ADD``."""

    SET = "set"
    ADD = "add"


class NvshmemSpec(NamedTuple):
    """A job: ``hosts`` with ``gpus`` each, and the bytes of the symmetric heap of each.

    ``max_delay`` is the latest time (ns) after which a store is visible. ``rc_per_pe`` is the
    number of queue pairs of kernels to each PE of another host (``NVSHMEM_IBGDA_NUM_RC_PER_PE``).
    """

    hosts: int = 2
    gpus: int = 1
    heap: int = 1 << 20
    transport: Transport = Transport.IBGDA
    model: str = "H200"
    seed: int = 0
    max_delay: int = 2000
    rc_per_pe: int = 1

    @property
    def pes(self) -> int:
        """The number of PEs."""
        return self.hosts * self.gpus


class Nvshmem(GpuJob):
    """A job; ``network`` carries its packets. Each PE has an adapter of its own.

    :meth:`launch` starts a kernel on a PE, :meth:`run` runs all.
    """

    def __init__(self, spec: NvshmemSpec | None = None) -> None:
        spec = NvshmemSpec() if spec is None else spec
        _check(spec)
        self.spec = spec
        names = [f"pe{number}" for number in range(spec.pes)]
        super().__init__(names, spec.model, spec.seed, spec.max_delay, on_network=spec.hosts > 1)
        size = _RESERVED + spec.heap
        self.heaps = [host.allocate(size) for host in self.hosts]
        self.keys = [
            host.register(heap, size) for host, heap in zip(self.hosts, self.heaps, strict=True)
        ]
        self._next = _RESERVED
        self._queues: dict[tuple[int, int, bool, int], DeviceQueue] = {}
        self._connect_all()

    def _connect_all(self) -> None:
        """Connect each PE with those on other hosts: once for kernels, once for the host."""
        pes = range(self.spec.pes)
        for one in pes:
            for other in pes:
                if other > one and not self.is_near(one, other):
                    for number in range(self.spec.rc_per_pe):
                        self._connect(one, other, number, on_gpu=True)
                    self._connect(one, other, on_gpu=False)

    def _connect(self, one: int, other: int, number: int = 0, *, on_gpu: bool) -> None:
        queues_on_gpu = on_gpu and self.spec.transport is Transport.IBGDA
        here, there = self.connected(one, other, on_gpu=queues_on_gpu)
        self._queues[one, other, on_gpu, number] = here
        self._queues[other, one, on_gpu, number] = there

    def is_near(self, one: int, other: int) -> bool:
        """Whether two PEs are on one host, which NVLink joins."""
        return one // self.spec.gpus == other // self.spec.gpus

    def queue(self, pe: int, peer: int, number: int = 0, *, on_gpu: bool) -> DeviceQueue:
        """Return a queue pair of a PE to another one, for kernels or for the host."""
        return self._queues[pe, peer, on_gpu, number]

    def malloc(self, size: int) -> int:
        """Allocate symmetric memory (``nvshmem_malloc``); return its offset in each heap."""
        offset = self._next
        if not 0 < size <= _RESERVED + self.spec.heap - offset:
            left = _RESERVED + self.spec.heap - offset
            raise KernelError(f"{size} bytes of the symmetric heap; {left} are left")
        self._next = offset + size + -size % _WORD
        return offset

    def read(self, pe: int, offset: int, length: int) -> bytes:
        """Return bytes of a heap that are visible to all."""
        return self.system.memory.visible(self.heaps[pe] + offset, length)

    def launch(self, pe: int, function: Callable[["Shmem"], Kernel]) -> None:
        """Start a kernel on a PE: a generator function of :class:`Shmem`."""
        host = self.hosts[pe]
        agent = host.warp()
        commands = None
        if self.spec.transport is Transport.PROXY and self.spec.hosts > 1:
            commands = _Commands(self, pe)
            proxy = Agent(f"{host.name}.proxy", host.processor.order, host.name)
            self.system.launch(commands.proxy, proxy)
        self.system.launch(partial(self._kernel, pe, function, commands), agent)

    def _kernel(
        self,
        pe: int,
        function: Callable[["Shmem"], Kernel],
        commands: "_Commands | None",
        warp: Warp,
    ) -> Kernel:
        shmem = Shmem(self, pe, warp, commands)
        yield from function(shmem)
        yield from shmem.quiet()
        if commands is not None:
            commands.ended = True

    def launch_host(self, pe: int, function: Callable[["Shmem"], Kernel]) -> None:
        """Start a program of the host of a PE, which uses the same operations."""
        self.system.launch(
            lambda warp: function(Shmem(self, pe, warp, None, on_gpu=False)),
            self.hosts[pe].processor,
        )

    def run(self) -> int:
        """Run all; return the time (ns). :class:`KernelError` if an operation fails."""
        return self.simulate()


def _check(spec: NvshmemSpec) -> None:
    if not 1 <= spec.pes <= MAX_PES:
        raise KernelError(f"{spec.pes} PEs; 1 to {MAX_PES} are supported")
    if not 0 < spec.heap <= MAX_HEAP:
        raise KernelError(f"a heap of {spec.heap} bytes; 1 to {MAX_HEAP} are supported")
    if not 1 <= spec.rc_per_pe <= MAX_RCS:
        raise KernelError(f"{spec.rc_per_pe} queue pairs to a PE; 1 to {MAX_RCS} are supported")


class Shmem:
    """NVSHMEM as a kernel of a PE, or the program of its host, calls it.

    Addresses are offsets in the symmetric heap. What waits is a generator, for ``yield from``.
    """

    def __init__(
        self,
        job: Nvshmem,
        pe: int,
        warp: Warp,
        commands: "_Commands | None",
        *,
        on_gpu: bool = True,
    ) -> None:
        self.my_pe = pe
        self.n_pes = job.spec.pes
        self.warp = warp
        self._job = job
        self._commands = commands
        self._on_gpu = on_gpu
        self._senders: dict[tuple[int, int], PostingQueue] = {}
        self._barriers = 0

    def _at(self, offset: int, length: int, pe: int | None = None) -> int:
        """Return the address of bytes of a heap, after a check."""
        pe = self.my_pe if pe is None else pe
        if not 0 <= pe < self.n_pes:
            raise KernelError(f"PE {pe}; there are {self.n_pes}")
        if offset < 0 or length < 0 or offset + length > _RESERVED + self._job.spec.heap:
            raise KernelError(f"{length} bytes at {offset} are not in the symmetric heap")
        return self._job.heaps[pe] + offset

    # Own memory.

    def load(self, offset: int, length: int = _WORD) -> bytes:
        """Load bytes of the own heap."""
        return self.warp.load(self._at(offset, length), length)

    def store(self, offset: int, data: bytes) -> None:
        """Store bytes to the own heap."""
        self.warp.store(self._at(offset, len(data)), data)

    # Puts and gets.

    def put(self, dest: int, source: int, nbytes: int, pe: int) -> Kernel:
        """Copy to the heap of a PE; return when the source may be changed (``putmem``)."""
        yield from self.put_nbi(dest, source, nbytes, pe)
        yield from self._local_completion(pe)

    def put_nbi(self, dest: int, source: int, nbytes: int, pe: int, qp: int = 0) -> Kernel:
        """Copy to the heap of a PE, without a wait (``putmem_nbi``); ``qp`` is a queue pair to it.

        Operations on one queue pair are done in order, those on several are not.
        """
        here, there = self._at(source, nbytes), self._at(dest, nbytes, pe)
        if self._is_near(pe):
            self.warp.store(there, self.warp.load(here, nbytes))
        elif nbytes:
            work = self._work(SendOpcode.RDMA_WRITE, here, there, nbytes, pe)
            yield from self._post(pe, work, qp)

    def get(self, dest: int, source: int, nbytes: int, pe: int) -> Kernel:
        """Copy from the heap of a PE to the own one; return when the data is there (``getmem``)."""
        here, there = self._at(dest, nbytes), self._at(source, nbytes, pe)
        if self._is_near(pe):
            self.warp.store(here, self.warp.load(there, nbytes, strong=True))
        elif nbytes:
            yield from self._post(pe, self._work(SendOpcode.RDMA_READ, here, there, nbytes, pe))
            yield from self._local_completion(pe)
            yield from self.warp.fence()

    def p(self, dest: int, value: int, pe: int) -> Kernel:
        """Store a number of eight bytes to the heap of a PE (``uint64_p``)."""
        data = value.to_bytes(_WORD, "little")
        there = self._at(dest, _WORD, pe)
        if self._is_near(pe):
            self.warp.store(there, data)
        else:
            yield from self._post(pe, self._inline(data, there, pe))

    def put_signal(  # noqa: PLR0917  the arguments of nvshmem_putmem_signal
        self,
        dest: int,
        source: int,
        nbytes: int,
        sig_addr: int,
        signal: int,
        pe: int,
        sig_op: SignalOp = SignalOp.SET,
    ) -> Kernel:
        """Copy to the heap of a PE, and update a signal there behind the data.

        It returns when the source may be changed (``putmem_signal``).
        """
        yield from self.put_nbi(dest, source, nbytes, pe)
        yield from self.signal_op(sig_addr, signal, pe, sig_op)
        yield from self._local_completion(pe)

    def signal_op(
        self, sig_addr: int, signal: int, pe: int, sig_op: SignalOp = SignalOp.SET, qp: int = 0
    ) -> Kernel:
        """Update a signal of a PE, behind earlier puts to it on this queue pair (``signal_op``)."""
        there = self._at(sig_addr, _WORD, pe)
        if self._is_near(pe):
            yield from self.warp.fence()
            if sig_op is SignalOp.ADD:
                self.warp.fetch_add(there, signal)
            else:
                self.warp.store(there, signal.to_bytes(_WORD, "little"))
        elif sig_op is SignalOp.ADD:
            yield from self._post(pe, self._atomic(there, pe, signal), qp)
        else:
            work = self._inline(signal.to_bytes(_WORD, "little"), there, pe)
            yield from self._post(pe, work, qp)

    # Atomics.

    def atomic_fetch_add(self, dest: int, value: int, pe: int) -> Any:
        """Add to a number of a PE; return what it was (``uint64_atomic_fetch_add``)."""
        there = self._at(dest, _WORD, pe)
        if self._is_near(pe):
            return self.warp.fetch_add(there, value)
        yield from self._post(pe, self._atomic(there, pe, value))
        return (yield from self._atomic_result(pe))

    def atomic_compare_swap(self, dest: int, cond: int, value: int, pe: int) -> Any:
        """Swap a number of a PE that equals ``cond``; return what it was."""
        there = self._at(dest, _WORD, pe)
        if self._is_near(pe):
            return self.warp.compare_swap(there, cond, value)
        yield from self._post(pe, self._atomic(there, pe, value, compare=cond))
        return (yield from self._atomic_result(pe))

    def _atomic_result(self, pe: int) -> Any:
        yield from self._local_completion(pe)
        yield from self.warp.fence()
        return int.from_bytes(self.warp.read(self._at(_BARRIERS, _WORD), _WORD), "little")

    # Order and completion.

    def fence(self) -> Kernel:
        """Order puts to each PE: those to other hosts are in order anyway (``nvshmem_fence``)."""
        yield from self.warp.fence()

    def quiet(self) -> Kernel:
        """Wait until all puts are complete at their targets (``nvshmem_quiet``)."""
        yield from self.warp.fence()
        for pe in {pe: None for pe, _ in self._senders}:
            yield from self._local_completion(pe)
        if self._commands is not None:
            yield from self._commands.until_done(self.warp)

    def barrier_all(self) -> Kernel:
        """Complete all puts, and wait for all PEs: rounds of signals at doubling distances."""
        yield from self.quiet()
        self._barriers += 1
        distance, slot = 1, 0
        while distance < self.n_pes:
            partner = (self.my_pe + distance) % self.n_pes
            yield from self.signal_op(slot, 1, partner, SignalOp.ADD)
            yield from self.signal_wait_until(slot, Comparison.GE, self._barriers)
            distance, slot = 2 * distance, slot + _WORD
        yield from self.quiet()

    def test(self, ivar: int, comparison: Comparison, value: int) -> bool:
        """Return whether a number of the own heap meets a condition now (``uint64_test``)."""
        data = self.warp.read(self._at(ivar, _WORD), _WORD)
        return _COMPARE[comparison](int.from_bytes(data, "little"), value)

    def wait_until(self, ivar: int, comparison: Comparison, value: int) -> Kernel:
        """Wait until a number of the own heap meets a condition (``uint64_wait_until``).

        Later loads see what was stored before the number was.
        """
        yield from self.warp.wait(partial(self.test, ivar, comparison, value), _TIMEOUT)
        yield from self.warp.fence()

    def signal_wait_until(self, sig_addr: int, comparison: Comparison, value: int) -> Kernel:
        """Wait until a signal meets a condition (``signal_wait_until``)."""
        yield from self.wait_until(sig_addr, comparison, value)

    # Transports.

    def _is_near(self, pe: int) -> bool:
        return self._job.is_near(self.my_pe, pe)

    def _work(self, opcode: SendOpcode, here: int, there: int, nbytes: int, pe: int) -> SendWR:
        memory = Sge(here, nbytes, self._job.keys[self.my_pe].lkey)
        return rdma_work(opcode, memory, there, self._job.keys[pe].rkey)

    def _inline(self, data: bytes, there: int, pe: int) -> SendWR:
        return inline_work(data, there, self._job.keys[pe].rkey)

    def _atomic(self, there: int, pe: int, value: int, compare: int | None = None) -> SendWR:
        result = Sge(self._at(_BARRIERS, _WORD), _WORD, self._job.keys[self.my_pe].lkey)
        return atomic_work(result, there, self._job.keys[pe].rkey, value, compare)

    def _post(self, pe: int, work: SendWR, qp: int = 0) -> Kernel:
        """Post work to a PE of another host, or let the proxy do it."""
        if self._commands is not None:
            yield from self._commands.ask(self.warp, _ProxyCommand(pe, qp, work))
            return
        yield from self._sender(pe, qp).post(work)

    def _sender(self, pe: int, qp: int) -> PostingQueue:
        if (pe, qp) not in self._senders:
            queue = self._job.queue(self.my_pe, pe, qp, on_gpu=self._on_gpu)
            self._senders[pe, qp] = PostingQueue(queue, self.warp, _TIMEOUT)
        return self._senders[pe, qp]

    def _local_completion(self, pe: int) -> Kernel:
        """Wait until the work for a PE is complete."""
        if self._is_near(pe):
            return
        if self._commands is not None:
            yield from self._commands.until_done(self.warp)
            return
        for (peer, _), sender in list(self._senders.items()):
            if peer == pe:
                yield from sender.until(sender.posted)


class _ProxyCommand(NamedTuple):
    """Work that a kernel asks its proxy for: to a PE, by a queue pair."""

    pe: int
    qp: int
    work: SendWR


class _Commands:
    """The channel between a kernel and its proxy: two counters in host memory, and commands.

    The kernel stores a command and then the number of commands; the proxy stores the number of
    complete ones. ``ended`` ends the proxy.
    """

    def __init__(self, job: Nvshmem, pe: int) -> None:
        self.ended = False
        self._job = job
        self._pe = pe
        self._asked = 0
        self._work: list[_ProxyCommand] = []
        self._counters = job.hosts[pe].allocate(2 * _WORD, on_gpu=False)

    def ask(self, warp: Warp, command: _ProxyCommand) -> Kernel:
        """Ask for work, after a fence: the adapter must see the kernel's data."""
        self._work.append(command)
        self._asked += 1
        yield from warp.fence()
        warp.store(self._counters, self._asked.to_bytes(_WORD, "little"))

    def until_done(self, warp: Warp) -> Kernel:
        """Wait until all that was asked for is complete."""
        wanted, at = self._asked, self._counters + _WORD
        yield from warp.wait(
            lambda: int.from_bytes(warp.read(at, _WORD), "little") >= wanted, _TIMEOUT
        )

    def proxy(self, warp: Warp) -> Kernel:
        """Post what the kernel asks for, in order, and count completions."""
        senders: dict[tuple[int, int], PostingQueue] = {}
        taken = done = 0
        while not self.ended or done < self._asked:
            count = int.from_bytes(warp.read(self._counters, _WORD), "little")
            while taken < count:
                pe, qp, work = self._work[taken]
                if (pe, qp) not in senders:
                    queue = self._job.queue(self._pe, pe, qp, on_gpu=True)
                    senders[pe, qp] = PostingQueue(queue, warp, _TIMEOUT)
                yield PROXY
                yield from senders[pe, qp].post(work)
                taken += 1
            for sender in senders.values():
                sender.poll()
            complete = sum(sender.completed for sender in senders.values())
            if complete > done:
                done = complete
                warp.store(self._counters + _WORD, done.to_bytes(_WORD, "little"))
            yield PROXY


def ring_put(job: Nvshmem, size: int, count: int = 1) -> Callable[[Shmem], Kernel]:
    """Return a kernel that puts ``count`` messages to the next PE with signals, and checks its own.

    :class:`KernelError` if the data that a PE received is not what the one before it put.
    """
    data, source, signal = job.malloc(size), job.malloc(size), job.malloc(_WORD)

    def kernel(shmem: Shmem) -> Kernel:
        following = (shmem.my_pe + 1) % shmem.n_pes
        before = (shmem.my_pe - 1) % shmem.n_pes
        for number in range(1, count + 1):
            shmem.store(source, _pattern(shmem.my_pe, number, size))
            shmem.warp.note(f"put of {size} bytes and signal {number} to PE {following}")
            yield from shmem.warp.fence()
            yield from shmem.put_signal(data, source, size, signal, number, following)
            yield from shmem.signal_wait_until(signal, Comparison.GE, number)
            shmem.warp.note(f"signal {number} of PE {before} is seen")
            if shmem.load(data, size) != _pattern(before, number, size):
                raise KernelError(f"PE {shmem.my_pe}: wrong data of message {number}")
            yield from shmem.barrier_all()
        shmem.warp.note("all data was right")

    return kernel


def _pattern(pe: int, number: int, size: int) -> bytes:
    """Return data that names its PE and the number of its message."""
    word: Sequence[int] = pe.to_bytes(4, "little") + number.to_bytes(4, "little")
    return (bytes(word) * (size // _WORD + 1))[:size]
