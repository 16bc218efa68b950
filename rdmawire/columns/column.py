"""Columns: the values of fields over many frames, as arrays."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.kind import ColumnKind

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The values of one field, one for each row.

    Where ``valid`` is false the row has no such field, and what stands in ``values`` means
    nothing. A field that a frame has several times is here with its first value.
    """

    kind: ColumnKind
    values: NDArray[Any]
    valid: NDArray[np.bool_]


class Columns(Mapping[str, Column]):
    """Columns by the names of their fields; all have ``rows`` values."""

    def __init__(self, rows: int, columns: dict[str, Column]) -> None:
        self.rows = rows
        self._columns = columns

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"<{self.rows} rows of {', '.join(self._columns)}>"

    def at(self, rows: NDArray[np.bool_] | NDArray[np.int64] | slice) -> "Columns":
        """Some of the rows: those of a mask, of places, or of a slice."""
        some = {
            name: Column(column.kind, column.values[rows], column.valid[rows])
            for name, column in self.items()
        }
        return Columns(len(np.arange(self.rows)[rows]), some)

    def without(self, names: Collection[str]) -> "Columns":
        """All columns but these."""
        return Columns(self.rows, {n: c for n, c in self.items() if n not in names})

    def arrow(self) -> "pa.Table":
        """The same as an Arrow table: addresses as text, times as timestamps, nulls where absent.

        ``ImportError``, saying what to install, without pyarrow.
        """
        from rdmawire.columns.arrow import table

        return table(self)


def joined(parts: list[Columns]) -> Columns:
    """Rows of all parts, one behind the other; they have the same columns, and are at least one."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    columns = {
        name: Column(
            first[name].kind,
            np.concatenate([part[name].values for part in parts]),
            np.concatenate([part[name].valid for part in parts]),
        )
        for name in first
    }
    return Columns(sum(part.rows for part in parts), columns)
