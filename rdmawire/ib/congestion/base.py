"""What every congestion control scheme does, and pacing by the rate that it gives."""

import math
from collections.abc import Mapping
from typing import Final, Protocol

from rdmawire.errors import VerbsError
from rdmawire.validate import Constraint, Integer, Number, check_attributes

SECOND = 1_000_000_000
"""Nanoseconds."""

GIGABIT = 1_000_000_000
MEGABIT = 1_000_000
KILOBIT = 1_000
"""Bits."""

RATE: Final = Number(1, 1e15)
"""What a rate may be: bits in a second."""

SHARE: Final = Number(0, 1)
TIMES: Final = Integer(0, 1 << 32)


class Rates(Protocol):
    """Parameters with the rates between which a flow is."""

    @property
    def line_rate(self) -> float: ...

    @property
    def min_rate(self) -> float: ...


def check_parameters(made: Rates, bounds: Mapping[str, Constraint]) -> None:
    """``VerbsError`` EINVAL for a parameter that is not what a table of them allows."""
    check_attributes(made, bounds)
    if made.min_rate > made.line_rate:
        raise VerbsError(f"min_rate {made.min_rate:g} is more than line_rate {made.line_rate:g}")


class CongestionController(Protocol):
    """One flow's congestion control. Rates are bits in a second, times ns."""

    @property
    def rate(self) -> float:
        """How fast the flow may send now."""

    def notified(self, now: int) -> None:
        """A CNP came: some switch marked what this flow sent. IBA A17.9."""

    def sent(self, size: int, now: int) -> None:
        """So many bytes were put on the link."""

    def acknowledged(self, rtt: int, now: int) -> None:
        """What was sent once, and not again, was answered after ``rtt`` ns."""

    def next_timer(self) -> int | None:
        """When ``handle_timer`` is due (ns); asking changes nothing."""

    def handle_timer(self, now: int) -> None:
        """Do what is due."""


SCHEME: Final = ("notified", "sent", "acknowledged", "next_timer", "handle_timer")
"""What every scheme can do, by which one is known."""


class Unscheduled:
    """No congestion control: the scheme of a flow that only has a rate limit."""

    rate = math.inf

    def notified(self, now: int) -> None:
        """A CNP changes nothing."""

    def sent(self, size: int, now: int) -> None:
        """Nothing is counted."""

    def acknowledged(self, rtt: int, now: int) -> None:
        """Nothing is measured."""

    def next_timer(self) -> int | None:
        """Nothing is ever due."""
        return None

    def handle_timer(self, now: int) -> None:
        """Nothing is due."""


UNSCHEDULED: Final = Unscheduled()


class Pacer:
    """When the next frame may go, at the rate that the scheme gives, or ``limit`` (bit/s) if less.

    What a frame took is rounded up to whole nanoseconds, so that no flow is ever too fast; a flow
    that rested does not catch up.
    """

    __slots__ = ("free_at", "limit", "scheme")

    def __init__(self, scheme: CongestionController) -> None:
        self.scheme = scheme
        self.free_at = 0
        self.limit = math.inf

    def sent(self, size: int, now: int) -> None:
        """A frame of so many bytes went at ``now``: the next waits as long as it took."""
        time = -int(-size * 8 * SECOND // min(self.scheme.rate, self.limit))
        self.free_at = max(self.free_at, now) + time
        self.scheme.sent(size, now)
