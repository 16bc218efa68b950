"""Collective operations of a workload as messages: the steps of their algorithms.

A step becomes a receive, a send, or both; a local step takes no time. Each collective begins with
an operation that waits for what it waited for, and ends with one that checks the result. As flows,
a ring is one message for each of its edges with the bytes of all steps, and a computation of the
time by which the steps wait for one another.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rdmawire.errors import WorkloadError
from rdmawire.gpudirect.nccl.collective import Collective
from rdmawire.gpudirect.workload.algorithm import (
    STEP_TYPES,
    Block,
    MscclAlgorithm,
    MscclStep,
    ring_messages,
)
from rdmawire.gpudirect.workload.buffers import (
    Buffers,
    CheckMove,
    CopyMove,
    Inputs,
    ReceiveMove,
    SendMove,
    check_buffers,
)
from rdmawire.gpudirect.workload.graph import (
    ANY,
    CHANNELS,
    MAX_OPERATIONS,
    Call,
    Kind,
    Move,
    Operation,
    Workload,
)

_SMALL: Final = 4
"""Bytes of a chunk for the check of an algorithm whose messages are flows."""


class Hop(NamedTuple):
    """A message between two ranks: the times (ns) of its route and of its data.

    ``latency`` is that of the route and of the protocol, ``transfer`` that of the bytes.
    ``control`` is the time in which no next message can be on its way: a receive that is posted
    after another one is cleared first.
    """

    latency: float
    control: float
    transfer: float


Hops = Callable[[int, int, int], Hop]
"""Function that returns what a message takes, by its source, its target and its size."""


def lower(workload: Workload, *, flows: bool, hop: Hops, seed: int = 0) -> Workload:
    """Return a workload without collective operations.

    Raises :class:`WorkloadError` if it has too many operations.
    """
    if all(one.call is None for rank in workload.ranks for one in rank):
        return workload
    lowered = _Lowering(workload, flows=flows, hop=hop, seed=seed)
    ranks = [lowered.rank(number) for number in range(len(workload.ranks))]
    return Workload(workload.form, workload.sources, ranks)


class _Lowering:
    """Lowers one rank after the other; the inputs of a collective are common to its ranks."""

    def __init__(self, workload: Workload, *, flows: bool, hop: Hops, seed: int) -> None:
        self._workload = workload
        self._flows = flows
        self._hop = hop
        self._seed = seed
        self._calls: dict[int, Inputs] = {}
        self._steps: dict[tuple[tuple[int, ...], int], float] = {}
        self._total = 0

    def rank(self, number: int) -> list[Operation]:
        """Return the operations of a rank, in which collectives are replaced."""
        found: list[Operation] = []
        begins: list[int] = []
        ends: list[int] = []
        for index, one in enumerate(self._workload.ranks[number]):
            begins.append(len(found))
            found += self._replacement(number, one, len(found))
            ends.append(len(found) - 1)
            self._check_total(number, index, found)
        for index, one in enumerate(self._workload.ranks[number]):
            begin = found[begins[index]]
            begin.after = [ends[before] for before in one.after]
            begin.after_start = [begins[before] for before in one.after_start]
        self._total += len(found)
        return found

    def _check_total(self, number: int, index: int, found: list[Operation]) -> None:
        if self._total + len(found) > MAX_OPERATIONS:
            raise WorkloadError(
                f"{self._workload.describe(number, index)}: with the messages of collectives there"
                f" are more than {MAX_OPERATIONS} operations"
            )

    def _inputs(self, call: Call, chunk: int) -> Inputs:
        """Return the inputs of a collective."""
        if call.number not in self._calls:
            check_buffers(call.algorithm, chunk)
            seed = f"{self._seed}/{call.number}"
            self._calls[call.number] = Inputs(call.algorithm, chunk, seed)
        return self._calls[call.number]

    def _replacement(self, rank: int, operation: Operation, base: int) -> list[Operation]:
        """Return what replaces an operation; ``base`` is the index of the first of them."""
        call = operation.call
        if call is None:
            return [_copied(operation)]
        chunk = -(-operation.size // call.algorithm.chunks)
        emitter = _Emitter(operation, call, rank, chunk=chunk, base=base)
        if self._flows and not call.exact and _is_ring(call.algorithm):
            emitter.bulk(self._waits(call, chunk))
        else:
            inputs = self._inputs(call, _SMALL if self._flows else chunk)
            emitter.blocks(Buffers(inputs, call.group.index(rank)))
        return emitter.found

    def _waits(self, call: Call, chunk: int) -> int:
        """Return the time (ns) by which the steps of a ring wait for one another.

        A step takes as long as a chunk needs for an edge, on an average of all edges, or as the
        slowest edge needs for a message. The bytes of all steps are a flow.
        """
        group = call.group
        if (group, chunk) not in self._steps:
            around = zip(group, (*group[1:], group[0]), strict=True)
            hops = [self._hop(one, other, chunk) for one, other in around]
            average = sum(hop.latency + hop.transfer for hop in hops) / len(hops)
            slowest = max(hop.control + hop.transfer for hop in hops)
            self._steps[group, chunk] = max(average, slowest) - max(hop.transfer for hop in hops)
        steps = ring_messages(call.algorithm.collective, len(group))
        return max(round(self._steps[group, chunk] * (steps - 1)), 0)


def _copied(operation: Operation) -> Operation:
    one = operation
    return Operation(
        one.kind, one.size, one.peer, one.tag, one.stream, one.nic, one.label, one.line, one.count,
        move=one.move,
    )  # fmt: skip


def _is_ring(algorithm: MscclAlgorithm) -> bool:
    return algorithm.collective in _RINGS and len(algorithm.programs) > 1


_RINGS: Final = frozenset({Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER})


class _Emitter:
    """Makes the operations of a collective of one rank: ``found``."""

    def __init__(
        self, operation: Operation, call: Call, rank: int, *, chunk: int, base: int
    ) -> None:
        self._one = operation
        self._call = call
        self._place = call.group.index(rank)
        self._chunk = chunk
        self._tags = ANY - 1 - call.number * CHANNELS
        self._base = base
        self.found: list[Operation] = []
        self._add(Kind.COMPUTE, 0, operation.line)

    def _add(
        self, kind: Kind, size: int, line: int, *, peer: int = 0, channel: int = 0,
        move: Move | None = None, count: int = 1, label: str = "",
    ) -> int:  # fmt: skip
        """Append an operation; return its index among those of the rank."""
        rank = self._call.group[peer] if kind is not Kind.COMPUTE else 0
        one = Operation(
            kind, size, rank, self._tags - channel, nic=self._one.nic, line=line, count=count,
            label=label or self._one.label, move=move,
        )  # fmt: skip
        self.found.append(one)
        return self._base + len(self.found) - 1

    # One message for each edge.

    def bulk(self, waits: int) -> None:
        """Send the bytes of all steps at once to the next rank, and wait for the steps."""
        gpus = len(self._call.group)
        algorithm, begin = self._call.algorithm, self._base
        count = ring_messages(algorithm.collective, gpus)
        last = []
        for kind, distance in ((Kind.SEND, 1), (Kind.RECEIVE, -1)):
            peer, size = (self._place + distance) % gpus, count * self._chunk
            last.append(self._add(kind, size, self._one.line, peer=peer, count=count))
            self.found[-1].require(begin)
        delay = self._add(Kind.COMPUTE, waits, self._one.line)
        self.found[-1].stream = self._tags
        for index in last:
            self.found[-1].require(index)
        self._add(Kind.COMPUTE, 0, self._one.line)
        self.found[-1].require(delay)

    # Step by step.

    def blocks(self, buffers: Buffers) -> None:
        """Add all thread blocks, and the check of the result."""
        blocks = self._call.algorithm.programs[self._place].blocks
        last: dict[tuple[int, int], int] = {}
        waits: list[tuple[int, tuple[int, int]]] = []
        ends = [self._base]
        for number, block in blocks.items():
            before = self._base
            for index, step in enumerate(block.steps):
                begin = len(self.found)
                for one in self._step(buffers, number, block, step):
                    self._require(one, before)
                    before = one
                if step.wait is not None:
                    waits.append((self._base + begin, step.wait))
                last[number, index] = before
            ends.append(before)
        for waiting, before_step in waits:
            self._require(waiting, last[before_step])
        self._add(Kind.COMPUTE, 0, self._one.line, move=CheckMove(buffers))
        for one in ends:
            self.found[-1].require(one)

    def _require(self, index: int, before: int) -> None:
        """Let an operation wait; the memory of a send may be used again when it has begun."""
        is_send = self.found[before - self._base].kind is Kind.SEND
        self.found[index - self._base].require(before, start=is_send)

    def _step(self, buffers: Buffers, number: int, block: Block, step: MscclStep) -> Iterator[int]:
        """Yield the operations of a step, in order."""
        does = STEP_TYPES[step.type]
        size = step.chunks * self._chunk
        label = f"{self._one.label} tb {number}" if self._call.exact else self._one.label
        line = step.line or self._one.line
        source = step.source if does.adds else None
        target = step.target if does.stores else None
        if does.receives:
            taken = ReceiveMove(buffers, number, source, target, step.chunks)
            yield self._add(
                Kind.RECEIVE, size, line, peer=block.receive, channel=block.channel, move=taken,
                label=label,
            )  # fmt: skip
        if does.sends:
            sent = SendMove(buffers, number, None if does.receives else step.source, step.chunks)
            yield self._add(
                Kind.SEND, size, line, peer=block.send, channel=block.channel, move=sent,
                label=label,
            )  # fmt: skip
        if not does.receives and not does.sends:
            local = CopyMove(buffers, step.source, step.target, step.chunks, does.adds)
            yield self._add(Kind.COMPUTE, 0, line, move=local if does.stores else None, label=label)
