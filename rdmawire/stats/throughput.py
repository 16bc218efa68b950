"""Throughput and PSNs over time, in bounded memory whatever the length of the capture."""

from typing import NamedTuple

import numpy as np

from rdmawire.errors import RdmaError
from rdmawire.stats.packets import IntArray
from rdmawire.units import format_duration

_FINE = 10_000
"""Intervals that are kept; where more are needed, ten are merged to one."""
_STEPS = (1, 2, 4, 5)
_FIXED = 100_000
"""Intervals that are kept if their width is given."""
COLUMNS = ("frames", "bytes", "payload", "other_bytes")
"""The sums: RDMA frames, their bytes on the wire and of payload; bytes of all other frames."""


class IntervalError(RdmaError):
    """The interval is too short: the capture has too many of them."""


class ThroughputSeries(NamedTuple):
    """Sums over intervals of ``width`` ns; the first one begins at ``start_ns``."""

    start_ns: int
    width: int
    sums: dict[str, IntArray]


class Bins:
    """Sums over intervals of ``interval`` ns; by default, of a width that suits the capture.

    Frames with a time before that of the first frame count in the first interval.
    """

    def __init__(self, interval: int | None = None) -> None:
        self._asked = interval
        self._width = interval or 1
        self._start: int | None = None
        self._sums: dict[str, IntArray] = {name: np.zeros(0, np.int64) for name in COLUMNS}

    def add(self, times: IntArray, values: dict[str, IntArray]) -> None:
        """Add values of frames with these capture times, in ns since the epoch."""
        if not len(times):
            return
        if self._start is None:
            self._start = int(times[0])
        since = np.maximum(times - self._start, 0)
        self._make_room(int(since.max()))
        intervals = since // self._width
        for name, value in values.items():
            self._sums[name] += _summed(intervals, value, len(self._sums[name]))

    def _make_room(self, latest: int) -> None:
        while latest // self._width >= (_FIXED if self._asked else _FINE):
            if self._asked:
                raise IntervalError(
                    f"the capture has more than {_FIXED} intervals of "
                    f"{format_duration(self._asked)}; choose longer ones"
                )
            self._widen()
        needed = latest // self._width + 1
        for name, sums in self._sums.items():
            if len(sums) < needed:
                self._sums[name] = np.append(sums, np.zeros(needed - len(sums), np.int64))

    def _widen(self) -> None:
        self._sums = {name: _merged(sums, 10) for name, sums in self._sums.items()}
        self._width *= 10

    def throughput(self, max_intervals: int) -> ThroughputSeries:
        """Return at most ``max_intervals`` intervals; of a long capture, at least half as many."""
        width, count = self._width, len(self._sums["frames"])
        if self._asked or count <= max_intervals:
            return ThroughputSeries(self._start or 0, width, dict(self._sums))
        times = next(t for t in _ladder() if -(-count // t) <= max_intervals)
        sums = {name: _merged(each, times) for name, each in self._sums.items()}
        return ThroughputSeries(self._start or 0, width * times, sums)


def _summed(intervals: IntArray, values: IntArray, length: int) -> IntArray:
    # Sums of one block are far below 2**53, so that weights as floats are exact.
    return np.bincount(intervals, weights=values, minlength=length).astype(np.int64)


def _ladder() -> list[int]:
    return [step * 10**power for power in range(5) for step in _STEPS]


def _merged(sums: IntArray, times: int) -> IntArray:
    padded = np.append(sums, np.zeros(-len(sums) % times, np.int64))
    merged: IntArray = padded.reshape(-1, times).sum(axis=1)
    return merged


_MAX_POINTS = 1 << 17
"""Points that are kept; where there are more, every second one is dropped."""


class PsnPoints:
    """A sample of requests: their times, PSNs and flows."""

    def __init__(self) -> None:
        self._stride = 1
        self._skipped = 0
        self.times = self.psns = self.flows = np.empty(0, np.int64)

    def add(self, times: IntArray, psns: IntArray, flows: IntArray) -> None:
        """Sample these requests, which are in the order of the capture."""
        chosen = slice(-self._skipped % self._stride, None, self._stride)
        self._skipped += len(times)
        self.times = np.append(self.times, times[chosen])
        self.psns = np.append(self.psns, psns[chosen])
        self.flows = np.append(self.flows, flows[chosen])
        while len(self.times) > _MAX_POINTS:
            self._stride *= 2
            self.times, self.psns, self.flows = self.times[::2], self.psns[::2], self.flows[::2]
