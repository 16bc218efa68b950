"""Reading captures as columns: :func:`read_columns` and :func:`iter_columns`.

Where the fast path does not apply, every frame is dissected.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture import open_capture
from rdmawire.columns.chunk import MAX_FRAMES
from rdmawire.columns.extract import FRAME_COLUMNS, Extracted, Frames, first_of
from rdmawire.columns.fast_path import (
    Chosen,
    FastFilter,
    FastFrames,
    Ports,
)
from rdmawire.columns.frame_source import CaptureFile, FrameSource, open_fast_path
from rdmawire.columns.query import (
    EVERY_FRAME,
    ColumnBuilder,
    FrameSelection,
    Query,
    occurs_once,
    select_frames,
)
from rdmawire.columns.table import Columns, joined
from rdmawire.decode import PROTOCOLS, Protocols
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.node import Node
from rdmawire.errors import CaptureError
from rdmawire.filter import Filter
from rdmawire.wire.inet import ROCE_PORT
from rdmawire.wire.mpa import FPDULength

_BLOCK = 65536
"""Rows in a block."""

Rows = Callable[[Query, Dissection], Iterable[list[Any]]]
"""A function that returns the rows of a frame: a value of each field, ``None`` if absent."""


def frame_rows(query: Query, frame: Dissection) -> Iterable[list[Any]]:
    """Return one row for a frame."""
    return [query.values(frame)]


def iter_dissected(
    path: str | os.PathLike[str],
    query: Query,
    ports: Iterable[int],
    rows: Rows,
    first: int | None = None,
    *,
    protocols: Protocols = PROTOCOLS,
) -> Iterator[Columns]:
    """Yield columns in blocks; raises :class:`CaptureError` at damage, after what precedes it.

    A block has at most ``first`` rows if that is given. ``protocols`` are those of a dissection.
    """
    size = min(first or _BLOCK, _BLOCK)
    block: list[list[Any]] = []
    try:
        with open_capture(path) as reader:
            for frame in Dissector(ports, protocols=protocols).capture(reader):
                block += rows(query, frame)
                if len(block) >= size:
                    yield _filled(query, block)
                    block = []
    except CaptureError:
        yield from _rest(query, block)
        raise
    yield from _rest(query, block)


def _rest(query: Query, rows: list[list[Any]]) -> Iterator[Columns]:
    """Yield the last block unless it has no rows."""
    if rows:
        yield _filled(query, rows)


def _filled(query: Query, rows: list[list[Any]]) -> Columns:
    builder = ColumnBuilder(query.fields, len(rows))
    for number, elements in enumerate(rows):
        builder.put_row(number, elements)
    return builder.columns()


def fpdu_rows(query: Query, frame: Dissection) -> Iterable[list[Any]]:
    """Yield one row for each FPDU: fields of its headers, and of the headers before it."""
    before, fpdus = split_fpdus(frame.nodes)
    for nodes in fpdus:
        part = copy(frame)
        part.nodes = before + nodes
        yield query.values(part)


def split_fpdus(nodes: list[Node]) -> tuple[list[Node], list[list[Node]]]:
    """Return the nodes before the first FPDU, and the nodes of each FPDU."""
    starts = [at for at, node in enumerate(nodes) if isinstance(node.header, FPDULength)]
    ends = [*starts[1:], len(nodes)] if starts else []
    first = starts[0] if starts else len(nodes)
    return nodes[:first], [nodes[start:end] for start, end in zip(starts, ends, strict=True)]


def put_fields(
    builder: ColumnBuilder, query: Query, chunk: slice, rows: Chosen, fast: FastFrames
) -> None:
    """Store the fields of fast-path frames, which are ``rows`` of a chunk of the block."""
    for column, field in enumerate(query.fields):
        if found := first_of(extractor.read(fast) for extractor in field.extractors or ()):
            builder.put(column, chunk, rows, found)


def put_frame_fields(builder: ColumnBuilder, query: Query, chunk: slice, frames: Frames) -> None:
    """Store the fields of the records of a chunk of the block."""
    for column, name in enumerate(query.names):
        if name in FRAME_COLUMNS:
            builder.put(column, chunk, _ALL, Extracted(FRAME_COLUMNS[name](frames)))


_ALL = slice(None)


def put_chunk(
    builder: ColumnBuilder, query: Query, fast_filter: FastFilter, chunk: slice, frames: Frames
) -> NDArray[np.bool_]:
    """Store the fields of the frames of a chunk; return which of them must be dissected."""
    rest = np.ones(len(frames.records.offsets), np.bool_)
    for rows, fast in fast_filter.fast_frames(frames.records):
        rest[rows] = False
        put_fields(builder, query, chunk, rows, fast)
    put_frame_fields(builder, query, chunk, frames)
    return rest


class MixedReader:
    """Reads a file whose link type has fast paths; dissects the frames that take none.

    ``on_dissected`` is called for each dissected frame, with its row in the block.
    """

    def __init__(
        self,
        file: CaptureFile,
        query: Query,
        ports: Ports,
        on_dissected: Callable[[int, Dissection], None] | None = None,
    ) -> None:
        self._source = FrameSource(file, (int(port) for port in ports))
        self._query = query
        self._fast_filter = query.fast_filter(file.link_type, ports)
        self._on_dissected = on_dissected

    def blocks(self) -> Iterator[Columns]:
        """Yield columns in blocks; raises :class:`CaptureError` where the file is damaged."""
        for frames in self._source.blocks():
            count = len(frames.records.offsets)
            builder = ColumnBuilder(self._query.fields, count)
            for start in range(0, count, MAX_FRAMES):
                self._read_chunk(frames, start, builder)
            yield builder.columns()

    def _read_chunk(self, frames: Frames, start: int, builder: ColumnBuilder) -> None:
        chunk = slice(start, min(start + MAX_FRAMES, len(frames.records.offsets)))
        rest = put_chunk(builder, self._query, self._fast_filter, chunk, frames.at(chunk))
        for row in np.flatnonzero(rest):
            self._dissect(frames, start + int(row), builder)

    def _dissect(self, frames: Frames, row: int, builder: ColumnBuilder) -> None:
        """Dissect one frame that is not on the fast path."""
        frame = self._source.dissect(frames, row)
        builder.put_row(row, self._query.values(frame))
        if self._on_dissected is not None:
            self._on_dissected(row, frame)


class RowUnit(Enum):
    """What a row of the columns stands for."""

    FRAME = "frame"
    FPDU = "fpdu"


_ROWS = {RowUnit.FRAME: frame_rows, RowUnit.FPDU: fpdu_rows}


class Request:
    """A request for fields of selected frames, with a row for each frame or each FPDU.

    The fast path is for frames of the standard's protocols: with others, all are dissected.
    """

    def __init__(
        self,
        query: Query,
        row: RowUnit,
        ports: Iterable[int],
        selection: FrameSelection = EVERY_FRAME,
        protocols: Protocols = PROTOCOLS,
    ) -> None:
        row = RowUnit(row)
        fast = row is RowUnit.FRAME and protocols is PROTOCOLS
        self._query = query
        self._fast_query = with_selection_fields(query, selection) if fast else None
        self._protocols = protocols
        self._row = row
        self._ports = as_array(ports)
        self._selection = selection

    def nothing(self) -> Columns:
        """Return the columns without rows."""
        return ColumnBuilder(self._query.fields, 0).columns()

    def blocks(self, path: str | os.PathLike[str], first: int | None = None) -> Iterator[Columns]:
        """Yield columns in blocks; raises :class:`CaptureError` at damage, after what precedes it.

        A capture that is still growing is read only as far as the ``first`` rows need.
        """
        query = self._fast_query
        file = open_fast_path(path) if query is not None else None
        if file is not None and query is not None:
            yield from self._at_once(file, query)
        else:
            ports = (int(port) for port in self._ports)
            yield from iter_dissected(
                path, self._query, ports, self._rows, first, protocols=self._protocols
            )

    def _rows(self, query: Query, frame: Dissection) -> Iterable[list[Any]]:
        return _ROWS[self._row](query, frame) if self._selection.takes(frame) else ()

    def _at_once(self, file: CaptureFile, query: Query) -> Iterator[Columns]:
        hidden = set(query.names) - set(self._query.names)
        for block, rows in iter_selected(file, query, self._ports, self._selection):
            yield block if rows is None else block.at(rows).without(hidden)


def iter_selected(
    file: CaptureFile,
    query: Query,
    ports: NDArray[np.uint16],
    selection: FrameSelection,
) -> Iterator[tuple[Columns, NDArray[np.bool_] | None]]:
    """Yield blocks of columns, each with a mask of the selected rows; ``None`` for all rows."""
    dissected: dict[int, bool] = {}

    def note(row: int, frame: Dissection) -> None:
        dissected[row] = selection.takes(frame)

    for block in MixedReader(file, query, ports, note).blocks():
        every = selection is EVERY_FRAME
        yield block, None if every else _corrected(selection.rows(block), dissected)
        dissected.clear()


def _corrected(rows: NDArray[np.bool_], dissected: dict[int, bool]) -> NDArray[np.bool_]:
    """Replace the rows of dissected frames with what the dissection says."""
    for row, wanted in dissected.items():
        rows[row] = wanted
    return rows


def with_selection_fields(query: Query, selection: FrameSelection) -> Query | None:
    """Add the fields that select frames to a query; ``None`` if the slow path is needed."""
    names = list(selection.names)
    if not selection.is_simple:
        return None
    both = query.also(names)
    return both if both.is_fast and all(map(occurs_once, names)) else None


def as_array(ports: Iterable[int]) -> NDArray[np.uint16]:
    """Return UDP ports as an array; raises ``ValueError`` for an invalid port."""
    numbers = list(ports)
    if wrong := [number for number in numbers if not 0 <= number <= 0xFFFF]:
        raise ValueError(f"{wrong[0]} is not a UDP port: 0 to 65535")
    return np.array(numbers, np.uint16)


DEFAULT_FIELDS = (
    *("frame.number", "frame.time_epoch", "frame.len", "frame.cap_len"),
    *("ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "ip.dsfield.ecn", "udp.srcport", "udp.dstport"),
    *("infiniband.bth.opcode", "infiniband.bth.se", "infiniband.bth.m", "infiniband.bth.padcnt"),
    *("infiniband.bth.tver", "infiniband.bth.p_key", "rdmawire.bth.fecn", "rdmawire.bth.becn"),
    *("infiniband.bth.destqp", "infiniband.bth.a", "infiniband.bth.psn"),
    *("infiniband.reth.va", "infiniband.reth.r_key", "infiniband.reth.dmalen"),
    *("infiniband.aeth.syndrome", "infiniband.aeth.msn"),
    *("infiniband.deth.q_key", "infiniband.deth.srcqp"),
    *("infiniband.atomiceth.swapdt", "infiniband.atomiceth.cmpdt"),
    *("infiniband.immdt", "rdmawire.icrc.status"),
)
"""Fields that are read by default: those that RoCE traffic is usually examined by."""


def iter_columns(
    path: str | os.PathLike[str],
    fields: Iterable[str] = DEFAULT_FIELDS,
    *,
    row: RowUnit = RowUnit.FRAME,
    ports: Iterable[int] = (ROCE_PORT,),
    where: str | Filter | None = None,
    protocols: Protocols = PROTOCOLS,
) -> Iterator[Columns]:
    """Yield the columns of a capture in blocks, in bounded memory whatever its size.

    ``fields`` are fields, each by any of its names; the columns go by the names that are given.
    ``row`` is a frame, or an FPDU of iWARP with the fields of its own headers. ``ports`` are the
    UDP ports of RoCEv2. ``where`` is a display filter that frames must pass. ``protocols`` say what
    carries what, as for a :class:`~rdmawire.dissect.Dissector`; with others than the standard's,
    each frame is dissected. The arrays of a :class:`~rdmawire.columns.Column` have the shape
    ``(rows,)``.

    Raises :class:`~rdmawire.dissect.select.FieldError` for an unknown field and
    :class:`~rdmawire.filter.FilterError` for an invalid filter, both at the call, and
    :class:`~rdmawire.errors.CaptureError` at damage, after the blocks before it.
    """
    return Request(Query(fields), row, ports, select_frames(where), protocols).blocks(path)


def read_columns(
    path: str | os.PathLike[str],
    fields: Iterable[str] = DEFAULT_FIELDS,
    *,
    row: RowUnit = RowUnit.FRAME,
    ports: Iterable[int] = (ROCE_PORT,),
    where: str | Filter | None = None,
    protocols: Protocols = PROTOCOLS,
) -> Columns:
    """Return the columns of a complete capture; arguments and errors as of :func:`iter_columns`.

    For a damaged file this raises :class:`~rdmawire.errors.CaptureError` and returns nothing;
    :func:`iter_columns` yields what precedes the damage.
    """
    request = Request(Query(fields), row, ports, select_frames(where), protocols)
    blocks = list(request.blocks(path))
    return joined(blocks) if blocks else request.nothing()
