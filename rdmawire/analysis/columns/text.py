"""Fields of large captures as text: the lines of ``-T fields``, written from columns.

Only where each field occurs at most once in a plain frame: then a column holds all of it. Frames
that are not plain are written as always, with all occurrences.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.analysis.columns.asked import Query, notations, occurs_once
from rdmawire.analysis.columns.choice import Choice
from rdmawire.analysis.columns.column import Column, Columns
from rdmawire.analysis.columns.kind import Form
from rdmawire.analysis.columns.mixed import MixedReader
from rdmawire.analysis.columns.path import LINK_TYPES
from rdmawire.analysis.columns.request import query_of_both
from rdmawire.analysis.frame import seconds
from rdmawire.analysis.node import Dissection
from rdmawire.capture.columns.mapped import mapped
from rdmawire.wire.show import Kind, Show, ipv4, ipv6, mac, writer


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
        self._walked: dict[int, str | None] = {}

    def lines(self, path: str | os.PathLike[str], ports: Iterable[int]) -> Iterator[str] | None:
        """The lines of a capture, with their ends; ``None`` if it is to be read frame by frame."""
        if self._query is None:
            return None
        with mapped(path) as pcap:
            if pcap is None or pcap.link_type not in LINK_TYPES:
                return None
            reader = MixedReader(pcap, self._query, np.array(list(ports), np.uint16), self._keep)
            return self._written(reader)

    def _keep(self, row: int, frame: Dissection) -> None:
        self._walked[row] = self._line(frame) if self._choice.takes(frame) else None

    def _written(self, reader: MixedReader) -> Iterator[str]:
        for block in reader.blocks():
            rows = self._choice.rows(block)
            for row, line in self._walked.items():
                rows[row] = line is not None
            chosen = np.flatnonzero(rows)
            cells = self._cells(block.at(chosen))
            lines = [f"{self._separator.join(row)}\n" for row in zip(*cells, strict=True)]
            for place in np.flatnonzero(np.isin(chosen, list(self._walked))):
                lines[place] = self._walked[int(chosen[place])] or ""
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


def _addresses(write: Callable[[Any], str]) -> Callable[[NDArray[Any], Notation], list[str]]:
    """Few different values, each written once."""

    def written(values: NDArray[Any], _: Notation) -> list[str]:
        known, places = np.unique(values, return_inverse=True)
        words = np.array([write(value) for value in known], object)
        return list(words[places])

    return written


_WRITERS: dict[Form, Callable[[NDArray[Any], Notation], list[str]]] = {
    Form.NUMBER: _numbers,
    Form.FLAG: _flags,
    Form.TIME: _times,
    Form.DURATION: _times,
    Form.MAC: _addresses(lambda value: mac(int(value).to_bytes(6, "big"))),
    Form.IPV4: _addresses(lambda value: ipv4(int(value).to_bytes(4, "big"))),
    Form.IPV6: _addresses(lambda value: ipv6(value.tobytes())),
    Form.TEXT: _texts,
    Form.OCTETS: lambda values, _: [""] * len(values),  # plain frames have none
}
