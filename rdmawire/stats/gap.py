"""Gaps in the PSNs of flows, as stretches of numbers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.stats.circle import Numbers
from rdmawire.stats.flow import FLOWS
from rdmawire.stats.line import REACH, STRETCH, Run

_REMEMBERED = 1 << 17
"""Gaps that are remembered from block to block, of all flows together."""


class Gaps(NamedTuple):
    """Stretches from ``start`` to before ``end``: on the line of a block, see :mod:`.line`.

    Between blocks they count from the flow's last request.
    """

    flow: Numbers
    start: Numbers
    end: Numbers

    def of(self, which: NDArray[np.bool_] | Numbers) -> "Gaps":
        """Some of them."""
        return Gaps(*(column[which] for column in self))

    def with_(self, other: "Gaps") -> "Gaps":
        """These, then others."""
        return Gaps(*(np.append(own, more) for own, more in zip(self, other, strict=True)))

    def in_order(self) -> "Gaps":
        """The same, sorted by where they begin."""
        return self.of(np.argsort(self.start, kind="stable"))

    def around(self, places: Numbers) -> tuple[NDArray[np.bool_], Numbers]:
        """Which places are in a gap of these, and of those the end of the gap."""
        if not len(self.start):
            return np.zeros(len(places), np.bool_), np.empty(0, np.int64)
        gap = np.searchsorted(self.start, places, "right") - 1
        inside = (gap >= 0) & (places < self.end[gap])
        return inside, self.end[gap[inside]]

    def on_line(self, run: Run) -> "Gaps":
        """Those between blocks, of the flows that go on in this block, on its line."""
        base = np.full(FLOWS, -1, np.int64)
        goes_on = run.first & ~run.fresh
        base[run.flow[goes_on]] = run.run[goes_on] * STRETCH
        here = self.of(base[self.flow] >= 0)
        return Gaps(here.flow, here.start + base[here.flow], here.end + base[here.flow])

    def elsewhere(self, run: Run) -> "Gaps":
        """Those between blocks, of the flows that have no requests in this block."""
        absent = np.ones(FLOWS, np.bool_)
        absent[run.flow[run.first]] = False
        return self.of(absent[self.flow])

    def kept(self, run: Run, expected: Numbers, last: Numbers) -> "Gaps":
        """Those on the line that later requests may fill, as they are between blocks.

        ``last`` are the last requests of the flows, ``expected`` what is expected behind each.
        """
        zero, reached = np.zeros(FLOWS, np.int64), np.zeros(FLOWS, np.int64)
        zero[run.flow[last]] = run.place[last]
        nearest = np.maximum(expected[last] - REACH, run.run[last] * STRETCH - STRETCH // 4)
        reached[run.flow[last]] = nearest
        here = self.of(self.end > reached[self.flow])
        return Gaps(here.flow, here.start - zero[here.flow], here.end - zero[here.flow])

    def latest(self) -> "Gaps":
        """As many as are remembered."""
        return self.of(np.arange(max(len(self.flow) - _REMEMBERED, 0), len(self.flow)))


def nothing() -> Gaps:
    """No gaps."""
    return Gaps(*(np.empty(0, np.int64) for _ in range(3)))
