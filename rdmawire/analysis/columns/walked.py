"""Columns of any capture: every frame dissected, one after the other."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rdmawire.analysis.columns.asked import Query
from rdmawire.analysis.columns.column import Columns
from rdmawire.analysis.columns.filling import Filling
from rdmawire.analysis.dissector import Dissector
from rdmawire.analysis.node import Dissection
from rdmawire.capture import open_capture
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
    damage: CaptureError | None = None
    with open_capture(path) as reader:
        frames = Dissector(ports).capture(reader)
        while damage is None:
            try:
                block += rows(query, next(frames))
            except StopIteration:
                break
            except CaptureError as error:
                damage = error
            if len(block) >= size:
                yield _filled(query, block)
                block = []
    if block:
        yield _filled(query, block)
    if damage is not None:
        raise damage


def _filled(query: Query, rows: list[list[Any]]) -> Columns:
    filling = Filling(query.fields, len(rows))
    for number, elements in enumerate(rows):
        filling.put_row(number, elements)
    return filling.columns()
