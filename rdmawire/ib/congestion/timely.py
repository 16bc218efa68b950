"""TIMELY: the gradient of the round trip time adjusts the rate.

R. Mittal et al., TIMELY: RTT-based Congestion Control for the Datacenter, SIGCOMM 2015, section
4.3, algorithm 1; the names of the parameters are the paper's.
"""

from dataclasses import dataclass
from typing import Final

from rdmawire.ib.congestion.base import (
    GIGABIT,
    MEGABIT,
    RATE,
    SHARE,
    TIMES,
    check_parameters,
)
from rdmawire.validate import PERIOD, Constraint, check_type


@dataclass(frozen=True, slots=True)
class TimelyParameters:
    """The parameters, with the paper's values (section 4.4).

    Raises ``VerbsError`` EINVAL for a value that :data:`BOUNDS` does not allow.
    """

    line_rate: float = 10 * GIGABIT
    """Initial and maximum rate of a flow, in bits a second."""
    min_rate: float = 10 * MEGABIT
    """Minimum rate of a flow, in bits a second."""
    min_rtt: int = 20_000
    """Round trip time of an empty network in nanoseconds, the unit of gradients."""
    t_low: int = 50_000
    """Nanoseconds below which every round trip increases the rate."""
    t_high: int = 500_000
    """Nanoseconds above which every round trip reduces the rate."""
    alpha: float = 0.875
    """Weight of the newest difference between round trips."""
    beta: float = 0.8
    """Factor by which a gradient reduces the rate."""
    delta: float = 10 * MEGABIT
    """Additive increase of the rate, in bits a second."""
    hyper_after: int = 5
    """Consecutive round trips without a rise that multiply the increase by this number (N)."""

    def __post_init__(self) -> None:
        check_parameters(self, BOUNDS)


BOUNDS: Final[dict[str, Constraint]] = {
    "line_rate": RATE,
    "min_rate": RATE,
    "min_rtt": PERIOD,
    "t_low": PERIOD,
    "t_high": PERIOD,
    "alpha": SHARE,
    "beta": SHARE,
    "delta": RATE,
    "hyper_after": TIMES,
}
"""Constraint of each parameter."""


class Timely:
    """One flow. CNPs and bytes have no effect."""

    def __init__(self, parameters: TimelyParameters | None = None) -> None:
        self.parameters = TimelyParameters() if parameters is None else parameters
        check_type("parameters", self.parameters, TimelyParameters)
        self.rate = self.parameters.line_rate
        self._last_rtt: int | None = None
        self._difference = 0.0
        self._falling = 0

    def notified(self, now: int) -> None:
        """CNPs have no effect: round trips show congestion."""

    def sent(self, size: int, now: int) -> None:
        """Bytes are not counted."""

    def acknowledged(self, rtt: int, now: int) -> None:  # noqa: ARG002 - a scheme's
        """Algorithm 1: one step for each round trip."""
        known = self.parameters
        last = rtt if self._last_rtt is None else self._last_rtt
        self._last_rtt = rtt
        self._difference += known.alpha * (rtt - last - self._difference)
        gradient = self._difference / known.min_rtt
        rate = max(self._next_rate(rtt, gradient), known.min_rate)
        self.rate = min(rate, known.line_rate)

    def _next_rate(self, rtt: int, gradient: float) -> float:
        known = self.parameters
        if rtt < known.t_low:
            return self.rate + known.delta
        if rtt > known.t_high:
            self._falling = 0  # as after the other decrease: consecutive round trips count
            return self.rate * (1 - known.beta * (1 - known.t_high / rtt))
        if gradient > 0:
            self._falling = 0
            return self.rate * (1 - known.beta * gradient)
        self._falling += 1
        steps = known.hyper_after if self._falling >= known.hyper_after else 1
        return self.rate + steps * known.delta

    def next_timer(self) -> int | None:
        """No timer is ever due."""
        return None

    def handle_timer(self, now: int) -> None:
        """No timer is due."""
