"""Operations between pairs of ranks: all-to-all, and sending to the next rank.

Messages are of 128 KiB, NCCL's ``NCCL_P2P_NET_CHUNKSIZE``; up to 64 KiB, NCCL 2.28 wrote 32 KiB.
"""

from collections.abc import Iterator

from rdmawire.gpudirect.nccl.collective import Collective, CollectiveSpec
from rdmawire.gpudirect.nccl.plan import EdgeId, Step, Worker, loops


def pair_workers(spec: CollectiveSpec) -> Iterator[Worker]:
    """Yield both ends of each pair: each rank sends to the next one first."""
    ranks = spec.ranks
    sends_all = spec.collective is Collective.SEND_RECEIVE
    for distance in range(1, 2 if sends_all else ranks):
        for rank in range(ranks):
            edge = EdgeId(rank, (rank + distance) % ranks, (0, ""))
            share = range(spec.values) if sends_all else _block(spec, edge.target)
            parts = list(loops(share, _message(len(share), spec.itemsize)))
            yield Worker(rank, [Step(*part, own=True, targets=(edge,)) for part in parts])
            yield Worker(
                edge.target, [Step(*part, (edge,), store=True, origin=rank) for part in parts]
            )


def _block(spec: CollectiveSpec, rank: int) -> range:
    """Return the values that all ranks have for this one."""
    block = spec.values // spec.ranks
    return range(rank * block, (rank + 1) * block)


def _message(values: int, itemsize: int) -> int:
    """Return the values in a message between two ranks, of ``values`` in all."""
    return (1 << 15 if values * itemsize <= 1 << 16 else 1 << 17) // itemsize
