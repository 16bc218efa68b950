"""The offsets of the record headers of a pcap.

A record header gives only the start of the next one, so a walk is sequential. :class:`RecordFinder`
starts *lanes* at offsets that look like records, spread over a block, and walks them together, each
step one array operation. The result is exact: every lane must end on the byte where the next lane
started, and the first starts at a record. If a lane does not, a start was wrong, and the walk is
repeated one record after the other.
"""

import mmap
import sys
from math import isqrt
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.pcap import RECORD

Buffer = bytes | mmap.mmap
Offsets = NDArray[np.int64]

_SAMPLE = 64
"""Records that are walked one after the other to know their lengths."""
_CHAIN = 3
"""Records in a row that must look like records for a lane to start at the first of them."""
_TRIES = 64
"""Candidates for the start of a lane; without a match among them, the lane is omitted."""


class RecordFormat(NamedTuple):
    """How record headers are written: byte order, units per second, the longest record in bytes."""

    order: str
    resolution: int
    longest: int


class RecordRange(NamedTuple):
    """Offsets of the headers of complete records, and the offset after the last of them."""

    offsets: Offsets
    end: int


class RecordFinder:
    """Finds the records of a pcap in the first ``size`` bytes of a buffer, by default in all."""

    def __init__(self, data: Buffer, form: RecordFormat, size: int | None = None) -> None:
        self._data = data
        self._size = len(data) if size is None else size
        self._form = form
        self._header = Struct(f"{form.order}4xII4x").unpack_from
        # The upper half of the seconds changes every 18 hours: it marks record headers.
        self._mark_at = 2 if form.order == "<" else 0
        self._words = np.ndarray((max(self._size - 3, 0),), f"{form.order}u4", data, strides=(1,))

    def find(self, start: int, end: int) -> RecordRange:
        """Return the complete records from ``start``, where one begins, up to before ``end``.

        The range ends before ``end`` if the record there is incomplete or too long.
        """
        sample = self._one_by_one(start, end, _SAMPLE)
        if len(sample.offsets) < _SAMPLE:
            return sample
        alike = self._same_length(sample, end)
        if alike.end >= end:
            return alike
        starts = self._lane_starts(alike.end, end, _lane_size(sample, end))
        rest = self._in_step(starts, end) or self._one_by_one(alike.end, end)
        return RecordRange(np.concatenate((alike.offsets, rest.offsets)), rest.end)

    def _same_length(self, sample: RecordRange, end: int) -> RecordRange:
        """Find the records of one length, as in bulk transfers, from the sample's start on.

        The range is empty if the records of the sample differ in length.
        """
        start, lengths = int(sample.offsets[0]), np.diff(sample.offsets, append=sample.end)
        length = int(lengths[0])
        if (lengths != length).any():
            return RecordRange(sample.offsets[:0], start)
        every = np.arange(start, min(end, self._size - length + 1), length)
        differ = np.flatnonzero(self._words[every + 8] != length - RECORD)
        same = every[: differ[0]] if len(differ) else every
        return RecordRange(same, start + length * len(same))

    def _lane_starts(self, start: int, end: int, size: int) -> Offsets:
        """Return where lanes of ``size`` bytes start: ``start``, then what looks like a record."""
        mark, find = self._mark(start), self._data.find
        spans = [(at, min(at + size, end)) for at in range(start + size, end, size)]
        starts = np.array([find(mark, *span) for span in spans], np.int64) - self._mark_at
        for lane in np.flatnonzero(~self._which_look_like_records(starts, mark)).tolist():
            starts[lane] = self._next_start(mark, *spans[lane])
        return np.array([start, *starts[starts > 0]], np.int64)

    def _mark(self, at: int) -> bytes:
        return self._data[at + self._mark_at : at + self._mark_at + 2]

    def _which_look_like_records(self, offsets: Offsets, mark: bytes) -> NDArray[np.bool_]:
        """Check many offsets as :meth:`_looks_like_record` does.

        Those with fewer than :data:`_CHAIN` records after them are rejected.
        """
        seconds = int.from_bytes(mark, "little" if self._form.order == "<" else "big")
        looks = offsets >= 0
        for _ in range(_CHAIN):
            looks &= offsets <= self._size - RECORD
            offsets = np.where(looks, offsets, 0)
            captured = self._words[offsets + 8].astype(np.int64)
            looks &= captured <= self._form.longest
            looks &= self._words[offsets + 4] < self._form.resolution
            looks &= self._words[offsets] >> 16 == seconds
            offsets = offsets + RECORD + captured
        return looks

    def _next_start(self, mark: bytes, start: int, end: int) -> int:
        """Return the first offset that looks like a record; 0 for none."""
        for _ in range(_TRIES):
            at = self._data.find(mark, start, end)
            if at < 0:
                return 0
            if self._looks_like_record(at - self._mark_at, mark):
                return at - self._mark_at
            start = at + 1
        return 0

    def _looks_like_record(self, at: int, mark: bytes) -> bool:
        """Return whether ``_CHAIN`` records, or fewer that end with the data, seem to start here.

        For a single offset this is faster than :meth:`_which_look_like_records`.
        """
        for _ in range(_CHAIN):
            if at + RECORD > self._size:
                return at == self._size
            fraction, captured = self._header(self._data, at)
            fits = fraction < self._form.resolution and captured <= self._form.longest
            if not fits or self._mark(at) != mark:
                return False
            at += RECORD + captured
        return True

    def _in_step(self, at: Offsets, end: int) -> RecordRange | None:
        """Walk all lanes together; return ``None`` if one does not end where the next started."""
        stops = np.append(at[1:], end)
        lanes = np.arange(len(at))
        steps: list[tuple[NDArray[np.int64], Offsets]] = []
        last = end
        while at.size:
            following = self._following(at)
            if following is None:
                return None
            steps.append((lanes, at))
            at = following
            going = at < stops
            if going.all():
                continue
            if not going[-1] and stops[-1] == end:  # the last lane may end after the range
                last = stops[-1] = at[-1]
            if (at != stops)[~going].any():
                return None
            lanes, at, stops = lanes[going], at[going], stops[going]
        return RecordRange(_in_order(steps), int(last))

    def _following(self, at: Offsets) -> Offsets | None:
        """Return the offsets after these records; ``None`` if one of these is not complete."""
        if int(at[-1]) + RECORD > self._size:  # lanes do not overtake each other
            return None
        captured = self._words[at + 8]
        following: Offsets = at + captured + RECORD
        complete = int(captured.max()) <= self._form.longest and int(following[-1]) <= self._size
        return following if complete else None

    def _one_by_one(self, at: int, end: int, limit: int = sys.maxsize) -> RecordRange:
        """Return the same as :meth:`find`, but at most ``limit`` records; without lanes."""
        offsets: list[int] = []
        while at < end and at + RECORD <= self._size and len(offsets) < limit:
            _, captured = self._header(self._data, at)
            following = at + RECORD + captured
            if captured > self._form.longest or following > self._size:
                break
            offsets.append(at)
            at = following
        return RecordRange(np.array(offsets, np.int64), at)


def _lane_size(sample: RecordRange, end: int) -> int:
    """Return the bytes of a lane: finding its start costs about a sixteenth of a step."""
    start = int(sample.offsets[0])
    mean = (sample.end - start) // len(sample.offsets)
    return mean * max(isqrt((end - start) // mean // 16), 1)


def _in_order(steps: list[tuple[NDArray[np.int64], Offsets]]) -> Offsets:
    """Return the offsets of all steps, those of the first lane first."""
    lanes = np.concatenate([lanes for lanes, _ in steps])
    counts = np.bincount(lanes)
    begins = np.concatenate(([0], np.cumsum(counts)[:-1]))
    offsets = np.empty(len(lanes), np.int64)
    for step, (of, at) in enumerate(steps):
        offsets[begins[of] + step] = at
    return offsets
