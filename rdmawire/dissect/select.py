"""Selected fields of each frame, written as ``tshark -T fields`` writes them."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, cast

from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.fields import FrameField, derived_fields, fields, frame_fields
from rdmawire.dissect.node import Derived, Node
from rdmawire.errors import RdmaError
from rdmawire.terminal import quote
from rdmawire.units import epoch_ns, parse_duration
from rdmawire.wire.field_registry import HeaderField, find, unknown
from rdmawire.wire.header import Group, Header
from rdmawire.wire.show import Show, writer
from rdmawire.wire.tables import cached_by_tables, tables

Reading = Callable[[Node], list[Any]]
"""Reads a field's values from a node of the right table; none if it has another meaning there."""


class ValueSource(NamedTuple):
    """Source of values in a node, and their notation.

    ``field`` is the field that holds the values; ``None`` if they are the bytes of a header.
    """

    read: Reading
    show: Show
    width: int
    field: HeaderField | None = None


class _ColumnReader(NamedTuple):
    """A column, and the functions that read and write its values in nodes of one table."""

    column: int
    read: Reading
    write: Callable[[Any], str]


Form = Callable[[list[Any], Callable[[Any], str]], list[Any]]
"""Converts values, given the function that writes one value."""


class FieldError(RdmaError):
    """Raised for an unknown field name; the text suggests similar ones."""


def _reading(field: HeaderField) -> Reading:
    row = field.row
    if isinstance(row, Group):
        return lambda node: [row.value_in(cast(Header, node.header))]
    index, several, always = field.table.rows.index(row), row.times > 1, field.is_always

    def read(node: Node) -> list[Any]:
        header: Any = node.header
        if not always and not field.is_in(header):
            return []
        value = header[index]
        return list(value) if several else [value]

    return read


@cached_by_tables
def sources(name: str) -> list[tuple[type[Header], ValueSource]]:
    """The headers that have a field of this name, and how to read each."""
    found = [
        (table, ValueSource(lambda node: [node.data], table.show, table.SIZE * 8))
        for table in tables()
        if name and table.wireshark == name
    ]
    # Wireshark's tcp.seq and tcp.ack count from the stream's start; the tables' are tcp.seq_raw.
    own = not derived_fields(name)
    return found + [
        (field.table, ValueSource(_reading(field), field.show, field.row.width, field))
        for field in find(name)
        if own or not field.own
    ]


class Selection:
    """The values of selected fields, frame by frame.

    :class:`FieldError` names a field that does not exist, and suggests similar ones.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self._frame: list[tuple[int, FrameField]] = []
        self._derived: dict[Derived, list[int]] = {}
        self._headers: dict[type[Header], list[_ColumnReader]] = {}
        for column, name in enumerate(self.names):
            searches = (self._from_frame, self._from_derived, self._from_headers)
            found = [search(column, name) for search in searches]
            if not any(found):
                raise FieldError(_unknown(name))

    def _from_frame(self, column: int, name: str) -> bool:
        found = frame_fields(name)
        self._frame += [(column, field) for field in found]
        return bool(found)

    def _from_derived(self, column: int, name: str) -> bool:
        found = derived_fields(name)
        for field in found:
            self._derived.setdefault(field, []).append(column)
        return bool(found)

    def _from_headers(self, column: int, name: str) -> bool:
        found = sources(name)
        for table, source in found:
            reader = _ColumnReader(column, source.read, writer(source.show, source.width))
            self._headers.setdefault(table, []).append(reader)
        return bool(found)

    def values(self, frame: Dissection) -> list[list[str]]:
        """One list per field: its values in this frame, as text, in the order of their bytes."""
        return self._gathered(frame, _written)

    def numbers(self, frame: Dissection) -> list[list[Any]]:
        """Values as headers hold them: numbers and bytes; text only for text fields."""
        return self._gathered(frame, _as_held)

    def _gathered(self, frame: Dissection, form: Form) -> list[list[Any]]:
        found: list[list[Any]] = [[] for _ in self.names]
        for column, field in self._frame:
            found[column] = form(field.values(frame), field.field.text)
        for node in frame.nodes:
            self._of_node(node, found, form)
        return found

    def _of_node(self, node: Node, found: list[list[Any]], form: Form) -> None:
        for column, read, write in self._headers.get(type(node.header), ()):  # type: ignore[arg-type]
            found[column] += form(read(node), write)
        for field, value in node.extras:
            for column in self._derived.get(field, ()):
                found[column] += form([value], field.text)


def _written(values: list[Any], write: Callable[[Any], str]) -> list[Any]:
    return list(map(write, values))


def _as_held(values: list[Any], _: Callable[[Any], str]) -> list[Any]:
    return values


def _unknown(name: str) -> str:
    message = unknown(name, [info.name for info in fields()])
    return f"{message}; `rdmawire fields` lists them all"


_NUMBER = r"[0-9]{1,18}"
_DATE = (
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)


class BoundError(RdmaError):
    """Raised for a bound that is neither a frame number nor a time."""


class BoundKind(Enum):
    """Unit of a bound."""

    NUMBER = "frame number"
    RELATIVE = "time since the first frame"
    EPOCH = "date"


_MEASURES: dict[BoundKind, Callable[[Dissection], int]] = {
    BoundKind.NUMBER: lambda frame: frame.number,
    BoundKind.RELATIVE: lambda frame: frame.time_ns - frame.first_ns,
    BoundKind.EPOCH: lambda frame: frame.time_ns,
}


class Bound(NamedTuple):
    """A frame number, nanoseconds since the first frame, or nanoseconds since the epoch."""

    kind: BoundKind
    value: int

    @classmethod
    def parse(cls, text: str) -> "Bound":
        """Parse ``17`` as a frame, ``1.5s`` as relative time, ``2026-11-21T02:15:59Z`` as a date.

        Relative times are in s, ms, us or ns; a date without a time zone is in local time.
        """
        for kind, read in _READERS:
            with suppress(ValueError):
                return cls(kind, read(text))
        raise BoundError(
            f"{quote(text)} is no frame number (17), no time since the first frame "
            "(1.5s, 20ms), and no date (2026-11-21T02:15:59Z)"
        )

    def compare(self, frame: Dissection) -> int:
        """Negative, zero or positive: the frame is before, at or after the bound."""
        return _MEASURES[self.kind](frame) - self.value


def _number(text: str) -> int:
    if not re.fullmatch(_NUMBER, text):
        raise ValueError(text)
    return int(text)


def _date(text: str) -> int:
    found = re.fullmatch(_DATE, text)
    if found is None:
        raise ValueError(text)
    day, minute, second, decimals, zone = found.groups()
    return epoch_ns(f"{day}T{minute or '00:00'}:{second or '00'}{zone or ''}", decimals)


_READERS: tuple[tuple[BoundKind, Callable[[str], int]], ...] = (
    (BoundKind.NUMBER, _number),
    (BoundKind.RELATIVE, parse_duration),
    (BoundKind.EPOCH, _date),
)


@dataclass(frozen=True, slots=True)
class Window:
    """The frames from ``start`` to ``end``, both included; ``None`` is no limit.

    :class:`BoundError` if the end is before the start.
    """

    start: Bound | None = None
    end: Bound | None = None

    def __post_init__(self) -> None:
        start, end = self.start, self.end
        if start and end and start.kind is end.kind and start.value > end.value:
            raise BoundError("the window ends before it begins")

    def __contains__(self, frame: Dissection) -> bool:
        after_start = self.start is None or self.start.compare(frame) >= 0
        return after_start and (self.end is None or self.end.compare(frame) <= 0)

    def is_over(self, frame: Dissection) -> bool:
        """Whether no later frame is in the window.

        Frame numbers only increase; times may decrease, so they are not conclusive.
        """
        end = self.end
        return end is not None and end.kind is BoundKind.NUMBER and end.compare(frame) >= 0
