"""Queries: the fields to read, their column types and locations, and the frames to select."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.column import DURATION, TIME, Column, Columns, ColumnType, Form, column_type
from rdmawire.columns.extract import (
    Extracted,
    Extractor,
    ICRCExpected,
    ICRCExtractor,
    ICRCStatus,
    IPChecksumStatus,
    RowExtractor,
)
from rdmawire.columns.fast_path import PATHS, Chosen, Path
from rdmawire.dissect import generated
from rdmawire.dissect.fields import derived_fields, frame_fields
from rdmawire.dissect.node import Derived, Dissection
from rdmawire.dissect.select import Bound, BoundKind, Selection, Window, sources
from rdmawire.filter import Filter, evaluate_columns
from rdmawire.wire.header import Group, Header, Row
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.show import Kind, Show

_EXTENDED = {header for layout in LAYOUTS.values() for header in layout.headers}
_TABLES: list[type[Header]] = [
    *{table for path in PATHS for table in path.bases},
    BTH,
    *_EXTENDED,
    ICRC,
]
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
    """One field: its column type, and its extractors; ``None`` if the fast path has none.

    ``first`` is the index of the wanted value: a few headers with a single row have the same name
    as that row, and their bytes precede the number.
    """

    name: str
    kind: ColumnType
    first: int
    extractors: list[Extractor] | None


class Query:
    """Fields by name, each once; a single name may be given as a string.

    Raises :class:`~rdmawire.dissect.select.FieldError` for an unknown field.
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

    def width(self, path: Path) -> int:
        """Return the bytes from the start of a frame that the query needs on a path."""
        widths = (
            extractor.width(path) for field in self.fields for extractor in field.extractors or ()
        )
        return max(path.width, *widths, 0)

    def values(self, frame: Dissection) -> list[Any]:
        """Return the first value of each field in a dissected frame; ``None`` if absent."""
        found = zip(self.fields, self.selection.numbers(frame), strict=True)
        return [_element(field, frame, values) for field, values in found]


@cache
def _requested_field(name: str) -> RequestedField:
    return RequestedField(name, _type_of(name), _first(name), _extractors(name))


def _element(field: RequestedField, frame: Dissection, values: list[Any]) -> Any:
    if field.name in _TIMES:
        time_ns = _TIMES[field.name][1](frame)
        return time_ns if -_MAX_TIME <= time_ns < _MAX_TIME else None
    return field.kind.element(values[field.first]) if len(values) > field.first else None


def _first(name: str) -> int:
    return int(any(_is_both(name, table) for table, _ in sources(name)))


def _is_both(name: str, table: type[Header]) -> bool:
    """Whether a header and one of its rows have the same name."""
    of_table = [source for other, source in sources(name) if other is table]
    return table.wireshark == name and any(source.field for source in of_table)


def notations(name: str) -> list[tuple[Show, int]]:
    """Return the notation and the width in bits of a field, for each header that has it."""
    own = [*(field.field for field in frame_fields(name)), *derived_fields(name)]
    found = [(field.show, field.width) for field in own]
    return found + [(source.show, source.width) for _, source in sources(name)[_first(name) :]]


def _type_of(name: str) -> ColumnType:
    if name in _TIMES:
        return _TIMES[name][0]
    kinds = [column_type(show, width) for show, width in notations(name)]
    return max(kinds, key=lambda kind: kind.dtype.itemsize)


def _extractors(name: str) -> list[Extractor] | None:
    """Return the extractors of a field; ``None`` if it needs the slow path."""
    if any(field.name == name for field in _DISSECTED_ONLY):
        return None
    found: list[Extractor] = [source for field, source in _COMPUTED.items() if field.name == name]
    for table in _TABLES:
        own = _in_table(name, table)
        if own is None:
            return None
        found += own
    return found


@cache
def occurs_once(name: str) -> bool:
    """Whether every fast-path frame has a field at most once."""
    own = [table for table, source in sources(name) if source.field and table in _TABLES]
    apart = len(own) == len(set(own)) and not any(_is_both(name, table) for table in own)
    return apart and all(len(set(own) & stacked) < 2 for stacked in _stacks())


def _stacks() -> Iterator[set[type[Header]]]:
    """Yield the sets of headers that fast-path frames have."""
    for path in PATHS:
        for layout in LAYOUTS.values():
            yield {*path.bases, BTH, *layout.headers, ICRC}


def _in_table(name: str, table: type[Header]) -> list[Extractor] | None:
    if table.wireshark == name and not _is_both(name, table):
        return None
    fields = [source.field for t, source in sources(name) if t is table and source.field]
    if any(_is_wide(field.row, field.show.kind) for field in fields):
        return None
    if table is ICRC:
        return [ICRCExtractor() for _ in fields]
    return [RowExtractor(field) for field in fields]


def _is_wide(row: Row | Group, kind: Kind) -> bool:
    """Whether a row does not fit an array of numbers."""
    if isinstance(row, Row) and row.times > 1:
        return True
    return kind in (Kind.BYTES, Kind.TEXT) or (row.width > 64 and kind is not Kind.IPV6)


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
        """Return which rows are selected."""
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
    """Return the selection of frames that pass a filter; of all frames for ``None``."""
    if where is None:
        return EVERY_FRAME
    return FrameSelection(where=Filter(where) if isinstance(where, str) else where)


class ColumnBuilder:
    """Builds columns of ``rows`` rows; what is not put in is absent."""

    def __init__(self, fields: list[RequestedField], rows: int) -> None:
        self._fields = fields
        self._rows = rows
        self._values: list[NDArray[Any]] = [np.zeros(rows, field.kind.dtype) for field in fields]
        self._valid = [np.zeros(rows, np.bool_) for _ in fields]

    def put(self, column: int, stretch: slice, rows: Chosen, found: Extracted) -> None:
        """Put in extracted values for some rows of a stretch of the block."""
        self._values[column][stretch][rows] = _elements(found.values, self._fields[column].kind)
        self._valid[column][stretch][rows] = True if found.valid is None else found.valid

    def put_row(self, row: int, elements: list[Any]) -> None:
        """Put in one row: an element of each column, ``None`` if absent."""
        for column, element in enumerate(elements):
            if element is not None:
                self._values[column][row] = element
                self._valid[column][row] = True

    def columns(self) -> Columns:
        """Return the columns."""
        triples = zip(self._fields, self._values, self._valid, strict=True)
        return Columns(
            self._rows,
            {field.name: Column(field.kind, values, valid) for field, values, valid in triples},
        )


def _elements(values: NDArray[Any], kind: ColumnType) -> NDArray[Any]:
    if kind.form is Form.FLAG:
        return np.asarray(values != 0)
    if kind.scale == 1:
        return values
    return np.asarray(values.astype(kind.dtype) * kind.dtype.type(kind.scale))
