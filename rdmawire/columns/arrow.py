"""Columns as an Arrow table."""

from collections.abc import Callable

import numpy as np

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("Arrow tables need pyarrow: pip install 'rdmawire[columns]'") from error

from rdmawire.columns.column import Column, Columns
from rdmawire.columns.kind import ADDRESSES, Form, distinct_addresses


def table(columns: Columns) -> pa.Table:
    """A column for each, with nulls where rows have no value."""
    arrays = {name: _FORMS[column.kind.form](column) for name, column in columns.items()}
    return pa.table(arrays)


def _plain(column: Column) -> pa.Array:
    return pa.array(column.values, mask=~column.valid)


def _of_type(kind: pa.DataType) -> Callable[[Column], pa.Array]:
    return lambda column: _plain(column).cast(kind)


def _typed(kind: pa.DataType) -> Callable[[Column], pa.Array]:
    return lambda column: pa.array(column.values, kind, mask=~column.valid)


def _addresses(column: Column) -> pa.Array:
    words, places = distinct_addresses(column.kind.form, column.values)
    indices = pa.array(places.astype(np.int32), mask=~column.valid)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))


_FORMS: dict[Form, Callable[[Column], pa.Array]] = {
    Form.NUMBER: _plain,
    Form.FLAG: _plain,
    Form.TIME: _of_type(pa.timestamp("ns", "UTC")),
    Form.DURATION: _of_type(pa.duration("ns")),
    **dict.fromkeys(ADDRESSES, _addresses),
    Form.OCTETS: _typed(pa.binary()),
    Form.TEXT: _typed(pa.string()),
}
