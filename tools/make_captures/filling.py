"""Header tables filled with numbers: each field its own, none zero, the same at every run."""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from rdmawire.wire.header import Header, Row
from rdmawire.wire.layout import Placed, size
from rdmawire.wire.show import Kind, Value

Fixed = Mapping[type[Header], Mapping[str, Any]]
"""Values that fields of some tables must have."""


def filled(
    reader: Callable[[bytes, int], Iterable[Placed]], length: int, fixed: Fixed, random: Random
) -> bytes:
    """``length`` bytes with every table filled that the reader finds in them.

    What stands before decides what follows, so the bytes are read again after each table.
    """
    data = bytes(length)
    at, last = 0, None
    while placed := _next(reader(data, 0), at, last):
        offset, piece = placed
        assert isinstance(piece, Header)
        last = type(piece)
        new = fill(last, fixed.get(last, {}), random).build()
        data = data[:offset] + new + data[offset + len(new) :]
        at = offset
    return data


def _next(pieces: Iterable[Placed], at: int, last: type[Header] | None) -> Placed | None:
    """The first table from ``at`` on; at ``at`` itself only one that is not the last filled."""
    for offset, piece in pieces:
        done = offset < at or (offset == at and type(piece) is last)
        if isinstance(piece, Header) and not done and size(piece):
            return offset, piece
    return None


def fill(table: type[Header], fixed: Mapping[str, Any], random: Random) -> Header:
    """A header whose fields are not zero, but for reserved ones that have no name anywhere."""
    values = {row.name: _value(row, random) for row in table.rows if not _is_reserved(row)}
    return table(**values | dict(fixed))


def _is_reserved(row: Row) -> bool:
    return "resv" in row.name and not row.meaning.wireshark


def _value(row: Row, random: Random) -> Value:
    if row.is_bytes:
        return _bytes(row, random)
    if row.times > 1:
        return tuple(_number(row, random) for _ in range(row.times))
    return _number(row, random)


def _bytes(row: Row, random: Random) -> bytes:
    length = row.width // 8
    if row.meaning.show.kind is Kind.TEXT:
        return f"{row.name} {random.randrange(1000)}".encode().ljust(length, b"\0")
    return bytes(random.randrange(1, 256) for _ in range(length))


def _number(row: Row, random: Random) -> int:
    """One of the numbers that mean something, where there are such; else any but zero."""
    enum = row.meaning.enum
    known = [member.value for member in enum or () if 0 < member.value < 1 << row.width]
    return random.choice(known) if known else random.randrange(1, 1 << row.width)
