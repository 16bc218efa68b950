"""What is asked of a capture, and the way it is read for that."""

import os
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture.record_index import PcapFile, open_pcap
from rdmawire.columns.asked import Query, occurs_once
from rdmawire.columns.choice import EVERY_FRAME, Choice
from rdmawire.columns.column import Columns
from rdmawire.columns.filling import Filling
from rdmawire.columns.fpdu import of_fpdus
from rdmawire.columns.mixed import MixedReader
from rdmawire.columns.path import LINK_TYPES
from rdmawire.columns.walked import of_frame, walked
from rdmawire.dissect.fields import fields
from rdmawire.dissect.node import Dissection


class Row(Enum):
    """What a row of columns is."""

    FRAME = "frame"
    FPDU = "fpdu"


_ROWS = {Row.FRAME: of_frame, Row.FPDU: of_fpdus}


class Request:
    """Fields of the frames of a choice, a row for each frame or for each FPDU in it."""

    def __init__(
        self, query: Query, row: Row, ports: Iterable[int], choice: Choice = EVERY_FRAME
    ) -> None:
        row = Row(row)
        self._query = query
        self._with_choice = query_of_both(self._query, choice) if row is Row.FRAME else None
        self._row = row
        self._ports = as_array(ports)
        self._choice = choice

    def nothing(self) -> Columns:
        """The columns, with no rows."""
        return Filling(self._query.fields, 0).columns()

    def blocks(self, path: str | os.PathLike[str], first: int | None = None) -> Iterator[Columns]:
        """The columns of a capture, block by block; then :class:`CaptureError` for damage.

        ``first`` rows are enough for now: what is captured just now is not read further for them.
        """
        query = self._with_choice
        pcap = on_a_path(path) if query is not None else None
        if pcap is not None and query is not None:
            yield from self._at_once(pcap, query)
        else:
            ports = (int(port) for port in self._ports)
            yield from walked(path, self._query, ports, self._rows, first)

    def _rows(self, query: Query, frame: Dissection) -> Iterable[list[Any]]:
        return _ROWS[self._row](query, frame) if self._choice.takes(frame) else ()

    def _at_once(self, pcap: PcapFile, query: Query) -> Iterator[Columns]:
        hidden = set(query.names) - set(self._query.names)
        for block, rows in chosen(pcap, query, self._ports, self._choice):
            yield block if rows is None else block.at(rows).without(hidden)


def chosen(
    pcap: PcapFile,
    query: Query,
    ports: NDArray[np.uint16],
    choice: Choice,
    on_walk: Callable[[int, Dissection], None] = lambda _row, _frame: None,
) -> Iterator[tuple[Columns, NDArray[np.bool_] | None]]:
    """Blocks of columns, each with the rows in it that are wanted; ``None`` for all.

    ``on_walk`` is told of frames that are wanted and not plain: the row in the block that comes
    next, and what the frame holds.
    """
    walks: dict[int, bool] = {}

    def note(row: int, frame: Dissection) -> None:
        walks[row] = choice.takes(frame)
        if walks[row]:
            on_walk(row, frame)

    for block in MixedReader(pcap, query, ports, note).blocks():
        yield block, None if choice is EVERY_FRAME else _corrected(choice.rows(block), walks)
        walks.clear()


def _corrected(rows: NDArray[np.bool_], walks: dict[int, bool]) -> NDArray[np.bool_]:
    """What columns tell, and for frames that were dissected what those told."""
    for row, wanted in walks.items():
        rows[row] = wanted
    return rows


def on_a_path(path: str | os.PathLike[str]) -> PcapFile | None:
    """A pcap file, if its frames may be on a path; else ``None``."""
    pcap = open_pcap(path)
    if pcap is None or pcap.link_type in LINK_TYPES:
        return pcap
    pcap.close()
    return None


def query_of_both(query: Query, choice: Choice) -> Query | None:
    """The fields, and those that the choice is made by; ``None`` if columns cannot tell all."""
    names = list(choice.names)
    if not choice.is_simple or not set(names) <= _every_name():
        return None
    both = query.also(names)
    return both if both.is_plain and all(map(occurs_once, names)) else None


@cache
def _every_name() -> frozenset[str]:
    return frozenset(info.name for info in fields())


def as_array(ports: Iterable[int]) -> NDArray[np.uint16]:
    """Ports as an array; ``ValueError`` for a number that is none."""
    numbers = list(ports)
    if wrong := [number for number in numbers if not 0 <= number <= 0xFFFF]:
        raise ValueError(f"{wrong[0]} is no UDP port: 0 to 65535")
    return np.array(numbers, np.uint16)
