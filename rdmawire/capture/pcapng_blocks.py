"""A pcapng file in blocks of complete records, as those of a pcap.

The four words before the captured bytes of an enhanced packet block are as long as a record header
of a pcap, and have the two lengths at the same offsets: they are used as they are, with the times
apart. Records that a pcap cannot hold are kept apart as well.
"""

import os
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.io import STREAM
from rdmawire.capture.pcap import RECORD
from rdmawire.capture.pcap_blocks import RecordBlock
from rdmawire.capture.pcapng import InterfaceClock, PacketRun, PcapngParser
from rdmawire.capture.reader import Reader, open_capture
from rdmawire.capture.record import COMMENT, Record, longest_record
from rdmawire.capture.record_finder import Offsets, RecordFormat
from rdmawire.errors import CaptureError
from rdmawire.units import SECOND

_BLOCK_BYTES = 2 << 20
"""Bytes of records in a block: few enough to fit a processor's cache."""
_PADDING = bytes(256)
"""After the records of a block, so that the first bytes of the last one can be read at once."""
_TIMES = range(-(2**62), 2**62)
"""Times (ns) whose differences fit in 64 bits."""


class OtherRecord(NamedTuple):
    """A record that must be dissected as it is in the file.

    ``first_ns`` and ``previous_ns`` are the times of the first record of the file and of the one
    before this, in ns since the epoch.
    """

    record: Record
    first_ns: int
    previous_ns: int


class _Piece(NamedTuple):
    """Some records: their bytes, the offsets of their headers, and their times in ns.

    ``held`` are the bytes of memory of all of them, also of those that are kept apart.
    """

    data: bytes
    offsets: Offsets
    times: NDArray[np.int64]
    held: int


class PcapngFile:
    """A pcapng file, from its first record on, which is the first of ``run``.

    ``others`` are records that a pcap of this link type cannot hold, by their frame numbers: with
    comments, of another link type, or next to a time out of range. In a block, an empty record
    stands in their place. ``link_types`` are those of all records that were read.
    """

    def __init__(self, reader: Reader, runs: Iterator[PacketRun], run: PacketRun) -> None:
        first = next(run.records())
        self.reader = reader
        self.name = reader.name
        self.link_type = first.link_type
        self.form = RecordFormat(run.order, SECOND, longest_record(first.link_type))
        self.others: dict[int, OtherRecord] = {}
        self.link_types = {first.link_type}
        self._runs = chain((run,), runs)
        self._first_ns = self._previous_ns = first.time_ns
        self._number = 1

    @property
    def position(self) -> int:
        """Bytes of the file, as it is stored, that have been read."""
        return self.reader.position

    def blocks(self) -> Iterator[RecordBlock]:
        """Read all complete records; can be called once.

        Raises :class:`CaptureError` where the file is damaged, after all records before.
        """
        damage, pieces, size = None, list[_Piece](), 0
        with self.reader:
            try:
                for run in self._runs:
                    pieces.append(self._kept(run) or self._copied(list(run.records())))
                    size += pieces[-1].held
                    if size >= _BLOCK_BYTES:
                        yield self._block(pieces)
                        pieces, size = [], 0
            except CaptureError as error:
                damage = error
        if pieces:
            yield self._block(pieces)
        if damage is not None:
            raise damage

    def _block(self, pieces: list[_Piece]) -> RecordBlock:
        """Join pieces: those of the next records."""
        data, offsets, times, _ = zip(*pieces, strict=True)
        starts = np.cumsum([0, *map(len, data[:-1])])
        moved = [some + start for some, start in zip(offsets, starts.tolist(), strict=True)]
        joined = memoryview(b"".join([*data, _PADDING]))
        count = sum(map(len, offsets))
        first = self._number - count
        return RecordBlock(joined, np.concatenate(moved), first, np.concatenate(times))

    def _kept(self, run: PacketRun) -> _Piece | None:
        """Take the bytes of packets as they are; ``None`` if that is not possible for all."""
        in_range = self._first_ns in _TIMES and self._previous_ns in _TIMES
        if run.packet is not None or run.order != self.form.order or not in_range:
            return None
        starts = np.array(run.starts)
        times = self._times_of(run, starts)
        if times is None:
            return None
        begin = run.starts[0] - RECORD
        self._previous_ns = int(times[-1])
        self._number += len(times)
        data = run.buffer[begin : run.ends[-1]]
        return _Piece(data, starts - (begin + RECORD), times, len(data))

    def _times_of(self, run: PacketRun, starts: Offsets) -> NDArray[np.int64] | None:
        """Return the times of packets; ``None`` if a pcap cannot hold all of them.

        ``starts`` are the offsets of the captured bytes.
        """
        words = np.ndarray((len(run.buffer) - 3,), f"{run.order}u4", run.buffer, strides=(1,))
        times = np.empty(len(starts), np.int64)
        interfaces = words[starts - 20]
        for interface in np.unique(interfaces).tolist():
            clock, rows = run.clocks[interface], np.flatnonzero(interfaces == interface)
            upper, lower = words[starts[rows] - 16], words[starts[rows] - 12]
            found = _times(clock, upper.astype(np.uint64) << np.uint64(32) | lower)
            if found is None or clock.link_type != self.link_type:
                return None
            times[rows] = found
        return times

    def _copied(self, records: list[Record]) -> _Piece:
        """Copy packets, and keep those apart that a pcap cannot hold."""
        data, heads = [record.data for record in records], np.zeros((len(records), 4), np.int64)
        times = np.zeros(len(records), np.int64)
        for row, record in enumerate(records):
            self.link_types.add(record.link_type)
            times[row] = record.time_ns if record.time_ns in _TIMES else 0
            if self._fits(record):
                heads[row, 2:] = len(record.data), record.length
            else:
                before = self._first_ns, self._previous_ns
                self.others[self._number + row] = OtherRecord(record, *before)
                # An empty record whose length is 1 is cut short, so it is dissected one by one.
                data[row], heads[row, 3] = b"", 1
            self._previous_ns = record.time_ns
        self._number += len(records)
        offsets = np.cumsum(heads[:, 2] + RECORD) - heads[:, 2] - RECORD
        written = heads.astype(f"{self.form.order}u4").view(f"V{RECORD}").ravel().tolist()
        parts = chain.from_iterable(zip(written, data, strict=True))
        options = (value for record in records for _, value in record.options)
        held = sum(len(record.data) + RECORD for record in records) + sum(map(len, options))
        return _Piece(b"".join(parts), offsets, times, held)

    def _fits(self, record: Record) -> bool:
        """Return whether a pcap can hold a record, and 64 bits the times since others."""
        times = self._first_ns, self._previous_ns, record.time_ns
        has_comment = any(code == COMMENT for code, _ in record.options)
        in_range = all(time in _TIMES for time in times)
        return record.link_type == self.link_type and in_range and not has_comment

    def close(self) -> None:
        """Close the file."""
        self.reader.close()


def _times(clock: InterfaceClock, ticks: NDArray[np.uint64]) -> NDArray[np.int64] | None:
    """Return times in ns; ``None`` if numbers of 64 bits do not hold them."""
    last = int(ticks.max()) * clock.multiplier
    if last not in _TIMES or not _TIMES.start // 2 < clock.offset_ns < _TIMES.stop // 2:
        return None
    if last // clock.divisor >= _TIMES.stop // 2:
        return None
    if clock.divisor not in _TIMES:  # all of them are less than a nanosecond
        return np.full(len(ticks), clock.offset_ns)
    scaled = ticks.astype(np.int64) * clock.multiplier
    found: NDArray[np.int64] = scaled // clock.divisor + clock.offset_ns
    return found


def open_pcapng(path: str | os.PathLike[str]) -> PcapngFile | None:
    """Open a pcapng file that has a record, which may be compressed; ``None`` for any other."""
    name = os.fsdecode(path)
    if name == STREAM or not os.path.isfile(name):
        return None
    try:
        reader = open_capture(name)
    except (CaptureError, ValueError):  # the general reader reports it
        return None
    parser = reader.parser
    if isinstance(parser, PcapngParser) and (first := _first_run(parser)) is not None:
        return PcapngFile(reader, parser.runs, first)
    reader.close()
    return None


def _first_run(parser: PcapngParser) -> PacketRun | None:
    """Return the first packets; ``None`` if there are none, or damage comes before them."""
    try:
        return next(parser.runs, None)
    except CaptureError:  # the general reader reports it
        return None
