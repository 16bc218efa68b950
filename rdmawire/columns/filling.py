"""Columns being filled: arrays for the rows of one block."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.asked import Asked
from rdmawire.columns.column import Column, Columns
from rdmawire.columns.kind import ColumnKind, Form
from rdmawire.columns.plain import Chosen
from rdmawire.columns.source import Found


class Filling:
    """Arrays of so many rows; what is not filled in is absent."""

    def __init__(self, fields: list[Asked], rows: int) -> None:
        self._fields = fields
        self._rows = rows
        self._values: list[NDArray[Any]] = [np.zeros(rows, field.kind.dtype) for field in fields]
        self._valid = [np.zeros(rows, np.bool_) for _ in fields]

    def put(self, column: int, stretch: slice, rows: Chosen, found: Found) -> None:
        """Put in what was found for some rows of a stretch."""
        self._values[column][stretch][rows] = _elements(found.values, self._fields[column].kind)
        self._valid[column][stretch][rows] = True if found.valid is None else found.valid

    def put_row(self, row: int, elements: list[Any]) -> None:
        """Put in one row; ``None`` for what it lacks."""
        for column, element in enumerate(elements):
            if element is not None:
                self._values[column][row] = element
                self._valid[column][row] = True

    def columns(self) -> Columns:
        """What has been filled in."""
        triples = zip(self._fields, self._values, self._valid, strict=True)
        return Columns(
            self._rows,
            {field.name: Column(field.kind, values, valid) for field, values, valid in triples},
        )


def _elements(values: NDArray[Any], kind: ColumnKind) -> NDArray[Any]:
    if kind.form is Form.FLAG:
        return np.asarray(values != 0)
    if kind.scale == 1:
        return values
    return np.asarray(values.astype(kind.dtype) * kind.dtype.type(kind.scale))
