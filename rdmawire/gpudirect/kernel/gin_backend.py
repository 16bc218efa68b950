"""The backends of NCCL's GIN: work that a kernel posts, or that it asks a thread of the host for.

On the wire a put is an RDMA WRITE, and a signal behind it a FETCH_ADD on the same queue pair, whose
result is not used. A counter never is on the wire. Facts: NCCL 2.28 to 2.30: ``gin_gdaki.h`` with
DOCA GPUNetIO's functions for kernels, ``gin_proxy.h``, ``gin_host_proxy.cc``, ``net_ib/gin.cc``.
"""

from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from rdmawire.errors import KernelError
from rdmawire.gpudirect.kernel.gfd import GFD_SIZE, Gfd, GfdOp, is_complete
from rdmawire.gpudirect.kernel.gin_job import (
    TIMEOUT,
    WORD,
    CounterInc,
    GinResources,
    GinWindow,
    SignalAdd,
    SignalInc,
)
from rdmawire.gpudirect.kernel.gpu_host import PROXY, ForgottenStep
from rdmawire.gpudirect.kernel.job import PostingQueue, atomic_work, inline_work, rdma_work
from rdmawire.gpudirect.kernel.memory_model import Agent, Order
from rdmawire.gpudirect.kernel.run import Kernel, Warp
from rdmawire.verbs import SendFlags, SendOpcode, SendWR, Sge

_QUEUE: Final = 16
"""Descriptors of a queue; NCCL has ``NCCL_GIN_PROXY_QUEUE_SIZE``."""
_VECTOR: Final = 16
"""Bytes that a kernel stores at once."""
_STORE_BUFFER: Final = 100
"""Time (ns) after which a store of a processor is visible, at the latest."""
_IN_ORDER: Final = frozenset({ForgottenStep.WQE_FENCE, ForgottenStep.RECORD_FENCE})
"""Fences that a thread of the host does not need: its stores become visible in order."""


class GinOperation(NamedTuple):
    """A put, a put of a ``value``, or with neither target nor source a signal alone."""

    peer: int
    target: GinWindow | None = None
    target_offset: int = 0
    source: GinWindow | None = None
    source_offset: int = 0
    size: int = 0
    value: bytes = b""
    remote: SignalInc | SignalAdd | None = None
    local: CounterInc | None = None


class GinBackend:
    """A context of a rank. One warp may post to it; all may wait for its signals and counters.

    ``barriers`` counts barriers with each rank.
    """

    def __init__(self, job: GinResources, rank: int, context: int) -> None:
        self.job = job
        self.rank = rank
        self.context = context
        self.barriers: Counter[int] = Counter()
        self._owner: Warp | None = None

    def counter_at(self, counter: int) -> int:
        """Return the address of a counter."""
        raise NotImplementedError

    def post(self, warp: Warp, operation: GinOperation) -> Kernel:
        """Do an operation, without a wait."""
        raise NotImplementedError

    def flush(self, warp: Warp) -> Kernel:
        """Wait until the sources of all puts may be reused."""
        raise NotImplementedError

    def _take(self, warp: Warp) -> None:
        """Let one warp post: others would need atomics on the indexes of the queues."""
        if self._owner is None:
            self._owner = warp
        if self._owner is not warp:
            raise KernelError(f"context {self.context} of rank {self.rank} has two posting warps")


class GdakiBackend(GinBackend):
    """GDAKI: the kernel stores WQEs and rings the doorbell; its queues are in GPU memory.

    A counter is a FETCH_ADD on a *companion* queue pair, which is connected to the adapter itself,
    behind a WAIT for the completion of the put. The WAIT is modelled: an agent of the adapter posts
    the FETCH_ADD when the completion is there.
    """

    def __init__(self, job: GinResources, rank: int, context: int) -> None:
        super().__init__(job, rank, context)
        host = job.hosts[rank]
        self._queues: dict[int, PostingQueue] = {}
        self._counters = host.allocate(WORD * job.spec.counters)
        self._counters_key = host.register(self._counters, WORD * job.spec.counters, 0).rkey
        sink = host.register(host.allocate(WORD), WORD, 0)
        self._sink = Sge(0, WORD, sink.lkey)
        self._agent = Agent(f"{host.name}.companion", Order.TOTAL, host.gpu)
        queue, _ = job.connected(rank, rank)
        self._companion = PostingQueue(queue, Warp(job.system, self._agent), TIMEOUT)

    def counter_at(self, counter: int) -> int:
        return self._counters + WORD * counter

    def post(self, warp: Warp, operation: GinOperation) -> Kernel:
        self._take(warp)
        queue = self._queue(warp, operation.peer)
        work = list(self._work(operation))
        if work:
            yield from queue.post(*work)
        if operation.local is not None:
            count = partial(self._count, queue, queue.posted, operation.local.counter)
            self.job.system.launch(count, self._agent)

    def _queue(self, warp: Warp, peer: int) -> PostingQueue:
        if peer not in self._queues:
            queue = self.job.queue(self.context, self.rank, peer)
            self._queues[peer] = PostingQueue(queue, warp, TIMEOUT, self.job.spec.forgotten)
        return self._queues[peer]

    def _work(self, operation: GinOperation) -> Iterator[SendWR]:
        """Yield the WQEs: each has a completion, and no bytes need none."""
        if operation.target is not None and operation.size:
            there = operation.target.remote(operation.peer, operation.target_offset)
            if operation.source is None:
                yield inline_work(operation.value, *there)
            else:
                source = operation.source.sge(self.rank, operation.source_offset, operation.size)
                yield rdma_work(SendOpcode.RDMA_WRITE, source, *there)
        if (remote := operation.remote) is not None:
            offset = self.job.signal_offset(self.context, remote.signal)
            there = self.job.signals.remote(operation.peer, offset)
            yield atomic_work(self._sink, *there, remote.value)

    def _count(self, queue: PostingQueue, posted: int, counter: int, _: Warp) -> Kernel:
        """Add 1 to a counter when the WQEs up to those of a put are complete."""
        yield from queue.until(posted)
        yield from self._companion.post(
            atomic_work(self._sink, WORD * counter, self._counters_key, 1)
        )

    def flush(self, warp: Warp) -> Kernel:
        for queue in self._queues.values():
            yield from queue.until(queue.posted)
        yield from warp.fence()


class _GfdQueue:
    """The queue of descriptors of a context for one peer, in host memory.

    ``produced`` is the index that the kernel counts. The thread counts ``seen`` descriptors, and
    stores the number of ``consumed`` ones to ``consumed_at``, where the kernel reads it.
    """

    def __init__(self, gfds: int, consumed_at: int, context: int, peer: int) -> None:
        self.consumed_at = consumed_at
        self.context = context
        self.peer = peer
        self.produced = self.seen = self.consumed = 0
        self.pending: deque[tuple[int, int | None]] = deque()
        self._gfds = gfds

    def at(self, index: int) -> int:
        """Return the address of a descriptor."""
        return self._gfds + index % _QUEUE * GFD_SIZE


class GinProxy:
    """The thread of a rank that posts what kernels ask for, until the job has ``ended``."""

    def __init__(self, job: GinResources, rank: int) -> None:
        self.job = job
        self.rank = rank
        self.ended = False
        self.is_running = False
        host, spec = job.hosts[rank], job.spec
        self.agent = Agent(f"{host.name}.proxy", host.processor.order, host.name, _STORE_BUFFER)
        count = spec.contexts * spec.ranks
        gfds = host.allocate(count * _QUEUE * GFD_SIZE, on_gpu=False)
        consumed = host.allocate(count * WORD, on_gpu=False)
        self._counters = host.allocate(WORD * spec.counters * spec.contexts, on_gpu=False)
        inlines = count * _QUEUE * WORD + WORD
        self._inlines = host.allocate(inlines, on_gpu=False)
        self._lkey = host.register(self._inlines, inlines).lkey
        self._scratch = Sge(self._inlines + inlines - WORD, WORD, self._lkey)
        self._posting: dict[int, PostingQueue] = {}
        self.queues = [
            _GfdQueue(
                gfds + number * _QUEUE * GFD_SIZE,
                consumed + number * WORD,
                *divmod(number, spec.ranks),
            )
            for number in range(count)
        ]

    def queue(self, context: int, peer: int) -> _GfdQueue:
        """Return the queue of descriptors of a context for a peer."""
        return self.queues[context * self.job.spec.ranks + peer]

    def counter_at(self, context: int, counter: int) -> int:
        """Return the address of a counter, in host memory."""
        return self._counters + WORD * (context * self.job.spec.counters + counter)

    @property
    def _is_idle(self) -> bool:
        return self.ended and all(one.consumed == one.produced for one in self.queues)

    def run(self, warp: Warp) -> Kernel:
        """Look for completions and for one descriptor of each queue in turn."""
        while not self._is_idle:
            for number, queue in enumerate(self.queues):
                if queue.pending:
                    self._complete(warp, queue, self._posting[number])
            for number, queue in enumerate(self.queues):
                yield from self._take(warp, queue, number)
            yield PROXY
        self.is_running = False

    def _complete(self, warp: Warp, queue: _GfdQueue, posting: PostingQueue) -> None:
        """Count descriptors whose work is complete, and add to their counters."""
        posting.poll()
        while queue.pending and posting.completed >= queue.pending[0][0]:
            _, counter = queue.pending.popleft()
            if counter is not None:
                at = self.counter_at(queue.context, counter)
                before = int.from_bytes(warp.read(at, WORD), "little")
                warp.store(at, (before + 1).to_bytes(WORD, "little"))
            queue.consumed += 1
            warp.store(queue.consumed_at, queue.consumed.to_bytes(WORD, "little"))

    def _take(self, warp: Warp, queue: _GfdQueue, number: int) -> Kernel:
        """Take a descriptor, if there is one, clear it, and post its work."""
        at = queue.at(queue.seen)
        if not warp.read(at, 1)[0] & 1:
            return
        yield from warp.wait(lambda: is_complete(warp.read(at, GFD_SIZE)), TIMEOUT)
        gfd = Gfd.parse(warp.read(at, GFD_SIZE))
        warp.store(at, bytes(GFD_SIZE))
        if number not in self._posting:
            pair = self.job.queue(queue.context, self.rank, queue.peer)
            self._posting[number] = PostingQueue(pair, warp, TIMEOUT, _IN_ORDER)
        inline_at = self._inlines + (number * _QUEUE + queue.seen % _QUEUE) * WORD
        yield from self._posting[number].post(*self._work(warp, gfd, queue, inline_at))
        queue.seen += 1
        counter = gfd.counter if gfd.op & GfdOp.WITH_COUNTER else None
        queue.pending.append((self._posting[number].posted, counter))

    def _work(self, warp: Warp, gfd: Gfd, queue: _GfdQueue, inline_at: int) -> Iterator[SendWR]:
        """Yield the work of a descriptor, of which the last has a completion."""
        signals = gfd.op & (GfdOp.WITH_SIGNAL_INC | GfdOp.WITH_SIGNAL_ADD)
        if gfd.size or not signals:
            source = self._source(warp, gfd, inline_at)
            window = self.job.windows[gfd.target_window]
            there = window.remote(queue.peer, gfd.target_offset)
            flags = SendFlags(0) if signals else SendFlags.SIGNALED
            yield rdma_work(SendOpcode.RDMA_WRITE, source, *there, flags)
        if signals:
            offset = self.job.signal_offset(queue.context, gfd.signal)
            there = self.job.signals.remote(queue.peer, offset)
            value = 1 if signals & GfdOp.WITH_SIGNAL_INC else gfd.signal_value
            yield atomic_work(self._scratch, *there, value)

    def _source(self, warp: Warp, gfd: Gfd, inline_at: int) -> Sge:
        """Return the data of a put: those of a value are stored to registered memory first."""
        if not gfd.op & GfdOp.WITH_INLINE:
            window = self.job.windows[gfd.source_window]
            return window.sge(self.rank, gfd.source_offset, gfd.size)
        warp.store(inline_at, gfd.value.to_bytes(WORD, "little"))
        return Sge(inline_at, gfd.size, self._lkey)


class ProxyBackend(GinBackend):
    """PROXY: the kernel stores a descriptor to a queue in host memory, and the thread posts."""

    def __init__(self, proxy: GinProxy, context: int) -> None:
        super().__init__(proxy.job, proxy.rank, context)
        self._proxy = proxy

    def counter_at(self, counter: int) -> int:
        return self._proxy.counter_at(self.context, counter)

    def post(self, warp: Warp, operation: GinOperation) -> Kernel:
        self._take(warp)
        if ForgottenStep.DATA_FENCE not in self.job.spec.forgotten:
            yield from warp.fence()
        queue = self._proxy.queue(self.context, operation.peer)
        yield from self._until_consumed(warp, queue, queue.produced + 1 - _QUEUE)
        at, data = queue.at(queue.produced), _descriptor(operation).build()
        for offset in range(0, GFD_SIZE, _VECTOR):
            warp.store(at + offset, data[offset : offset + _VECTOR])
        queue.produced += 1

    @staticmethod
    def _until_consumed(warp: Warp, queue: _GfdQueue, count: int) -> Kernel:
        """Wait until this many descriptors are consumed."""
        yield from warp.wait(
            lambda: int.from_bytes(warp.read(queue.consumed_at, WORD), "little") >= count, TIMEOUT
        )

    def flush(self, warp: Warp) -> Kernel:
        for peer in range(self.job.spec.ranks):
            queue = self._proxy.queue(self.context, peer)
            yield from self._until_consumed(warp, queue, queue.produced)
        yield from warp.fence()


def _descriptor(operation: GinOperation) -> Gfd:
    """Return the descriptor of an operation."""
    op = GfdOp.PUT
    if operation.value:
        op |= GfdOp.WITH_INLINE
    if isinstance(operation.remote, SignalInc):
        op |= GfdOp.WITH_SIGNAL_INC
    elif operation.remote is not None:
        op |= GfdOp.WITH_SIGNAL_ADD
    if operation.local is not None:
        op |= GfdOp.WITH_COUNTER
    return Gfd(
        op,
        operation.size,
        operation.source_offset,
        0 if operation.source is None else operation.source.number,
        operation.target_offset,
        0 if operation.target is None else operation.target.number,
        0 if operation.local is None else operation.local.counter,
        0 if operation.remote is None else operation.remote.signal,
        0 if operation.remote is None else operation.remote.value,
        int.from_bytes(operation.value, "little"),
    )
