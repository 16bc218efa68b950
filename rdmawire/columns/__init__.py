"""Whole captures as columns of NumPy and Arrow: :func:`read_columns`, :func:`iter_columns`."""

from rdmawire.columns.column import Column, ColumnType, Form
from rdmawire.columns.read import DEFAULT_FIELDS, RowUnit, iter_columns, read_columns
from rdmawire.columns.table import Columns

__all__ = [
    "DEFAULT_FIELDS",
    "Column",
    "ColumnType",
    "Columns",
    "Form",
    "RowUnit",
    "iter_columns",
    "read_columns",
]
