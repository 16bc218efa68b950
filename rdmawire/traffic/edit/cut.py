"""Bits of a frame, read and written as a number."""

from collections.abc import Iterator
from typing import NamedTuple

from rdmawire.wire.header import Group, Header, Row


class Cut(NamedTuple):
    """Octets ``start`` to ``end`` as a number, without its last ``shift`` bits, under ``mask``."""

    start: int
    end: int
    shift: int
    mask: int

    def read(self, octets: bytes | bytearray) -> int:
        """The number that stands there."""
        return int.from_bytes(octets[self.start : self.end], "big") >> self.shift & self.mask

    def write(self, octets: bytearray, value: int) -> None:
        """Put a number there; the bits around it stay. The number must fit."""
        start, end, shift, mask = self
        around = int.from_bytes(octets[start:end], "big") & ~(mask << shift)
        octets[start:end] = (around | value << shift).to_bytes(end - start, "big")


class Field(NamedTuple):
    """A row of a header, or a group of rows."""

    table: type[Header]
    row: Row | Group

    @property
    def name(self) -> str:
        """The name by the tables, such as ``bth.psn``."""
        return f"{self.table.label}.{self.row.name}"

    @property
    def width(self) -> int:
        """Bits."""
        return self.row.size if isinstance(self.row, Row) else self.row.width

    def overlaps(self, other: "Field") -> bool:
        """Whether some bits are of both."""
        first, last = max(self.row.bit, other.row.bit), min(self._end, other._end)
        return self.table is other.table and first < last

    @property
    def _end(self) -> int:
        return self.row.bit + self.width

    def at(self, offset: int) -> Cut:
        """The bits of the field where the header begins at octet ``offset``."""
        first = offset * 8 + self.row.bit
        last = first + self.width
        end = -(-last // 8)
        return Cut(first // 8, end, end * 8 - last, (1 << self.width) - 1)


def fields_of(table: type[Header]) -> Iterator[Field]:
    """All rows and groups of a header."""
    for row in table.rows:
        yield Field(table, row)
    for group in table.groups:
        yield Field(table, group)


def field(table: type[Header], name: str) -> Field:
    """The row or group of this name."""
    return next(each for each in fields_of(table) if each.row.name == name)
