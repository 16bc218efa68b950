"""The fields that are asked for: what kind of column each makes, and where its values are."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from rdmawire.columns.checks import ICRCExpected, ICRCStatus, IPChecksumStatus
from rdmawire.columns.kind import DURATION, TIME, ColumnKind, kind_of
from rdmawire.columns.path import PATHS, Path
from rdmawire.columns.source import ICRCSource, RowSource, Source
from rdmawire.dissect import generated
from rdmawire.dissect.fields import FRAME_FIELDS, derived_fields, named_rows
from rdmawire.dissect.node import Derived, Dissection
from rdmawire.dissect.select import Selection, sources
from rdmawire.wire.header import Group, Header, Row
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.show import Kind, Show

_EXTENDED = {header for layout in LAYOUTS.values() for header in layout.headers}
_TABLES: list[type[Header]] = [
    *{table for path in PATHS for table in path.bases},
    BTH,
    *_EXTENDED,
    ICRC,
]
"""The headers that plain frames may have."""

_COMPUTED: dict[Derived, Source] = {
    generated.ICRC_STATUS: ICRCStatus(),
    generated.ICRC_EXPECTED: ICRCExpected(),
    generated.IP_CHECKSUM_STATUS: IPChecksumStatus(),
}
_OF_PLAIN = {
    *(generated.PAYLOAD, generated.DATA, generated.DATA_LENGTH, generated.PAD, generated.TRAILER),
    *(generated.UDP_PAYLOAD, generated.UDP_STREAM, generated.UDP_CHECKSUM_STATUS),
    *(generated.CHECKSUM_EXPECTED, generated.ICRC_NOTE),
}
"""Derived fields that plain frames may have, and that are not computed many at once."""

_TIMES: dict[str, tuple[ColumnKind, Callable[[Dissection], int]]] = {
    "frame.time": (TIME, lambda frame: frame.time_ns),
    "frame.time_epoch": (TIME, lambda frame: frame.time_ns),
    "frame.time_relative": (DURATION, lambda frame: frame.time_ns - frame.first_ns),
    "frame.time_delta": (DURATION, lambda frame: frame.time_ns - frame.previous_ns),
}
"""Fields that are text elsewhere, and here numbers."""
_MOST_TIME = 1 << 63
"""Nanoseconds that 64 bits do not hold any more; a time that is further off, is absent."""


class Asked(NamedTuple):
    """One field: its kind, and where plain frames have it; ``None`` if not to be read at once.

    ``first`` counts the values before the one that is wanted: a few headers of one row go by the
    same name as that row, and give their octets before its number.
    """

    name: str
    kind: ColumnKind
    first: int
    plain: list[Source] | None


class Query:
    """Fields by name, each once; one name may be given as it is.

    :class:`~rdmawire.dissect.select.FieldError` names what is no field.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(dict.fromkeys([names] if isinstance(names, str) else names))
        self.selection = Selection(self.names)
        self.fields = [_asked(name) for name in self.names]

    def also(self, names: Iterable[str]) -> "Query":
        """The same, with further fields."""
        return Query([*self.names, *names])

    @property
    def is_plain(self) -> bool:
        """Whether plain frames can be read many at once."""
        return all(field.plain is not None for field in self.fields)

    def width(self, path: Path) -> int:
        """Octets of a frame that must be at hand on a path."""
        widths = (source.width(path) for field in self.fields for source in field.plain or ())
        return max(path.width, *widths, 0)

    def values(self, frame: Dissection) -> list[Any]:
        """The first value of each field in a dissected frame; ``None`` where it has none."""
        found = zip(self.fields, self.selection.numbers(frame), strict=True)
        return [_element(field, frame, values) for field, values in found]


@cache
def _asked(name: str) -> Asked:
    return Asked(name, _kind(name), _first(name), _plain(name))


def _element(field: Asked, frame: Dissection, values: list[Any]) -> Any:
    if field.name in _TIMES:
        time_ns = _TIMES[field.name][1](frame)
        return time_ns if -_MOST_TIME <= time_ns < _MOST_TIME else None
    return field.kind.element(values[field.first]) if len(values) > field.first else None


def _first(name: str) -> int:
    return int(any(_is_both(name, table) for table, _ in sources(name)))


def _is_both(name: str, table: type[Header]) -> bool:
    """Whether a header goes by the name of its own row."""
    return table.wireshark == name and any(own == name for own, _, _ in named_rows(table))


def notations(name: str) -> list[tuple[Show, int]]:
    """How the values under a name are written, in each place where they may be."""
    own = [field.field for field in FRAME_FIELDS] + derived_fields()
    found = [(field.show, field.width) for field in own if field.name == name]
    return found + [(source.show, source.width) for _, source in sources(name)[_first(name) :]]


def _kind(name: str) -> ColumnKind:
    if name in _TIMES:
        return _TIMES[name][0]
    kinds = [kind_of(show, width) for show, width in notations(name)]
    return max(kinds, key=lambda kind: kind.dtype.itemsize)


def _plain(name: str) -> list[Source] | None:
    """The places of a field in plain frames; ``None`` if one cannot be read many at once."""
    if any(field.name == name for field in _OF_PLAIN):
        return None
    found: list[Source] = [source for field, source in _COMPUTED.items() if field.name == name]
    for table in _TABLES:
        own = _in_table(name, table)
        if own is None:
            return None
        found += own
    return found


@cache
def occurs_once(name: str) -> bool:
    """Whether no plain frame has a field more than once."""
    own = [table for table in _TABLES for other, _, _ in named_rows(table) if other == name]
    apart = len(own) == len(set(own)) and not any(_is_both(name, table) for table in own)
    return apart and all(len(set(own) & stacked) < 2 for stacked in _stacks())


def _stacks() -> Iterator[set[type[Header]]]:
    """The headers that a plain frame may have together."""
    for path in PATHS:
        for layout in LAYOUTS.values():
            yield {*path.bases, BTH, *layout.headers, ICRC}


def _in_table(name: str, table: type[Header]) -> list[Source] | None:
    if table.wireshark == name and not _is_both(name, table):
        return None
    rows = [(row, meaning) for own, row, meaning in named_rows(table) if own == name]
    if any(_is_wide(row, meaning.show.kind) for row, meaning in rows):
        return None
    if table is ICRC:
        return [ICRCSource() for _ in rows]
    return [RowSource(table, row, meaning) for row, meaning in rows]


def _is_wide(row: Row | Group, kind: Kind) -> bool:
    """Whether a row holds what no array of numbers does."""
    if isinstance(row, Row) and row.times > 1:
        return True
    return kind in (Kind.OCTETS, Kind.TEXT) or (row.width > 64 and kind is not Kind.IPV6)
