"""Columns of a pcap file: plain frames many at once, the others dissected one by one."""

from collections.abc import Callable, Iterator

import numpy as np

from rdmawire.capture.record_index import Block, PcapFile
from rdmawire.columns.asked import Query
from rdmawire.columns.bits import LEAD
from rdmawire.columns.column import Columns
from rdmawire.columns.filling import Filling
from rdmawire.columns.frames import FRAME_COLUMNS, Frames
from rdmawire.columns.path import PATHS
from rdmawire.columns.plain import Ports, Records, Sieve
from rdmawire.columns.source import Found, first_of
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.node import Dissection

_ALL = slice(None)
_STRETCH = 8192
"""Frames that are read at once: their first octets stay in the processor's cache."""


class MixedReader:
    """Reads the columns of a pcap whose link type is that of a path.

    ``on_walk`` is told of every frame that is dissected: its row in the block, and what it holds.
    """

    def __init__(
        self,
        pcap: PcapFile,
        query: Query,
        ports: Ports,
        on_walk: Callable[[int, Dissection], None] | None = None,
    ) -> None:
        self._pcap = pcap
        self._query = query
        paths = [path for path in PATHS if path.link_type == pcap.link_type]
        self._sieve = Sieve({path: LEAD + query.width(path) for path in paths}, ports)
        self._dissector = Dissector(int(port) for port in ports)
        self._on_walk = on_walk
        self._first_ns: int | None = None
        self._previous_ns = 0

    def blocks(self) -> Iterator[Columns]:
        """The columns, block by block; then :class:`CaptureError` if the file is damaged."""
        for block in self._pcap.blocks():
            yield self._block(block)

    def _block(self, block: Block) -> Columns:
        records = Records(block.octets, block.places, self._pcap.form.order)
        filling = Filling(self._query.fields, len(block.places))
        frames = self._frames(records, block.first)
        for start in range(0, len(block.places), _STRETCH):
            self._stretch(frames, start, filling)
        return filling.columns()

    def _frames(self, records: Records, first: int) -> Frames:
        ends = records.at(np.array([0, -1])).times(self._pcap.form.resolution)
        if self._first_ns is None:
            self._first_ns = self._previous_ns = int(ends[0])
        clock = self._first_ns, self._previous_ns, self._pcap.form.resolution
        frames = Frames(records, first, *clock, self._pcap.name)
        self._previous_ns = int(ends[1])
        return frames

    def _stretch(self, frames: Frames, start: int, filling: Filling) -> None:
        stretch = slice(start, min(start + _STRETCH, len(frames.records.places)))
        part = frames.at(stretch)
        left = np.ones(len(part.records.places), np.bool_)
        for rows, plain in self._sieve.plain(part.records):
            left[rows] = False
            for column, field in enumerate(self._query.fields):
                if found := first_of(source.read(plain) for source in field.plain or ()):
                    filling.put(column, stretch, rows, found)
        for column, name in enumerate(self._query.names):
            if name in FRAME_COLUMNS:
                filling.put(column, stretch, _ALL, Found(FRAME_COLUMNS[name](part)))
        for row in np.flatnonzero(left):
            self._walk(frames, start + int(row), filling)

    def _walk(self, frames: Frames, row: int, filling: Filling) -> None:
        """One frame that is not plain."""
        record = frames.records.at(slice(row, row + 1))
        place, captured = int(record.places[0]) + LEAD, int(record.heads["captured"][0])
        frame = self._dissector.dissect(
            bytes(record.octets[place : place + captured]),
            link_type=self._pcap.link_type,
            time_ns=int(record.times(frames.resolution)[0]),
            length=int(record.heads["length"][0]),
        )
        frame.number, frame.file = frames.first + row, self._pcap.name
        frame.first_ns, frame.previous_ns = frames.first_ns, frames.before(row)
        filling.put_row(row, self._query.values(frame))
        if self._on_walk is not None:
            self._on_walk(row, frame)
