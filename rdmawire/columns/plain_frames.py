"""Prints plain frames: those whose text is made of parts that many frames share.

A frame is plain if it takes the fast path, has nothing after the ICRC, and only good checksums.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.chunk import MAX_BYTES, MAX_FRAMES, Flows, Found, Printed, gaps
from rdmawire.columns.extract import Frames, IPChecksumStatus, expected_icrc
from rdmawire.columns.fast_path import (
    FastFrames,
    HeaderStack,
    Ports,
    bytes_at,
    row_bits,
)
from rdmawire.columns.frame_text import (
    Constant,
    FrameShape,
    OpcodeFrames,
    TextRows,
    with_joined_constants,
)
from rdmawire.columns.json_text import ObjectParts
from rdmawire.columns.line_text import CellRows, line_parts
from rdmawire.columns.query import EVERY_FRAME, ColumnBuilder, FrameSelection, Query
from rdmawire.columns.read import put_fields, put_frame_fields
from rdmawire.columns.text_cells import Numbering, in_encoding
from rdmawire.columns.tree_text import tree_parts
from rdmawire.dissect.generated import GOOD, IPV4_CHECKSUM
from rdmawire.dissect.generated import ICRC as ICRC_CHECK
from rdmawire.dissect.output import FrameCounts, Lines, Objects, Output
from rdmawire.wire.header import Header
from rdmawire.wire.inet import UDP, IPv4
from rdmawire.wire.packet import LAYOUTS

_EVERY: Final = slice(None)
_LONGEST: Final = max(layout.size for layout in LAYOUTS.values())
_UDP_CHECKSUM: Final = row_bits(UDP, "checksum")


def _are_plain(fast: FastFrames) -> NDArray[np.bool_]:
    """Return which frames have nothing after the ICRC and only good checksums.

    The UDP checksum of these is 0: it was not computed.
    """
    udp = fast.path.bases[UDP]
    found: NDArray[np.bool_] = fast.records.heads["captured"] == fast.packets.lengths + udp
    found &= _UDP_CHECKSUM.read(fast.frames, udp) == 0
    found &= expected_icrc(fast) == fast.records.numbers(fast.icrc, ">u4")
    status = IPChecksumStatus().read(fast)
    if status is not None:
        found &= status.values == GOOD
    return found


class FrameTexts(Protocol):
    """The text of the frames of a chunk, at their rows."""

    def put(self, rows: NDArray[np.int64], parts: Sequence[Any], some: OpcodeFrames) -> None:
        """Write frames at rows: the texts of parts one after the other."""

    def between(self, rows: slice) -> bytes:
        """Return the text of consecutive rows, in UTF-8."""


class FrameForm(NamedTuple):
    """How frames are printed: the parts of their text, and what puts the text together.

    ``needs_streams`` says whether the parts need the numbers of conversations, ``limits`` are the
    maximum frames and bytes of a chunk.
    """

    parts: Callable[[FrameShape], Iterable[Any]]
    new_texts: Callable[[int], FrameTexts] = TextRows
    needs_streams: bool = False
    limits: tuple[int, int] = MAX_FRAMES, MAX_BYTES


_LONG_TEXT: Final = 1024, 2 << 20
"""Limits of a chunk whose text has all fields: some kilobytes of each frame."""


def _no_parts(_: FrameShape) -> Iterable[Any]:
    return (Constant(""),)


COUNT_ONLY: Final = FrameForm(_no_parts)
"""Frames are counted, and not printed."""


def frame_form(output: Output | None, name: str) -> FrameForm | None:
    """Return how frames of the capture ``name`` are printed; ``None`` if one by one alone.

    Without an output they are counted.
    """
    if output is None:
        return COUNT_ONLY
    if isinstance(output, Lines) and output.are_plain:
        if output.are_trees:
            return FrameForm(tree_parts, needs_streams=True, limits=_LONG_TEXT)
        return FrameForm(line_parts, CellRows)
    if isinstance(output, Objects) and output.have_all_layers:
        return FrameForm(ObjectParts(name, output.around), needs_streams=True, limits=_LONG_TEXT)
    return None


class _Group(NamedTuple):
    """Frames of a chunk on one path, with their rows in it."""

    rows: NDArray[np.int64]
    fast: FastFrames

    def chosen(self, which: NDArray[np.int64]) -> "_Group":
        """Return some of the frames, by their indices."""
        return _Group(self.rows[which], self.fast.at(which))


class PlainPrinter:
    """Prints the plain frames of chunks as ``form`` says, those of ``selection``.

    ``link_type`` is that of the capture, ``ports`` are the UDP ports of RoCEv2, ``encoding`` that
    of the text.
    """

    def __init__(
        self,
        link_type: int,
        ports: Ports,
        form: FrameForm,
        selection: FrameSelection = EVERY_FRAME,
        encoding: str = "utf-8",
    ) -> None:
        self.form = form
        self.max_frames, self.max_bytes = form.limits
        self.selection = selection
        self.encoding = encoding
        self.query = Query(selection.names)
        self.fast_filter = self.query.fast_filter(link_type, ports, _LONGEST)
        self._parts: dict[tuple[HeaderStack, int], list[Any]] = {}

    def prepare(self, frames: Frames) -> "PlainChunk":
        """Find the plain frames of a chunk."""
        return PlainChunk(self, frames)

    def parts(self, path: HeaderStack, opcode: int) -> list[Any]:
        """Return the parts of the text of frames on a path with an opcode."""
        key = path, opcode
        if key not in self._parts:
            self._parts[key] = with_joined_constants(self.form.parts(FrameShape(path, opcode)))
        return self._parts[key]


class PlainChunk:
    """The plain frames of a chunk that are selected.

    Frames on the fast path that are not selected are neither printed nor dissected: they have only
    a conversation.
    """

    def __init__(self, printer: PlainPrinter, frames: Frames) -> None:
        self._printer = printer
        self.frames = frames
        self._fast = list(self._on_fast_path())
        selected = self._selected()
        chosen = [group.chosen(np.flatnonzero(selected[group.rows])) for group in self._fast]
        wanted = [group for group in chosen if len(group.rows)]
        self._plain = [each.chosen(np.flatnonzero(_are_plain(each.fast))) for each in wanted]
        self.found = self._found(wanted)
        self._streams: NDArray[np.int64] | None = None
        self._end = 0

    def _on_fast_path(self) -> Iterator[_Group]:
        records = self.frames.records
        every = np.arange(len(records.offsets))
        for rows, fast in self._printer.fast_filter.fast_frames(records):
            yield _Group(every[rows], fast)

    def _selected(self) -> NDArray[np.bool_]:
        """Return which frames are selected, right for those on the fast path alone."""
        count, selection = len(self.frames.records.offsets), self._printer.selection
        if selection is EVERY_FRAME:
            return np.ones(count, np.bool_)
        query = self._printer.query
        builder = ColumnBuilder(query.fields, count)
        put_frame_fields(builder, query, _EVERY, self.frames)
        for rows, fast in self._fast:
            put_fields(builder, query, _EVERY, rows, fast)
        return selection.rows(builder.columns())

    def _found(self, wanted: list[_Group]) -> Found:
        """Return what is known; frames of ``wanted`` that are not plain are dissected."""
        count = len(self.frames.records.offsets)
        rest, taken = np.ones(count, np.bool_), np.zeros(count, np.bool_)
        for group in self._fast:
            rest[group.rows] = False
        for group in wanted:
            rest[group.rows] = True
        for group in self._plain:
            rest[group.rows] = False
            taken[group.rows] = True
        flows = self._flows() if self._printer.form.needs_streams else None
        return Found(np.flatnonzero(rest), taken, flows)

    def _flows(self) -> Flows:
        """Return the flows of all frames on the fast path."""
        rows = np.concatenate([np.zeros(0, np.int64), *(group.rows for group in self._fast)])
        numbering = Numbering()
        indices = numbering.of([each for group in self._fast for each in _endpoints(group.fast)])
        order = np.argsort(rows)
        return Flows(list(numbering), rows[order], indices[order])

    def print(self, streams: NDArray[np.int64] | None, end: int) -> None:
        """Print the selected rows before ``end`` when the text is asked for."""
        self._streams, self._end = streams, end

    def printed(self) -> Printed:
        """Return the text and the counts."""
        counts, text = FrameCounts(), self._printer.form.new_texts(self._end)
        for group in self._plain:
            rows, fast = group.chosen(np.flatnonzero(group.rows < self._end))
            if len(rows):
                _count(counts, fast)
                self._put(text, rows, fast)
        encoding = self._printer.encoding
        pieces = map(text.between, gaps(self.found.rest, self._end))
        return Printed.of(counts, [in_encoding(piece, encoding) for piece in pieces])

    def _put(self, text: FrameTexts, rows: NDArray[np.int64], fast: FastFrames) -> None:
        """Put the texts of plain frames of one path at their rows."""
        if self._printer.form is COUNT_ONLY:
            return
        frames, streams = self.frames, self._streams
        for opcode in fast.packets.present.tolist():
            chosen = np.flatnonzero(fast.packets.opcodes == opcode)
            where, own = rows[chosen], fast.at(chosen)
            of_frames = [] if streams is None else streams[where].tolist()
            numbers, times = where + frames.first, own.records.times(frames.resolution)
            some = OpcodeFrames(own, numbers, times, frames.first_ns, of_frames)
            text.put(where, self._printer.parts(fast.path, opcode), some)


def _count(counts: FrameCounts, fast: FastFrames) -> None:
    """Count plain frames: their checksums are good."""
    count = len(fast.frames)
    counts.frames += count
    counts.good[ICRC_CHECK.name] += count
    if fast.path.network is IPv4:
        counts.good[IPV4_CHECKSUM.name] += count


def _endpoints(fast: FastFrames) -> list[bytes]:
    """Return the endpoints of datagrams: addresses and ports, which follow one another."""
    start = fast.path.network_base + _source_offset(fast.path.network)
    found: list[bytes] = bytes_at(fast.frames, start, fast.path.bases[UDP] + 4 - start).tolist()
    return found


def _source_offset(network: type[Header]) -> int:
    """Return the offset of the source address in a network header."""
    return next(row.bit for row in network.rows if row.name == "src") // 8
