"""The clock of live devices, in integer nanoseconds, and the source of their identifiers."""

from random import SystemRandom
from time import monotonic_ns, time_ns

now = monotonic_ns
"""Return the time in nanoseconds from a fixed, unknown start. It never goes back."""


def epoch() -> int:
    """Return what to add to :func:`now` to get nanoseconds since 1970."""
    return time_ns() - monotonic_ns()


def entropy() -> SystemRandom:
    """Return the system's randomness, for keys and queue pair numbers that cannot be guessed."""
    return SystemRandom()
