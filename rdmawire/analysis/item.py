"""The fields of one node, in order, with their names, texts and words: for trees and JSON."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from rdmawire.analysis.fields import row_name
from rdmawire.analysis.node import Node
from rdmawire.wire.header import Group, Header, Row
from rdmawire.wire.show import BOOL, Show, Value, writer


class Item(NamedTuple):
    """One field of a node. ``offset`` counts octets like the node's; -1 for derived fields."""

    name: str
    title: str
    value: Value
    show: Show
    text: str
    word: str
    offset: int
    depth: int = 0


def items(node: Node) -> Iterator[Item]:
    """The rows of the node's header, groups before their members, then the derived fields."""
    if node.header is not None:
        yield from _of_header(node.header, node.offset)
    for field, value in node.extras:
        if field.hidden:
            continue
        title = field.name.removeprefix("rdmawire.")
        yield Item(field.name, title, value, field.show, field.text(value), field.word(value), -1)


@cache
def _layout(table: type[Header]) -> tuple[tuple[Row | Group, int], ...]:
    """Rows and groups in order, a group before its members, each with its depth."""
    grouped = {name for group in table.groups for name in group.members}
    ordered: list[tuple[Row | Group, int]] = []
    for row in table.rows:
        ordered += [(group, 0) for group in table.groups if group.members[0] == row.name]
        ordered.append((row, int(row.name in grouped)))
    return tuple(ordered)


def _of_header(header: Header, offset: int) -> Iterator[Item]:
    for row, depth in _layout(type(header)):
        value = row.value_in(header) if isinstance(row, Group) else getattr(header, row.name)
        yield _item(header, row, value, offset, depth)


def _item(header: Header, row: Row | Group, value: Value, offset: int, depth: int) -> Item:
    meaning = row.meaning_in(header) if isinstance(row, Row) else row.meaning
    write = writer(meaning.show, row.width)
    text = ",".join(map(write, value)) if isinstance(value, tuple) else write(value)
    if meaning.show is BOOL:
        text = "set" if value else "not set"
    name = row_name(type(header), row, meaning)
    return Item(
        name, row.name, value, meaning.show, text, meaning.word(value), offset + row.bit // 8, depth
    )
