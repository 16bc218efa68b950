"""The checksums of the frames of a flow, changed by as little work as what is known allows."""

from collections.abc import Sequence
from typing import TypeGuard

from rdmawire.traffic.edit.cut import Cut
from rdmawire.traffic.edit.invariant import HeadICRC
from rdmawire.traffic.edit.place import Layout
from rdmawire.traffic.edit.seal import HeaderSum, InvariantCRC, Seal, less

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
        changes = ((seal.at, seal.change(first, after)) for seal in steady)
        self._steady = [(at, change) for at, change in changes if change]
        done = (*steady, *(seal for seal in layout.seals if isinstance(seal, InvariantCRC)))
        self._others = [seal for seal in layout.seals if seal not in done]
        self.has_icrc = len(done) > len(steady)
        self._icrc = HeadICRC(layout) if self.has_icrc else None
        self._head = 0 if all(cut.start >= layout.head for cut in varying) else layout.head
        self._reach = reach

    def keep(self, old: bytes, new: bytearray, before: int, after: int, end: int) -> bool | None:
        """Change all by what changed; whether the ICRC was right, ``None`` if it is not there.

        ``before`` and ``after`` are the octets up to the PSN as numbers, ``end`` is where the
        packet ends. This is done for nearly every frame, so it is one piece.
        """
        was_right, icrc, at = None, self._icrc, end - 4
        if icrc is not None and end <= len(old):
            found, expected = _number(old[at:end], "little"), icrc.of(before, old, at)
            if self._head:  # fields that vary stand in it
                after = _number(new[: self._head], "big")
            now = icrc.of(after, new, at)
            if now != expected:
                new[at:end] = (found ^ expected ^ now).to_bytes(4, "little")
            was_right = found == expected
        for place, change in self._steady:
            new[place : place + 2] = less(old, place, change).to_bytes(2, "big")
        for seal in self._others:
            seal.keep(old, new, self._reach, end)
        return was_right


def _is_steady(seal: Seal, varying: Sequence[Cut]) -> TypeGuard[HeaderSum]:
    """Whether a checksum changes by the same in all the frames."""
    if not isinstance(seal, HeaderSum):
        return False
    return all(cut.end <= seal.start or cut.start >= seal.end for cut in varying)
