"""What a failure points at: a frame by its number, and which of many frames shows it."""

from typing import Generic, NamedTuple, TypeVar


class Seen(NamedTuple):
    """A frame: its number in the capture, or at ``point`` where the capture does not have it."""

    number: int
    point: str = ""


Sight = Seen | int | None
"""A frame that was seen, or the id of one whose number in the capture is not known yet."""


S = TypeVar("S", bound=Seen | int)


def pointed(seen: Seen | None) -> tuple[int | None, str]:
    """The number and the point of a frame, as failures have them; or that there is none."""
    return (None, "") if seen is None else seen


class Sightings(Generic[S]):
    """How much there was of something of which there should be ``most``, if that is bounded."""

    __slots__ = ("_last", "_most", "_surplus", "count")

    def __init__(self, most: int | None) -> None:
        self.count = 0
        self._most = most
        self._last: S | None = None
        self._surplus: S | None = None

    def note(self, seen: S | None, by: int = 1) -> None:
        """There is more of it, because of this frame, or of none."""
        fitted, self.count, self._last = not self.is_over, self.count + by, seen
        if fitted and self.is_over:
            self._surplus = seen

    @property
    def is_over(self) -> bool:
        """Whether there is too much of it."""
        return self._most is not None and self.count > self._most

    @property
    def shown(self) -> S | None:
        """The first frame that there should not be; else the last one that there is."""
        return self._surplus if self.is_over else self._last
