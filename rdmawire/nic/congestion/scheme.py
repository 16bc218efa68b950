"""What every congestion control scheme does, and pacing by the rate that it gives."""

from typing import Protocol

SECOND = 1_000_000_000
"""Nanoseconds."""

GIGABIT = 1_000_000_000
MEGABIT = 1_000_000
"""Bits."""


class Scheme(Protocol):
    """One flow's congestion control. Rates are bits in a second, times ns."""

    @property
    def rate(self) -> float:
        """How fast the flow may send now."""

    def notified(self, now: int) -> None:
        """A CNP came: some switch marked what this flow sent. IBA A17.9."""

    def sent(self, octets: int, now: int) -> None:
        """So many octets were put on the link."""

    def acknowledged(self, rtt: int, now: int) -> None:
        """What was sent once, and not again, was answered after ``rtt`` ns."""

    def next_timer(self) -> int | None:
        """When ``handle_timer`` is due (ns); asking changes nothing."""

    def handle_timer(self, now: int) -> None:
        """Do what is due."""


class Pacer:
    """When the next frame may go, at the rate that the scheme gives.

    What a frame took is rounded up to whole nanoseconds, so that no flow is ever too fast; a flow
    that rested does not catch up.
    """

    __slots__ = ("free_at", "scheme")

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self.free_at = 0

    def sent(self, octets: int, now: int) -> None:
        """A frame of so many octets went at ``now``: the next waits as long as it took."""
        time = -int(-octets * 8 * SECOND // self.scheme.rate)
        self.free_at = max(self.free_at, now) + time
        self.scheme.sent(octets, now)
