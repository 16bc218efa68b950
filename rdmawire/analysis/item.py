"""The fields of one node, in order, with their names, texts and words: for trees and JSON."""

from collections.abc import Iterator
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


def _of_header(header: Header, offset: int) -> Iterator[Item]:
    table = type(header)
    groups = {group.members[0]: group for group in table.groups}
    grouped = {name for group in table.groups for name in group.members}
    for row in table.rows:
        if group := groups.get(row.name):
            yield _item(header, group, group.value_in(header), offset)
        yield _item(header, row, getattr(header, row.name), offset, int(row.name in grouped))


def _item(header: Header, row: Row | Group, value: Value, offset: int, depth: int = 0) -> Item:
    meaning = row.meaning_in(header) if isinstance(row, Row) else row.meaning
    write = writer(meaning.show, row.width)
    text = ",".join(map(write, value)) if isinstance(value, tuple) else write(value)
    if meaning.show is BOOL:
        text = "set" if value else "not set"
    name = row_name(type(header), row, meaning)
    return Item(
        name, row.name, value, meaning.show, text, meaning.word(value), offset + row.bit // 8, depth
    )
