"""Lines of ``-T fields``, written from columns.

This needs fields that occur at most once in a fast-path frame, so that a column holds all values.
Other frames are dissected and written with all occurrences.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.chunk import Found, Printed, gaps
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
from rdmawire.dissect.output import FrameCounts
from rdmawire.units import decimal_seconds
from rdmawire.wire.show import Kind, Show, writer


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
        texts = np.full(self._end, "", object)
        texts[taken] = self._lines(self._columns.at(taken))
        counts = FrameCounts()
        counts.frames = len(taken)
        joined = ("".join(texts[gap].tolist()) for gap in gaps(self.found.rest, self._end))
        encoding = self._printer.encoding
        return Printed([text.encode(encoding, "backslashreplace") for text in joined], counts)

    def _lines(self, columns: Columns) -> list[str]:
        names, separator, quote = self._printer.form
        cells = {name: _cells(name, columns[name], quote) for name in set(names)}
        rows = zip(*(cells[name] for name in names), strict=True)
        return [f"{separator.join(row)}\n" for row in rows]


def _cells(name: str, column: Column, quote: str) -> list[str]:
    texts = _WRITERS[column.type.form](column.values, notations(name)[0])
    if quote:
        texts = [f"{quote}{text}{quote}" for text in texts]
    if column.valid.all():
        return texts
    return [t if valid else "" for t, valid in zip(texts, column.valid.tolist(), strict=True)]


_CALENDAR = "frame.time"
"""A date in the local time zone as text, but a number in columns."""


def field_query(names: Sequence[str], selection: FrameSelection) -> Query | None:
    """Return a query for these fields; ``None`` if columns do not hold all their values."""
    if _CALENDAR in names or not all(map(occurs_once, names)):
        return None
    return with_selection_fields(Query(names), selection)


Notation = tuple[Show, int]


def _numbers(values: NDArray[Any], notation: Notation) -> list[str]:
    show, width = notation
    # Columns are scaled already: what remains is to write a decimal number.
    write = str if show.kind is Kind.DEC else writer(show, width)
    if values.dtype.itemsize > 1:
        return list(map(write, values.tolist()))
    every = np.array([write(number) for number in range(256)], object)
    return list(every[values])


def _flags(values: NDArray[Any], _: Notation) -> list[str]:
    return list(np.array(["0", "1"], object)[values.astype(np.uint8)])


def _times(values: NDArray[Any], _: Notation) -> list[str]:
    return list(map(decimal_seconds, values.tolist()))


def _texts(values: NDArray[Any], _: Notation) -> list[str]:
    return list(map(str, values))


def _addresses(form: Form) -> Callable[[NDArray[Any], Notation], list[str]]:
    def written(values: NDArray[Any], _: Notation) -> list[str]:
        words, offsets = distinct_addresses(form, values)
        return list(np.array(words, object)[offsets])

    return written


_WRITERS: dict[Form, Callable[[NDArray[Any], Notation], list[str]]] = {
    Form.NUMBER: _numbers,
    Form.FLAG: _flags,
    Form.TIME: _times,
    Form.DURATION: _times,
    **{form: _addresses(form) for form in ADDRESSES},
    Form.TEXT: _texts,
    Form.BYTES: lambda values, _: [""] * len(values),  # fast-path frames have none
}
