"""Fields of large captures as text: the lines of ``-T fields``, written from columns.

Only where each field occurs at most once in a plain frame: then a column holds all of it. Frames
that are not plain are written as always, with all occurrences.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.asked import Query, notations, occurs_once
from rdmawire.columns.choice import Choice
from rdmawire.columns.column import Column, Columns
from rdmawire.columns.kind import ADDRESSES, Form, distinct_addresses
from rdmawire.columns.request import as_array, chosen, on_a_path, query_of_both
from rdmawire.dissect.fields import seconds
from rdmawire.dissect.node import Dissection
from rdmawire.wire.show import Kind, Show, writer


class FieldLines:
    """Lines of fields, from columns and, where those do not tell all, from dissections.

    ``line`` makes the line, with its end, of a frame that is not plain; ``quote`` stands around
    each value that is there.
    """

    def __init__(
        self,
        names: Iterable[str],
        choice: Choice,
        line: Callable[[Dissection], str],
        separator: str,
        quote: str = "",
    ) -> None:
        self._names = list(names)
        self._choice = choice
        self._query = _written_from(self._names, choice)
        self._line = line
        self._separator = separator
        self._quote = quote
        self._walked: dict[int, str] = {}

    def lines(self, path: str | os.PathLike[str], ports: Iterable[int]) -> Iterator[str] | None:
        """The lines of a capture, with their ends; ``None`` if it is to be read frame by frame."""
        if self._query is None:
            return None
        pcap = on_a_path(path)
        if pcap is None:
            return None
        return self._written(chosen(pcap, self._query, as_array(ports), self._choice, self._keep))

    def _keep(self, row: int, frame: Dissection) -> None:
        self._walked[row] = self._line(frame)

    def _written(self, blocks: Iterator[tuple[Columns, NDArray[np.bool_] | None]]) -> Iterator[str]:
        for block, rows in blocks:
            cells = self._cells(block if rows is None else block.at(rows))
            lines = [f"{self._separator.join(row)}\n" for row in zip(*cells, strict=True)]
            walked = np.array(list(self._walked), np.int64)
            places = walked if rows is None else np.cumsum(rows)[walked] - 1
            for place, line in zip(places, self._walked.values(), strict=True):
                lines[place] = line
            self._walked.clear()
            yield from lines

    def _cells(self, block: Columns) -> list[list[str]]:
        texts = {name: self._texts(name, block[name]) for name in set(self._names)}
        return [texts[name] for name in self._names]

    def _texts(self, name: str, column: Column) -> list[str]:
        texts = _WRITERS[column.kind.form](column.values, notations(name)[0])
        if self._quote:
            texts = [f"{self._quote}{text}{self._quote}" for text in texts]
        if column.valid.all():
            return texts
        return [t if valid else "" for t, valid in zip(texts, column.valid.tolist(), strict=True)]


_CALENDAR = "frame.time"
"""What is a date in words here, in the local time zone, and a number in columns."""


def _written_from(names: list[str], choice: Choice) -> Query | None:
    """What columns are needed for these fields; ``None`` if columns do not hold all of them."""
    if _CALENDAR in names or not all(map(occurs_once, names)):
        return None
    return query_of_both(Query(names), choice)


Notation = tuple[Show, int]


def _numbers(values: NDArray[Any], notation: Notation) -> list[str]:
    show, width = notation
    # A column counts in ones already: what is left to write is a plain number.
    write = str if show.kind is Kind.DEC else writer(show, width)
    if values.dtype.itemsize > 1:
        return list(map(write, values.tolist()))
    every = np.array([write(number) for number in range(256)], object)
    return list(every[values])


def _flags(values: NDArray[Any], _: Notation) -> list[str]:
    return list(np.array(["0", "1"], object)[values.astype(np.uint8)])


def _times(values: NDArray[Any], _: Notation) -> list[str]:
    return list(map(seconds, values.tolist()))


def _texts(values: NDArray[Any], _: Notation) -> list[str]:
    return list(map(str, values))


def _addresses(form: Form) -> Callable[[NDArray[Any], Notation], list[str]]:
    def written(values: NDArray[Any], _: Notation) -> list[str]:
        words, places = distinct_addresses(form, values)
        return list(np.array(words, object)[places])

    return written


_WRITERS: dict[Form, Callable[[NDArray[Any], Notation], list[str]]] = {
    Form.NUMBER: _numbers,
    Form.FLAG: _flags,
    Form.TIME: _times,
    Form.DURATION: _times,
    **{form: _addresses(form) for form in ADDRESSES},
    Form.TEXT: _texts,
    Form.OCTETS: lambda values, _: [""] * len(values),  # plain frames have none
}
