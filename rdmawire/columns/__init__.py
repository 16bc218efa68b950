"""Whole captures as columns of NumPy and Arrow: :func:`read_columns`, :func:`iter_columns`."""

try:
    import numpy as _numpy  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError("columns need NumPy: pip install 'rdmawire[columns]'") from error

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
