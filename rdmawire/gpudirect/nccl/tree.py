"""Trees: values go up to the root, which has the sum, and down to all.

NCCL joins hosts by two binary trees; half of the channels use the first, half the second. No host
is inside both, but for one, so that each sends about as much as it receives. Within a host a chain
of GPUs leads to the one that is nearest to the parent. Facts: ``trees.cc`` and ``connect.cc`` of
NCCL 2.28; the trees are those of Sanders, Speck and Träff, Two-tree algorithms for full bandwidth
broadcast, reduction and scan (2009).
"""

from collections.abc import Iterator
from typing import NamedTuple

from rdmawire.gpudirect.nccl.collective import CollectiveSpec
from rdmawire.gpudirect.nccl.plan import EdgeId, Loop, NodeWorker, WorkerStep, loops


def tree_parent(place: int, places: int, tree: int = 0) -> int | None:
    """Return the parent of a place in the first (0) or second (1) tree; ``None`` for the root.

    In the first tree place 0 is the root, and every odd place is a leaf. The second tree is the
    first one mirrored for an even number of places, else shifted by one.
    """
    if tree == 0:
        return _first_parent(place, places)
    if places % 2:
        parent = _first_parent((place - 1) % places, places)
        return None if parent is None else (parent + 1) % places
    parent = _first_parent(places - 1 - place, places)
    return None if parent is None else places - 1 - parent


def _first_parent(place: int, places: int) -> int | None:
    """Replace the lowest bit that is set by the next one; without it if there is no such place."""
    if place == 0:
        return None
    low = place & -place
    parent = (place ^ low) | low << 1
    return parent if parent < places else place ^ low


class TreeNode(NamedTuple):
    """A rank in a tree: the rank above it, and those below."""

    rank: int
    parent: int | None
    children: tuple[int, ...]


def host_parents(spec: CollectiveSpec, channel: int) -> list[int | None]:
    """Return the parent of each host in the tree of a channel."""
    tree = int(channel >= -(-spec.chosen_channels // 2))
    return [tree_parent(host, spec.hosts, tree) for host in range(spec.hosts)]


def children_of(parents: list[int | None], host: int) -> list[int]:
    """Return the hosts whose parent this is."""
    return [child for child, parent in enumerate(parents) if parent == host]


def tree_nodes(spec: CollectiveSpec, channel: int) -> list[TreeNode]:
    """Return all ranks of a channel's tree.

    The first GPU of a host in the channel's order sends to the parent host and receives from its
    first child host, the second GPU receives from the second child.
    """
    parents = host_parents(spec, channel)
    chains = _chains(spec, channel)
    above: dict[int, int | None] = {}
    for host, chain in enumerate(chains):
        parent = parents[host]
        above.update(zip(chain[1:], chain, strict=False))
        above[chain[0]] = None if parent is None else _entry(parents, chains[parent], parent, host)
    below: dict[int, list[int]] = {rank: [] for rank in above}
    for rank, parent in above.items():
        if parent is not None:
            below[parent].append(rank)
    return [TreeNode(rank, above[rank], tuple(below[rank])) for rank in sorted(above)]


def _chains(spec: CollectiveSpec, channel: int) -> list[list[int]]:
    """Return the GPUs of each host in the order of the channel."""
    order = spec.channel_order(channel)
    return [order[first : first + spec.gpus] for first in range(0, spec.ranks, spec.gpus)]


def _entry(parents: list[int | None], chain: list[int], parent: int, child: int) -> int:
    """Return the GPU of the parent host that a child host sends to."""
    number = children_of(parents, parent).index(child)
    return chain[min(number, len(chain) - 1)]


def tree_workers(spec: CollectiveSpec) -> Iterator[NodeWorker]:
    """Yield what each rank does in each channel: one worker up, one down; the root has one."""
    for channel in range(spec.chosen_channels):
        most = spec.chosen_protocol.chunk // spec.itemsize
        parts = list(loops(spec.share(channel, spec.values), most))
        for node in tree_nodes(spec, channel):
            yield from _workers(node, channel, parts)


def _workers(node: TreeNode, channel: int, parts: list[Loop]) -> Iterator[NodeWorker]:
    rank, up, down = node.rank, (channel, "up"), (channel, "down")
    summed = tuple(EdgeId(child, rank, up) for child in node.children)
    sent = tuple(EdgeId(rank, child, down) for child in node.children)
    if node.parent is None:
        steps = [WorkerStep(*part, summed, own=True, store=True, targets=sent) for part in parts]
        yield NodeWorker(rank, steps)
        return
    raised = (EdgeId(rank, node.parent, up),)
    lowered = (EdgeId(node.parent, rank, down),)
    yield NodeWorker(rank, [WorkerStep(*part, summed, own=True, targets=raised) for part in parts])
    yield NodeWorker(rank, [WorkerStep(*part, lowered, store=True, targets=sent) for part in parts])
