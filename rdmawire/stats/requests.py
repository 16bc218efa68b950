"""The sequence of requests under every path MTU, until it is known which one holds.

How many PSNs a READ takes depends on the path MTU, which may show only later, or only on the way
back. So flows with READs are counted for each path MTU side by side.
"""

import numpy as np

from rdmawire.stats.flow import REST, Flows, Grouped
from rdmawire.stats.line import MTUS, Line
from rdmawire.stats.sequence import Sequence


class Requests:
    """Counts of the requests of all flows."""

    def __init__(self) -> None:
        self._line = Line()
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

    def counts(self, flow: int, mtu: int, largest: int) -> dict[str, int]:
        """The counts of a flow.

        ``mtu`` is its path MTU, zero if that is not known; then it is the one under which least
        is amiss, of those that ``largest``, the longest payload seen, allows.
        """
        sequence = self.sequences[0]
        if self._line.reads[flow]:
            allowed = [s for s in self.sequences if mtu in (0, s.mtu) and s.mtu >= largest]
            sequence = min(allowed or self.sequences, key=lambda s: _amiss(s, flow))
        counts = {name: int(each[flow]) for name, each in sequence.counts.items()}
        return counts | {"restarts": int(self._line.restarts[flow])}


def _amiss(sequence: Sequence, flow: int) -> int:
    return int(sequence.counts["missing"][flow] + sequence.counts["duplicates"][flow])


def path_mtu(flows: Flows, flow: int, back: int) -> int:
    """The path MTU that full packets either way had; zero if there were none, or of no such size.

    ``back`` is the flow back, -1 if that is not known.
    """
    mtu = max(int(flows.path_mtu[number]) for number in (flow, back) if number >= 0)
    return mtu if mtu in MTUS else 0


def largest(flows: Flows, flow: int, back: int) -> int:
    """The longest payload either way."""
    return int(np.max(flows.largest[[number for number in (flow, back) if number >= 0]]))
