"""Prints the frames of a pcap: those on the fast path many at once, the others one by one."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.record_index import PcapFile, RecordBlock
from rdmawire.columns.extract import Frames, IPChecksumStatus, expected_icrc
from rdmawire.columns.fast_path import (
    LEAD,
    PATHS,
    FastFilter,
    FastFrames,
    FastPackets,
    HeaderStack,
    Ports,
    Records,
    bytes_at,
    row_bits,
)
from rdmawire.columns.frame_text import (
    Constant,
    FrameShape,
    OpcodeFrames,
    Part,
    Texts,
    joined_texts,
    merged,
)
from rdmawire.columns.json_text import ObjectParts
from rdmawire.columns.line_text import line_parts
from rdmawire.columns.query import EVERY_FRAME, ColumnBuilder, FrameSelection, Query
from rdmawire.columns.read import (
    CHUNK,
    as_array,
    open_fast_path,
    put_fields,
    put_frame_fields,
    with_selection_fields,
)
from rdmawire.columns.tree_text import tree_parts
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.generated import GOOD, IPV4_CHECKSUM
from rdmawire.dissect.generated import ICRC as ICRC_CHECK
from rdmawire.dissect.output import FrameCounts, Lines, Objects, Output
from rdmawire.dissect.select import BoundKind
from rdmawire.wire.header import Header
from rdmawire.wire.inet import UDP, IPv4
from rdmawire.wire.packet import LAYOUTS

_EVERY: Final = slice(None)
_LONGEST: Final = max(layout.size for layout in LAYOUTS.values())
_UDP_CHECKSUM: Final = row_bits(UDP, "checksum")


def is_plain(fast: FastFrames) -> NDArray[np.bool_]:
    """Return which frames have nothing behind the ICRC and only good checksums.

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


class FrameForm(NamedTuple):
    """How frames are printed: the parts of the text of plain frames, and that of a dissection.

    ``streams`` says whether the parts need the numbers of conversations.
    """

    parts: Callable[[FrameShape], Iterable[Part]]
    dissected: Callable[[Dissection], str]
    streams: bool = False


def _no_parts(_: FrameShape) -> Iterable[Part]:
    return (Constant(""),)


COUNT_ONLY: Final = FrameForm(_no_parts, lambda _: "")
"""Frames are counted, and not printed."""


class _Plain(NamedTuple):
    """Plain frames of a chunk on one path, with their rows in it."""

    rows: NDArray[np.int64]
    fast: FastFrames


class _Chunk(NamedTuple):
    """Consecutive records of a file: their numbers, and their times (ns since the epoch)."""

    frames: Frames
    numbers: NDArray[np.int64]
    times: NDArray[np.int64]

    @property
    def records(self) -> Records:
        """The records."""
        return self.frames.records


class FramePrinter:
    """Prints and counts the frames of one pcap, in order: those of ``selection``.

    ``most`` limits how many. They are counted in ``counts``.
    """

    def __init__(
        self,
        pcap: PcapFile,
        ports: Ports,
        form: FrameForm,
        counts: FrameCounts,
        *,
        selection: FrameSelection = EVERY_FRAME,
        most: int | None = None,
    ) -> None:
        self._pcap = pcap
        self._form = form
        self._selection = selection
        self._counts = counts
        self.left = most
        self._query = Query(selection.names)
        self._dissector = Dissector(int(port) for port in ports)
        paths = [path for path in PATHS if path.link_type == pcap.link_type]
        width = {path: max(path.width + _LONGEST, self._query.width(path)) for path in paths}
        self._fast_filter = FastFilter({path: LEAD + width[path] for path in paths}, ports)
        self._parts: dict[tuple[HeaderStack, int], list[Part]] = {}
        self._first_ns: int | None = None
        self._previous_ns = 0

    def texts(self) -> Iterator[str]:
        """Yield the text of some frames at a time; :class:`CaptureError` at damage."""
        for block in self._pcap.blocks():
            for start in range(0, len(block.offsets), CHUNK):
                chunk = self._chunk(block, start)
                yield self._text(chunk)
                if self.left == 0 or self._is_over(chunk):
                    return

    def _is_over(self, chunk: _Chunk) -> bool:
        """Whether no frame behind a chunk can be selected."""
        end = self._selection.window.end
        return (
            end is not None and end.kind is BoundKind.NUMBER and int(chunk.numbers[-1]) >= end.value
        )

    def _chunk(self, block: RecordBlock, start: int) -> _Chunk:
        offsets = block.offsets[start : start + CHUNK]
        records = Records(block.data, offsets, self._pcap.form.order)
        times = records.times(self._pcap.form.resolution)
        if self._first_ns is None:
            self._first_ns = self._previous_ns = int(times[0])
        clock = self._first_ns, self._previous_ns, self._pcap.form.resolution
        frames = Frames(records, block.first + start, *clock, self._pcap.name)
        self._previous_ns = int(times[-1])
        return _Chunk(frames, frames.numbers(), times)

    def _text(self, chunk: _Chunk) -> str:
        """Return the text of the frames of a chunk that are selected."""
        found = list(self._plain(chunk))
        wanted = self._wanted(chunk, found)
        texts = self._dissected(chunk, found, wanted)
        for rows, every in found:
            chosen = np.flatnonzero(wanted[rows])
            if len(chosen):
                self._put(texts, chunk, rows[chosen], chosen_of(every, chosen))
        texts[~wanted] = ""
        return "".join(texts.tolist())

    def _put(
        self, texts: NDArray[Any], chunk: _Chunk, rows: NDArray[np.int64], fast: FastFrames
    ) -> None:
        """Put the texts of plain frames at their rows, and count them."""
        self._count(fast)
        if self._form is COUNT_ONLY:
            texts[rows] = ""
            return
        for opcode in fast.packets.present.tolist():
            chosen = np.flatnonzero(fast.packets.opcodes == opcode)
            where, streams = rows[chosen], texts[rows[chosen]].tolist()
            texts[where] = self._printed(chunk, where, chosen_of(fast, chosen), streams)

    def _plain(self, chunk: _Chunk) -> Iterator[_Plain]:
        every = np.arange(len(chunk.numbers))
        for rows, fast in self._fast_filter.fast_frames(chunk.records):
            good = np.flatnonzero(is_plain(fast))
            if len(good):
                yield _Plain(every[rows][good], chosen_of(fast, good))

    def _wanted(self, chunk: _Chunk, found: list[_Plain]) -> NDArray[np.bool_]:
        """Return which of the plain frames are selected, as a mask over the chunk."""
        wanted = np.zeros(len(chunk.numbers), np.bool_)
        for rows, _ in found:
            wanted[rows] = True
        if self._selection is EVERY_FRAME:
            return wanted
        builder = ColumnBuilder(self._query.fields, len(wanted))
        put_frame_fields(builder, self._query, _EVERY, chunk.frames)
        for rows, fast in found:
            put_fields(builder, self._query, _EVERY, rows, fast)
        return wanted & self._selection.rows(builder.columns())

    def _dissected(
        self, chunk: _Chunk, found: list[_Plain], wanted: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """Dissect the frames that are not plain; return their texts, and mark them as wanted.

        The text of a plain frame is its conversation's number, if that is printed. Frames behind
        the last one to be printed are no longer wanted.
        """
        texts = np.full(len(wanted), "", object)
        ends: dict[int, _Ends] = {}
        rest = np.ones(len(wanted), np.bool_)
        for rows, fast in found:
            rest[rows] = False
            if self._form.streams:
                ends.update(zip(rows.tolist(), _ends(fast), strict=True))
        before, taken = np.cumsum(wanted), 0
        for row in range(len(wanted)) if ends else np.flatnonzero(rest).tolist():
            if not rest[row]:
                texts[row] = self._dissector.udp_stream(*ends[row])
            elif self.left is not None and before[row] + taken >= self.left:
                break
            elif self._selection.takes(frame := self._dissect(chunk, row)):
                self._counts.add(frame)
                texts[row] = self._form.dissected(frame)
                wanted[row] = True
                taken += 1
        self._cut(wanted)
        return texts

    def _cut(self, wanted: NDArray[np.bool_]) -> None:
        """Count down the frames that are left to be printed; those behind are not wanted."""
        if self.left is not None:
            rows = np.flatnonzero(wanted)
            wanted[rows[self.left :]] = False
            self.left -= min(self.left, len(rows))

    def _count(self, fast: FastFrames) -> None:
        """Count plain frames: their checksums are good."""
        count = len(fast.frames)
        self._counts.frames += count
        self._counts.good[ICRC_CHECK.name] += count
        if fast.path.network is IPv4:
            self._counts.good[IPV4_CHECKSUM.name] += count

    def _printed(
        self, chunk: _Chunk, rows: NDArray[np.int64], fast: FastFrames, streams: list[int]
    ) -> list[str]:
        """Return the texts of plain frames of one opcode on one path."""
        key = fast.path, int(fast.packets.opcodes[0])
        if key not in self._parts:
            self._parts[key] = merged(self._form.parts(FrameShape(*key)))
        numbers, times = chunk.numbers[rows], chunk.times[rows]
        some = OpcodeFrames(fast, numbers, times, chunk.frames.first_ns, streams)
        return joined_texts(self._parts[key], some)

    def _dissect(self, chunk: _Chunk, row: int) -> Dissection:
        """Dissect one frame."""
        records = chunk.records
        head, offset = records.heads[row], int(records.offsets[row]) + LEAD
        frame = self._dissector.dissect(
            bytes(records.data[offset : offset + int(head["captured"])]),
            link_type=self._pcap.link_type,
            time_ns=int(chunk.times[row]),
            length=int(head["length"]),
        )
        frame.number, frame.file = int(chunk.numbers[row]), self._pcap.name
        frame.first_ns, frame.previous_ns = chunk.frames.first_ns, chunk.frames.before(row)
        return frame


_Ends = tuple[tuple[bytes, bytes], UDP]
"""The source and destination addresses of a datagram, and its UDP header with the ports."""


def _of_bytes(data: bytes) -> _Ends:
    """Return the ends in the addresses and ports of a datagram, which follow one another."""
    size = (len(data) - 4) // 2
    ports = int.from_bytes(data[-4:-2], "big"), int.from_bytes(data[-2:], "big")
    return (data[:size], data[size:-4]), UDP(*ports)


_ENDS: Final = Texts(_of_bytes)


def _ends(fast: FastFrames) -> Iterator[_Ends]:
    """Return the ends of datagrams."""
    start = fast.path.network_base + source_offset(fast.path.network)
    found = bytes_at(fast.frames, start, fast.path.bases[UDP] + 4 - start)
    return map(_ENDS.__getitem__, found.tolist())


def chosen_of(fast: FastFrames, rows: NDArray[np.int64]) -> FastFrames:
    """Return the frames of these rows."""
    if len(rows) == len(fast.frames):
        return fast
    packets = FastPackets(fast.packets.opcodes[rows], fast.packets.lengths[rows])
    return FastFrames(fast.records.at(rows), fast.frames[rows], fast.path, packets)


def source_offset(network: type[Header]) -> int:
    """Return the offset of the source address in a network header."""
    return next(row.bit for row in network.rows if row.name == "src") // 8


def frame_form(output: Output | None, name: str) -> FrameForm | None:
    """Return how frames of the capture ``name`` are printed; ``None`` if one by one alone.

    Without an output they are counted.
    """
    if output is None:
        return COUNT_ONLY
    if isinstance(output, Lines) and output.are_plain:
        parts = tree_parts if output.are_trees else line_parts
        return FrameForm(parts, lambda frame: "".join(output.frame(frame)), output.are_trees)
    if isinstance(output, Objects) and output.have_all_layers:
        parts = ObjectParts(name, output.around)
        return FrameForm(parts, lambda frame: "".join(output.frame(frame)), streams=True)
    return None


def open_printer(
    path: str,
    output: Output | None,
    counts: FrameCounts,
    ports: Iterable[int],
    *,
    selection: FrameSelection = EVERY_FRAME,
    most: int | None = None,
) -> FramePrinter | None:
    """Return what prints a capture; ``None`` if its frames must be dissected one by one."""
    form = frame_form(output, path)
    simple = with_selection_fields(Query([]), selection) is not None
    if form is None or not simple or (pcap := open_fast_path(path)) is None:
        return None
    return FramePrinter(pcap, as_array(ports), form, counts, selection=selection, most=most)
