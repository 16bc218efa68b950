"""A dissection as an indented text with byte offsets, and its bytes in hexadecimal."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from rdmawire.dissect.fields import calendar, first_line, seconds
from rdmawire.dissect.node import Dissection, Node
from rdmawire.dissect.summary import Mood
from rdmawire.terminal import escape
from rdmawire.wire.field_registry import shown_name
from rdmawire.wire.header import Group, Header, Meaning, Row
from rdmawire.wire.show import BOOL, Kind, Show, Value, byte_count, writer


class Item(NamedTuple):
    """One field of a node. ``offset`` counts bytes like the node's; -1 for derived fields.

    ``text`` is for people: where Wireshark pads a number to a wider type, or shows one unit for
    another, it is the number in the header.
    """

    name: str
    title: str
    value: Value
    show: Show
    width: int
    text: str
    word: str
    offset: int
    depth: int = 0


def items(node: Node) -> Iterator[Item]:
    """The rows of the node's header, groups before their members, then the derived fields."""
    header = node.header
    if header is not None:
        for each in _layout(type(header)):
            yield each.item(header, node.offset)
    for field, value in node.extras:
        if not field.hidden:
            text, word = field.text(value), field.word(value)
            yield Item(field.name, field.name, value, field.show, field.width, text, word, -1)


class _Said(NamedTuple):
    """What a meaning of a row comes to: its name, notation, writer, and words."""

    name: str
    show: Show
    write: Callable[[Any], str]
    word: Callable[[Any], str]


class _ItemLayout(NamedTuple):
    """A row or group of a table, with all that does not change from header to header."""

    row: Row | Group
    column: int
    depth: int
    byte: int
    said: dict[Meaning, _Said]
    usual: _Said

    def item(self, header: Header, offset: int) -> Item:
        row, said = self.row, self.usual
        if isinstance(row, Group):
            value: Any = row.value_in(header)
        else:
            value = header[self.column]  # type: ignore[index]
            if row.cases is not None:
                said = self.said[row.meaning_in(header)]
        name, show, write, word = said
        text = ",".join(map(write, value)) if isinstance(value, tuple) else write(value)
        at = offset + self.byte
        return Item(name, row.name, value, show, row.width, text, word(value), at, self.depth)


def _item_layout(table: type[Header], row: Row | Group, index: int, depth: int) -> _ItemLayout:
    meanings = list(row.meanings()) if isinstance(row, Row) else [row.meaning]
    said = {meaning: _say(table, row, meaning) for meaning in meanings}
    return _ItemLayout(row, index, depth, row.bit // 8, said, said[row.meaning])


def _say(table: type[Header], row: Row | Group, meaning: Meaning) -> _Said:
    word = meaning.word if meaning.enum or meaning.words else _wordless
    write = _for_people(meaning, row.width)
    return _Said(shown_name(table, row, meaning), meaning.show, write, word)


def _wordless(_: Value) -> str:
    return ""


def _for_people(meaning: Meaning, width: int) -> Callable[[Any], str]:
    """What writes a value in a tree."""
    show = meaning.tree or meaning.show
    if show is BOOL:
        return lambda value: "set" if value else "not set"
    if show.scale != 1:
        return lambda value: f"{value} ({value * show.scale} bytes)"
    return writer(Show(Kind.HEX), width) if show.kind is Kind.HEX else writer(show, width)


@cache
def _layout(table: type[Header]) -> tuple[_ItemLayout, ...]:
    """Rows and groups in order, a group before its members."""
    grouped = {name for group in table.groups for name in group.members}
    items_: list[_ItemLayout] = []
    for index, row in enumerate(table.rows):
        begun = (group for group in table.groups if group.members[0] == row.name)
        items_ += [_item_layout(table, group, -1, 0) for group in begun]
        items_.append(_item_layout(table, row, index, int(row.name in grouped)))
    return tuple(items_)


_LONGEST = 64
"""Bytes of a field shown in a tree; the rest is counted."""


def tree(frame: Dissection) -> Iterator[tuple[Mood, str, str]]:
    """The lines of a frame's tree: one per header, then one per field.

    Each has its mood and the name of the field; no name where the line begins with it.
    """
    yield Mood.PLAIN, _heading(frame), ""
    for node in frame.nodes:
        yield Mood.BAD if node.reason else Mood.RDMA, f"{node.offset:6}  {_title(node)}", ""
        for item in items(node):
            yield _mood(item), _line(item), "" if item.title == item.name else item.name
    yield Mood.PLAIN, "", ""


def _heading(frame: Dissection) -> str:
    kept = "" if len(frame.data) == frame.length else f", {len(frame.data)} captured"
    after = seconds(frame.time_ns - frame.first_ns)
    text = f"Frame {frame.number}: {byte_count(frame.length)}{kept}"
    text += f", {calendar(frame.time_ns)} (+{after})"
    return text + "".join(f"\n        comment: {escape(comment)}" for comment in frame.comments)


def _title(node: Node) -> str:
    about = first_line(type(node.header)).rstrip(".") if node.header is not None else ""
    name = type(node.header).__name__ if node.header is not None else node.name
    reassembled = ", reassembled" if node.reassembled else ""
    return f"{name}, {byte_count(len(node.data))}{reassembled}" + (f": {about}" if about else "")


def _mood(item: Item) -> Mood:
    """Whether the field is about something wrong."""
    if item.offset >= 0:
        return Mood.PLAIN
    wrong = item.name.endswith(".status") and "bad" in (item.text, item.word)
    return Mood.BAD if wrong or item.name == "rdmawire.malformed" else Mood.PLAIN


def _line(item: Item) -> str:
    text = item.text
    if item.show.kind is Kind.BYTES and len(text) > 2 * _LONGEST:
        text = f"{text[: 2 * _LONGEST]}.. ({byte_count(len(text) // 2)})"
    offset = item.offset if item.offset >= 0 else ""
    word = f"  {item.word}" if item.word else ""
    return f"{offset:>6}    {'  ' * item.depth}{item.title}: {text}{word}"


def hex_dump(data: bytes) -> Iterator[str]:
    """Sixteen bytes a line: offset, hexadecimal, and what is printable in ASCII."""
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        ascii_text = "".join(chr(c) if 32 <= c < 127 else "." for c in row)
        yield f"{start:04x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {ascii_text}"
    yield ""
