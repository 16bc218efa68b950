"""Columns as Arrow tables, and as CSV, Parquet and Arrow files."""

import io
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from rdmawire.columns.column import ADDRESSES, Column, Form, distinct_addresses
from rdmawire.units import decimal_seconds

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("Arrow tables need pyarrow: pip install 'rdmawire[columns]'") from error


def table(columns: Mapping[str, Column]) -> pa.Table:
    """Return an Arrow table with null where a row has no value.

    Numbers keep their width, flags are ``bool``, addresses dictionaries of text, times
    ``timestamp[ns, UTC]``, durations ``duration[ns]``, bytes ``binary`` and text ``string``.
    """
    arrays = {name: _FORMS[column.type.form](column) for name, column in columns.items()}
    return pa.table(arrays)


def _plain(column: Column) -> pa.Array:
    return pa.array(column.values, mask=~column.valid)


def _cast(to: pa.DataType) -> Callable[[Column], pa.Array]:
    return lambda column: _plain(column).cast(to)


def _typed(type_: pa.DataType) -> Callable[[Column], pa.Array]:
    return lambda column: pa.array(column.values, type_, mask=~column.valid)


def _addresses(column: Column) -> pa.Array:
    words, indices = distinct_addresses(column.type.form, column.values)
    found = pa.array(indices.astype(np.int32), mask=~column.valid)
    return pa.DictionaryArray.from_arrays(found, pa.array(words, pa.string()))


_FORMS: dict[Form, Callable[[Column], pa.Array]] = {
    Form.NUMBER: _plain,
    Form.FLAG: _plain,
    Form.TIME: _cast(pa.timestamp("ns", "UTC")),
    Form.DURATION: _cast(pa.duration("ns")),
    **dict.fromkeys(ADDRESSES, _addresses),
    Form.BYTES: _typed(pa.binary()),
    Form.TEXT: _typed(pa.string()),
}


class ByteSink(Protocol):
    """A writable binary stream."""

    def write(self, data: bytes, /) -> object: ...


class TableFile(Protocol):
    """A file of columns that is being written.

    ``close`` writes the end of the file and leaves its sink open. After ``abandon`` nothing more is
    written, not even when the object is deleted.
    """

    def write(self, columns: Mapping[str, Column]) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class _SinkFile(io.RawIOBase):
    """A sink as the file object that pyarrow writes to."""

    def __init__(self, sink: ByteSink) -> None:
        super().__init__()
        self._sink: ByteSink | None = sink
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        taken = bytes(data)
        if self._sink is not None:
            self._sink.write(taken)
        self._position += len(taken)
        return len(taken)

    def abandon(self) -> None:
        self._sink = None


class _ArrowWriter:
    """Writes tables with a writer of pyarrow."""

    def __init__(
        self, sink: ByteSink, make: Callable[[Any, pa.Schema], Any], columns: Mapping[str, Column]
    ) -> None:
        self._file = _SinkFile(sink)
        self._writer = make(pa.PythonFile(self._file, "w"), self._table(columns).schema)

    def _table(self, columns: Mapping[str, Column]) -> pa.Table:
        return _decoded(table(columns))

    def write(self, columns: Mapping[str, Column]) -> None:
        self._writer.write_table(self._table(columns))

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        self._file.abandon()


class _CSV(_ArrowWriter):
    """CSV has no durations and no bytes: write seconds and hexadecimal digits."""

    def _table(self, columns: Mapping[str, Column]) -> pa.Table:
        table = super()._table(columns)
        for number, field in enumerate(table.schema):
            convert = _FOR_CSV.get(str(field.type))
            if convert is not None:
                table = table.set_column(number, field.name, convert(table[number]))
        return table


def _as_seconds(column: pa.ChunkedArray) -> pa.Array:
    """Write nanoseconds as seconds with nine decimals, exactly."""
    return _as_text(column.cast(pa.int64()), decimal_seconds)


def _as_digits(column: pa.ChunkedArray) -> pa.Array:
    return _as_text(column, bytes.hex)


def _as_text(column: pa.ChunkedArray, write: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if v is None else write(v) for v in column.to_pylist()], pa.string())


_FOR_CSV = {"duration[ns]": _as_seconds, "binary": _as_digits}


def _decoded(table: pa.Table) -> pa.Table:
    """Return the table with plain text in place of dictionaries, which differ between blocks."""
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = table[number].cast(field.type.value_type)
            table = table.set_column(number, field.name, plain)
    return table


def _csv(file: Any, schema: pa.Schema) -> Any:
    from pyarrow import csv

    return csv.CSVWriter(file, schema, write_options=csv.WriteOptions(quoting_style="needed"))


def _parquet(file: Any, schema: pa.Schema) -> Any:
    from pyarrow import parquet

    return parquet.ParquetWriter(file, schema, compression="zstd")


_WRITERS: dict[str, tuple[type[_ArrowWriter], Callable[[Any, pa.Schema], Any]]] = {
    "csv": (_CSV, _csv),
    "parquet": (_ArrowWriter, _parquet),
    "arrow": (_ArrowWriter, pa.ipc.new_stream),
}


def table_file(form: str, sink: ByteSink, columns: Mapping[str, Column]) -> TableFile:
    """Begin a file of the form ``csv``, ``parquet`` or ``arrow`` (an IPC stream).

    ``columns`` give the names and types of the columns; their rows are not written.
    """
    writer, make = _WRITERS[form]
    return writer(sink, make, columns)
