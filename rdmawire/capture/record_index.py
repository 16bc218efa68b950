"""A pcap file in blocks of whole records, with the offset of every record header.

A record header gives only the start of the next one, so a walk is sequential. :class:`Lanes`
start at offsets that look like records, spread over the block, and step together, each step one
array operation. The result is exact: every lane must end on the byte where the next lane started,
and the first starts at a record. If a lane does not, a start was wrong, and the walk is repeated
one record after the other.

The file is read, not mapped: a file that another program shortens is then an error like any
other, where a map of it would end the process with SIGBUS.
"""

import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from math import isqrt
from struct import Struct, unpack_from
from typing import NamedTuple

try:
    import numpy as np
except ImportError as error:
    raise ImportError("columns need NumPy: pip install 'rdmawire[columns]'") from error
from numpy.typing import NDArray

from rdmawire.capture import pcap
from rdmawire.capture.pcap import RECORD
from rdmawire.capture.record import longest_record
from rdmawire.capture.source import STREAM, Source, open_source
from rdmawire.errors import CaptureError

Buffer = bytes | mmap.mmap
Places = NDArray[np.int64]

_SAMPLE = 64
"""Records that are walked one after the other to know how long they are."""
_CONVINCED = 3
"""So many records in a row must look like records for a lane to begin at the first of them."""
_TRIES = 64
"""Places that are looked at for the beginning of a lane; one that has none is left out."""


class RecordForm(NamedTuple):
    """How record headers are written: byte order, units per second, the longest record."""

    order: str
    resolution: int
    longest: int


class Stretch(NamedTuple):
    """Places of the headers of whole records, and the place behind the last of them."""

    places: Places
    end: int


class Lanes:
    """Finds the records of a pcap in memory, in its first ``size`` bytes; ``None`` for all."""

    def __init__(self, data: Buffer, form: RecordForm, size: int | None = None) -> None:
        self._bytes = data
        self._size = len(data) if size is None else size
        self._form = form
        self._read = Struct(f"{form.order}IIII").unpack_from
        # The upper half of the seconds changes every 18 hours: a mark of record headers.
        self._mark_at = 2 if form.order == "<" else 0
        self._words = np.ndarray((max(self._size - 3, 0),), f"{form.order}u4", data, strides=(1,))

    def walk(self, start: int, end: int) -> Stretch:
        """The whole records that begin from ``start``, where one begins, up to before ``end``.

        The stretch ends before ``end`` if what stands there is no whole record.
        """
        sample = self._one_by_one(start, end, _SAMPLE)
        if len(sample.places) < _SAMPLE:
            return sample
        alike = self._alike(sample, end)
        if alike.end >= end:
            return alike
        beginnings = self._beginnings(alike.end, end, _lane(sample, end))
        rest = self._in_step(beginnings, end) or self._one_by_one(alike.end, end)
        return Stretch(np.concatenate((alike.places, rest.places)), rest.end)

    def _alike(self, sample: Stretch, end: int) -> Stretch:
        """Find the run of records of one length, as in bulk transfers, that begins the sample.

        It is empty if the records of the sample differ in length.
        """
        start, lengths = int(sample.places[0]), np.diff(sample.places, append=sample.end)
        length = int(lengths[0])
        if (lengths != length).any():
            return Stretch(sample.places[:0], start)
        every = np.arange(start, min(end, self._size - length + 1), length)
        differ = np.flatnonzero(self._words[every + 8] != length - RECORD)
        found = every[: differ[0]] if len(differ) else every
        return Stretch(found, start + length * len(found))

    def _beginnings(self, start: int, end: int, lane: int) -> Places:
        """Where lanes begin: the known place first, then places that look like records."""
        mark, find = self._mark(start), self._bytes.find
        spans = [(place, min(place + lane, end)) for place in range(start + lane, end, lane)]
        marks = np.array([find(mark, *span) for span in spans], np.int64)
        guesses = marks - self._mark_at
        wrong = np.flatnonzero(~self._look_like_records(guesses, mark))
        for number in wrong.tolist():
            guesses[number] = self._guess(mark, *spans[number]) if marks[number] >= 0 else 0
        return np.array([start, *guesses[guesses > 0]], np.int64)

    def _look_like_records(self, places: Places, mark: bytes) -> NDArray[np.bool_]:
        """Look at all places together; one so near to the end that it needs a second look fails."""
        seconds = int.from_bytes(mark, "little" if self._form.order == "<" else "big")
        looks = places >= 0
        for _ in range(_CONVINCED):
            looks &= places <= self._size - RECORD
            places = np.where(looks, places, 0)
            captured = self._words[places + 8].astype(np.int64)
            looks &= captured <= self._form.longest
            looks &= self._words[places + 4] < self._form.resolution
            looks &= self._words[places] >> 16 == seconds
            places = places + RECORD + captured
        return looks

    def _mark(self, place: int) -> bytes:
        return self._bytes[place + self._mark_at : place + self._mark_at + 2]

    def _guess(self, mark: bytes, start: int, end: int) -> int:
        """The first place that looks like records; 0, where the walk begins, for none."""
        at = start
        for _ in range(_TRIES):
            at = self._bytes.find(mark, at, end)
            if at < 0:
                return 0
            if self._looks_like_records(at - self._mark_at, mark):
                return at - self._mark_at
            at += 1
        return 0

    def _looks_like_records(self, place: int, mark: bytes) -> bool:
        for _ in range(_CONVINCED):
            if place + RECORD > self._size:
                return place == self._size
            _, fraction, captured, _ = self._read(self._bytes, place)
            fits = fraction < self._form.resolution and captured <= self._form.longest
            if not fits or self._mark(place) != mark:
                return False
            place += RECORD + captured
        return True

    def _in_step(self, at: Places, end: int) -> Stretch | None:
        """Walk all lanes together; ``None`` if one does not end where the next one began."""
        stops = np.append(at[1:], end)
        lanes = np.arange(len(at))
        steps: list[tuple[NDArray[np.int64], Places]] = []
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
            if not going[-1] and stops[-1] == end:  # the last lane may end behind the stretch
                last = stops[-1] = at[-1]
            if (at != stops)[~going].any():
                return None
            lanes, at, stops = lanes[going], at[going], stops[going]
        return Stretch(_in_order(steps), int(last))

    def _following(self, at: Places) -> Places | None:
        """Where the records behind these begin; ``None`` if one of these is not whole."""
        if int(at[-1]) + RECORD > self._size:  # lanes do not pass one another
            return None
        captured = self._words[at + 8]
        following: Places = at + captured + RECORD
        whole = int(captured.max()) <= self._form.longest and int(following[-1]) <= self._size
        return following if whole else None

    def _one_by_one(self, place: int, end: int, most: int = sys.maxsize) -> Stretch:
        """The same, one record after the other, and at most so many."""
        places: list[int] = []
        while place < end and place + RECORD <= self._size and len(places) < most:
            captured = self._read(self._bytes, place)[2]
            following = place + RECORD + captured
            if captured > self._form.longest or following > self._size:
                break
            places.append(place)
            place = following
        return Stretch(np.array(places, np.int64), place)


def _lane(sample: Stretch, end: int) -> int:
    """Bytes of a lane: a guess costs about a sixteenth of what a step does."""
    start = int(sample.places[0])
    mean = (sample.end - start) // len(sample.places)
    return mean * max(isqrt((end - start) // mean // 16), 1)


def _in_order(steps: list[tuple[NDArray[np.int64], Places]]) -> Places:
    """The places of all steps, those of the first lane first."""
    lanes = np.concatenate([lanes for lanes, _ in steps])
    counts = np.bincount(lanes)
    begins = np.concatenate(([0], np.cumsum(counts)[:-1]))
    places = np.empty(len(lanes), np.int64)
    for number, (of, at) in enumerate(steps):
        places[begins[of] + number] = at
    return places


_BLOCK = 8 << 20
"""Bytes of a block: enough for lanes to pay, few enough to stay in a processor's cache."""


class Block(NamedTuple):
    """Whole records, one behind the other, in a buffer that the next block overwrites.

    ``places`` are where their headers begin in ``bytes``; ``first`` is the frame number of the
    first record, counted from one.
    """

    data: memoryview
    places: NDArray[np.int64]
    first: int


class PcapFile:
    """A pcap file, from its first record on. ``form`` says how its record headers are written."""

    def __init__(self, source: Source, form: RecordForm, link_type: int) -> None:
        self.name = source.name
        self.form = form
        self.link_type = link_type
        self._source = source

    def blocks(self, size: int = _BLOCK) -> Iterator[Block]:
        """Read all whole records, about ``size`` bytes at a time; can be called once.

        :class:`CaptureError` if the file does not end with the last record, or became shorter.
        """
        # The space before a block takes the start of a record that the block before has cut. Each
        # byte has the same place in its page as in the file: copying is two to five times as fast.
        pages = -(-(pcap.RECORD + self.form.longest) // mmap.PAGESIZE)
        room = pages * mmap.PAGESIZE + pcap.HEADER
        memory = mmap.mmap(-1, room + size)  # anonymous: pages not written use no memory
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        data = memoryview(memory)
        start, offset, number, filled = room, pcap.HEADER - room, 1, size
        with closing(self._source):
            while filled == size:
                filled = self._source.fill(data[room:])
                end = room + filled
                # A record that begins before this is whole, unless the file ends in it.
                stop = end if filled < size else end - room
                places, place = Lanes(memory, self.form, end).walk(start, stop)
                if len(places):
                    yield Block(data[:end], places, number)
                if place < stop:
                    raise self._damage(data[place:end], offset + place)
                start = room - (end - place)
                memory.move(start, place, end - place)
                offset, number = offset + filled, number + len(places)
            self._source.check_end()

    def _damage(self, data: memoryview, offset: int) -> CaptureError:
        """What is wrong with the record that should begin with these bytes."""
        is_head = len(data) >= pcap.RECORD
        captured = unpack_from(f"{self.form.order}8xI", data)[0] if is_head else 0
        if captured <= self.form.longest:
            self._source.check_end()
        reason = pcap.misfit(captured, len(data), self.form.longest)
        return CaptureError(f"{self.name}: {reason}", offset)

    def close(self) -> None:
        """Read no more."""
        self._source.close()


def open_pcap(path: str | os.PathLike[str]) -> PcapFile | None:
    """The pcap file of this name; ``None`` for whatever else is to be read another way.

    That is standard input, pipes, compressed files, pcapng, and what is no capture at all.
    """
    name = os.fsdecode(path)
    try:
        if name == STREAM or not os.path.isfile(name):
            return None
        source = open_source(name)
    except (CaptureError, ValueError):  # reported when the file is read the other way
        return None
    return _of_source(source)


def _of_source(source: Source) -> PcapFile | None:
    head = bytearray(pcap.HEADER)
    try:
        is_pcap = source.fill(memoryview(head)) == len(head) and _is_known(head)
    except CaptureError:
        is_pcap = False
    if not is_pcap:
        source.close()
        return None
    order, resolution = pcap.MAGICS[bytes(head[:4])]
    link_type = unpack_from(f"{order}I", head, 20)[0] & 0xFFFF
    return PcapFile(source, RecordForm(order, resolution, longest_record(link_type)), link_type)


def _is_known(head: bytearray) -> bool:
    """Whether a file that begins like this is a pcap of version 2."""
    magic = bytes(head[:4])
    if magic not in pcap.MAGICS:
        return False
    order, _ = pcap.MAGICS[magic]
    return bool(unpack_from(f"{order}H", head, 4)[0] == 2)
