"""PSN sequence of the requests of a flow: duplicates, gaps, and late requests that fill them.

Each request takes one PSN, an RDMA READ as many as its response has packets. The expected PSN is
the one after the highest taken so far. A request is

- in order, if its PSN is the expected one;
- after a *gap*, if its PSN is ahead: the PSNs between are *missing*;
- *late*, if its PSN is earlier and is missing: it fills as many missing PSNs as it takes, up to the
  end of the gap. It counts as late once; gaps more than ``REACH`` earlier are dropped;
- a *duplicate*, if its PSN is earlier and not missing.

A PSN more than ``REACH`` away from the PSNs of the previous request, in either direction, is a
*restart*: another connection on the same queue pair, or a long pause of the capture. No PSNs are
missing then, and the sequence restarts. Ahead and earlier are by serial arithmetic relative to
the previous request.

PSNs wrap, so they are unwrapped first: within a block, each request has a 64-bit *position*, in
which consecutive PSNs are consecutive numbers. How many PSNs a READ takes depends on the path MTU;
where a capture does not show it, the MTU with the fewest anomalies is assumed.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.stats.flows import FLOWS, REST, Flows, Grouped
from rdmawire.stats.packets import IS_READ, IntArray, distances
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.serial import MODULUS

MTUS = PATH_MTUS[::-1]
"""All path MTUs. IBA 9.5.1."""
REACH = 1 << 16
"""PSNs that a request may be away from the end of the previous one."""
STRETCH = 1 << 43
"""More positions than the requests of a block can take."""
_MAX_PSNS = (MODULUS >> 1) - 1
"""Maximum PSNs of a request: with more, the next request would not be ahead of it."""


class RequestRun(NamedTuple):
    """At least one request of a block, sorted by flow.

    ``position`` is that of each request, ``read`` the bytes that it reads, ``fresh`` whether the
    sequence starts again with it, ``first`` whether it is the first of its flow in this block.
    """

    flow: IntArray
    read: IntArray
    position: IntArray
    run: IntArray
    fresh: NDArray[np.bool_]
    first: NDArray[np.bool_]

    def of(self, which: NDArray[np.bool_]) -> "RequestRun":
        """Return the requests of this mask."""
        flow, read, position, run, fresh, first = self
        chosen = flow[which], read[which], position[which], run[which]
        return RequestRun(*chosen, fresh[which], first[which])


class PsnLine:
    """Unwraps the PSNs of requests, and remembers the last PSN of each flow."""

    def __init__(self) -> None:
        self._psn = np.full(FLOWS, -1, np.int64)
        self._most = np.zeros(FLOWS, np.int64)
        self.restarts = np.zeros(FLOWS, np.int64)
        self.reads = np.zeros(FLOWS, np.bool_)

    def add(self, found: Grouped) -> RequestRun:
        """Return the requests of a block with their positions."""
        own, flow = found.packets, found.flow
        read = np.where(IS_READ[own.opcode], own.read, 0)
        most = psn_counts(read, MTUS[-1])
        first = np.zeros(len(own), np.bool_)
        first[found.starts] = True
        before = np.where(first, self._psn[flow], np.roll(own.psn, 1))
        allowed = np.where(first, self._most[flow], np.roll(most, 1)) + REACH
        step = np.where(before < 0, 0, distances(before, own.psn))
        restart = (step < -REACH) | (step > allowed)
        self.restarts += np.bincount(flow[restart], minlength=FLOWS)
        fresh = restart | (before < 0)
        self._remember(found, own.psn, most, read)
        return _placed(flow, read, np.where(fresh, 0, step), fresh, first)

    def _remember(self, found: Grouped, psn: IntArray, most: IntArray, read: IntArray) -> None:
        last = np.append(found.starts[1:], len(psn)) - 1
        self._psn[found.flows], self._most[found.flows] = psn[last], most[last]
        self.reads[found.flow[read > MTUS[-1]]] = True


def psn_counts(read: IntArray, mtu: int) -> IntArray:
    """Return the PSNs that requests take: 1, or the packets of a READ response. IBA 9.7.3.1."""
    return np.clip(-(-read // mtu), 1, _MAX_PSNS)


def _placed(
    flow: IntArray,
    read: IntArray,
    step: IntArray,
    fresh: NDArray[np.bool_],
    first: NDArray[np.bool_],
) -> RequestRun:
    begins = fresh | first
    run = np.cumsum(begins) - 1
    total = np.cumsum(step)
    at = np.flatnonzero(begins)
    position = total - (total - step)[at][run] + run * STRETCH
    return RequestRun(flow, read, position, run, fresh, first)


_MAX_GAPS = 1 << 17
"""Gaps of all flows that are kept from block to block."""


class Gaps(NamedTuple):
    """Ranges of missing positions from ``start`` to before ``end``.

    In a block these are its positions; between blocks they are relative to the flow's last request.
    """

    flow: IntArray
    start: IntArray
    end: IntArray

    def of(self, which: NDArray[np.bool_] | IntArray) -> "Gaps":
        """Return some of the gaps."""
        return Gaps(*(column[which] for column in self))

    def with_(self, other: "Gaps") -> "Gaps":
        """Return these gaps, followed by others."""
        return Gaps(*(np.append(own, more) for own, more in zip(self, other, strict=True)))

    def in_order(self) -> "Gaps":
        """Return the gaps sorted by their start."""
        return self.of(np.argsort(self.start, kind="stable"))

    def around(self, positions: IntArray) -> tuple[NDArray[np.bool_], IntArray]:
        """Return which positions are in a gap, and for those the end of the gap."""
        if not len(self.start):
            return np.zeros(len(positions), np.bool_), np.empty(0, np.int64)
        gap = np.searchsorted(self.start, positions, "right") - 1
        inside = (gap >= 0) & (positions < self.end[gap])
        return inside, self.end[gap[inside]]

    def on_line(self, run: RequestRun) -> "Gaps":
        """Convert gaps of flows that continue in this block to its positions."""
        base = np.full(FLOWS, -1, np.int64)
        goes_on = run.first & ~run.fresh
        base[run.flow[goes_on]] = run.run[goes_on] * STRETCH
        here = self.of(base[self.flow] >= 0)
        return Gaps(here.flow, here.start + base[here.flow], here.end + base[here.flow])

    def elsewhere(self, run: RequestRun) -> "Gaps":
        """Return the gaps of flows that have no requests in this block."""
        absent = np.ones(FLOWS, np.bool_)
        absent[run.flow[run.first]] = False
        return self.of(absent[self.flow])

    def kept(self, run: RequestRun, expected: IntArray, last: IntArray) -> "Gaps":
        """Return the gaps that later requests may fill, relative to the last requests.

        ``last`` are the last requests of the flows, ``expected`` the position expected after each.
        """
        zero, reached = np.zeros(FLOWS, np.int64), np.zeros(FLOWS, np.int64)
        zero[run.flow[last]] = run.position[last]
        nearest = np.maximum(expected[last] - REACH, run.run[last] * STRETCH - STRETCH // 4)
        reached[run.flow[last]] = nearest
        here = self.of(self.end > reached[self.flow])
        return Gaps(here.flow, here.start - zero[here.flow], here.end - zero[here.flow])

    def latest(self) -> "Gaps":
        """Return the latest gaps, as many as are kept."""
        return self.of(np.arange(max(len(self.flow) - _MAX_GAPS, 0), len(self.flow)))


def no_gaps() -> Gaps:
    """Return an empty set of gaps."""
    return Gaps(*(np.empty(0, np.int64) for _ in range(3)))


_COUNTS = ("gaps", "missing", "late", "filled", "duplicates")
_MAX_LEAD = 1 << 36
"""Most that the expected position may be ahead of the last request."""


class Sequence:
    """Counts of all flows, assuming this path MTU."""

    def __init__(self, mtu: int) -> None:
        self.mtu = mtu
        self.counts: dict[str, IntArray] = {name: np.zeros(FLOWS, np.int64) for name in _COUNTS}
        # Relative to the last request of the flow, as the gaps are.
        self._expected = np.zeros(FLOWS, np.int64)
        self._gaps = no_gaps()
        self._late = no_gaps()

    def adopt(self, other: "Sequence", flows: NDArray[np.bool_]) -> None:
        """Copy the state of some flows from another sequence."""
        for name, counts in self.counts.items():
            counts[flows] = other.counts[name][flows]
        self._expected[flows] = other._expected[flows]
        self._gaps = self._gaps.with_(other._gaps.of(flows[other._gaps.flow]))
        self._late = self._late.with_(other._late.of(flows[other._late.flow]))

    def add(self, run: RequestRun) -> None:
        """Count the requests of a block."""
        ends = run.position + psn_counts(run.read, self.mtu)
        expected = self._expectations(run, ends)
        ahead = run.position > expected
        new = Gaps(run.flow[ahead], expected[ahead], run.position[ahead])
        gaps = self._gaps.on_line(run).with_(new).in_order()
        late, filled = self._late_ones(run, expected, ends, gaps)
        self._count("gaps", new.flow)
        self._count("missing", new.flow, new.end - new.start)
        self._count("late", run.flow[late])
        self._count("filled", run.flow[late], filled)
        self._count("duplicates", run.flow[run.position < expected])
        self._count("duplicates", run.flow[late], np.full(len(late), -1))
        self._remember(run, np.maximum(expected, ends), gaps, late)

    def _expectations(self, run: RequestRun, ends: IntArray) -> IntArray:
        """Return the expected position of each request."""
        before = np.roll(ends, 1)
        begins = run.run * STRETCH + self._expected[run.flow]
        before[run.first] = begins[run.first]
        before[run.fresh] = run.position[run.fresh]
        return np.maximum.accumulate(before)

    def _late_ones(
        self, run: RequestRun, expected: IntArray, ends: IntArray, gaps: Gaps
    ) -> tuple[IntArray, IntArray]:
        """Return the late requests, and how many missing PSNs each fills."""
        behind = np.flatnonzero((run.position < expected) & (expected - run.position <= REACH))
        inside, until = gaps.around(run.position[behind])
        behind = behind[inside]
        known = self._late.on_line(run).start
        _, first = np.unique(np.append(known, run.position[behind]), return_index=True)
        new = np.sort(first[first >= len(known)]) - len(known)
        late = behind[new]
        return late, np.minimum(ends[late], until[new]) - run.position[late]

    def _count(self, name: str, flow: IntArray, each: IntArray | None = None) -> None:
        np.add.at(self.counts[name], flow, 1 if each is None else each)

    def _remember(self, run: RequestRun, expected: IntArray, gaps: Gaps, late: IntArray) -> None:
        last = np.append(np.flatnonzero(run.first)[1:], len(run.flow)) - 1
        self._expected[run.flow[last]] = np.minimum(expected[last] - run.position[last], _MAX_LEAD)
        filled = Gaps(run.flow[late], run.position[late], run.position[late] + 1)
        known = self._late.on_line(run).with_(filled)
        self._gaps = self._gaps.elsewhere(run).with_(gaps.kept(run, expected, last)).latest()
        self._late = self._late.elsewhere(run).with_(known.kept(run, expected, last)).latest()


class RequestCounts:
    """Counts the requests of all flows, for every path MTU until the right one is known."""

    def __init__(self) -> None:
        self._line = PsnLine()
        self.sequences = [Sequence(mtu) for mtu in MTUS]

    def add(self, found: Grouped) -> None:
        """Count the requests of a block."""
        found = found.of(found.flow != REST)
        if not len(found.packets):
            return
        known = self._line.reads.copy()
        run = self._line.add(found)
        first, *others = self.sequences
        for sequence in others:
            sequence.adopt(first, self._line.reads & ~known)
        first.add(run)
        reading = self._line.reads[run.flow]
        if reading.any():
            reads = run.of(reading)
            for sequence in others:
                sequence.add(reads)

    def counts(self, flow: int, mtu: int, largest_payload: int) -> dict[str, int]:
        """Return the counts of a flow.

        ``mtu`` is its path MTU in bytes; 0 if unknown. Then the one with the fewest anomalies is
        assumed, of those that are not less than ``largest_payload``.
        """
        sequence = self.sequences[0]
        if self._line.reads[flow]:
            allowed = [s for s in self.sequences if mtu in (0, s.mtu) and s.mtu >= largest_payload]
            sequence = min(allowed or self.sequences, key=lambda s: _anomalies(s, flow))
        counts = {name: int(each[flow]) for name, each in sequence.counts.items()}
        return counts | {"restarts": int(self._line.restarts[flow])}


def _anomalies(sequence: Sequence, flow: int) -> int:
    return int(sequence.counts["missing"][flow] + sequence.counts["duplicates"][flow])


def path_mtu(flows: Flows, flow: int, back: int) -> int:
    """Return the path MTU that full packets in both directions show; 0 if they show none.

    ``back`` is the reverse flow, -1 if it is not known.
    """
    mtu = max(int(flows.path_mtu[number]) for number in (flow, back) if number >= 0)
    return mtu if mtu in MTUS else 0


def largest_payload(flows: Flows, flow: int, back: int) -> int:
    """Return the longest payload in both directions, in bytes."""
    return int(np.max(flows.largest[[number for number in (flow, back) if number >= 0]]))
