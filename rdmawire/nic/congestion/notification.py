"""The notification point of DCQCN: marks that arrive are told to the sender, not too often.

Y. Zhu et al., SIGCOMM 2015, section 3.1 (NP algorithm); CNPs are IBA A17.9.
"""

CNP_INTERVAL = 50_000
"""Nanoseconds between two CNPs of one flow (the paper's N)."""


class Notifier:
    """Says when a flow is owed a CNP: with the first mark, then once in an interval at most."""

    __slots__ = ("_interval", "_quiet_until")

    def __init__(self, interval: int = CNP_INTERVAL) -> None:
        self._interval = interval
        self._quiet_until = 0

    def marked(self, now: int) -> bool:
        """A packet with the mark CE came; whether a CNP goes out for it."""
        if now < self._quiet_until:
            return False
        self._quiet_until = now + self._interval
        return True
