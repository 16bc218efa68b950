"""Slow path: columns of any capture, from the dissection of every frame."""

import os
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

from rdmawire.capture import open_capture
from rdmawire.columns.query import ColumnBuilder, Query
from rdmawire.columns.table import Columns
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.node import Node
from rdmawire.errors import CaptureError
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
) -> Iterator[Columns]:
    """Yield columns in blocks; raises :class:`CaptureError` at damage, after what precedes it.

    A block has at most ``first`` rows if that is given.
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
