"""Switches that add: SHARP in the network (CollNet), and NVLink SHARP in the NVSwitches of a host.

With CollNet each GPU of a host is the head of one part of the values: the GPUs of the host send it
their values, it adds them and sends the sum to the aggregation node of the switch, which adds those
of all hosts and sends the result back. With NVLS the NVSwitches of the host add for the head, and
send its result to all. With NVLS_TREE the heads of hosts are joined by trees. Facts: NCCL 2.28's
``all_reduce.h`` (CollNet direct, NVLS, NVLS tree).

The messages of SHARP are not published: here the aggregation node has a connection to each head as
those between ranks, and one node serves the whole network.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rdmawire.gpudirect.nccl.collective import Algorithm, CollectiveSpec
from rdmawire.gpudirect.nccl.plan import EdgeId, Loop, NodeWorker, WorkerStep, loops
from rdmawire.gpudirect.nccl.tree import children_of, host_parents


def aggregation_node(spec: CollectiveSpec) -> int | None:
    """Return the node of the switch that adds for hosts, if there is one."""
    uses = spec.algorithm in {Algorithm.COLLNET, Algorithm.NVLS} and spec.hosts > 1
    return spec.ranks if uses else None


def nvswitch_of(spec: CollectiveSpec, host: int) -> int:
    """Return the node of a host's NVSwitches."""
    return spec.ranks + 1 + host


class _Part(NamedTuple):
    """The part of one head GPU (its number within each host) in a channel, and its loops."""

    head: int
    channel: int
    parts: list[Loop]

    def lane(self, name: str) -> tuple[int, str]:
        return self.channel, f"{name} {self.head}"


def in_network_workers(spec: CollectiveSpec) -> Iterator[NodeWorker]:
    """Yield what all GPUs and switches do, part by part."""
    for channel in range(spec.chosen_channels):
        share = spec.share(channel, spec.values)
        for part in _split(spec, channel, share):
            for host in range(spec.hosts):
                yield from _host_workers(spec, part, host)
            yield from _aggregation(spec, part)


def _split(spec: CollectiveSpec, channel: int, share: range) -> Iterator[_Part]:
    """Split the values of a channel among the GPUs of each host."""
    most = spec.chosen_protocol.chunk // spec.itemsize
    size = -(-len(share) // spec.gpus)
    for head in range(spec.gpus):
        mine = share[head * size : (head + 1) * size]
        yield _Part(head, channel, list(loops(mine, most)))


def _host_workers(spec: CollectiveSpec, part: _Part, host: int) -> Iterator[NodeWorker]:
    ranks = range(host * spec.gpus, (host + 1) * spec.gpus)
    if spec.algorithm.uses_nvswitch:
        yield from _nvswitch(spec, part, host, ranks)
    else:
        yield from _direct(spec, part, host, ranks)


def _direct(spec: CollectiveSpec, part: _Part, host: int, ranks: range) -> Iterator[NodeWorker]:
    """GPUs send to the head and receive from it, without a switch."""
    head = ranks[part.head]
    others = [rank for rank in ranks if rank != head]
    given = tuple(EdgeId(rank, head, part.lane("scatter")) for rank in others)
    taken = tuple(EdgeId(head, rank, part.lane("gather")) for rank in others)
    for out, back in zip(given, taken, strict=True):
        yield NodeWorker(
            out.source, [WorkerStep(*each, own=True, targets=(out,)) for each in part.parts]
        )
        yield NodeWorker(
            back.target, [WorkerStep(*each, (back,), store=True) for each in part.parts]
        )
    yield from _head(spec, part, host, head, _Local(given, taken, adds=True, stores=True))


def _nvswitch(spec: CollectiveSpec, part: _Part, host: int, ranks: range) -> Iterator[NodeWorker]:
    """The NVSwitches add the values of all GPUs for the head, and send its result to all."""
    head, switch = ranks[part.head], nvswitch_of(spec, host)
    given = tuple(EdgeId(rank, switch, part.lane("reduce")) for rank in ranks)
    taken = tuple(EdgeId(switch, rank, part.lane("multicast")) for rank in ranks)
    summed = EdgeId(switch, head, part.lane("reduced"))
    result = EdgeId(head, switch, part.lane("result"))
    for out, back in zip(given, taken, strict=True):
        yield NodeWorker(
            out.source, [WorkerStep(*each, own=True, targets=(out,)) for each in part.parts]
        )
        yield NodeWorker(
            back.target, [WorkerStep(*each, (back,), store=True) for each in part.parts]
        )
    yield NodeWorker(switch, [WorkerStep(*each, given, targets=(summed,)) for each in part.parts])
    yield NodeWorker(switch, [WorkerStep(*each, (result,), targets=taken) for each in part.parts])
    local = _Local((summed,), (result,), adds=False, stores=False)
    yield from _head(spec, part, host, head, local)


class _Local(NamedTuple):
    """The edges of a head within its host, and whether it adds its own values and stores."""

    sources: tuple[EdgeId, ...]
    targets: tuple[EdgeId, ...]
    adds: bool
    stores: bool


def _head(
    spec: CollectiveSpec, part: _Part, host: int, head: int, local: _Local
) -> Iterator[NodeWorker]:
    """Exchange the sum of a host for that of all: with a switch, or by a tree."""
    above, below = _neighbours(spec, part, host)
    up, down = part.lane("up"), part.lane("down")
    sources = (*local.sources, *(EdgeId(child, head, up) for child in below))
    targets = (*local.targets, *(EdgeId(head, child, down) for child in below))
    adds, stores = local.adds, local.stores
    if above is None:
        steps = [WorkerStep(*each, sources, adds, stores, targets) for each in part.parts]
        yield NodeWorker(head, steps)
        return
    raised, lowered = (EdgeId(head, above, up),), (EdgeId(above, head, down),)
    yield NodeWorker(
        head, [WorkerStep(*each, sources, adds, targets=raised) for each in part.parts]
    )
    yield NodeWorker(
        head, [WorkerStep(*each, lowered, store=stores, targets=targets) for each in part.parts]
    )


def _neighbours(spec: CollectiveSpec, part: _Part, host: int) -> tuple[int | None, list[int]]:
    """Return the node above the head of a host, and those below: the switch, or heads of a tree."""
    node = aggregation_node(spec)
    if node is not None:
        return node, []
    parents = host_parents(spec, part.channel)
    parent = parents[host]
    above = None if parent is None else parent * spec.gpus + part.head
    return above, [child * spec.gpus + part.head for child in children_of(parents, host)]


def _aggregation(spec: CollectiveSpec, part: _Part) -> Iterator[NodeWorker]:
    """The switch adds the sums of all hosts, and sends the result to each."""
    node = aggregation_node(spec)
    if node is None:
        return
    heads = [host * spec.gpus + part.head for host in range(spec.hosts)]
    sources = tuple(EdgeId(head, node, part.lane("up")) for head in heads)
    targets = tuple(EdgeId(node, head, part.lane("down")) for head in heads)
    yield NodeWorker(node, [WorkerStep(*each, sources, targets=targets) for each in part.parts])
