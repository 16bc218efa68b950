"""A part of a capture, from one frame or time to another."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from rdmawire.analysis.node import Dissection
from rdmawire.errors import RdmaError
from rdmawire.units import epoch_ns, parse_duration

_NUMBER = re.compile(r"[0-9]{1,18}")
_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)


class BoundError(RdmaError):
    """A bound that is no frame number and no time."""


class BoundKind(Enum):
    """What a bound counts."""

    NUMBER = "frame number"
    RELATIVE = "time since the first frame"
    EPOCH = "date"


_MEASURES: dict[BoundKind, Callable[[Dissection], int]] = {
    BoundKind.NUMBER: lambda frame: frame.number,
    BoundKind.RELATIVE: lambda frame: frame.time_ns - frame.first_ns,
    BoundKind.EPOCH: lambda frame: frame.time_ns,
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A frame number, nanoseconds since the first frame, or nanoseconds since the epoch."""

    kind: BoundKind
    value: int

    @classmethod
    def parse(cls, text: str) -> "Bound":
        """``17`` is a frame, ``1.5s`` a time since the first, ``2026-11-21T02:15:59Z`` a date.

        Durations are in s, ms, us or ns; a date without a zone is in local time.
        """
        for kind, read in _READERS:
            with suppress(ValueError):
                return cls(kind, read(text))
        raise BoundError(
            f"{text!r} is no frame number (17), no time since the first frame "
            "(1.5s, 20ms), and no date (2026-11-21T02:15:59Z)"
        )

    def compare(self, frame: Dissection) -> int:
        """Less than, equal to or more than zero: the frame is before, at or after the bound."""
        return _MEASURES[self.kind](frame) - self.value


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _date(text: str) -> int:
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    day, minute, second, decimals, zone = found.groups()
    return epoch_ns(f"{day}T{minute or '00:00'}:{second or '00'}{zone or ''}", decimals)


_READERS: tuple[tuple[BoundKind, Callable[[str], int]], ...] = (
    (BoundKind.NUMBER, _number),
    (BoundKind.RELATIVE, parse_duration),
    (BoundKind.EPOCH, _date),
)


@dataclass(frozen=True, slots=True)
class Window:
    """The frames from ``start`` to ``end``, both included; no bound is no limit.

    :class:`BoundError` if the end is before the start.
    """

    start: Bound | None = None
    end: Bound | None = None

    def __post_init__(self) -> None:
        start, end = self.start, self.end
        if start and end and start.kind is end.kind and start.value > end.value:
            raise BoundError("the window ends before it begins")

    def __contains__(self, frame: Dissection) -> bool:
        after_start = self.start is None or self.start.compare(frame) >= 0
        return after_start and (self.end is None or self.end.compare(frame) <= 0)

    def is_over(self, frame: Dissection) -> bool:
        """Whether no later frame is in the window.

        Numbers only go up; times may go back, so they never tell.
        """
        end = self.end
        return end is not None and end.kind is BoundKind.NUMBER and end.compare(frame) >= 0
