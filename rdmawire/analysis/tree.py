"""A dissection as an indented text with octet offsets, and its octets in hexadecimal."""

from collections.abc import Iterator

from rdmawire.analysis.fields import first_line
from rdmawire.analysis.frame import calendar, seconds
from rdmawire.analysis.item import Item, items
from rdmawire.analysis.mood import Mood
from rdmawire.analysis.node import Dissection, Node
from rdmawire.screen import safe
from rdmawire.wire.show import Kind, octet_count

_LONGEST = 64
"""Octets of a field shown in a tree; the rest is counted."""


def tree(frame: Dissection) -> Iterator[tuple[Mood, str]]:
    """The lines of a frame's tree, each with its mood: a line per header, then one per field."""
    yield Mood.PLAIN, _heading(frame)
    for node in frame.nodes:
        yield Mood.BAD if node.reason else Mood.RDMA, f"{node.offset:6}  {_title(node)}"
        for item in items(node):
            yield _mood(item), _line(item)
    yield Mood.PLAIN, ""


def _heading(frame: Dissection) -> str:
    kept = "" if len(frame.data) == frame.length else f", {len(frame.data)} captured"
    after = seconds(frame.time_ns - frame.first_ns)
    text = f"Frame {frame.number}: {octet_count(frame.length)}{kept}"
    text += f", {calendar(frame.time_ns)} (+{after})"
    return text + "".join(f"\n        comment: {safe(comment)}" for comment in frame.comments)


def _title(node: Node) -> str:
    about = first_line(type(node.header)).rstrip(".") if node.header is not None else ""
    name = type(node.header).__name__ if node.header is not None else node.name
    reassembled = ", reassembled" if node.reassembled else ""
    return f"{name}, {octet_count(len(node.octets))}{reassembled}" + (f": {about}" if about else "")


def _mood(item: Item) -> Mood:
    """Whether the field is about something wrong."""
    if item.offset >= 0:
        return Mood.PLAIN
    wrong = item.name.endswith(".status") and "bad" in (item.text, item.word)
    return Mood.BAD if wrong or item.name == "rdmawire.malformed" else Mood.PLAIN


def _line(item: Item) -> str:
    text = item.text
    if item.show.kind is Kind.OCTETS and len(text) > 2 * _LONGEST:
        text = f"{text[: 2 * _LONGEST]}.. ({octet_count(len(text) // 2)})"
    place = item.offset if item.offset >= 0 else ""
    word = f"  {item.word}" if item.word else ""
    return f"{place:>6}    {'  ' * item.depth}{item.title}: {text}{word}"


def hex_dump(octets: bytes) -> Iterator[str]:
    """Sixteen octets a line: offset, hexadecimal, and what is printable in ASCII."""
    for start in range(0, len(octets), 16):
        row = octets[start : start + 16]
        ascii_text = "".join(chr(c) if 32 <= c < 127 else "." for c in row)
        yield f"{start:04x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {ascii_text}"
    yield ""
