"""Lines of ``-T fields``, written from columns.

This needs fields that occur at most once in a fast-path frame, so that a column holds all values.
Other frames are dissected and written with all occurrences.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.column import ADDRESSES, Column, Form, distinct_addresses
from rdmawire.columns.query import FrameSelection, Query, notations, occurs_once
from rdmawire.columns.read import as_array, iter_selected, open_fast_path, with_selection_fields
from rdmawire.columns.table import Columns
from rdmawire.dissect.dissection import Dissection
from rdmawire.units import decimal_seconds
from rdmawire.wire.show import Kind, Show, writer


class FieldLines:
    """Writes lines of fields, from columns and, for frames on the slow path, from dissections.

    ``line`` returns the line of a dissected frame, with its line end; ``quote`` is written around
    each value.
    """

    def __init__(
        self,
        names: Iterable[str],
        selection: FrameSelection,
        line: Callable[[Dissection], str],
        separator: str,
        quote: str = "",
    ) -> None:
        self._names = list(names)
        self._selection = selection
        self._query = _written_from(self._names, selection)
        self._line = line
        self._separator = separator
        self._quote = quote
        self._dissected: dict[int, str] = {}

    def lines(self, path: str | os.PathLike[str], ports: Iterable[int]) -> Iterator[str] | None:
        """Return the lines of a capture; ``None`` if every frame must be dissected."""
        if self._query is None:
            return None
        pcap = open_fast_path(path)
        if pcap is None:
            return None
        return self._written(
            iter_selected(pcap, self._query, as_array(ports), self._selection, self._keep)
        )

    def _keep(self, row: int, frame: Dissection) -> None:
        self._dissected[row] = self._line(frame)

    def _written(self, blocks: Iterator[tuple[Columns, NDArray[np.bool_] | None]]) -> Iterator[str]:
        for block, rows in blocks:
            cells = self._cells(block if rows is None else block.at(rows))
            lines = [f"{self._separator.join(row)}\n" for row in zip(*cells, strict=True)]
            dissected = np.array(list(self._dissected), np.int64)
            offsets = dissected if rows is None else np.cumsum(rows)[dissected] - 1
            for offset, line in zip(offsets, self._dissected.values(), strict=True):
                lines[offset] = line
            self._dissected.clear()
            yield from lines

    def _cells(self, block: Columns) -> list[list[str]]:
        texts = {name: self._texts(name, block[name]) for name in set(self._names)}
        return [texts[name] for name in self._names]

    def _texts(self, name: str, column: Column) -> list[str]:
        texts = _WRITERS[column.type.form](column.values, notations(name)[0])
        if self._quote:
            texts = [f"{self._quote}{text}{self._quote}" for text in texts]
        if column.valid.all():
            return texts
        return [t if valid else "" for t, valid in zip(texts, column.valid.tolist(), strict=True)]


_CALENDAR = "frame.time"
"""A date in the local time zone as text, but a number in columns."""


def _written_from(names: list[str], selection: FrameSelection) -> Query | None:
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
