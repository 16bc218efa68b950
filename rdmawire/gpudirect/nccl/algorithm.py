"""What all nodes do in an operation, by its algorithm, and the messages that they send."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from rdmawire.gpudirect.nccl.collective import Algorithm, Collective, CollectiveSpec
from rdmawire.gpudirect.nccl.in_network import in_network_workers
from rdmawire.gpudirect.nccl.plan import EdgeId, NodeWorker, WorkerStep, loops
from rdmawire.gpudirect.nccl.ring import ring_workers
from rdmawire.gpudirect.nccl.tree import tree_workers

_WORKERS: Final[dict[Algorithm, Callable[[CollectiveSpec], Iterator[NodeWorker]]]] = {
    Algorithm.RING: ring_workers,
    Algorithm.TREE: tree_workers,
    Algorithm.COLLNET: in_network_workers,
    Algorithm.NVLS: in_network_workers,
    Algorithm.NVLS_TREE: in_network_workers,
}


def workers_of(spec: CollectiveSpec) -> Iterator[NodeWorker]:
    """Yield what all nodes do."""
    return _WORKERS[spec.algorithm](spec) if spec.collective.is_ring else _pair_workers(spec)


def traffic_of(workers: list[NodeWorker]) -> tuple[Counter[EdgeId], Counter[int]]:
    """Return the messages of each edge, and the values that each node sends."""
    messages: Counter[EdgeId] = Counter()
    values: Counter[int] = Counter()
    for worker in workers:
        for step in worker.steps:
            messages.update(step.sources)
            values[worker.node] += step.length * len(step.targets)
    return messages, values


# Operations between pairs of ranks: all-to-all, and sending to the next rank.


def _pair_workers(spec: CollectiveSpec) -> Iterator[NodeWorker]:
    """Yield both ends of each pair of ranks; each rank sends to the next one first.

    Messages are of 128 KiB, NCCL's ``NCCL_P2P_NET_CHUNKSIZE``; up to 64 KiB, NCCL 2.28 wrote 32
    KiB.
    """
    ranks = spec.ranks
    sends_all = spec.collective is Collective.SEND_RECEIVE
    for distance in range(1, 2 if sends_all else ranks):
        for rank in range(ranks):
            edge = EdgeId(rank, (rank + distance) % ranks, (0, ""))
            share = range(spec.values) if sends_all else _block(spec, edge.target)
            parts = list(loops(share, _message(len(share), spec.itemsize)))
            yield NodeWorker(rank, [WorkerStep(*part, own=True, targets=(edge,)) for part in parts])
            yield NodeWorker(
                edge.target, [WorkerStep(*part, (edge,), store=True, origin=rank) for part in parts]
            )


def _block(spec: CollectiveSpec, rank: int) -> range:
    """Return the values that all ranks have for this one."""
    block = spec.values // spec.ranks
    return range(rank * block, (rank + 1) * block)


def _message(values: int, itemsize: int) -> int:
    """Return the values in a message between two ranks, of ``values`` in all."""
    return (1 << 15 if values * itemsize <= 1 << 16 else 1 << 17) // itemsize
