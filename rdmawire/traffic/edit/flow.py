"""Flows: frames that begin alike are edited alike.

What an edit does up to the PSN is the same for all frames of a flow, so it is worked out once, and
kept as the bits to turn over. What stands behind is read anew in each frame.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, TypeGuard

from rdmawire.traffic.edit.cut import Cut
from rdmawire.traffic.edit.head import Head
from rdmawire.traffic.edit.invariant import HeadICRC
from rdmawire.traffic.edit.place import Layout, Said
from rdmawire.traffic.edit.rule import Op
from rdmawire.traffic.edit.seal import HeaderSum, InvariantCRC, Seal, less
from rdmawire.wire.ib import ICRC

MOST_FLOWS: Final = 1 << 16
MOST_SHAPES: Final = 16
"""Flows that are kept, and kinds of head; past either, all are found anew."""

_number = int.from_bytes


class Flow:
    """What is done to frames with one head.

    ``change`` are the bits of the head that turn over, ``ops`` what is done behind it; no field
    from octet ``reach`` on changes. Frames of the flow have ``need`` octets at least, and their
    packets end at ``least`` or later; ``end`` reads where. ``seals`` are all their checksums.
    """

    __slots__ = (
        *(
            "_agrees",
            "_icrc",
            "_others",
            "_sums",
            "change",
            "end",
            "has_icrc",
            "least",
            "need",
            "ops",
            "reach",
        ),
        *("seals", "size"),
    )

    def __init__(self, layout: Layout, head: Head, ops: Sequence[Op], first: bytes) -> None:
        self.size = head.size
        shared = [op for op in ops if head.shares(op.cut)]
        after = _after(shared, first)
        self.change = _number(first[: head.size], "big") ^ _number(after[: head.size], "big")
        self.ops = tuple(op.run for op in ops if not head.shares(op.cut))
        self.seals = layout.seals
        self.end = end_reader(layout.said)
        self.need = max(place.offset + place.header.SIZE for place in layout.places)
        self.has_icrc = any(isinstance(seal, InvariantCRC) for seal in layout.seals)
        self.least = self.need + ICRC.SIZE * self.has_icrc
        self.reach = max((op.cut.end for op in ops), default=0)
        self._icrc = HeadICRC(layout) if self.has_icrc else None
        varying = [op.cut for op in ops if not head.shares(op.cut)]
        steady = [seal for seal in layout.seals if _is_steady(seal, varying)]
        self._agrees = all(cut.start >= head.size for cut in varying)
        self._sums = [(seal.at, change) for seal in steady if (change := seal.change(first, after))]
        self._others = [
            seal
            for seal in layout.seals
            if seal not in steady and not isinstance(seal, InvariantCRC)
        ]

    def changed(self, octets: bytes, head: int) -> bytearray:
        """A frame of the flow with its fields changed, and its checksums as they were."""
        new = bytearray(octets)
        if self.change:
            new[: self.size] = (head ^ self.change).to_bytes(self.size, "big")
        for run in self.ops:
            run(octets, new)
        return new

    def seal(self, octets: bytes, new: bytearray, head: int, end: int) -> bool | None:
        """Change the checksums by what changed; whether the ICRC was right, ``None`` without."""
        was_right = None
        if self._icrc is not None and end <= len(octets):
            at = end - 4
            found, before = _number(octets[at:end], "big"), self._icrc.of(head, octets, at)
            now = self._icrc.of(
                head ^ self.change if self._agrees else _number(new[: self.size], "big"), new, at
            )
            if now != before:
                new[at:end] = (found ^ before ^ now).to_bytes(4, "big")
            was_right = found == before
        for at, change in self._sums:
            new[at : at + 2] = less(octets, at, change).to_bytes(2, "big")
        for seal in self._others:
            seal.keep(octets, new, self.reach, end)
        return was_right


def _is_steady(seal: Seal, varying: Sequence[Cut]) -> TypeGuard[HeaderSum]:
    """Whether a checksum changes by the same in all the frames."""
    if not isinstance(seal, HeaderSum):
        return False
    return all(cut.end <= seal.start or cut.start >= seal.end for cut in varying)


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
