"""What all nodes do in an operation, by its algorithm, and the messages that they send."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from rdmawire.gpudirect.nccl.collective import Algorithm, CollectiveSpec
from rdmawire.gpudirect.nccl.in_network import in_network_workers
from rdmawire.gpudirect.nccl.pairs import pair_workers
from rdmawire.gpudirect.nccl.plan import EdgeId, Worker
from rdmawire.gpudirect.nccl.ring import ring_workers
from rdmawire.gpudirect.nccl.tree import tree_workers

_WORKERS: Final[dict[Algorithm, Callable[[CollectiveSpec], Iterator[Worker]]]] = {
    Algorithm.RING: ring_workers,
    Algorithm.TREE: tree_workers,
    Algorithm.COLLNET: in_network_workers,
    Algorithm.NVLS: in_network_workers,
    Algorithm.NVLS_TREE: in_network_workers,
}


def workers_of(spec: CollectiveSpec) -> Iterator[Worker]:
    """Yield what all nodes do."""
    return _WORKERS[spec.algorithm](spec) if spec.collective.is_ring else pair_workers(spec)


def traffic_of(workers: list[Worker]) -> tuple[Counter[EdgeId], Counter[int]]:
    """Return the messages of each edge, and the values that each node sends."""
    messages: Counter[EdgeId] = Counter()
    values: Counter[int] = Counter()
    for worker in workers:
        for step in worker.steps:
            messages.update(step.sources)
            values[worker.node] += step.length * len(step.targets)
    return messages, values
