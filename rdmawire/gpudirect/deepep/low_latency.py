"""Tokens to experts and back, as DeepEP's low-latency kernels send them.

Each GPU is a rank with some experts. *Dispatch* puts each token to the ranks of its experts, by one
RDMA WRITE for each expert, and then adds a count to a counter of the expert; *combine* puts the
experts' results back, adds a flag, and sums them with the token's weights. All of it is posted by
kernels (IBGDA); each expert has a queue pair of its own, whose order makes the count come last.
Within a host data goes over NVLink. Facts are those of DeepEP (``internode_ll.cu``). Times are ns.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.errors import KernelError
from rdmawire.fabric import Rule
from rdmawire.gpudirect.kernel import (
    Comparison,
    Happened,
    Kernel,
    Nvshmem,
    NvshmemSpec,
    Shmem,
    SignalOp,
)
from rdmawire.gpudirect.kernel.nvshmem import MAX_RCS
from rdmawire.gpudirect.transfer.host import Traffic

Values = NDArray[Any]

_HEAD: Final = 16
"""Bytes before the values of a token: its index, and three numbers that are reserved."""
_GROUP: Final = 128
"""Values with common scales: a slot of combine has four bytes for each group."""
_COUNTER: Final = 8
_WORD: Final = 64
MAX_TOPK: Final = 11
MAX_WORK: Final = 1 << 22
"""Values that all ranks send in dispatch."""
_MAX_LOCAL: Final = MAX_RCS - 1
_MAX_LOSS: Final = 0.1
_WEIGHTS: Final = 8
"""Weights are multiples of an eighth, so that sums have no rounding but the last one."""


class DeepEpSpec(NamedTuple):
    """``tokens`` tokens of ``hidden`` values on each rank; each goes to ``topk`` of ``experts``.

    There are ``hosts`` with ``gpus`` ranks each. Tokens, experts and weights are drawn from
    ``seed``. Without ``ordered`` counts and flags go by another queue pair than the data before
    them: what a program that forgets the order does. ``loss`` is the share of frames that links
    lose. ``max_delay`` is the latest time (ns) after which a store is visible.
    """

    hosts: int = 2
    gpus: int = 1
    tokens: int = 8
    experts: int = 8
    topk: int = 2
    hidden: int = 256
    model: str = "H200"
    seed: int = 0
    ordered: bool = True
    loss: float = 0.0
    max_delay: int = 2000

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.hosts * self.gpus

    @property
    def local_experts(self) -> int:
        """Experts of a rank."""
        return self.experts // self.ranks

    @property
    def message(self) -> int:
        """Bytes of a token in dispatch."""
        return _HEAD + 2 * self.hidden

    @property
    def slot(self) -> int:
        """Bytes between results in the buffer of combine."""
        return 2 * self.hidden + 4 * (self.hidden // _GROUP)


class DeepEpReport(NamedTuple):
    """What dispatch and combine took.

    ``dispatched`` is the time at which the last rank has its tokens, ``duration`` that at which the
    last one has its sums. ``puts`` are tokens between hosts, ``stores`` those over NVLink or on the
    same GPU, of both phases; ``flags`` are the counts and flags between hosts (atomics).
    """

    dispatched: int
    duration: int
    puts: int
    stores: int
    flags: int
    frames: int
    wire_bytes: int
    timeline: tuple[Happened, ...]


def to_bf16(values: Values) -> Values:
    """Round numbers to bfloat16, to the nearest or even, as 16 bits."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype("<u2")


def from_bf16(data: bytes) -> Values:
    """Read numbers of bfloat16."""
    return (np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def expert_result(expert: int, values: Values) -> Values:
    """Return what an expert makes of tokens: a multiple, so that a wrong expert is seen."""
    return values * np.float32(1 + expert % 3)


class Routing(NamedTuple):
    """Tokens of all ranks, and the experts and weights of each token.

    The axes are rank and token, and then values or the ``topk`` experts.
    """

    tokens: Values
    experts: Values
    weights: Values

    @classmethod
    def drawn(cls, spec: DeepEpSpec) -> "Routing":
        """Draw tokens, experts and weights from the seed."""
        random = np.random.default_rng(spec.seed)
        shape = (spec.ranks, spec.tokens)
        tokens = random.integers(-4, 5, (*shape, spec.hidden)).astype(np.float32)
        order = random.random((*shape, spec.experts)).argsort(axis=-1)
        weights = random.integers(1, _WEIGHTS + 1, (*shape, spec.topk)) / _WEIGHTS
        return cls(tokens, order[..., : spec.topk], weights.astype(np.float32))

    def combined(self) -> Values:
        """Return the sums that each rank must have, as bfloat16: tokens times weights by NumPy."""
        factors = np.zeros(self.weights.shape, np.float64)
        for place in np.ndindex(self.experts.shape):
            one = expert_result(int(self.experts[place]), np.ones(1, np.float32))
            factors[place] = one[0] * self.weights[place]
        return to_bf16(self.tokens * factors.sum(axis=-1)[..., np.newaxis])


class _HeapLayout:
    """Where the parts of a rank's symmetric heap begin."""

    def __init__(self, job: Nvshmem, spec: DeepEpSpec) -> None:
        received = spec.local_experts * spec.ranks * spec.tokens
        self.send = job.malloc(spec.tokens * spec.message)
        self.tokens = job.malloc(received * spec.message)
        self.counts = job.malloc(spec.experts * _COUNTER)
        self.results = job.malloc(received * spec.slot)
        self.combined = job.malloc(spec.experts * spec.tokens * spec.slot)
        self.flags = job.malloc(spec.experts * _COUNTER)


class _Received(NamedTuple):
    """A token that an expert received: its number on its rank, and its values."""

    token: int
    values: Values


def _heap(spec: DeepEpSpec) -> int:
    all_slots = spec.experts * spec.tokens
    size = (spec.tokens + all_slots) * spec.message + 2 * all_slots * spec.slot
    return size + 2 * spec.experts * _COUNTER + _WORD


class DeepEp:
    """A dispatch and a combine; :meth:`run` does both, once. ``network`` carries the packets.

    Raises :class:`KernelError` for a specification that cannot be.
    """

    def __init__(self, spec: DeepEpSpec) -> None:
        _check(spec)
        self.spec = spec
        self.job = Nvshmem(
            NvshmemSpec(
                spec.hosts,
                spec.gpus,
                _heap(spec),
                model=spec.model,
                seed=spec.seed,
                max_delay=spec.max_delay,
                rc_per_pe=spec.local_experts + 1,
            )
        )
        self.network = self.job.network
        self.routing = Routing.drawn(spec)
        self._buffers = _HeapLayout(self.job, spec)
        self._dispatched = self._ended = self._puts = self._stores = self._flags = 0
        self._sums: dict[int, list[Values]] = {}

    def run(self) -> DeepEpReport:
        """Run the kernels of all ranks, and compare the sums with those that NumPy computes.

        :class:`KernelError` if a token or a sum is wrong, or if a kernel does not end.
        """
        traffic = Traffic()
        for name in self.network.hosts:
            self.network.tap(name, traffic)
        for link in self.network.links if self.spec.loss else ():
            self.network.set_faults(link, Rule("drop", chance=self.spec.loss))
        for rank in range(self.spec.ranks):
            self.job.launch(rank, self._kernel)
        self.job.run()
        self._compare()
        return DeepEpReport(
            self._dispatched,
            self._ended,
            self._puts,
            self._stores,
            self._flags,
            traffic.frames,
            traffic.bytes,
            tuple(self.job.system.timeline),
        )

    def _compare(self) -> None:
        wanted = self.routing.combined()
        for rank, sums in self._sums.items():
            for token, values in enumerate(sums):
                if not np.array_equal(values, wanted[rank, token]):
                    raise KernelError(f"rank {rank}: the sum of token {token} is wrong")

    def _kernel(self, shmem: Shmem) -> Kernel:
        """Both phases of a rank, by one warp."""
        yield from self._send_tokens(shmem)
        yield from self._send_counts(shmem)
        pairs = [
            (local, source)
            for local in range(self.spec.local_experts)
            for source in range(self.spec.ranks)
        ]
        received = {}
        for pair in pairs:
            received[pair] = yield from self._receive(shmem, *pair)
        shmem.warp.note("all tokens are dispatched")
        self._dispatched = max(self._dispatched, shmem.warp.now)
        for pair, tokens in received.items():
            yield from self._put_back(shmem, *pair, tokens)
        yield from self._combine(shmem)

    # Dispatch.

    def _send_tokens(self, shmem: Shmem) -> Kernel:
        """Put each token to a slot of each of its experts."""
        spec, rank = self.spec, shmem.my_pe
        slots = [0] * spec.experts
        for token in range(spec.tokens):
            source = self._buffers.send + token * spec.message
            data = to_bf16(self.routing.tokens[rank, token]).tobytes()
            shmem.store(source, token.to_bytes(4, "little") + bytes(_HEAD - 4) + data)
            yield from shmem.fence()
            for expert in map(int, self.routing.experts[rank, token]):
                target, local = divmod(expert, spec.local_experts)
                dest = self._slot(local, rank, slots[expert])
                slots[expert] += 1
                self._count_put(rank, target)
                yield from shmem.put_nbi(dest, source, spec.message, target, local)

    def _slot(self, local: int, source: int, number: int) -> int:
        """Return where a token from a rank is, for a local expert."""
        spec = self.spec
        index = (local * spec.ranks + source) * spec.tokens + number
        return self._buffers.tokens + index * spec.message

    def _count_put(self, rank: int, target: int) -> None:
        if self.job.is_near(rank, target):
            self._stores += 1
        else:
            self._puts += 1

    def _send_counts(self, shmem: Shmem) -> Kernel:
        """Add a number to the counter of each expert: minus the number of tokens, minus one."""
        rank = shmem.my_pe
        numbers = np.bincount(self.routing.experts[rank].ravel(), minlength=self.spec.experts)
        for expert, number in enumerate(map(int, numbers)):
            target, local = divmod(expert, self.spec.local_experts)
            counter = self._buffers.counts + (local * self.spec.ranks + rank) * _COUNTER
            yield from self._add(shmem, counter, -number - 1, target, local)

    def _add(self, shmem: Shmem, counter: int, value: int, target: int, local: int) -> Kernel:
        """Add to a counter of a rank, by the queue pair of the data before it."""
        self._flags += not self.job.is_near(shmem.my_pe, target)
        qp = local if self.spec.ordered else self.spec.local_experts
        yield from shmem.signal_op(counter, value % (1 << 64), target, SignalOp.ADD, qp)

    def _receive(self, shmem: Shmem, local: int, source: int) -> Any:
        """Wait for the tokens of a rank for a local expert; return them with their numbers."""
        counter = self._buffers.counts + (local * self.spec.ranks + source) * _COUNTER
        yield from shmem.wait_until(counter, Comparison.NE, 0)
        number = -int.from_bytes(shmem.load(counter), "little", signed=True) - 1
        expert = shmem.my_pe * self.spec.local_experts + local
        received = []
        for index in range(number):
            message = shmem.load(self._slot(local, source, index), self.spec.message)
            token = int.from_bytes(message[:4], "little")
            values = from_bf16(message[_HEAD:])
            self._check_token(expert, source, token, values)
            received.append(_Received(token, values))
        return received

    def _check_token(self, expert: int, source: int, token: int, values: Values) -> None:
        """Compare a token with that of its rank."""
        is_token = token < self.spec.tokens and expert in self.routing.experts[source, token]
        if not is_token or not np.array_equal(values, self.routing.tokens[source, token]):
            raise KernelError(f"expert {expert} received a wrong token from rank {source}")

    # Combine.

    def _put_back(
        self, shmem: Shmem, local: int, target: int, received: Sequence[_Received]
    ) -> Kernel:
        """Put the results of a local expert for the tokens of a rank, and then a flag."""
        spec = self.spec
        expert = shmem.my_pe * spec.local_experts + local
        first = (local * spec.ranks + target) * spec.tokens
        for index, (token, values) in enumerate(received):
            source = self._buffers.results + (first + index) * spec.slot
            shmem.store(source, to_bf16(expert_result(expert, values)).tobytes())
            yield from shmem.fence()
            dest = self._buffers.combined + (expert * spec.tokens + token) * spec.slot
            self._count_put(shmem.my_pe, target)
            yield from shmem.put_nbi(dest, source, 2 * spec.hidden, target, local)
        flag = self._buffers.flags + expert * _COUNTER
        yield from self._add(shmem, flag, 1, target, local)

    def _combine(self, shmem: Shmem) -> Kernel:
        """Wait for the flags of all experts, and sum the results of each token."""
        for expert in range(self.spec.experts):
            flag = self._buffers.flags + expert * _COUNTER
            yield from shmem.wait_until(flag, Comparison.NE, 0)
        self._sums[shmem.my_pe] = [self._sum(shmem, token) for token in range(self.spec.tokens)]
        shmem.warp.note("all tokens are combined")
        self._ended = max(self._ended, shmem.warp.now)

    def _sum(self, shmem: Shmem, token: int) -> Values:
        spec, rank = self.spec, shmem.my_pe
        total = np.zeros(spec.hidden, np.float32)
        experts, weights = self.routing.experts[rank, token], self.routing.weights[rank, token]
        for expert, weight in zip(map(int, experts), weights, strict=True):
            slot = self._buffers.combined + (expert * spec.tokens + token) * spec.slot
            total += from_bf16(shmem.load(slot, 2 * spec.hidden)) * weight
        return to_bf16(total)


def deepep(spec: DeepEpSpec) -> DeepEpReport:
    """Dispatch and combine; return what it took. Raises :class:`KernelError` as :class:`DeepEp`."""
    return DeepEp(spec).run()


_BOUNDS: Final = {
    "hosts": (1, 64),
    "gpus": (1, 16),
    "tokens": (1, 1024),
    "experts": (1, 1024),
    "topk": (1, MAX_TOPK),
    "hidden": (_GROUP, 1 << 14),
}


def _check(spec: DeepEpSpec) -> None:
    for name, (least, most) in _BOUNDS.items():
        if not least <= getattr(spec, name) <= most:
            number = getattr(spec, name)
            raise KernelError(f"{name}: {number}; {least} to {most} are supported")
    if spec.hidden % _GROUP:
        raise KernelError(f"{spec.hidden} values of a token; a multiple of {_GROUP} is expected")
    if spec.experts % spec.ranks or spec.local_experts > _MAX_LOCAL:
        raise KernelError(
            f"{spec.experts} experts on {spec.ranks} ranks: each has the same number, up to "
            f"{_MAX_LOCAL}"
        )
    if spec.topk > spec.experts:
        raise KernelError(f"{spec.topk} of {spec.experts} experts for a token")
    if not 0 <= spec.loss <= _MAX_LOSS:
        raise KernelError(f"a loss of {spec.loss}; 0 to {_MAX_LOSS} are supported")
    work = spec.ranks * spec.tokens * spec.topk * spec.hidden
    if work > MAX_WORK:
        raise KernelError(f"{work} values are sent; up to {MAX_WORK} are supported")
