"""Records of any capture file, copied into blocks as if they were those of a pcap.

So pcapng and compressed captures are read at once too, at the cost of a copy.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from rdmawire.capture.io import STREAM
from rdmawire.capture.pcap import RECORD
from rdmawire.capture.reader import Reader, open_capture
from rdmawire.capture.record import COMMENT, Record, longest_record
from rdmawire.capture.record_index import RecordBlock, RecordFormat
from rdmawire.errors import CaptureError
from rdmawire.units import SECOND

_BLOCK = 2 << 20
"""Bytes of records in a block: few enough to fit a processor's cache."""
_BEHIND = bytes(256)
"""Behind the records of a block, so that the first bytes of the last one can be read at once."""
_TIMES = range(-(2**62), 2**62)
"""Times (ns) that differ by less than 64 bits can hold."""


class OtherRecord(NamedTuple):
    """A record that must be dissected as it is in the file.

    ``first_ns`` and ``previous_ns`` are the times of the first record of the file and of the one
    before this, in ns since the epoch.
    """

    record: Record
    first_ns: int
    previous_ns: int


class CopiedRecords:
    """The records of a capture, from its first one on.

    ``others`` are those that a pcap of this link type cannot hold, by their frame numbers: with
    comments, of another link type, or next to a time out of range. In a block they are empty.
    ``link_types`` are those of all records that were read.
    """

    def __init__(self, reader: Reader, first: Record) -> None:
        self.reader = reader
        self.name = reader.name
        self.link_type = first.link_type
        self.form = RecordFormat("<", SECOND, longest_record(first.link_type))
        self.others: dict[int, OtherRecord] = {}
        self.link_types = {first.link_type}
        self._first = first
        self._previous_ns = first.time_ns

    @property
    def position(self) -> int:
        """Bytes of the file, as it is stored, that have been read."""
        return self.reader.position

    def blocks(self) -> Iterator[RecordBlock]:
        """Read all complete records; can be called once.

        Raises :class:`CaptureError` where the file is damaged, after all records before.
        """
        number, damage = 1, None
        batch, size = [self._first], len(self._first.data)
        with self.reader:
            try:
                for record in self.reader:
                    batch.append(record)
                    size += RECORD + len(record.data)
                    if size >= _BLOCK:
                        yield self._block(batch, number)
                        number += len(batch)
                        batch, size = [], 0
            except CaptureError as error:
                damage = error
        if batch:
            yield self._block(batch, number)
        if damage is not None:
            raise damage

    def _block(self, batch: Sequence[Record], number: int) -> RecordBlock:
        """Copy records, of which the first has this frame number."""
        times = [record.time_ns for record in batch]
        before = [self._previous_ns, *times[:-1]]
        self._previous_ns = times[-1]
        data, others = [record.data for record in batch], self._others_of(batch, times, before)
        for row in others:
            clock = self._first.time_ns, before[row]
            self.others[number + row] = OtherRecord(batch[row], *clock)
            data[row], times[row] = b"", 0
        captured = np.fromiter(map(len, data), np.int64, len(data))
        heads = np.zeros((len(batch), 4), "<u4")
        heads[:, 2] = captured
        heads[:, 3] = [record.length for record in batch]
        heads[others, 3] = 1
        ends = np.cumsum(captured + RECORD)
        offsets = ends - captured - RECORD
        parts = zip(heads.view(f"V{RECORD}").ravel().tolist(), data, strict=True)
        joined = b"".join([*chain.from_iterable(parts), _BEHIND])
        return RecordBlock(memoryview(joined), offsets, number, np.array(times, np.int64))

    def _others_of(self, batch: Sequence[Record], times: list[int], before: list[int]) -> list[int]:
        """Return the rows of the records that a pcap cannot hold."""
        link_types = {record.link_type for record in batch}
        self.link_types |= link_types
        clocks = (self._first.time_ns, *before[:1], min(times), max(times))
        in_range = all(time in _TIMES for time in clocks)
        if link_types == {self.link_type} and in_range and not any(each.options for each in batch):
            return []
        return [
            row
            for row, (record, *clock) in enumerate(zip(batch, times, before, strict=True))
            if record.link_type != self.link_type
            or any(code == COMMENT for code, _ in record.options)
            or not all(time in _TIMES for time in (self._first.time_ns, *clock))
        ]

    def close(self) -> None:
        """Close the file."""
        self.reader.close()


def open_copies(path: str | os.PathLike[str]) -> CopiedRecords | None:
    """Open a capture that is a file and has a record; return ``None`` for any other."""
    name = os.fsdecode(path)
    if name == STREAM or not os.path.isfile(name):
        return None
    try:
        reader = open_capture(name)
    except (CaptureError, ValueError):  # who opens it to read one record after the other reports it
        return None
    try:
        first = next(iter(reader), None)
    except CaptureError:
        first = None
    if first is None:
        reader.close()
        return None
    return CopiedRecords(reader, first)
