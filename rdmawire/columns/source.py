"""Where the values of a field are in plain frames: one class for each kind of place."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns import transport
from rdmawire.columns.bits import Bits, bits, octets
from rdmawire.columns.path import Path
from rdmawire.columns.plain import Plain
from rdmawire.wire.header import Group, Header, Meaning, Row
from rdmawire.wire.ib import BTH


class Found(NamedTuple):
    """Values of plain frames, one for each; those that ``valid`` does not name mean nothing."""

    values: NDArray[Any]
    valid: NDArray[np.bool_] | None = None
    """``None``: all of them."""


class Source(Protocol):
    """A place of a field's values in plain frames."""

    def width(self, path: Path) -> int:
        """Octets of a frame that must be at hand on this path."""

    def read(self, plain: Plain) -> Found | None:
        """The values; ``None`` if no frame on this path has the field."""


class _Condition(NamedTuple):
    """A row that says what another one means: those of its values that say it is this field."""

    by: Bits
    values: NDArray[np.bool_]

    def holds(self, plain: Plain, base: int) -> NDArray[np.bool_]:
        held: NDArray[np.bool_] = self.values[self.by.read(plain.frames, base)]
        return held


class RowSource:
    """A row, or a group of rows, of a header."""

    def __init__(self, table: type[Header], row: Row | Group, meaning: Meaning) -> None:
        self._table = table
        self._bits = None if row.width > 64 else bits(row.bit, row.width)
        self._octets = row.bit // 8, row.width // 8
        self._places = transport.places(table)
        self._condition = _condition(table, row, meaning)

    def width(self, path: Path) -> int:
        behind = path.bth + int(self._places.max())
        base = behind if self._places.max() > 0 else self._base(path)
        return base + self._table.SIZE

    def _base(self, path: Path) -> int:
        return path.bth if self._table is BTH else path.bases.get(self._table, 0)

    def read(self, plain: Plain) -> Found | None:
        return first_of(self._part(plain, base, where) for base, where in self._bases(plain))

    def _bases(self, plain: Plain) -> Iterator[tuple[int, NDArray[np.bool_] | None]]:
        """Where the header stands, and in which of the frames; ``None`` for all."""
        if self._table is BTH:
            yield plain.path.bth, None
        elif self._table in plain.path.bases:
            yield plain.path.bases[self._table], None
        else:
            found = self._places[plain.packets.opcodes]
            distinct = set(self._places[plain.packets.present].tolist())
            for place in sorted(distinct - {-1}):
                where = None if len(distinct) == 1 else found == place
                yield plain.path.bth + place, where

    def _part(self, plain: Plain, base: int, where: NDArray[np.bool_] | None) -> Found:
        if self._bits is None:
            first, length = self._octets
            values: NDArray[Any] = octets(plain.frames, base + first, length)
        else:
            values = self._bits.read(plain.frames, base)
        if self._condition is not None:
            meant = self._condition.holds(plain, base)
            where = meant if where is None else where & meant
        return Found(values, where)


class ICRCSource:
    """The ICRC, which stands at the end."""

    def width(self, path: Path) -> int:
        return path.width

    def read(self, plain: Plain) -> Found | None:
        return Found(plain.records.numbers(plain.icrc, ">u4"))


def first_of(found: Iterable[Found | None]) -> Found | None:
    """What is found at several places; for each frame the first place that has it counts."""
    parts = [part for part in found if part is not None]
    if len(parts) < 2 or parts[0].valid is None:
        return parts[0] if parts else None
    values, valid = np.zeros_like(parts[0].values), np.zeros(len(parts[0].values), np.bool_)
    for part, where in parts:
        new = ~valid if where is None else where & ~valid
        values[new] = part[new]
        valid |= new
    return Found(values, valid)


def _condition(table: type[Header], row: Row | Group, meaning: Meaning) -> _Condition | None:
    if isinstance(row, Group) or row.cases is None:
        return None
    by = next(other for other in table.rows if other.name == row.by)
    cases = (row.cases.get(number, row.meaning) for number in range(1 << by.width))
    meant = np.fromiter((case == meaning for case in cases), np.bool_)
    return _Condition(bits(by.bit, by.width), meant)
