"""The interface of congestion control schemes, and pacing by their rate."""

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
"""Constraint of a rate, in bits a second."""

SHARE: Final = Number(0, 1)
TIMES: Final = Integer(0, 1 << 32)


class Rates(Protocol):
    """Parameters that include the minimum and the maximum rate of a flow."""

    @property
    def line_rate(self) -> float: ...

    @property
    def min_rate(self) -> float: ...


def check_parameters(made: Rates, bounds: Mapping[str, Constraint]) -> None:
    """Raise ``VerbsError`` EINVAL for a parameter that its bound does not allow."""
    check_attributes(made, bounds)
    if made.min_rate > made.line_rate:
        raise VerbsError(f"min_rate {made.min_rate:g} is more than line_rate {made.line_rate:g}")


class CongestionController(Protocol):
    """One flow's congestion control. Rates are in bits a second, times in ns."""

    @property
    def rate(self) -> float:
        """Current rate limit of the flow."""

    def notified(self, now: int) -> None:
        """Process a CNP: a switch marked a packet of this flow. IBA A17.9."""

    def sent(self, size: int, now: int) -> None:
        """Count ``size`` bytes that were sent."""

    def acknowledged(self, rtt: int, now: int) -> None:
        """Process an answer, after ``rtt`` ns, to a packet that was not retransmitted."""

    def next_timer(self) -> int | None:
        """When ``handle_timer`` is due (ns); ``None`` if never. Changes nothing."""

    def handle_timer(self, now: int) -> None:
        """Handle timers that are due."""


SCHEME: Final = ("notified", "sent", "acknowledged", "next_timer", "handle_timer")
"""Methods of every scheme, by which arguments are checked."""


class Unscheduled:
    """No congestion control: the scheme of a flow that has only a rate limit."""

    rate = math.inf

    def notified(self, now: int) -> None:
        """A CNP changes nothing."""

    def sent(self, size: int, now: int) -> None:
        """Bytes are not counted."""

    def acknowledged(self, rtt: int, now: int) -> None:
        """Round trips are not measured."""

    def next_timer(self) -> int | None:
        """No timer is ever due."""
        return None

    def handle_timer(self, now: int) -> None:
        """No timer is due."""


UNSCHEDULED: Final = Unscheduled()


class Pacer:
    """Time of the next frame, at the scheme's rate or ``limit`` (bit/s), whichever is less.

    The time of a frame is rounded up to integer nanoseconds, so that no flow exceeds its rate. A
    flow that was idle does not catch up.
    """

    __slots__ = ("free_at", "limit", "scheme")

    def __init__(self, scheme: CongestionController) -> None:
        self.scheme = scheme
        self.free_at = 0
        self.limit = math.inf

    def sent(self, size: int, now: int) -> None:
        """Record a frame of ``size`` bytes sent at ``now`` (ns); the next waits its duration."""
        time = -int(-size * 8 * SECOND // min(self.scheme.rate, self.limit))
        self.free_at = max(self.free_at, now) + time
        self.scheme.sent(size, now)
