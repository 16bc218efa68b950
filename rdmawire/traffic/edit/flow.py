"""Flows: frames that begin alike are edited alike.

What an edit does up to the PSN is the same for all frames of a flow, so it is worked out once, and
kept as the bits to turn over. What stands behind is read anew in each frame.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from rdmawire.traffic.edit.flow_seal import FlowSeal
from rdmawire.traffic.edit.head import Head
from rdmawire.traffic.edit.place import Layout, Said
from rdmawire.traffic.edit.rule import Op
from rdmawire.wire.ib import ICRC

MOST_FLOWS: Final = 1 << 16
MOST_SHAPES: Final = 16
"""Flows that are kept, and kinds of head; past either, all are found anew."""

_number = int.from_bytes


class Flow:
    """What is done to frames with one head, of which a ``first`` one is at hand.

    Frames of the flow have ``need`` octets at least; their packets end where ``end`` reads, at
    ``least`` or later. ``layout`` is that of the first one.
    """

    __slots__ = ("_change", "_ops", "_seal", "_size", "end", "layout", "least", "need", "reach")

    def __init__(self, layout: Layout, head: Head, ops: Sequence[Op], first: bytes) -> None:
        shared = [op for op in ops if head.shares(op.cut)]
        varying = [op for op in ops if not head.shares(op.cut)]
        after = _after(shared, first)
        self.layout = layout
        self.end = end_reader(layout.said)
        self.reach = max((op.cut.end for op in ops), default=0)
        self._seal = FlowSeal(layout, first, after, [op.cut for op in varying], self.reach)
        self._size = head.size
        self._change = _number(first[: head.size], "big") ^ _number(after[: head.size], "big")
        self._ops = [op.run for op in varying]
        self.need = max(head.size, *(place.offset + place.header.SIZE for place in layout.places))
        self.least = self.need + ICRC.SIZE * self.has_icrc

    @property
    def has_icrc(self) -> bool:
        """Whether its frames have an ICRC, be it captured or not."""
        return self._seal.has_icrc

    def changed(self, octets: bytes, head: int) -> bytearray:
        """A frame of the flow with its fields changed, and its checksums as they were."""
        new = bytearray(octets)
        if self._change:
            new[: self._size] = (head ^ self._change).to_bytes(self._size, "big")
        for run in self._ops:
            run(octets, new)
        return new

    def seal(self, octets: bytes, new: bytearray, head: int, end: int) -> bool | None:
        """Change the checksums by what changed; whether the ICRC was right, if it is there."""
        return self._seal.keep(octets, new, head, head ^ self._change, end)


def _after(ops: Sequence[Op], first: bytes) -> bytearray:
    """A frame after these."""
    after = bytearray(first)
    for op in ops:
        op.run(first, after)
    return after


def end_reader(said: Sequence[Said]) -> Callable[[bytes], int]:
    """What reads where a packet ends; -1 where headers do not agree about it."""
    if len(said) == 2 and all((each.mask, each.scale) == (0xFFFF, 1) for each in said):
        return _two_ends(*said)

    def end(octets: bytes) -> int:
        ends = {each.end(octets) for each in said}
        return ends.pop() if len(ends) == 1 else -1

    return end


def _two_ends(one: Said, other: Said) -> Callable[[bytes], int]:
    """The same for IP and UDP, as nearly all frames have it."""
    read = Struct(f">{one.offset}xH{other.offset - one.offset - 2}xH").unpack_from
    start, apart = one.start, other.start - one.start

    def end(octets: bytes) -> int:
        length, rest = read(octets)
        return start + length if length == rest + apart else -1

    return end


class Shape:
    """Flows whose heads are as long as one another, and share the same bits."""

    __slots__ = ("flows", "mask", "size")

    def __init__(self, head: Head) -> None:
        self.size = head.size
        self.mask = head.mask
        self.flows: dict[int, Flow] = {}


class Flows:
    """The flows of one link type that have been met."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._count = 0

    def find(self, octets: bytes) -> tuple[Flow, int] | None:
        """The flow of a frame, and its head as a number."""
        for shape in self._shapes:
            size = shape.size
            head = _number(octets[:size], "big")
            flow = shape.flows.get(head & shape.mask)
            if flow is not None and len(octets) >= flow.need:
                if shape is not self._shapes[0]:
                    self._shapes.remove(shape)
                    self._shapes.insert(0, shape)
                return flow, head
        return None

    def add(self, layout: Layout, ops: Sequence[Op], first: bytes) -> None:
        """Remember the flow of a frame that is laid out like this."""
        head = Head(layout)
        key = _number(first[: head.size], "big") & head.mask
        if self._count >= MOST_FLOWS or len(self._shapes) >= MOST_SHAPES:
            self._shapes.clear()
            self._count = 0
        flows = self._shape(head).flows
        self._count += key not in flows
        flows[key] = Flow(layout, head, ops, first)

    def _shape(self, head: Head) -> Shape:
        for shape in self._shapes:
            if (shape.size, shape.mask) == (head.size, head.mask):
                return shape
        self._shapes.append(Shape(head))
        return self._shapes[-1]
