"""What each GPU, and each switch that adds, does in a collective operation, step by step.

A :class:`NodeWorker` does its steps one after the other; workers of one node do not wait for one
another. Edges join nodes; messages keep their order on an edge.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class EdgeId(NamedTuple):
    """One direction between two nodes. Edges of the same nodes have different lanes."""

    source: int
    target: int
    lane: tuple[int, str]


class WorkerStep(NamedTuple):
    """What a node does with values, in this order.

    It receives a message over each of ``sources``; adds them, and with ``own`` its own values;
    stores the result if ``store``; and sends it over ``targets``. The values are ``length`` of all,
    from ``start`` on. ``origin`` is the rank whose values are stored, ``None`` for the sum of all.
    """

    start: int
    length: int
    sources: tuple[EdgeId, ...] = ()
    own: bool = False
    store: bool = False
    targets: tuple[EdgeId, ...] = ()
    origin: int | None = None


class NodeWorker:
    """What one node does with the messages of some edges.

    Nodes are ranks, and after them the switches that add.
    """

    __slots__ = ("node", "steps")

    def __init__(self, node: int, steps: Iterable[WorkerStep]) -> None:
        self.node = node
        self.steps = tuple(steps)


class Loop(NamedTuple):
    """The values of one loop of a channel: the first one, and how many."""

    start: int
    length: int


def loops(share: range, count: int) -> Iterator[Loop]:
    """Split a share of values into loops of at most ``count``."""
    for start in range(share.start, share.stop, max(count, 1)):
        yield Loop(start, min(count, share.stop - start))
