"""What an edit did, in numbers."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Frames by what became of them.

    ``changed`` came out other than they were. ``bad``: with an ICRC that was wrong before, and
    still is unless all are sealed. ``cut``: with an ICRC that the capture did not keep. ``plain``:
    with comments that a pcap has no place for.
    ``written``: those in the new capture, ``None`` where there is none.
    """

    frames: int = 0
    dropped: int = 0
    changed: int = 0
    bad: int = 0
    cut: int = 0
    plain: int = 0
    written: int | None = None
