"""Rings: the order in which ranks send, reduce and store the parts of a collective operation.

The data of a channel is worked on in loops; in each, every rank owns one chunk. A chunk goes around
the ring, and each rank adds its own values to it. After ``ranks - 1`` steps it has the values of
all, and goes around once more to be stored. This is the order of NCCL's ring algorithms.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rdmawire.errors import CollectiveError
from rdmawire.gpudirect.nccl.collective import Collective, CollectiveSpec
from rdmawire.gpudirect.nccl.plan import EdgeId, NodeWorker, WorkerStep, loops


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
    """Return the steps of a rank in one loop; ``rank`` is its place in the ring, from 0 on.

    In a broadcast, place 0 is that of the root, in a reduce the last place.
    """
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


def _broadcast(rank: int, ranks: int) -> Iterator[RingStep]:
    yield RingStep(0, receive=rank > 0, store=True, send=rank < ranks - 1)


def _reduce(rank: int, ranks: int) -> Iterator[RingStep]:
    is_last = rank == ranks - 1
    yield RingStep(0, receive=rank > 0, reduce=rank > 0, store=is_last, send=not is_last)


_STEPS: Final = {
    Collective.ALL_REDUCE: _all_reduce,
    Collective.ALL_GATHER: _all_gather,
    Collective.REDUCE_SCATTER: _reduce_scatter,
    Collective.BROADCAST: _broadcast,
    Collective.REDUCE: _reduce,
}


def ring_order(spec: CollectiveSpec, channel: int) -> list[int]:
    """Return the ranks of a channel in the order of its ring: from the root, or up to it."""
    order = spec.channel_order(channel)
    if not spec.collective.has_root:
        return order
    place = order.index(spec.root)
    turned = order[place:] + order[:place]
    return turned if spec.collective is Collective.BROADCAST else [*turned[1:], turned[0]]


def ring_workers(spec: CollectiveSpec) -> Iterator[NodeWorker]:
    """Yield what each rank does in each channel."""
    for channel in range(spec.chosen_channels):
        order = ring_order(spec, channel)
        for place, rank in enumerate(order):
            yield NodeWorker(rank, _steps(spec, channel, order, place))


def _steps(
    spec: CollectiveSpec, channel: int, order: Sequence[int], place: int
) -> Iterator[WorkerStep]:
    """Yield the steps of the rank at this place of a channel's ring."""
    rank, lane, adds = order[place], (channel, ""), spec.collective.adds
    before = EdgeId(order[place - 1], rank, lane)
    after = EdgeId(rank, order[(place + 1) % len(order)], lane)
    for step, start, count in _parts(spec, channel, order, place):
        yield WorkerStep(
            start,
            count,
            (before,) if step.receive else (),
            own=step.reduce or not step.receive,
            store=step.store,
            targets=(after,) if step.send else (),
            origin=None if adds else order[step.chunk],
        )


def _parts(
    spec: CollectiveSpec, channel: int, order: Sequence[int], place: int
) -> Iterator[tuple[RingStep, int, int]]:
    """Yield each step with its first value, and how many."""
    steps = ring_steps(spec.collective, place, spec.ranks)
    chunks = spec.ranks if spec.collective is Collective.ALL_REDUCE else 1
    protocol, is_split = spec.chosen_protocol, spec.collective.is_split
    block = spec.values // spec.ranks if is_split else spec.values
    most = protocol.chunk // spec.itemsize
    share = spec.share(channel, block)
    for loop in loops(share, most * chunks):
        count = -(-loop.length // chunks)
        for step in steps:
            offset = order[step.chunk] * block if is_split else step.chunk * count
            start, end = loop.start + offset, loop.start + loop.length
            left = loop.length if is_split else max(min(count, end - start), 0)
            for first, size in _slices(start, left, protocol.slices):
                yield step, first, size


def _slices(start: int, count: int, slices: int) -> Iterator[tuple[int, int]]:
    size = max(-(-count // slices), 1)
    for offset in range(0, count, size):
        yield start + offset, min(size, count - offset)
