"""What somebody may have meant by a name that nothing goes by."""

import difflib
from collections.abc import Iterable, Sequence
from itertools import takewhile

OFFERED = 3
"""Names that are offered at most."""
_ALIKE = 0.6
_LONGEST = 100
"""Characters of a name that is worth comparing: none that is known is as long."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three names: those that end alike, as ``bth.psn``, before those spelled alike."""
    if len(name) > _LONGEST:
        return []
    likeness = {each: _likeness(each, name) for each in known}
    shared = {each: _shared(each, name) for each in likeness}
    near = [each for each in likeness if shared[each] or likeness[each] >= _ALIKE]
    return sorted(near, key=lambda each: (-shared[each], -likeness[each]))[:OFFERED]


def offer(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that offers the nearest names; empty if none is near."""
    return offering(nearest(name, known))


def offering(near: Sequence[str]) -> str:
    """The end of a sentence that offers these names; empty if there are none."""
    verb = "is" if len(near) == 1 else "are"
    return f"; the nearest {verb} {', '.join(near)}" if near else ""


def _shared(one: str, other: str) -> int:
    """How many parts between dots are the same, from the end."""
    parts = zip(reversed(one.split(".")), reversed(other.split(".")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], parts))


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
