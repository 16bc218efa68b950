"""One copy of a frame on its way, and the words for what befell it."""

from typing import Final, NamedTuple

BEFALLEN: Final = {
    "drop": "lost",
    "duplicate": "duplicated",
    "delay": "delayed",
    "reorder": "reordered",
    "corrupt": "corrupted",
    "truncate": "truncated",
    "mark": "marked",
    "set": "rewritten",
}
"""What is said of a frame after each fault."""


class Passing(NamedTuple):
    """What arrives: the octets, what they wait (ns) beyond the latency, and behind how many.

    With ``behind``, ``wait`` is how long at the most it is kept back for others to overtake it.
    ``befallen`` are the words of :data:`BEFALLEN` for what was done to it.
    """

    data: bytes
    wait: int = 0
    behind: int = 0
    befallen: tuple[str, ...] = ()
