"""What a capture amounts to, block by block, in bounded memory."""

import os
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.pcap import RECORD
from rdmawire.columns.column import Columns
from rdmawire.columns.query import select_frames
from rdmawire.filter import Filter
from rdmawire.stats.address import Addresses
from rdmawire.stats.bins import Bins
from rdmawire.stats.circle import Numbers
from rdmawire.stats.facts import Facts
from rdmawire.stats.flow import Flows, Grouped
from rdmawire.stats.introductions import Introductions
from rdmawire.stats.iwarp import Streams
from rdmawire.stats.opcodes import IS_REQUEST
from rdmawire.stats.packets import Packets, packets
from rdmawire.stats.pairing import Pairing
from rdmawire.stats.points import Points
from rdmawire.stats.question import FACTS, blocks
from rdmawire.stats.requests import Requests
from rdmawire.wire.inet import ROCE_PORT

_PIECE = 1 << 17
"""Frames that are counted at once."""


class Statistics:
    """Counts of one capture, or of several together.

    ``interval`` is the width of the stretches of throughput in nanoseconds, ``None`` for one that
    suits the capture; ``points`` keeps the PSNs over time, for a picture.
    """

    def __init__(self, *, interval: int | None = None, points: bool = False) -> None:
        self.frames = 0
        self.octets = 0
        self.first_ns = self.last_ns = 0
        self.opcodes = {name: np.zeros(256, np.int64) for name in ("frames", "octets", "payload")}
        self.addresses = Addresses()
        self.flows = Flows(self.addresses)
        self.requests = Requests()
        self.pairing = Pairing(self.addresses)
        self.streams = Streams()
        self.bins = Bins(interval)
        self.points = Points() if points else None
        self._introductions = Introductions(self.addresses, self.pairing)

    def read(
        self,
        path: str | os.PathLike[str],
        *,
        ports: Iterable[int] = (ROCE_PORT,),
        where: str | Filter | None = None,
        progress: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Count the frames of a capture, or those that pass a filter.

        ``progress`` is told how many octets have been counted.

        :class:`~rdmawire.errors.CaptureError` for damage, after all that stands before it is
        counted; :class:`~.bins.IntervalError` if there are too many intervals.
        """
        read = 0
        for block in blocks(path, ports, select_frames(where)):
            for piece in _pieces(block):
                self.add(piece)
            read += int(block["frame.cap_len"].values.sum()) + RECORD * block.rows
            progress(read)

    def add(self, block: Columns) -> None:
        """Count a block."""
        times = block["frame.time_epoch"].values
        octets = block["frame.len"].values.astype(np.int64)
        self._span(times, int(octets.sum()))
        is_rdma = block["infiniband.bth.opcode"].valid.copy()
        payload = np.zeros(block.rows, np.int64)
        found = packets(block, self.addresses)
        payload[is_rdma] = found.payload
        self._dissected(block, times, octets, payload, is_rdma)
        other = np.where(is_rdma, 0, octets)
        passed = {"frames": is_rdma.astype(np.int64), "octets": octets - other}
        self.bins.add(times, {**passed, "payload": payload, "other_octets": other})
        if len(found):
            self._transport(found)

    def _span(self, times: Numbers, octets: int) -> None:
        if not self.frames:
            self.first_ns = self.last_ns = int(times[0])
        self.frames += len(times)
        self.octets += octets
        self.first_ns = min(self.first_ns, int(times.min()))
        self.last_ns = max(self.last_ns, int(times.max()))

    def _dissected(
        self,
        block: Columns,
        times: Numbers,
        octets: Numbers,
        payload: Numbers,
        is_rdma: NDArray[np.bool_],
    ) -> None:
        """What only dissected frames tell; marks those of iWARP, and their payload."""
        facts = block[FACTS]
        for at in np.flatnonzero(facts.valid):
            fact: Facts = facts.values[at]
            self._introductions.add(fact)
            if fact.is_iwarp:
                is_rdma[at] = True
                payload[at] = self.streams.add(fact, int(octets[at]), int(times[at]))

    def _transport(self, found: Packets) -> None:
        self._count_opcodes(found)
        sorted_ = self.flows.add(found)
        asking = sorted_.of(IS_REQUEST[sorted_.packets.opcode])
        self.requests.add(asking)
        self.pairing.add(sorted_)
        if self.points is not None:
            self._keep(asking)

    def _count_opcodes(self, found: Packets) -> None:
        counted = {"frames": np.ones(len(found)), "octets": found.octets, "payload": found.payload}
        for name, each in counted.items():
            sums = np.bincount(found.opcode, weights=each, minlength=256)
            self.opcodes[name] += sums.astype(np.int64)

    def _keep(self, asking: Grouped) -> None:
        assert self.points is not None
        order = np.argsort(asking.rows)
        own = asking.packets
        self.points.add(own.times[order], own.psn[order], asking.flow[order])


def _pieces(block: Columns) -> Iterator[Columns]:
    for start in range(0, block.rows, _PIECE):
        yield block.at(slice(start, start + _PIECE))
