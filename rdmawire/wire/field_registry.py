"""The registry of field names: the fields of all header tables, by each of their names.

A field has two names: that of its table, ``bth.pkey``, and Wireshark's, ``infiniband.bth.p_key``;
where Wireshark has none, ``rdmawire.`` and the first. Header and last word of the two combine
freely: ``bth.p_key`` and ``infiniband.bth.pkey`` are the same field. ``rdmawire.`` is accepted
as a prefix of every name.

The table's name means the number as stored in the header. Wireshark's name counts in the units
that Wireshark shows: ``ip.ihl`` is 5 where ``ip.hdr_len`` is 20. It may name fields of several
headers (``infiniband.mad.status``), several fields (``ip.addr``), or a field only while another
field selects this meaning (``infiniband.aeth.syndrome.credit_count``).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rdmawire.terminal import MAX_SUGGESTIONS, closest_names, quote, suggestion
from rdmawire.wire.header import Group, Header, Meaning, Row
from rdmawire.wire.show import Show
from rdmawire.wire.tables import cached_by_tables, tables

OURS = "rdmawire."
"""Prefix of the table's name where Wireshark has no name for a field."""
_MAX_LISTED = 20
"""Maximum number of fields of a header that a message lists."""

Value = int | bytes | tuple[int, ...]


class HeaderField(NamedTuple):
    """A field of a header under one of its names.

    ``scale`` is the unit in which the name counts. An ``own`` name, the table's, applies to every
    meaning of the field; another name applies only to this ``meaning``.
    """

    table: type[Header]
    row: Row | Group
    meaning: Meaning
    scale: int = 1
    own: bool = True

    @property
    def name(self) -> str:
        """The table's name, such as ``bth.pkey``."""
        return f"{self.table.label}.{self.row.name}"

    @property
    def show(self) -> Show:
        """The notation of values under this name."""
        return replace(self.meaning.show, scale=self.scale)

    @property
    def is_plain(self) -> bool:
        """Whether the name is equivalent to the table's name."""
        return self.scale == 1 and not (isinstance(self.row, Row) and self.row.cases)

    @property
    def is_always(self) -> bool:
        """Whether every header of the table has the field under this name."""
        return (
            self.own or isinstance(self.row, Group) or [*self.meanings()] == [*self.row.meanings()]
        )

    def meanings(self) -> Iterator[Meaning]:
        """Yield the meanings of the field under this name."""
        every = self.row.meanings() if isinstance(self.row, Row) else (self.meaning,)
        wanted = self.meaning.wireshark
        yield from (each for each in every if self.own or each.wireshark == wanted)

    def is_in(self, header: Header) -> bool:
        """Whether a header of the table has the field under this name."""
        row = self.row
        if self.own or isinstance(row, Group) or not row.cases:
            return True
        return self.means(getattr(header, row.by))

    def means(self, selector: int) -> bool:
        """Whether the field has this name's meaning where the row ``by`` holds ``selector``."""
        row = self.row
        assert isinstance(row, Row)
        assert row.cases
        return row.cases.get(selector, row.meaning).wireshark == self.meaning.wireshark

    def value_in(self, header: Header) -> Value:
        """Return the value in a header of the table."""
        row = self.row
        value: Value = row.value_in(header) if isinstance(row, Group) else getattr(header, row.name)
        return value * self.scale if isinstance(value, int) else value

    def replaced(self, header: Header, value: Value) -> Header:
        """Return a header of the table with another value in this field."""
        row = self.row
        if not isinstance(value, int):
            return header.replace(**{row.name: value})
        units = value // self.scale
        if isinstance(row, Row):
            return header.replace(**{row.name: units})
        return header.replace(**row.split(self.table, units))


def shown_name(table: type[Header], row: Row | Group, meaning: Meaning) -> str:
    """Return the name that a field with this meaning is listed and shown under."""
    return meaning.wireshark or f"{OURS}{table.label}.{row.name}"


def rows_of(table: type[Header]) -> Iterator[Row | Group]:
    """Yield the rows and the groups of a header."""
    yield from table.rows
    yield from table.groups


def shown_fields(table: type[Header]) -> Iterator[tuple[str, HeaderField]]:
    """Yield the names that the fields of a header are listed and shown under.

    These are Wireshark's names, those of several fields too, and ``rdmawire.`` with the table's
    name where Wireshark has none.
    """
    for row in rows_of(table):
        yield from _shown_under(table, row)


def _shown_under(table: type[Header], row: Row | Group) -> Iterator[tuple[str, HeaderField]]:
    if isinstance(row, Group) or not (row.cases or row.also):
        found = {shown_name(table, row, row.meaning): row.meaning}
    else:
        found = _several_names(table, row)
    for name, meaning in found.items():
        yield name, HeaderField(table, row, meaning, meaning.show.scale, own=False)


def _several_names(table: type[Header], row: Row) -> dict[str, Meaning]:
    """Return the names that a row is shown under, each with its first meaning."""
    found: dict[str, Meaning] = {}
    for meaning in _possible_meanings(table, row):
        found.setdefault(shown_name(table, row, meaning), meaning)
    return found | dict.fromkeys(row.also, row.meaning)


def _possible_meanings(table: type[Header], row: Row) -> Iterator[Meaning]:
    if not row.cases:
        yield row.meaning
        return
    by = next(other for other in rows_of(table) if other.name == row.by)
    if len(row.cases) < 1 << by.width:
        yield row.meaning
    yield from row.cases.values()


def find(name: str) -> Sequence[HeaderField]:
    """Return the fields with this name, in the order of the tables; none for an unknown name."""
    if found := _exact().get(name):
        return found
    known = _by_name()  # mixed names too, which take as long again to collect
    return known.get(name) or known.get(name.removeprefix(OURS)) or ()


def names() -> Collection[str]:
    """Return all names of all fields."""
    return _by_name().keys()


def both(fields: Sequence[HeaderField]) -> str:
    """Return ``ip.src and ip.dst`` for fields of the same header, which one value cannot set.

    The text is empty if each field is of another header.
    """
    rows: dict[type[Header], list[str]] = {}
    for field in fields:
        if field.name not in (names := rows.setdefault(field.table, [])):
            names.append(field.name)
    return next((" and ".join(names) for names in rows.values() if len(names) > 1), "")


Names = dict[str, list[HeaderField]]


@cached_by_tables
def _by_name() -> Names:
    mixed = _collected(_mixed_names)
    clear = {name: found for name, found in mixed.items() if _is_clear(found)}
    return clear | _exact()


@cached_by_tables
def _exact() -> Names:
    """Return the fields by their table names and Wireshark names."""
    return _collected(_exact_names)


def _collected(pairs: Callable[[type[Header]], Iterator[tuple[str, HeaderField]]]) -> Names:
    found: Names = {}
    for table in tables():
        for name, field in pairs(table):
            fields = found.setdefault(name, [])
            if field not in fields:
                fields.append(field)
    return found


def _exact_names(table: type[Header]) -> Iterator[tuple[str, HeaderField]]:
    for row in rows_of(table):
        own = HeaderField(table, row, row.meaning)
        yield own.name, own
    for name, field in shown_fields(table):
        if name != field.name:
            yield name, field


def _mixed_names(table: type[Header]) -> Iterator[tuple[str, HeaderField]]:
    """Yield names that mix the table's and Wireshark's spelling of header and last word."""
    for row in rows_of(table):
        own = HeaderField(table, row, row.meaning)
        if table.wireshark:
            yield f"{table.wireshark}.{row.name}", own
        for _, field in _shown_under(table, row):
            header, _, word = field.meaning.wireshark.rpartition(".")
            if header:
                yield f"{header}.{row.name}", own
                yield f"{table.label}.{word}", field


def _is_clear(fields: list[HeaderField]) -> bool:
    """Whether all fields share one Wireshark name, so that a mixed name is not ambiguous."""
    return len({field.meaning.wireshark or field.name for field in fields}) == 1


def unknown(name: str, others: Iterable[str] = ()) -> str:
    """Return the message for a name that no field has, with the nearest names.

    Without near names it lists the fields of the header that ``name`` is or begins with.
    ``others`` are further valid names.
    """
    header = next((t for t in tables() if name and name in (t.label, t.wireshark)), None)
    if header is not None:
        hint = f"; it is a header, with {_listed([row.name for row in header.rows])}"
    elif near := nearest_names(name, others):
        hint = suggestion(near)
    else:
        siblings = list(_siblings(name))
        hint = f"; {_header(name)} has {_listed(siblings)}" if siblings else ""
    return f"no field is named {quote(name)}{hint}"


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _MAX_LISTED
    return ", ".join([*words[:_MAX_LISTED], *[f"and {more} more"] * (more > 0)])


def nearest_names(name: str, others: Iterable[str] = ()) -> list[str]:
    """Return up to three names like a misspelt one, same header first; one name for each field."""
    siblings = _siblings(name)
    near = [siblings[word] for word in closest_names(_word(name), siblings)]
    known = [*_shown_names(), *others]
    if siblings:
        known = [each for each in known if _word(each) == _word(name)]
    found: dict[object, str] = {}
    for each in [*near, *closest_names(name, known)]:
        found.setdefault(frozenset(field.name for field in find(each)) or each, each)
    return list(found.values())[:MAX_SUGGESTIONS]


def _siblings(name: str) -> dict[str, str]:
    """Return the names with the same header, by their last words."""
    header = _header(name)
    alike = [each for each in _exact() if header and _header(each) == header]
    return {_word(each): each for each in alike}


def _header(name: str) -> str:
    return name.rpartition(".")[0]


def _word(name: str) -> str:
    return name.rpartition(".")[2]


@cached_by_tables
def _shown_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for table in tables() for name, _ in shown_fields(table)))
