"""A pcap file in blocks of complete records, with the offset of every record header.

The file is read, not mapped: a file that another program shortens is then an error like any
other, where a map of it would end the process with SIGBUS.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import closing
from struct import unpack_from
from threading import Thread
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture import pcap
from rdmawire.capture.compression import CHUNK, recognise
from rdmawire.capture.io import STREAM, InputFile, open_input
from rdmawire.capture.pcap import RECORD
from rdmawire.capture.record import longest_record
from rdmawire.capture.record_finder import Offsets, RecordFinder, RecordFormat
from rdmawire.errors import CaptureError

_BLOCK_BYTES = 8 << 20
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
    """Return at least ``size`` bytes of memory, on Linux in huge pages: fewer page faults.

    Raises ``MemoryError`` if there is not enough.
    """
    try:
        return _mapped(size)
    except OSError as error:
        raise MemoryError(f"no memory for a block of {size} bytes") from error


def _mapped(size: int) -> mmap.mmap:
    if size < _HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, size)
    # Linux aligns private memory of whole huge pages; shared memory, Python's default, has none.
    whole = -(-size // _HUGE_PAGE) * _HUGE_PAGE
    memory = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class _DecompressedFile:
    """A compressed file being read, whose decompressed bytes fill buffers.

    ``left`` is larger than any file: the number of decompressed bytes is not known.
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
        try:
            self._thread.start()
        except RuntimeError:  # the system allows no more threads
            self._thread = None
            self._fill(buffer)

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


def _room(longest: int) -> int:
    """Return the bytes before a block: for the start of a record that the block before has cut.

    Each byte has the same offset in its page as in the file: copying is two to five times as fast.
    """
    pages = -(-(RECORD + longest) // mmap.PAGESIZE)
    return pages * mmap.PAGESIZE + pcap.HEADER


class _Filled(NamedTuple):
    """A buffer, the offset after its last byte, and whether the file ends there."""

    memory: mmap.mmap
    end: int
    is_last: bool


class _Buffers:
    """Two buffers that a file is read into in turn, each ``size`` bytes after ``room`` bytes.

    While one is used, a thread fills the other.
    """

    def __init__(self, file: InputFile | _DecompressedFile, room: int, size: int) -> None:
        self._ahead = _ReadAhead(file)
        self._room, self._size = room, size
        self._memory = _memory(room + size)
        self._following: mmap.mmap | None = None
        self._begin(self._memory)

    def _begin(self, memory: mmap.mmap) -> None:
        self._ahead.begin(memoryview(memory)[self._room : self._room + self._size])

    def next(self) -> _Filled:
        """Return the next bytes of the file, and begin to read those after them."""
        filled = self._ahead.filled()
        if self._following is not None:
            self._memory, self._following = self._following, self._memory
        is_last = filled < self._size
        if not is_last:
            self._following = self._following or _memory(self._room + self._size)
            self._begin(self._following)
        return _Filled(self._memory, self._room + filled, is_last)

    def keep(self, start: int, end: int) -> int:
        """Put these bytes before the next ones; return their offset there."""
        assert self._following is not None
        at = self._room - (end - start)
        self._following[at : self._room] = self._memory[start:end]
        return at

    def wait(self) -> None:
        """Wait until nothing is being read."""
        self._ahead.filled()

    def close(self) -> None:
        """Wait for the thread to end."""
        self._ahead.close()


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

    def blocks(self, size: int = _BLOCK_BYTES) -> Iterator[RecordBlock]:
        """Read all complete records, about ``size`` bytes at a time; can be called once.

        Raises :class:`CaptureError` if the file does not end with the last record, or became
        shorter.
        """
        room = _room(self.form.longest)
        size = min(size, self._file.left + CHUNK)
        start, base, number = room, pcap.HEADER - room, 1
        with closing(self._file), closing(_Buffers(self._file, room, size)) as buffers:
            while True:
                memory, end, is_last = buffers.next()
                # A record that begins before this is complete, unless the file ends in it.
                stop = end if is_last else end - room
                offsets, after = RecordFinder(memory, self.form, end).find(start, stop)
                if len(offsets):
                    yield RecordBlock(memoryview(memory)[:end], offsets, number)
                if after < stop:
                    buffers.wait()  # what check_end() says depends on it
                    raise self._damage(memory[after:end], base + after)
                if is_last:
                    break
                start = buffers.keep(after, end)
                base, number = base + end - room, number + len(offsets)
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
        return _read_header(open_input(name)) or _read_compressed_header(open_input(name))
    except (CaptureError, ValueError):  # the general reader reports it
        return None


def _read_compressed_header(file: InputFile) -> PcapFile | None:
    """Read the header of a compressed pcap."""
    try:
        compression, chunks = recognise(file.chunks(), file.name)
    except CaptureError:  # the general reader reports it
        compression = ""
    if compression:
        return _read_header(_DecompressedFile(file, chunks))
    file.close()
    return None


def _read_header(file: InputFile | _DecompressedFile) -> PcapFile | None:
    """Read the header of a pcap; close the file if it has none."""
    header = bytearray(pcap.HEADER)
    is_complete = file.fill(memoryview(header)) == len(header)
    order, resolution = pcap.MAGICS.get(bytes(header[:4]), ("", 0))
    if not is_complete or not order or unpack_from(f"{order}H", header, 4)[0] != 2:
        file.close()
        return None
    link_type = unpack_from(f"{order}I", header, 20)[0] & 0xFFFF
    return PcapFile(file, RecordFormat(order, resolution, longest_record(link_type)), link_type)
