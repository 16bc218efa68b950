"""A pcap file in blocks of complete records, with the offset of every record header.

A record header gives only the start of the next one, so a walk is sequential. :class:`RecordFinder`
starts *lanes* at offsets that look like records, spread over a block, and walks them together, each
step one array operation. The result is exact: every lane must end on the byte where the next lane
started, and the first starts at a record. If a lane does not, a start was wrong, and the walk is
repeated one record after the other.

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
from threading import Thread
from typing import NamedTuple

try:
    import numpy as np
except ImportError as error:
    raise ImportError("columns need NumPy: pip install 'rdmawire[columns]'") from error
from numpy.typing import NDArray

from rdmawire.capture import pcap
from rdmawire.capture.compression import CHUNK, recognise
from rdmawire.capture.io import STREAM, InputFile, open_input
from rdmawire.capture.pcap import RECORD
from rdmawire.capture.record import longest_record
from rdmawire.errors import CaptureError

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

        The range ends before ``end`` if there is no complete record.
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
        for lane in np.flatnonzero(~self._look_like_records(starts, mark)).tolist():
            starts[lane] = self._next_start(mark, *spans[lane])
        return np.array([start, *starts[starts > 0]], np.int64)

    def _mark(self, at: int) -> bytes:
        return self._data[at + self._mark_at : at + self._mark_at + 2]

    def _look_like_records(self, offsets: Offsets, mark: bytes) -> NDArray[np.bool_]:
        """Check many offsets as :meth:`_looks_like_record` does; the last of the data fail."""
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
        """Return whether ``_CHAIN`` records seem to start here, or the last of the data.

        Of few offsets, this is faster than :meth:`_look_like_records`.
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


_BLOCK = 8 << 20
"""Bytes of a block: enough for lanes to be faster, few enough to fit a processor's cache."""


class RecordBlock(NamedTuple):
    """Complete records in a buffer that the next block overwrites.

    ``offsets`` are those of their headers in ``data``; ``first`` is the frame number of the first
    record, counted from one. ``times`` (ns since the epoch) are ``None`` if the headers have them.
    """

    data: memoryview
    offsets: Offsets
    first: int
    times: NDArray[np.int64] | None = None


_HUGE_PAGE = 2 << 20
"""Bytes of a huge page on x86-64 and, with pages of 4 KiB, on ARM."""


def _memory(size: int) -> mmap.mmap:
    """Return at least ``size`` bytes of memory, on Linux in huge pages: fewer page faults."""
    if size < _HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, size)
    # Linux aligns private memory of whole huge pages; shared memory, Python's default, has none.
    whole = -(-size // _HUGE_PAGE) * _HUGE_PAGE
    memory = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class _DecompressedFile:
    """A compressed file being read, whose decompressed bytes fill buffers.

    ``left`` is a number of bytes that the file does not exceed.
    """

    left = 1 << 60

    def __init__(self, file: InputFile, chunks: Iterator[bytes]) -> None:
        self._file = file
        self._chunks = chunks
        self._rest = memoryview(b"")
        self._failure: CaptureError | None = None
        self.name = file.name

    @property
    def position(self) -> int:
        """Bytes of the file, as it is stored, that have been read."""
        return self._file.position

    def fill(self, buffer: memoryview) -> int:
        """Read until ``buffer`` is full or the file ends; return the number of bytes read.

        After damage it returns fewer: :meth:`check_end` raises the error.
        """
        filled = 0
        while filled < len(buffer) and (self._rest or self._next()):
            part = self._rest[: len(buffer) - filled]
            buffer[filled : filled + len(part)] = part
            self._rest = self._rest[len(part) :]
            filled += len(part)
        return filled

    def _next(self) -> bool:
        """Decompress the next bytes; return whether there are some."""
        try:
            self._rest = memoryview(next(self._chunks, b""))
        except CaptureError as error:
            self._failure = error
        return bool(self._rest)

    def check_end(self) -> None:
        """Raise :class:`CaptureError` if reading ended at damage."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _ReadAhead:
    """Fills a buffer from a file in a thread, while another buffer is used."""

    def __init__(self, file: InputFile | _DecompressedFile) -> None:
        self._file = file
        self._thread: Thread | None = None
        self._count = 0
        self._error: BaseException | None = None

    def begin(self, buffer: memoryview) -> None:
        """Begin to fill a buffer."""
        self._count = 0
        self._thread = Thread(target=self._fill, args=(buffer,))
        self._thread.start()

    def _fill(self, buffer: memoryview) -> None:
        try:
            self._count = self._file.fill(buffer)
        except BaseException as error:  # raised by filled(), in the thread that uses the buffers
            self._error = error

    def filled(self) -> int:
        """Wait until the buffer is full or the file ends; return the number of bytes read.

        Raises the exception that ended reading, if there was one.
        """
        self.close()
        if self._error is not None:
            raise self._error
        return self._count

    def close(self) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class PcapFile:
    """A pcap file, from its first record on."""

    def __init__(
        self, file: InputFile | _DecompressedFile, form: RecordFormat, link_type: int
    ) -> None:
        self.name = file.name
        self.form = form
        self.link_type = link_type
        self.link_types = {link_type}
        self._file = file

    @property
    def position(self) -> int:
        """Bytes of the file that have been read."""
        return self._file.position

    def blocks(self, size: int = _BLOCK) -> Iterator[RecordBlock]:
        """Read all complete records, about ``size`` bytes at a time; can be called once.

        Raises :class:`CaptureError` if the file does not end with the last record, or became
        shorter.
        """
        # The space before a block takes the start of a record that the block before has cut. Each
        # byte has the same offset in its page as in the file: copying is two to five times as fast.
        pages = -(-(RECORD + self.form.longest) // mmap.PAGESIZE)
        room = pages * mmap.PAGESIZE + pcap.HEADER
        size = min(size, self._file.left + CHUNK)
        memory, following = _memory(room + size), None
        start, base, number = room, pcap.HEADER - room, 1
        with closing(self._file), closing(_ReadAhead(self._file)) as ahead:
            filled = self._file.fill(memoryview(memory)[room : room + size])
            while True:
                end, is_last = room + filled, filled < size
                if not is_last:
                    following = following or _memory(room + size)
                    ahead.begin(memoryview(following)[room : room + size])
                # A record that begins before this is complete, unless the file ends in it.
                stop = end if is_last else end - room
                offsets, after = RecordFinder(memory, self.form, end).find(start, stop)
                if len(offsets):
                    yield RecordBlock(memoryview(memory)[:end], offsets, number)
                if after < stop:
                    ahead.filled()  # what check_end() says depends on it
                    raise self._damage(memory[after:end], base + after)
                if is_last or following is None:
                    break
                start = room - (end - after)
                following[start:room] = memory[after:end]
                base, number = base + filled, number + len(offsets)
                memory, following, filled = following, memory, ahead.filled()
            self._file.check_end()

    def _damage(self, data: bytes, offset: int) -> CaptureError:
        """Return the error for the record that should begin with these bytes."""
        captured = unpack_from(f"{self.form.order}8xI", data)[0] if len(data) >= RECORD else 0
        if captured <= self.form.longest:
            self._file.check_end()
        reason = pcap.record_damage(captured, len(data), self.form.longest)
        return CaptureError(f"{self.name}: {reason}", offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def open_pcap(path: str | os.PathLike[str]) -> PcapFile | None:
    """Open a pcap file of version 2, which may be compressed.

    Returns ``None`` for all that needs a general reader: standard input, pipes, pcapng, and files
    that are no captures.
    """
    name = os.fsdecode(path)
    try:
        if name == STREAM or not os.path.isfile(name):
            return None
        return _begun(open_input(name)) or _begun_decompressed(open_input(name))
    except (CaptureError, ValueError):  # the general reader reports it
        return None


def _begun_decompressed(file: InputFile) -> PcapFile | None:
    """Read the header of a compressed pcap."""
    try:
        compression, chunks = recognise(file.chunks(), file.name)
    except CaptureError:
        compression = ""
    if compression:
        return _begun(_DecompressedFile(file, chunks))
    file.close()
    return None


def _begun(file: InputFile | _DecompressedFile) -> PcapFile | None:
    """Read the header of a pcap; close the file if it has none."""
    header = bytearray(pcap.HEADER)
    is_complete = file.fill(memoryview(header)) == len(header)
    order, resolution = pcap.MAGICS.get(bytes(header[:4]), ("", 0))
    if not is_complete or not order or unpack_from(f"{order}H", header, 4)[0] != 2:
        file.close()
        return None
    link_type = unpack_from(f"{order}I", header, 20)[0] & 0xFFFF
    return PcapFile(file, RecordFormat(order, resolution, longest_record(link_type)), link_type)
