"""Prints the frames of a capture file: many at once where that is possible, the others one by one.

Chunks of records are prepared and printed by one :class:`~rdmawire.columns.chunk.ChunkPrinter`, or
by one in each of several worker processes. Frames that depend on others (TCP streams, RMPP
transfers, numbers of conversations) are always dissected here, in the order of the file. So the
text does not depend on the number of processes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.record_finder import Offsets
from rdmawire.columns.chunk import MAX_FRAMES, ChunkPrinter, Found, PreparedChunk
from rdmawire.columns.extract import Frames
from rdmawire.columns.fast_path import Ports
from rdmawire.columns.field_text import FieldForm, FieldPrinter, field_query
from rdmawire.columns.frame_source import CaptureFile, FrameSource, open_fast_path
from rdmawire.columns.frame_text import BoundedCache
from rdmawire.columns.plain_frames import PlainPrinter, frame_form
from rdmawire.columns.query import EVERY_FRAME, FrameSelection, Query
from rdmawire.columns.read import as_array, with_selection_fields
from rdmawire.columns.worker_pool import CAN_FORK, WorkerPool
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.output import Fields, FrameCounts, Output
from rdmawire.dissect.select import BoundKind
from rdmawire.errors import CaptureError
from rdmawire.wire.inet import UDP


class _PendingChunk(NamedTuple):
    """A chunk that is being printed, and the text of each of its dissected frames."""

    chunk: PreparedChunk
    dissected: list[bytes]


def _endpoints_of(data: bytes) -> tuple[tuple[bytes, bytes], UDP]:
    """Return the addresses and the ports of a datagram, from their bytes."""
    size = (len(data) - 4) // 2
    ports = int.from_bytes(data[-4:-2], "big"), int.from_bytes(data[-2:], "big")
    return (data[:size], data[size:-4]), UDP(*ports)


_ENDPOINTS: Final = BoundedCache(_endpoints_of)


def _chunk_rows(offsets: Offsets, max_frames: int, max_bytes: int) -> Iterator[slice]:
    """Yield the rows of each chunk of a block: ``offsets`` are those of its records."""
    start = 0
    while start < len(offsets):
        end = int(np.searchsorted(offsets, offsets[start] + max_bytes))
        stop = min(start + max_frames, end)
        yield slice(start, stop)
        start = stop


T = TypeVar("T")
_MAX_TEXT: Final = 4 << 20
"""Bytes of the text of dissected frames of a chunk, after which it is cut."""


def _delayed(items: Iterable[T], count: int) -> Iterator[T]:
    """Yield each item after ``count`` later ones were made, so that workers can begin with those.

    :class:`CaptureError` is raised after the items that were made before it.
    """
    made: deque[T] = deque()
    damage: CaptureError | None = None
    try:
        for item in items:
            made.append(item)
            if len(made) > count:
                yield made.popleft()
    except CaptureError as error:
        damage = error
    yield from made
    if damage is not None:
        raise damage


class FramePrinter:
    """Prints and counts the frames of one capture file, in order: those of ``selection``.

    ``printer`` prints chunks, ``dissected_text`` returns the text of a dissected frame,
    ``max_frames`` limits how many frames are printed, ``jobs`` is the number of processes that
    print (one where processes cannot be forked), ``chunk_frames`` the maximum number of frames of a
    chunk. Frames are counted in ``counts``.
    """

    def __init__(
        self,
        source: FrameSource,
        printer: ChunkPrinter,
        dissected_text: Callable[[Dissection], bytes],
        counts: FrameCounts,
        *,
        selection: FrameSelection = EVERY_FRAME,
        max_frames: int | None = None,
        jobs: int = 1,
        chunk_frames: int = MAX_FRAMES,
    ) -> None:
        self._source = source
        self._printer = printer
        self._dissected_text = dissected_text
        self._selection = selection
        self._counts = counts
        self.left = max_frames
        self._jobs = jobs
        self._chunk_frames = chunk_frames

    @property
    def position(self) -> int:
        """Bytes of the file, as it is stored, that have been read."""
        return self._source.file.position

    def texts(self) -> Iterator[bytes]:
        """Yield the text of some frames at a time; :class:`CaptureError` at damage."""
        pool = None if self._jobs == 1 or not CAN_FORK else self._pool()
        if pool is None:
            yield from self._texts(self._printer, 0)
        else:
            with closing(pool):
                yield from self._texts(pool, self._jobs)

    def _pool(self) -> WorkerPool | None:
        """Start the workers; ``None`` if the system has no room for them."""
        try:
            return WorkerPool(self._printer, self._jobs, self._source.file.form.longest)
        except (OSError, MemoryError):  # then this process prints all chunks
            return None

    def _texts(self, printer: ChunkPrinter, ahead: int) -> Iterator[bytes]:
        """Yield the texts; meanwhile ``ahead`` chunks are prepared, and others printed."""
        chunks = self._chunks(printer.max_frames, printer.max_bytes)
        prepared = _delayed(map(printer.prepare, chunks), ahead)
        for chunk in _delayed(self._pending(prepared), ahead):
            yield from self._printed(chunk)

    def _chunks(self, max_frames: int, max_bytes: int) -> Iterator[Frames]:
        """Yield chunks, up to the last one with a frame that can be selected."""
        limits = min(max_frames, self._chunk_frames), max_bytes
        for frames in self._source.blocks():
            for rows in _chunk_rows(frames.records.offsets, *limits):
                yield frames.at(rows)
                if self._is_over(frames.first + rows.stop):
                    return

    def _pending(self, prepared: Iterator[PreparedChunk]) -> Iterator[_PendingChunk]:
        """Have chunks printed until no frames are left to be printed."""
        while self.left != 0 and (chunk := next(prepared, None)) is not None:
            yield from self._begin(chunk)

    def _is_over(self, number: int) -> bool:
        """Whether no frame from ``number`` on can be selected."""
        end = self._selection.window.end
        return end is not None and end.kind is BoundKind.NUMBER and number > end.value

    def _begin(self, chunk: PreparedChunk) -> Iterator[_PendingChunk]:
        """Have a chunk printed: dissect what is left of it, and number all its conversations.

        If the text of dissected frames becomes long, the rows after them are a chunk of their own.
        """
        following: PreparedChunk | None = chunk
        while following is not None:
            chunk = following
            count = len(chunk.found.taken)
            streams = None if chunk.found.flows is None else np.zeros(count, np.int64)
            wanted, texts = self._dissect_rest(chunk, streams)
            end = self._cut(wanted)
            chunk.print(streams, end)
            is_cut = len(wanted) < count and self.left != 0
            following = self._after(chunk, len(wanted)) if is_cut else None
            yield _PendingChunk(chunk, texts)

    def _after(self, chunk: PreparedChunk, row: int) -> PreparedChunk:
        """Prepare the rows of a chunk from ``row`` on, in memory of their own."""
        frames = chunk.frames.at(slice(row, len(chunk.frames.records.offsets)))
        return self._printer.prepare(frames._replace(records=frames.records.copied()))

    def _dissect_rest(
        self, chunk: PreparedChunk, streams: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.bool_], list[bytes]]:
        """Dissect the frames that are left; return which rows are printed, and their texts.

        Frames after the last one to be printed are neither dissected nor counted. The mask ends
        after the frame with which the texts became long. Conversations are numbered in ``streams``.
        """
        found = chunk.found
        wanted, texts, size = found.taken.copy(), [], 0
        before, added, numbered = np.cumsum(wanted), 0, 0
        for row in found.rest.tolist():
            if self.left is not None and before[row] + added >= self.left:
                break
            numbered = self._number(found, streams, numbered, row)
            frame = self._source.dissect(chunk.frames, row)
            wanted[row] = self._selection.takes(frame)
            added += int(wanted[row])
            texts.append(self._text_of(frame) if wanted[row] else b"")
            size += len(texts[-1])
            if size > _MAX_TEXT:
                wanted = wanted[: row + 1]
                break
        self._number(found, streams, numbered, len(wanted))
        return wanted, texts

    def _text_of(self, frame: Dissection) -> bytes:
        """Count a selected frame, and return its text."""
        self._counts.add(frame)
        return self._dissected_text(frame)

    def _number(self, found: Found, streams: NDArray[np.int64] | None, start: int, row: int) -> int:
        """Put the conversations of datagrams before ``row`` into ``streams``.

        ``start`` is the index of the first of them among the flows; returns the index after them.
        """
        if streams is None or found.flows is None:
            return start
        endpoints, rows, indices = found.flows
        stop = int(np.searchsorted(rows, row))
        numbers = _streams(self._source.dissector, endpoints, indices[start:stop])
        streams[rows[start:stop]] = numbers
        return stop

    def _cut(self, wanted: NDArray[np.bool_]) -> int:
        """Count down the frames that are left to be printed; return the row after the last one."""
        if self.left is None:
            return len(wanted)
        rows = np.flatnonzero(wanted)[: self.left]
        self.left -= len(rows)
        return len(wanted) if self.left else int(rows[-1]) + 1

    def _printed(self, pending: _PendingChunk) -> Iterable[bytes]:
        """Return the text of a chunk, and count its frames."""
        printed = pending.chunk.printed()
        self._counts.include(printed.counts)
        return printed.with_dissected(pending.dissected)


def _streams(
    dissector: Dissector, endpoints: list[bytes], indices: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the number of the conversation of each datagram.

    ``indices`` are the indices of their endpoints. If no conversation is forgotten meanwhile, each
    endpoint is passed twice: in the order of the first datagrams, which gives the numbers, and in
    the order of the last ones, which decides what is forgotten later.
    """
    if not dissector.remembers_udp_streams(len(endpoints)):
        each = [dissector.udp_stream(*_ENDPOINTS[endpoints[index]]) for index in indices.tolist()]
        return np.array(each, np.int64)
    numbers = np.zeros(len(endpoints), np.int64)
    for index in _by_first(indices):
        numbers[index] = dissector.udp_stream(*_ENDPOINTS[endpoints[index]])
    for index in reversed(_by_first(indices[::-1])):
        dissector.udp_stream(*_ENDPOINTS[endpoints[index]])
    found: NDArray[np.int64] = numbers[indices]
    return found


def _by_first(indices: NDArray[np.int64]) -> list[int]:
    """Return the different indices in the order in which they come first."""
    different, first = np.unique(indices, return_index=True)
    found: list[int] = different[np.argsort(first)].tolist()
    return found


def open_printer(
    path: str,
    output: Output | None,
    counts: FrameCounts,
    ports: Iterable[int],
    *,
    selection: FrameSelection = EVERY_FRAME,
    max_frames: int | None = None,
    jobs: int = 1,
    encoding: str = "utf-8",
    chunk_frames: int = MAX_FRAMES,
) -> FramePrinter | None:
    """Return what prints a capture file; ``None`` if its frames must be dissected one by one.

    ``path`` is the file, ``output`` the form of the text (without one, frames are only counted in
    ``counts``), ``ports`` are the UDP ports of RoCEv2. The other parameters are those of
    :class:`FramePrinter`. The text has this ``encoding``; characters that it does not have are
    escaped. With :class:`Fields`, frames are counted, but not their checksums.
    """
    if (
        with_selection_fields(Query([]), selection) is None
        or (file := open_fast_path(path)) is None
    ):
        return None
    if isinstance(output, Fields):
        printer = _field_printer(output, file, as_array(ports), selection, encoding)
    else:
        printer = _plain_printer(output, file, as_array(ports), selection, encoding)
    if printer is None:
        file.close()
        return None

    def dissected_text(frame: Dissection) -> bytes:
        text = "" if output is None else "".join(output.frame(frame))
        return text.encode(encoding, "backslashreplace")

    source = FrameSource(file, ports)
    return FramePrinter(
        source,
        printer,
        dissected_text,
        counts,
        selection=selection,
        max_frames=max_frames,
        jobs=jobs,
        chunk_frames=chunk_frames,
    )


def _plain_printer(
    output: Output | None, file: CaptureFile, ports: Ports, selection: FrameSelection, encoding: str
) -> ChunkPrinter | None:
    form = frame_form(output, file.name)
    if form is None:
        return None
    return PlainPrinter(file.link_type, ports, form, selection, encoding)


def _field_printer(
    output: Fields, file: CaptureFile, ports: Ports, selection: FrameSelection, encoding: str
) -> ChunkPrinter | None:
    query, separators = field_query(output.names, selection), output.separators
    form = FieldForm(tuple(output.names), separators.separator, separators.quote)
    if query is None:
        return None
    fast_filter = query.fast_filter(file.link_type, ports)
    return FieldPrinter(form, query, fast_filter, selection, encoding)
