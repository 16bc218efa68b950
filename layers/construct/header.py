"""The struct of a header table: its rows in order, by the table's own names and numbers."""

from enum import IntEnum
from functools import cache
from typing import Any

from construct import (
    Array,
    BitsInteger,
    Bitwise,
    Bytes,
    Bytewise,
    Construct,
    Default,
    Enum,
    Flag,
    MappingError,
    Struct,
)

from rdmawire.terminal import suggest
from rdmawire.wire.header import Header, Row
from rdmawire.wire.show import BOOL


@cache
def struct(table: type[Header]) -> Construct:
    """The table as a struct: parses to a ``Container`` of its rows, builds from one or a dict.

    Numbers that an enum names become ``EnumIntegerString``, flags ``bool``; a row left out
    keeps the table's default.
    """
    fields = [row.name / Default(_field(row), _default(row)) for row in table.rows]
    return table.__name__ / Bitwise(Struct(*fields))


def number(value: Any, names: type[IntEnum]) -> int:
    """A number that may be given by its name; ``MappingError`` for one that nothing has."""
    if not isinstance(value, str):
        return int(value)
    if value not in names.__members__:
        raise MappingError(f"{names.__name__} has no {value!r}{suggest(value, names.__members__)}")
    return names[value].value


def _field(row: Row) -> Construct:
    if row.is_bytes:
        return Bytewise(Bytes(row.width // 8))
    if row.times > 1:
        return Array(row.times, BitsInteger(row.width))
    if row.meaning.show is BOOL:
        return Flag
    number = BitsInteger(row.width)
    return Enum(number, row.meaning.enum) if row.meaning.enum else number


def _default(row: Row) -> Any:
    return list(row.default) if isinstance(row.default, tuple) else row.default
