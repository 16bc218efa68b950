"""Whether the requests of a flow follow one another: duplicates, gaps and what fills them.

Each request takes one PSN, an RDMA READ as many as its response has packets. The number after the
last one taken so far is the expected PSN. A request is

- in order, if its PSN is the expected one;
- behind a *gap*, if its PSN is ahead: the numbers between are *missing*;
- *late*, if its PSN is behind and is among the missing: it fills as many of them as it takes, to
  the end of their gap. It counts as late once; a gap more than ``REACH`` back is forgotten;
- a *duplicate*, if its PSN is behind and not missing: it was here before.

A PSN more than ``REACH`` away from what the request before it took, either way, is a *restart*:
another connection on the same queue pair, or a capture that stopped for long. Nothing is said to
be missing then, and counting begins anew. Ahead and behind are the shorter way round the circle,
from the request before.
"""

import numpy as np
from numpy.typing import NDArray

from rdmawire.stats.circle import Numbers
from rdmawire.stats.flow import FLOWS
from rdmawire.stats.gap import Gaps, nothing
from rdmawire.stats.line import REACH, STRETCH, Run, taken

_COUNTS = ("gaps", "missing", "late", "filled", "duplicates")
_FURTHEST = 1 << 36
"""How far the expected place may be from the last request, so that it stays in its stretch."""


class Sequence:
    """The counts of all flows, if the path MTU is this one."""

    def __init__(self, mtu: int) -> None:
        self.mtu = mtu
        self.counts: dict[str, Numbers] = {name: np.zeros(FLOWS, np.int64) for name in _COUNTS}
        # Relative to the flow's last request, as the gaps and what filled them are.
        self._expected = np.zeros(FLOWS, np.int64)
        self._gaps = nothing()
        self._late = nothing()

    def adopt(self, other: "Sequence", flows: NDArray[np.bool_]) -> None:
        """Take over all that another knows of some flows."""
        for name, counts in self.counts.items():
            counts[flows] = other.counts[name][flows]
        self._expected[flows] = other._expected[flows]
        self._gaps = self._gaps.with_(other._gaps.of(flows[other._gaps.flow]))
        self._late = self._late.with_(other._late.of(flows[other._late.flow]))

    def add(self, run: Run) -> None:
        """Count the requests of a block."""
        ends = run.place + taken(run.read, self.mtu)
        expected = self._expectations(run, ends)
        ahead = run.place > expected
        new = Gaps(run.flow[ahead], expected[ahead], run.place[ahead])
        gaps = self._gaps.on_line(run).with_(new).in_order()
        late, filled = self._late_ones(run, expected, ends, gaps)
        self._count("gaps", new.flow)
        self._count("missing", new.flow, new.end - new.start)
        self._count("late", run.flow[late])
        self._count("filled", run.flow[late], filled)
        self._count("duplicates", run.flow[run.place < expected])
        self._count("duplicates", run.flow[late], np.full(len(late), -1))
        self._remember(run, np.maximum(expected, ends), gaps, late)

    def _expectations(self, run: Run, ends: Numbers) -> Numbers:
        """The expected place of each request: behind all that its run has taken so far."""
        before = np.roll(ends, 1)
        begins = run.run * STRETCH + self._expected[run.flow]
        before[run.first] = begins[run.first]
        before[run.fresh] = run.place[run.fresh]
        return np.maximum.accumulate(before)

    def _late_ones(
        self, run: Run, expected: Numbers, ends: Numbers, gaps: Gaps
    ) -> tuple[Numbers, Numbers]:
        """Which requests are late, and how many of the missing each fills."""
        behind = np.flatnonzero((run.place < expected) & (expected - run.place <= REACH))
        inside, until = gaps.around(run.place[behind])
        behind = behind[inside]
        known = self._late.on_line(run).start
        _, first = np.unique(np.append(known, run.place[behind]), return_index=True)
        new = np.sort(first[first >= len(known)]) - len(known)
        late = behind[new]
        return late, np.minimum(ends[late], until[new]) - run.place[late]

    def _count(self, name: str, flow: Numbers, each: Numbers | None = None) -> None:
        np.add.at(self.counts[name], flow, 1 if each is None else each)

    def _remember(self, run: Run, expected: Numbers, gaps: Gaps, late: Numbers) -> None:
        last = np.append(np.flatnonzero(run.first)[1:], len(run.flow)) - 1
        self._expected[run.flow[last]] = np.minimum(expected[last] - run.place[last], _FURTHEST)
        filled = Gaps(run.flow[late], run.place[late], run.place[late] + 1)
        known = self._late.on_line(run).with_(filled)
        self._gaps = self._gaps.elsewhere(run).with_(gaps.kept(run, expected, last)).latest()
        self._late = self._late.elsewhere(run).with_(known.kept(run, expected, last)).latest()
