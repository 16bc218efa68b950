"""Frames that faults sent elsewhere, and how often: an Ethernet frame has no hop limit.

Switches pass a frame on towards its address, so it comes nearer and gets there. Faults that give
it other addresses on one link after the other could have it go round for ever.
"""

from collections.abc import Iterable
from typing import Final

from rdmawire.fabric.passing import Passing
from rdmawire.wire.inet import Ethernet

ADDRESSES: Final = Ethernet.SIZE - 2
"""Octets of the two addresses that a frame begins with."""

MOST_TURNS: Final = 4
"""How often faults may change a frame's addresses; then it is lost."""


class Astray(bytes):
    """The octets of a frame whose addresses faults changed so often."""

    turns: int


def followed(before: bytes, passings: list[Passing]) -> list[Passing]:
    """What became of a frame on a link, but for copies that were sent elsewhere too often."""
    if type(before) is bytes and not _turned(before, passings):
        return passings
    turned = (one._replace(frame=kept(before, one.frame)) for one in passings)
    return [one for one in turned if turns_of(one.frame) <= MOST_TURNS]


def _turned(before: bytes, passings: Iterable[Passing]) -> bool:
    return any(one.frame[:ADDRESSES] != before[:ADDRESSES] for one in passings)


def kept(before: bytes, after: bytes) -> bytes:
    """What a frame was changed into, with the turns that it has taken so far."""
    turns = turns_of(before) + (after[:ADDRESSES] != before[:ADDRESSES])
    if not turns:
        return after
    frame = Astray(after)
    frame.turns = turns
    return frame


def turns_of(frame: bytes) -> int:
    """How often faults have changed the addresses of a frame."""
    return frame.turns if isinstance(frame, Astray) else 0
