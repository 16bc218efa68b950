"""The checksums of the frames of a flow, changed by as little work as what is known allows."""

from collections.abc import Sequence
from typing import TypeGuard

from rdmawire.traffic.edit.cut import Cut
from rdmawire.traffic.edit.invariant import HeadICRC
from rdmawire.traffic.edit.place import Layout
from rdmawire.traffic.edit.seal import HeaderSum, InvariantCRC, Seal, less
from rdmawire.wire.ib import ICRC

_number = int.from_bytes


class FlowSeal:
    """What frames of one head have for checksums, given what becomes of the ``first`` of them.

    ``varying`` are the fields that change otherwise in each frame. ``steady`` checksums of IPv4
    change by the same in all of them, as no such field is in their header.
    """

    __slots__ = ("_head", "_icrc", "_others", "_reach", "_steady", "has_icrc")

    def __init__(
        self, layout: Layout, first: bytes, after: bytearray, varying: Sequence[Cut], reach: int
    ) -> None:
        steady = [seal for seal in layout.seals if _is_steady(seal, varying)]
        self._steady = [(seal.at, seal.change(first, after)) for seal in steady]
        done = (*steady, *(seal for seal in layout.seals if isinstance(seal, InvariantCRC)))
        self._others = [seal for seal in layout.seals if seal not in done]
        self.has_icrc = len(done) > len(steady)
        self._icrc = HeadICRC(layout) if self.has_icrc else None
        self._head = 0 if all(cut.start >= layout.head for cut in varying) else layout.head
        self._reach = reach

    def keep(self, old: bytes, new: bytearray, heads: tuple[int, int], end: int) -> bool | None:
        """Change all by what changed; whether the ICRC was right, ``None`` if it is not there.

        ``heads`` are the octets up to the PSN, before and after, as numbers, and ``end`` is where
        the packet ends. The new head counts only where fields in it do not vary.
        """
        was_right = None
        if self._icrc is not None and end <= len(old):
            was_right = self._keep_icrc(self._icrc, old, new, heads, end - ICRC.SIZE)
        for at, change in self._steady:
            if change:
                new[at : at + 2] = less(old, at, change).to_bytes(2, "big")
        for seal in self._others:
            seal.keep(old, new, self._reach, end)
        return was_right

    def _keep_icrc(
        self, icrc: HeadICRC, old: bytes, new: bytearray, heads: tuple[int, int], at: int
    ) -> bool:
        before, after = heads
        if self._head:
            after = _number(new[: self._head], "big")
        found, expected = _number(old[at : at + 4], "little"), icrc.of(before, old, at)
        now = icrc.of(after, new, at)
        if now != expected:
            new[at : at + 4] = (found ^ expected ^ now).to_bytes(4, "little")
        return found == expected


def _is_steady(seal: Seal, varying: Sequence[Cut]) -> TypeGuard[HeaderSum]:
    """Whether a checksum changes by the same in all the frames."""
    if not isinstance(seal, HeaderSum):
        return False
    return all(cut.end <= seal.start or cut.start >= seal.end for cut in varying)
