"""Columns as an Arrow table."""

from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("Arrow tables need pyarrow: pip install 'rdmawire[columns]'") from error

from rdmawire.analysis.columns.column import Column, Columns
from rdmawire.analysis.columns.kind import Form
from rdmawire.wire.show import ipv4, ipv6, mac


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


def _named(write: Callable[[Any], str]) -> Callable[[Column], pa.Array]:
    """Few different values, each written once."""

    def build(column: Column) -> pa.Array:
        known, places = np.unique(column.values, return_inverse=True)
        indices = pa.array(places.astype(np.int32), mask=~column.valid)
        words = pa.array([write(value) for value in known], pa.string())
        return pa.DictionaryArray.from_arrays(indices, words)

    return build


_FORMS: dict[Form, Callable[[Column], pa.Array]] = {
    Form.NUMBER: _plain,
    Form.FLAG: _plain,
    Form.TIME: _of_type(pa.timestamp("ns", "UTC")),
    Form.DURATION: _of_type(pa.duration("ns")),
    Form.MAC: _named(lambda value: mac(int(value).to_bytes(6, "big"))),
    Form.IPV4: _named(lambda value: ipv4(int(value).to_bytes(4, "big"))),
    Form.IPV6: _named(lambda value: ipv6(value.tobytes())),
    Form.OCTETS: _typed(pa.binary()),
    Form.TEXT: _typed(pa.string()),
}
