"""The rows and groups of a header's table, and the meanings of their values."""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from rdmawire.wire.show import DEC, Show, Value

# These are named tuples, which are made faster than frozen dataclasses: the tables have 1000 rows,
# and each program that reads a frame makes them when it starts.


class Meaning(NamedTuple):
    """The name, the notation and the words of a row's values.

    ``words`` maps a number to the standard's words for it where no enum lists them. ``tree`` is the
    notation in trees, if it differs from Wireshark's.
    """

    wireshark: str = ""
    show: Show = DEC
    enum: type[Enum] | None = None
    words: Callable[[int], str] | None = None
    tree: Show | None = None

    def word(self, value: Value) -> str:
        """The standard's word for this value; empty if it has none."""
        if self.words is not None and isinstance(value, int):
            return self.words(value)
        if self.enum is None:
            return ""
        try:
            return self.enum(value).name or ""
        except ValueError:
            return ""


class Row(NamedTuple):
    """A field of a header: ``times`` numbers of ``width`` bits each, or bytes.

    ``bit`` is the first bit in the header. ``cases`` are the meanings of a field that another row
    selects: by the number in row ``by``. ``also`` lists further Wireshark names of the field.
    """

    name: str
    width: int
    times: int
    is_bytes: bool
    default: int | bytes | tuple[int, ...]
    bit: int
    meaning: Meaning = Meaning()
    also: tuple[str, ...] = ()
    clause: str = ""
    by: str = ""
    cases: Mapping[int, Meaning] | None = None

    @property
    def size(self) -> int:
        """Size on the wire in bits."""
        return self.width * self.times

    def placed(self, name: str, bit: int) -> "Row":
        """Return this row with its name and its first bit."""
        encoding = (name, self.width, self.times, self.is_bytes, self.default, bit)
        return Row(*encoding, self.meaning, self.also, self.clause, self.by, self.cases)

    def meaning_in(self, header: Any) -> Meaning:
        """The meaning of this field in that header."""
        if self.cases is None:
            return self.meaning
        return self.cases.get(getattr(header, self.by), self.meaning)

    def meanings(self) -> Iterator[Meaning]:
        """Every meaning the field can have."""
        yield self.meaning
        yield from (self.cases or {}).values()


class Group(NamedTuple):
    """Adjacent rows that are also read as one number, such as ``ip.dsfield``."""

    name: str
    members: tuple[str, ...]
    meaning: Meaning
    width: int = 0
    bit: int = 0

    def value_in(self, header: Any) -> int:
        """The members' bits as one number, the first member uppermost."""
        value = 0
        for row in type(header).rows:
            if row.name in self.members:
                value = value << row.width | getattr(header, row.name)
        return value

    def split(self, table: Any, value: int) -> dict[str, int]:
        """The number of each member in a value of the group; ``table`` is the header's."""
        left, found = self.width, {}
        for row in table.rows:
            if row.name in self.members:
                left -= row.width
                found[row.name] = value >> left & (1 << row.width) - 1
        return found
