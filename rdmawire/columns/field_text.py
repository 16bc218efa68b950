"""Lines of ``-T fields``, written from columns.

This needs fields that occur at most once in a fast-path frame, so that a column holds all values.
Other frames are dissected and written with all occurrences.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.chunk import MAX_BYTES, MAX_FRAMES, Found, Printed, gaps
from rdmawire.columns.column import ADDRESSES, Column, Form, distinct_addresses
from rdmawire.columns.extract import Frames
from rdmawire.columns.fast_path import FastFilter
from rdmawire.columns.query import (
    EVERY_FRAME,
    ColumnBuilder,
    FrameSelection,
    Query,
    notations,
    occurs_once,
)
from rdmawire.columns.read import put_chunk, with_selection_fields
from rdmawire.columns.table import Columns
from rdmawire.columns.text_cells import (
    Cells,
    constant,
    decimals,
    encoded,
    from_rows,
    from_texts,
    from_values,
    hexadecimals,
    in_encoding,
    seconds_cells,
    side_by_side,
    text_of,
)
from rdmawire.dissect.output import FrameCounts
from rdmawire.wire.show import Kind, Show, writer

_MAX_CELLS: Final = 1 << 18
"""Values of a chunk at most: with many fields, it has fewer frames."""


class FieldForm(NamedTuple):
    """How lines of fields are written: the ``names``, the separator, the quote around a value."""

    names: tuple[str, ...]
    separator: str
    quote: str = ""


class FieldPrinter:
    """Writes lines of fields of the frames of chunks, those of ``selection``.

    ``query`` is that of :func:`field_query`, ``fast_filter`` finds the frames that it can be read
    from at once, ``encoding`` is that of the text.
    """

    def __init__(
        self,
        form: FieldForm,
        query: Query,
        fast_filter: FastFilter,
        selection: FrameSelection = EVERY_FRAME,
        encoding: str = "utf-8",
    ) -> None:
        self.form = form
        frames = max(_MAX_CELLS // len(form.names), 1) if form.names else MAX_FRAMES
        self.max_frames, self.max_bytes = min(MAX_FRAMES, frames), MAX_BYTES
        self.query = query
        self.selection = selection
        self.encoding = encoding
        self.fast_filter = fast_filter

    def prepare(self, frames: Frames) -> "FieldChunk":
        """Read the fields of a chunk."""
        return FieldChunk(self, frames)


class FieldChunk:
    """The fields of the frames of a chunk, except those that must be dissected."""

    def __init__(self, printer: FieldPrinter, frames: Frames) -> None:
        self._printer = printer
        self.frames = frames
        builder = ColumnBuilder(printer.query.fields, len(frames.records.offsets))
        rest = put_chunk(builder, printer.query, printer.fast_filter, slice(None), frames)
        self._columns = builder.columns()
        taken = ~rest
        if printer.selection is not EVERY_FRAME:
            taken &= printer.selection.rows(self._columns)
        self.found = Found(np.flatnonzero(rest), taken)
        self._end = 0

    def print(self, _: NDArray[np.int64] | None, end: int) -> None:
        """Write the selected rows before ``end`` when the text is asked for."""
        self._end = end

    def printed(self) -> Printed:
        """Return the lines, and the number of frames."""
        taken = np.flatnonzero(self.found.taken[: self._end])
        lines = self._lines(self._columns.at(taken))
        counts = FrameCounts()
        counts.frames = len(taken)
        limits = ((gap.start, gap.stop) for gap in gaps(self.found.rest, self._end))
        rows = (slice(*np.searchsorted(taken, pair)) for pair in limits)
        encoding = self._printer.encoding
        return Printed.of(counts, [in_encoding(text_of(lines[some]), encoding) for some in rows])

    def _lines(self, columns: Columns) -> Cells:
        """Return the lines of all rows."""
        names, separator, quote = self._printer.form
        if not columns.rows:
            return constant(b"", 0)
        cells = {name: _cells(name, columns[name], quote) for name in set(names)}
        parts = [part for name in names for part in (separator, cells[name])]
        return side_by_side(columns.rows, *parts[1:], "\n")


def _cells(name: str, column: Column, quote: str) -> Cells:
    """Write a column; nothing where it has no value."""
    found = _WRITERS[column.type.form](column.values, notations(name)[0])
    if quote:
        found = side_by_side(len(found), quote, found, quote)
    return found if column.valid.all() else found * column.valid[:, None]


_CALENDAR = "frame.time"
"""A date in the local time zone as text, but a number in columns."""


def field_query(names: Sequence[str], selection: FrameSelection) -> Query | None:
    """Return a query for these fields; ``None`` if columns do not hold all their values."""
    if _CALENDAR in names or not all(map(occurs_once, names)):
        return None
    return with_selection_fields(Query(names), selection)


Notation = tuple[Show, int]


def _write(notation: Notation) -> Callable[[int], str]:
    # Columns are scaled already: what remains is to write a decimal number.
    return str if notation[0].kind is Kind.DEC else writer(*notation)


@cache
def _bytes_table(notation: Notation) -> Cells:
    """Return the texts of all numbers of one byte."""
    write = _write(notation)
    return from_rows([encoded(write(number)) for number in range(256)])


def _numbers(values: NDArray[Any], notation: Notation) -> Cells:
    show, width = notation
    if values.dtype.itemsize == 1:
        cells: Cells = _bytes_table(notation)[values]
        return cells
    if show.kind is Kind.DEC:
        return decimals(values)
    if show.kind is Kind.HEX and 4 * (digits := show.digits or 2 * -(-width // 8)) >= width:
        return side_by_side(len(values), "0x", hexadecimals(values, digits))
    return from_values(values, _write(notation))


def _flags(values: NDArray[Any], _: Notation) -> Cells:
    return from_texts([b"0", b"1"], values.astype(np.uint8))


def _times(values: NDArray[Any], _: Notation) -> Cells:
    return seconds_cells(values)


def _texts(values: NDArray[Any], _: Notation) -> Cells:
    return from_values(values, str)


def _addresses(form: Form) -> Callable[[NDArray[Any], Notation], Cells]:
    def written(values: NDArray[Any], _: Notation) -> Cells:
        words, indices = distinct_addresses(form, values)
        return from_texts([encoded(word) for word in words], indices)

    return written


def _nothing(values: NDArray[Any], _: Notation) -> Cells:
    return constant(b"", len(values))


_WRITERS: dict[Form, Callable[[NDArray[Any], Notation], Cells]] = {
    Form.NUMBER: _numbers,
    Form.FLAG: _flags,
    Form.TIME: _times,
    Form.DURATION: _times,
    **{form: _addresses(form) for form in ADDRESSES},
    Form.TEXT: _texts,
    Form.BYTES: _nothing,  # fast-path frames have none
}
