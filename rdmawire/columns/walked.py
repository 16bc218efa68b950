"""Columns of any capture: every frame dissected, one after the other."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rdmawire.capture import open_capture
from rdmawire.columns.asked import Query
from rdmawire.columns.column import Columns
from rdmawire.columns.filling import Filling
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.node import Dissection
from rdmawire.errors import CaptureError

_BLOCK = 65536
"""Rows of a block."""

Rows = Callable[[Query, Dissection], Iterable[list[Any]]]
"""The rows that a frame makes: elements of all fields, ``None`` for those that it lacks."""


def of_frame(query: Query, frame: Dissection) -> Iterable[list[Any]]:
    """One row for each frame."""
    return [query.values(frame)]


def walked(
    path: str | os.PathLike[str],
    query: Query,
    ports: Iterable[int],
    rows: Rows,
    first: int | None = None,
) -> Iterator[Columns]:
    """The columns, block by block; then :class:`CaptureError` if the file is damaged.

    A block has ``first`` rows if no more are asked for.
    """
    size = min(first or _BLOCK, _BLOCK)
    block: list[list[Any]] = []
    try:
        with open_capture(path) as reader:
            for frame in Dissector(ports).capture(reader):
                block += rows(query, frame)
                if len(block) >= size:
                    yield _filled(query, block)
                    block = []
    except CaptureError:
        yield from _rest(query, block)
        raise
    yield from _rest(query, block)


def _rest(query: Query, rows: list[list[Any]]) -> Iterator[Columns]:
    """The last block, unless it has no rows."""
    if rows:
        yield _filled(query, rows)


def _filled(query: Query, rows: list[list[Any]]) -> Columns:
    filling = Filling(query.fields, len(rows))
    for number, elements in enumerate(rows):
        filling.put_row(number, elements)
    return filling.columns()
