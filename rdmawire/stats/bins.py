"""What passes in each stretch of time, in bounded memory whatever the capture's length is."""

from typing import NamedTuple

import numpy as np

from rdmawire.errors import RdmaError
from rdmawire.stats.circle import Numbers
from rdmawire.units import format_duration

_FINE = 10_000
"""Fine stretches at most; where more are needed, ten become one."""
_STEPS = (1, 2, 4, 5)
_FIXED = 100_000
"""Stretches at most where their width is asked for."""
COLUMNS = ("frames", "octets", "payload", "other_octets")
"""What is summed up: of RDMA frames, octets on the wire and of payload; octets of all others."""


class IntervalError(RdmaError):
    """An interval so short that the capture has too many of them."""


class Throughput(NamedTuple):
    """Sums over stretches of ``width`` nanoseconds, the first of which begins at ``start_ns``."""

    start_ns: int
    width: int
    sums: dict[str, Numbers]


class Bins:
    """Sums over stretches of time; ``interval`` in nanoseconds, or as wide as it takes.

    Frames from before the first one, where a capture's times go back, count as its first.
    """

    def __init__(self, interval: int | None = None) -> None:
        self._asked = interval
        self._width = interval or 1
        self._start: int | None = None
        self._sums: dict[str, Numbers] = {name: np.zeros(0, np.int64) for name in COLUMNS}

    def add(self, times: Numbers, values: dict[str, Numbers]) -> None:
        """Sum up values of frames that were captured at these times."""
        if not len(times):
            return
        if self._start is None:
            self._start = int(times[0])
        since = np.maximum(times - self._start, 0)
        self._make_room(int(since.max()))
        places = since // self._width
        for name, value in values.items():
            self._sums[name] += _summed(places, value, len(self._sums[name]))

    def _make_room(self, latest: int) -> None:
        while latest // self._width >= (_FIXED if self._asked else _FINE):
            if self._asked:
                raise IntervalError(
                    f"the capture has more than {_FIXED} intervals of "
                    f"{format_duration(self._asked)}; ask for longer ones"
                )
            self._widen()
        needed = latest // self._width + 1
        for name, sums in self._sums.items():
            if len(sums) < needed:
                self._sums[name] = np.append(sums, np.zeros(needed - len(sums), np.int64))

    def _widen(self) -> None:
        self._sums = {name: _merged(sums, 10) for name, sums in self._sums.items()}
        self._width *= 10

    def throughput(self, most: int) -> Throughput:
        """At most so many stretches, at least half as many if the capture is long enough."""
        width, count = self._width, len(self._sums["frames"])
        if self._asked or count <= most:
            return Throughput(self._start or 0, width, dict(self._sums))
        times = next(t for t in _ladder() if -(-count // t) <= most)
        sums = {name: _merged(each, times) for name, each in self._sums.items()}
        return Throughput(self._start or 0, width * times, sums)


def _summed(places: Numbers, values: Numbers, length: int) -> Numbers:
    # Sums of one block are far below 2**53, so that weights as floats are exact.
    return np.bincount(places, weights=values, minlength=length).astype(np.int64)


def _ladder() -> list[int]:
    return [step * 10**power for power in range(5) for step in _STEPS]


def _merged(sums: Numbers, times: int) -> Numbers:
    padded = np.append(sums, np.zeros(-len(sums) % times, np.int64))
    merged: Numbers = padded.reshape(-1, times).sum(axis=1)
    return merged
