"""Worker processes that print chunks of a capture.

The records of a chunk are copied to memory that is shared with the workers, and their text to
memory that is shared with the main process; messages say where they are. A chunk whose worker
ended is printed by the main process, so nothing is lost. Workers are forked: starting one takes
few milliseconds.
"""

import mmap
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.pcap import RECORD
from rdmawire.columns.chunk import (
    MAX_FRAMES,
    ChunkPrinter,
    Found,
    PreparedChunk,
    Printed,
)
from rdmawire.columns.extract import Frames
from rdmawire.columns.fast_path import Records
from rdmawire.worker_process import begin_worker, ending_blocked

CAN_FORK: Final = "fork" in get_all_start_methods()
"""Whether this system can fork processes; Windows cannot."""

_MAX_BYTES: Final = 2 << 20
"""As ``MAX_BYTES`` of a chunk, but smaller: several chunks are in memory at a time."""
_NUMBERS: Final = 3 * 8 * MAX_FRAMES
"""Bytes of a slot for numbers: offset, conversation and, if it has its own, time of each record."""


class _Slot:
    """Memory for one chunk of at most ``size`` bytes.

    It has the records, their offsets, the numbers of their conversations, and their own times.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        memory = mmap.mmap(-1, _NUMBERS + size)
        self.data = memoryview(memory)[_NUMBERS:]
        self.offsets, self.streams, self.times = np.ndarray((3, MAX_FRAMES), np.int64, memory)

    def put(self, frames: Frames) -> "_Prepare":
        """Copy the records of a chunk, and return the message that says so."""
        records = frames.records
        first, count = int(records.offsets[0]), len(records.offsets)
        end = int(records.offsets[-1]) + RECORD + int(records.heads["captured"][-1])
        self.data[: end - first] = records.data[first:end]
        self.offsets[:count] = records.offsets - first
        own_times = records.own_times is not None
        if own_times:
            self.times[:count] = records.own_times
        return _Prepare(self.number, count, records.order, own_times, frames[1:])


class _Prepare(NamedTuple):
    """A message: a slot has a chunk of ``records`` records.

    ``rest`` are the other fields of its :class:`Frames`.

    ``own_times`` says whether the slot has their times.
    """

    slot: int
    records: int
    order: str
    own_times: bool
    rest: tuple[Any, ...]

    def frames(self, slot: _Slot) -> Frames:
        """Return the chunk, in the memory of the slot."""
        times = slot.times[: self.records] if self.own_times else None
        offsets = slot.offsets[: self.records]
        return Frames(Records(slot.data, offsets, self.order, times=times), *self.rest)


class _Print(NamedTuple):
    """A message: the rows before ``end`` of the chunk in a slot are to be printed.

    ``has_streams`` says whether the slot has the numbers of conversations.
    """

    slot: int
    has_streams: bool
    end: int


_PIECE: Final = 1 << 20
"""Bytes of text that a worker hands over at a time: few enough to stay in the processor's cache."""


class _TextBuffers:
    """Two shared buffers, used in turn, through which a worker passes text to the main process.

    After each piece that it has copied, the main process sends one byte: the buffer is free.
    """

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, 2 * _PIECE))
        # After the fork, each process has its own iterator; both begin with the first buffer.
        self._buffers = cycle((memory[:_PIECE], memory[_PIECE:]))
        self._free_reader, self._free_writer = get_context("fork").Pipe(duplex=False)
        self._used = 0

    def put(self, text: bytes) -> Iterator[int]:
        """Write a text; yield the bytes of each piece that the main process may take."""
        for start in range(0, len(text), _PIECE):
            if self._used == 2:
                self._free_reader.recv_bytes()
            else:
                self._used += 1
            piece = memoryview(text)[start : start + _PIECE]
            next(self._buffers)[: len(piece)] = piece
            yield len(piece)

    def take(self, size: int) -> bytes:
        """Return the next piece, of this number of bytes."""
        piece = bytes(next(self._buffers)[:size])
        self._free_writer.send_bytes(b"\0")
        return piece

    def close(self) -> None:
        """Close the pipe, in this process."""
        self._free_reader.close()
        self._free_writer.close()


def _work(
    connection: Connection, slots: list[_Slot], buffers: _TextBuffers, printer: ChunkPrinter
) -> None:
    """Prepare and print chunks until the main process ends.

    An exception ends the worker. The main process then prints the chunk itself, so the exception is
    raised there.
    """
    begin_worker()
    chunks: dict[int, PreparedChunk] = {}
    with suppress(Exception):
        while True:
            message = connection.recv()
            slot = slots[message.slot]
            if isinstance(message, _Prepare):
                chunks[slot.number] = printer.prepare(message.frames(slot))
                connection.send((slot.number, chunks[slot.number].found))
            else:
                chunk = chunks.pop(slot.number)
                chunk.print(slot.streams if message.has_streams else None, message.end)
                done = chunk.printed()
                connection.send((slot.number, (done.counts, done.lengths)))
                for text in done.pieces:
                    for size in buffers.put(text):
                        connection.send((slot.number, size))


class _Worker:
    """A worker process, as the main process sees it."""

    def __init__(self, slots: list[_Slot], printer: ChunkPrinter) -> None:
        context = get_context("fork")
        self._connection, theirs = context.Pipe()
        self.buffers = _TextBuffers()
        self.process: BaseProcess = context.Process(
            target=_work, args=(theirs, slots, self.buffers, printer), daemon=True
        )
        self.process.start()
        theirs.close()
        self._results: dict[int, deque[Any]] = {slot.number: deque() for slot in slots}

    def send(self, message: _Prepare | _Print) -> bool:
        """Send a message; return whether the worker is there."""
        try:
            self._connection.send(message)
        except OSError:
            return False
        return True

    def result(self, slot: int) -> Any:
        """Wait for the next result about a slot; ``None`` if the worker ended before it."""
        try:
            while not self._results[slot]:
                number, result = self._connection.recv()
                self._results[number].append(result)
        except (OSError, EOFError):
            return None
        return self._results[slot].popleft()


class _RemoteChunk:
    """A chunk that a worker prints."""

    def __init__(self, pool: "WorkerPool", worker: _Worker, slot: _Slot, frames: Frames) -> None:
        self._pool = pool
        self._worker = worker
        self._slot = slot
        message = slot.put(frames)
        self.frames = message.frames(slot)
        self._here: PreparedChunk | None = None
        self._found: Found | None = None
        self._to_print: tuple[NDArray[np.int64] | None, int] = None, 0
        if not worker.send(message):
            self._take_over()

    def _take_over(self) -> PreparedChunk:
        """Prepare the chunk here, since its worker ended."""
        if self._here is None:
            self._here = self._pool.printer.prepare(self.frames)
        return self._here

    @property
    def found(self) -> Found:
        """What is known of the chunk."""
        if self._found is None and self._here is None:
            self._found = self._worker.result(self._slot.number)
        return self._take_over().found if self._found is None else self._found

    def print(self, streams: NDArray[np.int64] | None, end: int) -> None:
        """Have the selected rows before ``end`` printed."""
        self._to_print = streams, end
        if streams is not None:
            self._slot.streams[: len(streams)] = streams
        if self._here is None:
            self._worker.send(_Print(self._slot.number, streams is not None, end))

    def printed(self) -> Printed:
        """Return what was printed; the memory of the chunk is free after its last piece."""
        done = None if self._here is not None else self._worker.result(self._slot.number)
        if done is None:
            return self._printed_here()
        counts, lengths = done
        return Printed(counts, lengths, self._pieces(sum(lengths)))

    def _printed_here(self) -> Printed:
        chunk = self._take_over()
        chunk.print(*self._to_print)
        done = chunk.printed()
        self._pool.free.append(self._slot)
        return done

    def _pieces(self, total: int) -> Iterator[bytes]:
        """Yield the text of the worker; what is missing if it ended, is printed here."""
        before = 0
        while before < total:
            size = self._worker.result(self._slot.number)
            if size is None:
                yield b"".join(self._printed_here().pieces)[before:]
                return
            before += size
            yield self._worker.buffers.take(size)
        self._pool.free.append(self._slot)


class WorkerPool:
    """Prints chunks with ``jobs`` worker processes, each chunk with the next one in turn.

    At most ``2 * jobs + 2`` chunks may be in progress. ``longest`` is the maximum length of a
    record in bytes. Raises ``OSError`` if the system has no room for the workers.
    """

    def __init__(self, printer: ChunkPrinter, jobs: int, longest: int) -> None:
        self.printer = printer
        self.max_frames = printer.max_frames
        self.max_bytes = min(printer.max_bytes, _MAX_BYTES)
        # The last record starts before max_bytes, and may be as long as a record can be.
        size = self.max_bytes + RECORD + longest
        slots = [_Slot(number, size) for number in range(2 * jobs + 2)]
        self.free = deque(slots)
        self._workers: deque[_Worker] = deque()
        with ending_blocked():
            try:
                for _ in range(jobs):
                    self._workers.append(_Worker(slots, printer))
            except BaseException:
                self.close()
                raise

    def prepare(self, frames: Frames) -> PreparedChunk:
        """Have a chunk prepared by the next worker."""
        worker = self._workers[0]
        self._workers.rotate(-1)
        return _RemoteChunk(self, worker, self.free.popleft(), frames)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
            worker.buffers.close()
