"""A dissection as an indented text with byte offsets, and its bytes in hexadecimal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from rdmawire.dissect.dissection import Dissection, Severity
from rdmawire.dissect.fields import calendar, first_line
from rdmawire.dissect.node import Node
from rdmawire.terminal import escape
from rdmawire.units import decimal_seconds
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
        for each in _rows(header, node.words):
            yield each.item(header, node.offset)
    yield from generated_items(node)


def generated_items(node: Node) -> Iterator[Item]:
    """The derived fields."""
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


class ItemLayout(NamedTuple):
    """A row or group of a table, with all that does not change from header to header."""

    row: Row | Group
    column: int
    depth: int
    byte: int
    said: dict[Meaning, _Said]
    usual: _Said
    label: str

    @property
    def may_have_words(self) -> bool:
        """Whether some of its values have a word, or are bytes that may be text."""
        return any(
            said.word is not _wordless or said.show.kind is _BYTES for said in self.said.values()
        )

    def read(self, header: Header) -> tuple[Any, _Said]:
        """The value in a header, and what its meaning comes to."""
        row = self.row
        if isinstance(row, Group):
            return row.value_in(header), self.usual
        said = self.usual if row.cases is None else self.said[row.meaning_in(header)]
        return header[self.column], said  # type: ignore[index]

    def item(self, header: Header, offset: int) -> Item:
        value, (name, show, write, word) = self.read(header)
        text = ",".join(map(write, value)) if isinstance(value, tuple) else write(value)
        at, row = offset + self.byte, self.row
        return Item(name, row.name, value, show, row.width, text, word(value), at, self.depth)

    def line(self, header: Header, offset: int) -> tuple[str, str]:
        """The line of a tree, and the field's name where the line does not begin with it."""
        value, (name, show, write, word) = self.read(header)
        text = ",".join(map(write, value)) if isinstance(value, tuple) else write(value)
        if show.kind is _BYTES:
            text = shortened(text)
        line = f"{offset + self.byte:>6}{self.label}{text}"
        said = word(value)
        return (f"{line}  {said}" if said else line), ("" if name == self.row.name else name)


def _item_layout(table: type[Header], row: Row | Group, index: int, depth: int) -> ItemLayout:
    meanings = list(row.meanings()) if isinstance(row, Row) else [row.meaning]
    said = {meaning: _say(table, row, meaning) for meaning in meanings}
    label = f"    {'  ' * depth}{row.name}: "
    return ItemLayout(row, index, depth, row.bit // 8, said, said[row.meaning], label)


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


def _rows(header: Header, words: Mapping[str, str]) -> Sequence[ItemLayout]:
    """The rows of a header; ``words`` replace the words of its table."""
    rows = layouts(type(header))
    return [_with_word(row, words.get(row.row.name)) for row in rows] if words else rows


def _with_word(layout: ItemLayout, word: str | None) -> ItemLayout:
    if word is None:
        return layout
    return layout._replace(usual=layout.usual._replace(word=lambda _: word))


@cache
def layouts(table: type[Header]) -> tuple[ItemLayout, ...]:
    """Rows and groups in order, a group before its members."""
    grouped = {name for group in table.groups for name in group.members}
    items_: list[ItemLayout] = []
    for index, row in enumerate(table.rows):
        begun = (group for group in table.groups if group.members[0] == row.name)
        items_ += [_item_layout(table, group, -1, 0) for group in begun]
        items_.append(_item_layout(table, row, index, int(row.name in grouped)))
    return tuple(items_)


_BYTES = Kind.BYTES

MAX_SHOWN_BYTES = 64
"""Bytes of a field shown in a tree; the rest is counted."""


def tree(frame: Dissection) -> Iterator[tuple[Severity, str, str]]:
    """The lines of a frame's tree: one per header, then one per field.

    Each has its severity and the name of the field; no name where the line begins with it.
    """
    yield Severity.NONE, _heading(frame), ""
    for node in frame.nodes:
        yield (
            Severity.ERROR if node.reason else Severity.CHAT,
            f"{node.offset:6}  {title(node)}",
            "",
        )
        if (header := node.header) is not None:
            for row in _rows(header, node.words):
                line, name = row.line(header, node.offset)
                yield Severity.NONE, line, name
        for item in generated_items(node):
            yield _severity(item), generated_line(item), ""
    yield Severity.NONE, "", ""


def _heading(frame: Dissection) -> str:
    kept = "" if len(frame.data) == frame.length else f", {len(frame.data)} captured"
    after = decimal_seconds(frame.time_ns - frame.first_ns)
    text = f"Frame {frame.number}: {byte_count(frame.length)}{kept}"
    text += f", {calendar(frame.time_ns)} (+{after})"
    return text + "".join(f"\n        comment: {escape(comment)}" for comment in frame.comments)


def title(node: Node) -> str:
    """Return the first line of a node, without its offset."""
    about = first_line(type(node.header)).rstrip(".") if node.header is not None else ""
    name = type(node.header).__name__ if node.header is not None else node.name
    reassembled = ", reassembled" if node.reassembled else ""
    return f"{name}, {byte_count(len(node.data))}{reassembled}" + (f": {about}" if about else "")


def _severity(item: Item) -> Severity:
    """Whether a derived field is about something wrong."""
    wrong = item.name.endswith(".status") and "bad" in (item.text, item.word)
    return Severity.ERROR if wrong or item.name == "rdmawire.malformed" else Severity.NONE


def generated_line(item: Item) -> str:
    """Return the line of a derived field."""
    text = shortened(item.text) if item.show.kind is _BYTES else item.text
    word = f"  {item.word}" if item.word else ""
    return f"{'':>6}    {item.title}: {text}{word}"


def shortened(text: str) -> str:
    """Hexadecimal digits, the first :data:`MAX_SHOWN_BYTES` bytes of them."""
    if len(text) <= 2 * MAX_SHOWN_BYTES:
        return text
    return f"{text[: 2 * MAX_SHOWN_BYTES]}.. ({byte_count(len(text) // 2)})"


def hex_dump(data: bytes) -> Iterator[str]:
    """Sixteen bytes a line: offset, hexadecimal, and what is printable in ASCII."""
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        ascii_text = "".join(chr(c) if 32 <= c < 127 else "." for c in row)
        yield f"{start:04x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {ascii_text}"
    yield ""
