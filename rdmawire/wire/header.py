"""One table per header.

A header is a class whose body is its table: a row per field, in wire order, with the field's
name in the words of the standard, its width, its Wireshark name, its notation and the meaning
of its numbers::

    class RETH(Header, clause="IBA 5.2.7", wireshark="infiniband.reth"):
        va: int = bits(64, "infiniband.reth.va", HEX)
        rkey: int = bits(32, "infiniband.reth.r_key", HEX)
        dmalen: int = bits(32, "infiniband.reth.dmalen")

Instances are immutable tuples of the rows' values. :mod:`rdmawire.wire.codec` generates ``parse``
and ``build`` for each table; they accept and return every bit pattern, reserved bits included, so
that building what was parsed gives the same bytes.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rdmawire.errors import WireError
from rdmawire.snapshot import shared
from rdmawire.wire.codec import BIG, attach, misfit, values_type
from rdmawire.wire.row import Group, Meaning, Row
from rdmawire.wire.show import BOOL, BYTES, DEC, Show, Value

__all__ = [
    "Group",
    "Header",
    "HeaderMeta",
    "Meaning",
    "Row",
    "bits",
    "choice",
    "flag",
    "group",
    "raw",
]


def bits(
    width: int,
    wireshark: str = "",
    show: Show = DEC,
    *,
    enum: type[Enum] | None = None,
    words: Callable[[int], str] | None = None,
    tree: Show | None = None,
    times: int = 1,
    default: int | tuple[int, ...] = 0,
    clause: str = "",
    also: tuple[str, ...] = (),
) -> Any:
    """A row: a number of ``width`` bits, or a tuple of ``times`` such numbers."""
    if times > 1 and default == 0:
        default = (0,) * times
    meaning = Meaning(wireshark, show, enum, words, tree)
    return Row("", width, times, False, default, 0, meaning, also, clause)


def flag(wireshark: str = "", *, clause: str = "", also: tuple[str, ...] = ()) -> Any:
    """A row: one bit, shown as true or false."""
    return bits(1, wireshark, BOOL, clause=clause, also=also)


def raw(
    length: int,
    wireshark: str = "",
    show: Show = BYTES,
    *,
    tree: Show | None = None,
    default: bytes = b"",
    clause: str = "",
    also: tuple[str, ...] = (),
) -> Any:
    """A row: ``length`` bytes, as ``bytes``."""
    value = default or bytes(length)
    meaning = Meaning(wireshark, show, tree=tree)
    return Row("", 8 * length, 1, True, value, 0, meaning, also, clause)


def choice(
    width: int,
    by: str,
    cases: Mapping[int, Meaning],
    wireshark: str = "",
    show: Show = DEC,
    *,
    clause: str = "",
) -> Any:
    """A row whose name, notation and words the value of row ``by`` selects.

    ``wireshark`` and ``show`` apply to values that no case lists.
    """
    return Row("", width, 1, False, 0, 0, Meaning(wireshark, show), (), clause, by, cases)


def group(
    wireshark: str,
    *members: str | EllipsisType,
    show: Show = DEC,
    enum: type[Enum] | None = None,
    tree: Show | None = None,
) -> Any:
    """Adjacent rows also read as one number; ``...`` are all rows between two of them."""
    names = tuple(name if isinstance(name, str) else _BETWEEN for name in members)
    return Group("", names, Meaning(wireshark, show, enum, None, tree))


_BETWEEN = ""


class HeaderMeta(type):
    """Makes an immutable tuple type with its own codec from the table in a class body.

    An ``abstract`` table has no codec: its rows are the first of each table derived from it, which
    may declare some of them again. With the ``order`` "little", numbers of several bytes are
    little-endian; of rows that share one, the first has its highest bits.
    """

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        body: dict[str, Any],
        *,
        clause: str = "",
        wireshark: str = "",
        show: Show = BYTES,
        label: str = "",
        abstract: bool = False,
        order: str = BIG,
    ) -> "HeaderMeta":
        table = _declared(bases, body)
        kept = {k: v for k, v in body.items() if k not in table} | {"__slots__": ()}
        if abstract:
            return super().__new__(mcs, name, bases, kept | {"_abstract": table})
        rows = _placed(name, {k: v for k, v in table.items() if isinstance(v, Row)})
        groups = [_spanned(name, k, v, rows) for k, v in table.items() if isinstance(v, Group)]
        kept |= {group.name: property(group.value_in) for group in groups}
        kept |= {"rows": tuple(rows), "groups": tuple(groups), "clause": clause, "_abstract": {}}
        kept |= {"wireshark": wireshark, "show": show, "label": label or name.lower()}
        kept |= {"order": order}
        if not rows:
            return super().__new__(mcs, name, bases, kept)
        cls = super().__new__(mcs, name, (*bases, values_type(name, rows)), kept)
        attach(cls, rows)
        return cls


def _declared(bases: tuple[type, ...], body: dict[str, Any]) -> dict[str, Row | Group]:
    """The rows and groups of a class body, after those of abstract bases."""
    table = {k: v for base in bases for k, v in getattr(base, "_abstract", {}).items()}
    return table | {k: v for k, v in body.items() if isinstance(v, Row | Group)}


def _no_row(table: type["Header"], names: Mapping[str, object]) -> TypeError:
    """Return the error for a name that is no row of the table, or is a group of rows."""
    rows = {row.name for row in table.rows}
    name = next(name for name in names if name not in rows)
    members = next((group.members for group in table.groups if group.name == name), ())
    instead = f"; it is made of {', '.join(members)}" if members else ""
    return TypeError(f"{table.__name__} has no row {name!r}{instead}")


def _placed(header: str, rows: Mapping[str, Row]) -> list[Row]:
    """The rows with the name and the first bit of each; raises if they are no complete bytes."""
    bit = 0
    placed = []
    for name, row in rows.items():
        placed.append(row.placed(name, bit))
        bit += row.width * row.times
    if bit % 8:
        raise TypeError(f"{header}: the rows add up to {bit} bits, which is no number of bytes")
    return placed


def _spanned(header: str, name: str, group: Group, rows: list[Row]) -> Group:
    """The group with its name, its members, its first bit and its width."""
    names, wanted = [row.name for row in rows], list(group.members)
    if wanted[1:-1] == [_BETWEEN] and {wanted[0], wanted[2]} <= {*names}:
        wanted = names[names.index(wanted[0]) : names.index(wanted[2]) + 1]
    members = [row for row in rows if row.name in wanted]
    if not members or [row.name for row in members] != wanted:
        raise TypeError(f"{header}.{name}: {group.members} are not rows in this order")
    width = sum(row.width for row in members)
    if members[-1].bit + members[-1].width != members[0].bit + width:
        raise TypeError(f"{header}.{name}: {wanted} are not neighbours")
    return Group(name, tuple(wanted), group.meaning, width, members[0].bit)


class Header(metaclass=HeaderMeta):
    """Base of all header tables.

    ``SIZE`` is the length on the wire, in bytes. ``wireshark`` is Wireshark's name of the complete
    header, if it has one. ``show`` is the notation: the header's bytes, or only its presence.
    """

    __slots__ = ()
    __deepcopy__ = shared

    rows: ClassVar[tuple[Row, ...]]
    groups: ClassVar[tuple[Group, ...]]
    clause: ClassVar[str]
    wireshark: ClassVar[str]
    show: ClassVar[Show]
    label: ClassVar[str]
    order: ClassVar[str]
    SIZE: ClassVar[int] = 0

    if TYPE_CHECKING:

        def __new__(cls, *values: Value, **fields: Value) -> Self:
            """Make a header with these values; omitted rows keep their defaults."""

        @classmethod
        def parse(cls, buffer: bytes | bytearray | memoryview, offset: int = 0) -> Self:
            """Parse the header at byte ``offset``; :class:`WireError` if it is incomplete."""

        def build(self) -> bytes:
            """Return ``SIZE`` bytes; :class:`WireError` naming a field whose value does not fit."""

        def __iter__(self) -> Iterator[Value]: ...

        def _replace(self, **changes: Value) -> Self: ...

    def replace(self, **changes: Value) -> Self:
        """Return a copy with other values in the named rows; ``TypeError`` for an unknown row."""
        try:
            return self._replace(**changes)
        except (TypeError, ValueError):
            raise _no_row(type(self), changes) from None

    def __bytes__(self) -> bytes:
        """As ``build``: ``bytes`` of a tuple would be its values, one byte each."""
        return self.build()

    def word(self, name: str) -> str:
        """The standard's word for the value of this row; empty if it has none or does not fit."""
        for row in self.rows:
            if row.name == name:
                value = getattr(self, name)
                return "" if misfit(row, value) else row.meaning_in(self).word(value)
        raise WireError(f"{type(self).__name__} has no field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self), *self))
