"""Rings: the order in which ranks send, reduce and store the parts of a collective operation.

The data of a channel is worked on in loops; in each, every rank owns one chunk. A chunk goes around
the ring, and each rank adds its own values to it. After ``ranks - 1`` steps it has the values of
all, and goes around once more to be stored. This is the order of NCCL's ring algorithms.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from rdmawire.errors import CollectiveError


class Collective(Enum):
    """A collective operation, by NCCL's name."""

    ALL_REDUCE = "allreduce"
    ALL_GATHER = "allgather"
    REDUCE_SCATTER = "reducescatter"
    ALL_TO_ALL = "alltoall"
    SEND_RECEIVE = "sendrecv"

    @property
    def is_ring(self) -> bool:
        """Whether values go around a ring; else each pair of ranks has a connection."""
        return self in _STEPS


class RingStep(NamedTuple):
    """What a rank does with a chunk, in this order.

    It receives the chunk from the rank before it, or takes its own values; adds its own values
    (``reduce``); stores the result; and sends it to the rank after it.
    """

    chunk: int
    receive: bool = False
    reduce: bool = False
    store: bool = False
    send: bool = False


def ring_steps(collective: Collective, rank: int, ranks: int) -> list[RingStep]:
    """Return the steps of a rank in one loop; ``rank`` is its place in the ring, from 0 on."""
    if ranks < 2:
        raise CollectiveError(f"a ring needs at least two ranks, {ranks} are given")
    return list(_STEPS[collective](rank, ranks))


def _all_reduce(rank: int, ranks: int) -> Iterator[RingStep]:
    yield RingStep((rank - 1) % ranks, send=True)
    for behind in range(2, ranks):
        yield RingStep((rank - behind) % ranks, receive=True, reduce=True, send=True)
    yield RingStep(rank, receive=True, reduce=True, store=True, send=True)
    for behind in range(1, ranks - 1):
        yield RingStep((rank - behind) % ranks, receive=True, store=True, send=True)
    yield RingStep((rank + 1) % ranks, receive=True, store=True)


def _all_gather(rank: int, ranks: int) -> Iterator[RingStep]:
    yield RingStep(rank, store=True, send=True)
    for behind in range(1, ranks - 1):
        yield RingStep((rank - behind) % ranks, receive=True, store=True, send=True)
    yield RingStep((rank + 1) % ranks, receive=True, store=True)


def _reduce_scatter(rank: int, ranks: int) -> Iterator[RingStep]:
    yield RingStep((rank - 1) % ranks, send=True)
    for behind in range(2, ranks):
        yield RingStep((rank - behind) % ranks, receive=True, reduce=True, send=True)
    yield RingStep(rank, receive=True, reduce=True, store=True)


_STEPS: Final = {
    Collective.ALL_REDUCE: _all_reduce,
    Collective.ALL_GATHER: _all_gather,
    Collective.REDUCE_SCATTER: _reduce_scatter,
}


def bytes_sent(collective: Collective, size: int, ranks: int) -> int:
    """Return the bytes that each rank sends, for ``size`` bytes of data in all.

    An all-reduce sends each chunk twice around the ring but for one step each: 2 (n - 1) / n. In an
    all-to-all each rank sends all but its own part, in a send-receive all to the next rank.
    """
    if collective is Collective.SEND_RECEIVE:
        return size
    rounds = 2 if collective is Collective.ALL_REDUCE else 1
    return rounds * (ranks - 1) * size // ranks
