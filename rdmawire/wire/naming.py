"""Fields by all of their names: the tables', such as ``bth.psn``, and those of filters.

Filters have Wireshark's names, such as ``infiniband.bth.psn``, and write ``rdmawire.`` before the
tables' where Wireshark has none. One of Wireshark's may be of several headers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rdmawire.wire.header import Group, Header, Meaning, Row

OURS = "rdmawire."
"""What filters write before the tables' names."""

Value = int | bytes | tuple[int, ...]


class Named(NamedTuple):
    """A field under one of its names, and what the name says of its value.

    ``scale`` is the unit in which that counts. ``own`` names are the tables', and are the field's
    whatever it means; another one is its name only where it has this meaning.
    """

    table: type[Header]
    row: Row | Group
    meaning: Meaning
    scale: int = 1
    own: bool = True

    @property
    def name(self) -> str:
        """The name by the tables."""
        return f"{self.table.label}.{self.row.name}"

    @property
    def is_plain(self) -> bool:
        """Whether the name says no more than the tables' name does."""
        return self.scale == 1 and not (isinstance(self.row, Row) and self.row.cases)

    def meanings(self) -> Iterator[Meaning]:
        """What the field can mean under this name."""
        if self.own and isinstance(self.row, Row):
            yield from self.row.meanings()
        else:
            yield self.meaning

    def is_in(self, header: Header) -> bool:
        """Whether it is this name's in a header of its table, by what it means there."""
        if self.own or isinstance(self.row, Group):
            return True
        return self.row.meaning_in(header).wireshark == self.meaning.wireshark

    def value_in(self, header: Header) -> Value:
        """What a header of its table holds there."""
        row = self.row
        value: Value = row.value_in(header) if isinstance(row, Group) else getattr(header, row.name)
        return value * self.scale if isinstance(value, int) else value

    def replaced(self, header: Header, value: Value) -> Header:
        """A header of its table with another value there."""
        row = self.row
        if not isinstance(value, int):
            return header.replace(**{row.name: value})
        units = value // self.scale
        if isinstance(row, Row):
            return header.replace(**{row.name: units})
        return header.replace(**dict(_shares(self.table, row, units)))


def _shares(table: type[Header], group: Group, value: int) -> Iterator[tuple[str, int]]:
    """What each row of a group has of a value, the last row first."""
    for row in reversed(table.rows):
        if row.name in group.members:
            yield row.name, value & (1 << row.width) - 1
            value >>= row.width


def names_of(tables: Iterable[type[Header]]) -> dict[str, list[Named]]:
    """All names of the fields of some headers, with what each stands for."""
    found: dict[str, list[Named]] = {}
    for table in tables:
        for name, named in _names_in(table):
            found.setdefault(name, []).append(named)
    return found


def _names_in(table: type[Header]) -> Iterator[tuple[str, Named]]:
    rows: tuple[Row | Group, ...] = (*table.rows, *table.groups)
    for row in rows:
        own = Named(table, row, row.meaning)
        yield own.name, own
        meanings = row.meanings() if isinstance(row, Row) else (row.meaning,)
        for meaning in meanings:
            if meaning.wireshark and meaning.wireshark != own.name:
                yield meaning.wireshark, Named(table, row, meaning, meaning.show.scale, own=False)


def looked_up(names: Mapping[str, list[Named]], name: str) -> Sequence[Named]:
    """What a name stands for; nothing, if it is none."""
    return names.get(name) or names.get(name.removeprefix(OURS)) or ()


def siblings(names: Iterable[str], name: str) -> list[str]:
    """The names that are alike but for their last word: fields of the same header."""
    head = name.rpartition(".")[0]
    return [each for each in names if head and each.rpartition(".")[0] == head]
