"""One copy of a frame on its way."""

from typing import NamedTuple


class Passing(NamedTuple):
    """What arrives: the octets, what they wait (ns) beyond the latency, and behind how many.

    With ``behind``, ``wait`` is how long at the most it is kept back for others to overtake it.
    """

    frame: bytes
    wait: int = 0
    behind: int = 0
