"""What is asked of a capture, and the way it is read for that."""

import os
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.analysis.columns.asked import Query, occurs_once
from rdmawire.analysis.columns.choice import EVERY_FRAME, Choice
from rdmawire.analysis.columns.column import Columns
from rdmawire.analysis.columns.filling import Filling
from rdmawire.analysis.columns.fpdu import of_fpdus
from rdmawire.analysis.columns.mixed import MixedReader
from rdmawire.analysis.columns.path import LINK_TYPES
from rdmawire.analysis.columns.walked import of_frame, walked
from rdmawire.analysis.fields import fields
from rdmawire.analysis.node import Dissection
from rdmawire.capture.columns.mapped import MappedPcap, mapped


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
        self._query = query
        self._with_choice = query_of_both(self._query, choice) if row is Row.FRAME else None
        self._row = row
        self._ports = _as_array(ports)
        self._choice = choice

    def nothing(self) -> Columns:
        """The columns, with no rows."""
        return Filling(self._query.fields, 0).columns()

    def blocks(self, path: str | os.PathLike[str]) -> Iterator[Columns]:
        """The columns of a capture, block by block; then :class:`CaptureError` for damage."""
        with mapped(path) as pcap:
            query = self._with_choice
            if pcap is not None and pcap.link_type in LINK_TYPES and query is not None:
                yield from self._at_once(pcap, query)
            else:
                ports = (int(port) for port in self._ports)
                yield from walked(path, self._query, ports, self._rows)

    def _rows(self, query: Query, frame: Dissection) -> Iterable[list[Any]]:
        return _ROWS[self._row](query, frame) if self._choice.takes(frame) else ()

    def _at_once(self, pcap: MappedPcap, query: Query) -> Iterator[Columns]:
        hidden = set(query.names) - set(self._query.names)
        taken: dict[int, bool] = {}

        def note(row: int, frame: Dissection) -> None:
            taken[row] = self._choice.takes(frame)

        for block in MixedReader(pcap, query, self._ports, note).blocks():
            if self._choice is EVERY_FRAME:
                yield block
                continue
            rows: NDArray[np.bool_] = self._choice.rows(block)
            for row, wanted in taken.items():
                rows[row] = wanted
            taken.clear()
            yield block.at(rows).without(hidden)


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


def _as_array(ports: Iterable[int]) -> NDArray[np.uint16]:
    """Ports as an array; ``ValueError`` for a number that is none."""
    numbers = list(ports)
    if wrong := [number for number in numbers if not 0 <= number <= 0xFFFF]:
        raise ValueError(f"{wrong[0]} is no UDP port: 0 to 65535")
    return np.array(numbers, np.uint16)
