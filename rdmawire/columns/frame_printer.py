"""Prints the frames of a pcap: many at once where that is possible, the others one by one.

Chunks of records are prepared and printed by one :class:`~rdmawire.columns.chunk.ChunkPrinter`, or
by one in each of several worker processes. Frames that depend on others (TCP streams, RMPP
transfers, numbers of conversations) are always dissected here, in the order of the file. So the
text does not depend on the number of processes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.record_index import Offsets
from rdmawire.columns.chunk import CHUNK, CHUNK_BYTES, ChunkPrinter, Found, PreparedChunk
from rdmawire.columns.extract import Frames
from rdmawire.columns.fast_path import Ports
from rdmawire.columns.frame_text import Texts
from rdmawire.columns.plain_frames import PlainPrinter, frame_form
from rdmawire.columns.query import EVERY_FRAME, FrameSelection, Query
from rdmawire.columns.read import as_array, with_selection_fields
from rdmawire.columns.source import CaptureFile, FrameSource, open_fast_path
from rdmawire.columns.text import FieldForm, FieldPrinter, field_query
from rdmawire.columns.worker_pool import CAN_FORK, WorkerPool
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.output import Fields, FrameCounts, Output
from rdmawire.dissect.select import BoundKind
from rdmawire.errors import CaptureError
from rdmawire.wire.inet import UDP


class _Merged(NamedTuple):
    """A chunk that is being printed, and the text of each of its dissected frames."""

    chunk: PreparedChunk
    dissected: list[bytes]


def _ends_of(data: bytes) -> tuple[tuple[bytes, bytes], UDP]:
    """Return the addresses and the ports of a datagram, from their bytes."""
    size = (len(data) - 4) // 2
    ports = int.from_bytes(data[-4:-2], "big"), int.from_bytes(data[-2:], "big")
    return (data[:size], data[size:-4]), UDP(*ports)


_ENDS: Final = Texts(_ends_of)


def _parts(offsets: Offsets, frames: int) -> Iterator[slice]:
    """Yield slices of up to ``frames`` records with these offsets: the chunks of a block."""
    start = 0
    while start < len(offsets):
        most = int(np.searchsorted(offsets, offsets[start] + CHUNK_BYTES))
        stop = min(start + frames, most)
        yield slice(start, stop)
        start = stop


class FramePrinter:
    """Prints and counts the frames of one pcap, in order: those of ``selection``.

    ``printer`` prints chunks, ``dissected`` returns the text of a dissected frame, ``most`` limits
    how many frames are printed, ``jobs`` is the number of processes that print (one where processes
    cannot be forked). Frames are counted in ``counts``.
    """

    def __init__(
        self,
        source: FrameSource,
        printer: ChunkPrinter,
        dissected: Callable[[Dissection], bytes],
        counts: FrameCounts,
        *,
        selection: FrameSelection = EVERY_FRAME,
        most: int | None = None,
        jobs: int = 1,
    ) -> None:
        self._source = source
        self._printer = printer
        self._dissected = dissected
        self._selection = selection
        self._counts = counts
        self.left = most
        self._jobs = jobs

    @property
    def position(self) -> int:
        """Bytes of the file, as it is stored, that have been read."""
        return self._source.file.position

    def texts(self) -> Iterator[bytes]:
        """Yield the text of some frames at a time; :class:`CaptureError` at damage."""
        if self._jobs == 1 or not CAN_FORK:
            with nullcontext(self._printer) as printer:
                yield from self._texts(printer, 0)
        else:
            longest = self._source.file.form.longest
            with closing(WorkerPool(self._printer, self._jobs, longest)) as pool:
                yield from self._texts(pool, self._jobs)

    def _texts(self, printer: ChunkPrinter, ahead: int) -> Iterator[bytes]:
        """Yield the texts; ``ahead`` chunks are being printed meanwhile."""
        merged: deque[_Merged] = deque()
        damage: CaptureError | None = None
        try:
            for chunk in self._merge(printer, ahead):
                merged.append(chunk)
                if len(merged) > ahead:
                    yield from self._printed(merged.popleft())
        except CaptureError as error:
            damage = error
        for chunk in merged:
            yield from self._printed(chunk)
        if damage is not None:
            raise damage

    def _merge(self, printer: ChunkPrinter, ahead: int) -> Iterator[_Merged]:
        """Yield the chunks with frames to print; ``ahead`` chunks are being prepared meanwhile."""
        prepared: deque[PreparedChunk] = deque()
        damage: CaptureError | None = None
        try:
            for frames in self._chunks():
                prepared.append(printer.prepare(frames))
                if len(prepared) > ahead:
                    yield self._merged(prepared.popleft())
                if self.left == 0:
                    return
        except CaptureError as error:
            damage = error
        while prepared and self.left != 0:
            yield self._merged(prepared.popleft())
        if damage is not None and self.left != 0:
            raise damage

    def _chunks(self) -> Iterator[Frames]:
        """Yield chunks, up to the last one with a frame that can be selected."""
        for frames in self._source.blocks():
            for part in _parts(frames.records.offsets, min(self._printer.most, CHUNK)):
                yield frames.at(part)
                if self._is_over(frames.first + part.stop):
                    return

    def _is_over(self, number: int) -> bool:
        """Whether no frame from ``number`` on can be selected."""
        end = self._selection.window.end
        return end is not None and end.kind is BoundKind.NUMBER and number > end.value

    def _merged(self, chunk: PreparedChunk) -> _Merged:
        """Dissect what is left of a chunk, and number the conversations of all its datagrams.

        Frames after the last one to be printed are neither dissected nor counted.
        """
        found = chunk.found
        wanted, texts = found.taken.copy(), []
        before, taken, numbered = np.cumsum(wanted), 0, 0
        streams = None if found.flows is None else np.zeros(len(wanted), np.int64)
        for row in found.rest.tolist():
            if self.left is not None and before[row] + taken >= self.left:
                break
            if streams is not None:
                numbered = self._number(found, streams, numbered, row)
            frame = self._source.dissect(chunk.frames, row)
            if self._selection.takes(frame):
                self._counts.add(frame)
                wanted[row] = True
                taken += 1
                texts.append(self._dissected(frame))
            else:
                texts.append(b"")
        if streams is not None:
            self._number(found, streams, numbered, len(wanted))
        chunk.print(streams, self._cut(wanted))
        return _Merged(chunk, texts)

    def _number(self, found: Found, streams: NDArray[np.int64], start: int, row: int) -> int:
        """Put the conversations of datagrams before ``row`` into ``streams``.

        ``start`` is the index of the first of them among the flows; returns the index after them.
        """
        assert found.flows is not None
        ends, rows, indices = found.flows
        stop = int(np.searchsorted(rows, row))
        numbers = _streams(self._source.dissector, ends, indices[start:stop])
        streams[rows[start:stop]] = numbers
        return stop

    def _cut(self, wanted: NDArray[np.bool_]) -> int:
        """Count down the frames that are left to be printed; return the row after the last one."""
        if self.left is None:
            return len(wanted)
        rows = np.flatnonzero(wanted)[: self.left]
        self.left -= len(rows)
        return len(wanted) if self.left else int(rows[-1]) + 1

    def _printed(self, merged: _Merged) -> Iterable[bytes]:
        """Return the text of a chunk, and count its frames."""
        printed = merged.chunk.printed()
        self._counts.include(printed.counts)
        return printed.merged(merged.dissected)


def _streams(
    dissector: Dissector, ends: list[bytes], indices: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Number the conversations of datagrams: for each, the index of its ends.

    If none is forgotten meanwhile, the numbers depend only on the order of the first datagrams of
    each, and which is forgotten later on the order of the last ones.
    """
    if not dissector.remembers_udp_streams(len(ends)):
        each = [dissector.udp_stream(*_ENDS[ends[of]]) for of in indices.tolist()]
        return np.array(each, np.int64)
    numbers = np.zeros(len(ends), np.int64)
    for of in _by_first(indices):
        numbers[of] = dissector.udp_stream(*_ENDS[ends[of]])
    for of in reversed(_by_first(indices[::-1])):
        dissector.udp_stream(*_ENDS[ends[of]])
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
    most: int | None = None,
    jobs: int = 1,
    encoding: str = "utf-8",
) -> FramePrinter | None:
    """Return what prints a capture; ``None`` if its frames must be dissected one by one.

    The text has this encoding; other characters are escaped. Of lines of fields, only the frames
    are counted.
    """
    if (
        with_selection_fields(Query([]), selection) is None
        or (file := open_fast_path(path)) is None
    ):
        return None
    how = selection, encoding
    if isinstance(output, Fields):
        printer = _field_printer(output, file, as_array(ports), *how)
    else:
        printer = _plain_printer(output, file, as_array(ports), *how)
    if printer is None:
        file.close()
        return None

    def dissected(frame: Dissection) -> bytes:
        text = "" if output is None else "".join(output.frame(frame))
        return text.encode(encoding, "backslashreplace")

    source = FrameSource(file, ports)
    return FramePrinter(
        source, printer, dissected, counts, selection=selection, most=most, jobs=jobs
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
    query, how = field_query(output.names, selection), output.separators
    form = FieldForm(tuple(output.names), how.separator, how.quote)
    if query is None:
        return None
    fast_filter = query.fast_filter(file.link_type, ports)
    return FieldPrinter(form, query, fast_filter, selection, encoding)
