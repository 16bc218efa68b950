"""Queries: the fields to read, their column types and locations, and the frames to select."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.column import DURATION, TIME, Column, ColumnType, Form, column_type
from rdmawire.columns.extract import (
    Extracted,
    Extractor,
    ICRCExpected,
    ICRCExtractor,
    ICRCStatus,
    IPChecksumStatus,
    RowExtractor,
)
from rdmawire.columns.fast_path import LEAD, PATHS, Chosen, FastFilter, HeaderStack, Ports
from rdmawire.columns.table import Columns
from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.fields import derived_fields, frame_fields
from rdmawire.dissect.node import Derived
from rdmawire.dissect.select import Bound, BoundKind, Selection, Window, sources
from rdmawire.filter import Filter, evaluate_columns
from rdmawire.wire.field_registry import HeaderField
from rdmawire.wire.header import Header, Row
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.show import Kind, Show
from rdmawire.wire.tables import cached_by_tables

_TABLES: set[type[Header]] = {
    *(table for path in PATHS for table in path.bases),
    *(header for layout in LAYOUTS.values() for header in layout.headers),
    *(BTH, ICRC),
}
"""The headers of fast-path frames."""

_COMPUTED: dict[Derived, Extractor] = {
    generated.ICRC_STATUS: ICRCStatus(),
    generated.ICRC_EXPECTED: ICRCExpected(),
    generated.IP_CHECKSUM_STATUS: IPChecksumStatus(),
}
_DISSECTED_ONLY = {
    *(generated.PAYLOAD, generated.DATA, generated.DATA_LENGTH, generated.PAD, generated.TRAILER),
    *(generated.UDP_PAYLOAD, generated.UDP_STREAM, generated.UDP_CHECKSUM_STATUS),
    *(generated.CHECKSUM_EXPECTED, generated.ICRC_NOTE),
}
"""Generated fields of fast-path frames that only a dissection computes."""

_TIMES: dict[str, tuple[ColumnType, Callable[[Dissection], int]]] = {
    "frame.time": (TIME, lambda frame: frame.time_ns),
    "frame.time_epoch": (TIME, lambda frame: frame.time_ns),
    "frame.time_relative": (DURATION, lambda frame: frame.time_ns - frame.first_ns),
    "frame.time_delta": (DURATION, lambda frame: frame.time_ns - frame.previous_ns),
}
"""Fields that are text elsewhere, and numbers in columns."""
_MAX_TIME = 1 << 63
"""Times of this many ns or more do not fit 64 bits: they are absent."""


class RequestedField(NamedTuple):
    """A field: its column type, and its extractors; ``None`` if the fast path has none.

    ``first`` is the index of the wanted value in a dissection: a few headers with a single row have
    the same name as that row, and their bytes precede the number.
    """

    name: str
    type: ColumnType
    first: int
    extractors: list[Extractor] | None


class Query:
    """Fields by name, each once; a single name may be given as a string.

    Raises :class:`~rdmawire.dissect.select.FieldError` for an unknown name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(dict.fromkeys([names] if isinstance(names, str) else names))
        self.selection = Selection(self.names)
        self.fields = [_requested_field(name) for name in self.names]

    def also(self, names: Iterable[str]) -> "Query":
        """Return a query with further fields."""
        return Query([*self.names, *names])

    @property
    def is_fast(self) -> bool:
        """Whether the fast path has all fields."""
        return all(field.extractors is not None for field in self.fields)

    def width(self, path: HeaderStack) -> int:
        """Return the bytes from the start of a frame that the query needs on a path."""
        widths = (
            extractor.width(path) for field in self.fields for extractor in field.extractors or ()
        )
        return max(path.width, *widths, 0)

    def fast_filter(self, link_type: int, ports: Ports, width: int = 0) -> FastFilter:
        """Return what finds the frames that the fields are read from at once.

        ``width`` are the bytes after the BTH that are needed in any case.
        """
        paths = [path for path in PATHS if path.link_type == link_type]
        widths = {path: LEAD + max(path.width + width, self.width(path)) for path in paths}
        return FastFilter(widths, ports)

    def values(self, frame: Dissection) -> list[Any]:
        """Return the first value of each field in a dissected frame; ``None`` if absent."""
        found = zip(self.fields, self.selection.numbers(frame), strict=True)
        return [_element(field, frame, values) for field, values in found]


@cached_by_tables
def _requested_field(name: str) -> RequestedField:
    return RequestedField(name, _type_of(name), _first(name), _extractors(name))


def _element(field: RequestedField, frame: Dissection, values: list[Any]) -> Any:
    if field.name in _TIMES:
        time_ns = _TIMES[field.name][1](frame)
        return time_ns if -_MAX_TIME <= time_ns < _MAX_TIME else None
    return field.type.element(values[field.first]) if len(values) > field.first else None


def _first(name: str) -> int:
    of_rows = {table for table, source in sources(name) if source.field}
    return int(any(table in of_rows and not source.field for table, source in sources(name)))


def notations(name: str) -> list[tuple[Show, int]]:
    """Return the notation and the width in bits of a field, for each header that has it."""
    own = [*(field.field for field in frame_fields(name)), *derived_fields(name)]
    found = [(field.show, field.width) for field in own]
    return found + [(source.show, source.width) for _, source in sources(name)[_first(name) :]]


def _type_of(name: str) -> ColumnType:
    if name in _TIMES:
        return _TIMES[name][0]
    types = [column_type(show, width) for show, width in notations(name)]
    return max(types, key=lambda each: each.dtype.itemsize)


def _extractors(name: str) -> list[Extractor] | None:
    """Return the extractors of a field; ``None`` if it needs the slow path."""
    if any(field in _DISSECTED_ONLY for field in derived_fields(name)):
        return None
    fast = [(table, source.field) for table, source in sources(name) if table in _TABLES]
    fields = [field for _, field in fast if field is not None]
    of_rows = {field.table for field in fields}
    if any(table not in of_rows for table, _ in fast) or any(map(_is_wide, fields)):
        return None
    computed = [_COMPUTED[field] for field in derived_fields(name) if field in _COMPUTED]
    return computed + [
        ICRCExtractor() if field.table is ICRC else RowExtractor(field) for field in fields
    ]


def _is_wide(field: HeaderField) -> bool:
    """Whether a field does not fit an array of numbers."""
    row, notation = field.row, field.show.kind
    if isinstance(row, Row) and row.times > 1:
        return True
    return notation in (Kind.BYTES, Kind.TEXT) or (row.width > 64 and notation is not Kind.IPV6)


@cached_by_tables
def occurs_once(name: str) -> bool:
    """Return whether every fast-path frame has a field at most once."""
    own = [table for table, _ in sources(name) if table in _TABLES]
    return len(own) == len(set(own)) and all(len(set(own) & stack) < 2 for stack in _stacks())


def _stacks() -> Iterator[set[type[Header]]]:
    """Yield the sets of headers that fast-path frames have."""
    for path in PATHS:
        for layout in LAYOUTS.values():
            yield {*path.bases, BTH, *layout.headers, ICRC}


_COLUMNS = {
    BoundKind.NUMBER: "frame.number",
    BoundKind.RELATIVE: "frame.time_relative",
    BoundKind.EPOCH: "frame.time_epoch",
}
"""The columns that the bounds of a window are compared with."""


class FrameSelection(NamedTuple):
    """A selection of frames: those in a window that pass a filter."""

    window: Window = Window()
    where: Filter | None = None

    def takes(self, frame: Dissection) -> bool:
        """Whether a dissected frame is selected."""
        return frame in self.window and (self.where is None or self.where(frame))

    @property
    def is_simple(self) -> bool:
        """Whether columns are enough to evaluate the selection."""
        return self.where is None or self.where.simple

    @property
    def names(self) -> Iterator[str]:
        """The columns that :meth:`rows` needs."""
        yield from (_COLUMNS[bound.kind] for bound in self._bounds())
        yield from self.where.names if self.where is not None else ()

    def _bounds(self) -> Iterator[Bound]:
        yield from filter(None, (self.window.start, self.window.end))

    def rows(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which rows are selected: a mask of shape ``(rows,)``."""
        wanted = np.ones(columns.rows, np.bool_)
        start, end = self.window.start, self.window.end
        if start is not None:
            wanted &= columns[_COLUMNS[start.kind]].values >= start.value
        if end is not None:
            wanted &= columns[_COLUMNS[end.kind]].values <= end.value
        if self.where is not None:
            wanted &= evaluate_columns(self.where.tree, columns)
        return wanted


EVERY_FRAME = FrameSelection()


def select_frames(where: str | Filter | None) -> FrameSelection:
    """Return the selection of frames that pass a filter; of all frames for ``None``.

    Raises :class:`~rdmawire.filter.FilterError` for an invalid filter.
    """
    if where is None:
        return EVERY_FRAME
    return FrameSelection(where=Filter(where) if isinstance(where, str) else where)


class ColumnBuilder:
    """Builds columns of ``rows`` rows; a value that is not stored is absent."""

    def __init__(self, fields: list[RequestedField], rows: int) -> None:
        self._fields = fields
        self._rows = rows
        self._values: list[NDArray[Any]] = [np.zeros(rows, field.type.dtype) for field in fields]
        self._valid = [np.zeros(rows, np.bool_) for _ in fields]

    def put(self, column: int, chunk: slice, rows: Chosen, found: Extracted) -> None:
        """Store the values of a column for some rows of a chunk of the block."""
        self._values[column][chunk][rows] = _elements(found.values, self._fields[column].type)
        self._valid[column][chunk][rows] = True if found.valid is None else found.valid

    def put_row(self, row: int, elements: list[Any]) -> None:
        """Store one row: an element of each column, ``None`` if absent."""
        for column, element in enumerate(elements):
            self._valid[column][row] = element is not None
            if element is not None:
                self._values[column][row] = element

    def columns(self) -> Columns:
        """Return the columns."""
        triples = zip(self._fields, self._values, self._valid, strict=True)
        return Columns(
            self._rows,
            {field.name: Column(field.type, values, valid) for field, values, valid in triples},
        )


def _elements(values: NDArray[Any], to: ColumnType) -> NDArray[Any]:
    if to.form is Form.FLAG:
        return np.asarray(values != 0)
    if to.scale == 1:
        return values
    return np.asarray(values.astype(to.dtype) * to.dtype.type(to.scale))
