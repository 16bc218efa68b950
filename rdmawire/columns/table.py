"""Columns of the same rows, as Arrow tables have them."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.column import Column

if TYPE_CHECKING:
    import pyarrow as pa


class Columns(Mapping[str, Column]):
    """Columns by field name; each has ``rows`` values."""

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
        """Return some rows: of a mask of shape ``(rows,)``, of row numbers, or of a slice."""
        some = {
            name: Column(column.type, column.values[rows], column.valid[rows])
            for name, column in self.items()
        }
        return Columns(len(np.arange(self.rows)[rows]), some)

    def without(self, names: Collection[str]) -> "Columns":
        """Return all columns but those with these names."""
        return Columns(self.rows, {n: c for n, c in self.items() if n not in names})

    def arrow(self) -> "pa.Table":
        """Return an Arrow table: addresses as text, times as timestamps, null where absent.

        Raises ``ImportError``, which says what to install, without pyarrow.
        """
        from rdmawire.columns.arrow import table

        return table(self)


def joined(parts: list[Columns]) -> Columns:
    """Concatenate the rows of at least one block; all have the same columns."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    columns = {
        name: Column(
            first[name].type,
            np.concatenate([part[name].values for part in parts]),
            np.concatenate([part[name].valid for part in parts]),
        )
        for name in first
    }
    return Columns(sum(part.rows for part in parts), columns)
