"""Groups of a table's rows, such as the syndrome of an AETH, as attributes of its layer."""

from collections.abc import Iterator
from typing import Any

from rdmawire.errors import WireError
from rdmawire.wire.header import Group, Header


def grouped(group: Group) -> property:
    """The group as an attribute that can be read and set."""

    def put(pkt: Any, value: int) -> None:
        for name, number in _members(pkt.table, group, value):
            setattr(pkt, name, number)

    return property(group.value_in, put)


def ungrouped(table: type[Header], fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with each group among them given as its rows."""
    if not fields:
        return fields
    for group in table.groups:
        if group.name in fields:
            given = _members(table, group, fields.pop(group.name))
            fields |= {name: number for name, number in given if name not in fields}
    return fields


def _members(table: type[Header], group: Group, value: int) -> Iterator[tuple[str, int]]:
    """The rows of the group with their numbers; :class:`WireError` for no number that fits."""
    name = f"{table.__name__}.{group.name}"
    if not isinstance(value, int):
        rows = ", ".join(row.name for row in table.rows if row.name in group.members)
        raise WireError(f"{name} is a number, not {value!r}; words go to {rows}")
    if not 0 <= value < 1 << group.width:
        raise WireError(f"{name} {value} does not fit in {group.width} bits")
    left = group.width
    for row in table.rows:
        if row.name in group.members:
            left -= row.width
            yield row.name, value >> left & (1 << row.width) - 1
