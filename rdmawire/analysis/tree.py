"""A dissection as an indented text with octet offsets, and its octets in hexadecimal."""

from collections.abc import Iterator

from rdmawire.analysis.fields import first_line
from rdmawire.analysis.frame import calendar, seconds
from rdmawire.analysis.item import Item, items
from rdmawire.analysis.node import Dissection, Node
from rdmawire.wire.show import Kind, safe

_LONGEST = 64
"""Octets of a field shown in a tree; the rest is counted."""


def tree(frame: Dissection) -> Iterator[str]:
    """The lines of a frame's tree: a line per header and, below it, a line per field."""
    yield _heading(frame)
    for node in frame.nodes:
        yield f"{node.offset:6}  {_title(node)}"
        for item in items(node):
            yield _line(item)
    yield ""


def _heading(frame: Dissection) -> str:
    kept = "" if len(frame.data) == frame.length else f", {len(frame.data)} captured"
    after = seconds(frame.time_ns - frame.first_ns)
    text = (
        f"Frame {frame.number}: {frame.length} octets{kept}, {calendar(frame.time_ns)} (+{after})"
    )
    return text + "".join(f"\n        comment: {safe(comment)}" for comment in frame.comments)


def _title(node: Node) -> str:
    table = type(node.header) if node.header is not None else None
    name = table.__name__ if table else node.name
    about = first_line(table).rstrip(".") if table else node.reason
    reassembled = ", reassembled" if node.reassembled else ""
    return f"{name}, {len(node.octets)} octets{reassembled}" + (f": {about}" if about else "")


def _line(item: Item) -> str:
    text = item.text
    if item.show.kind is Kind.OCTETS and len(text) > 2 * _LONGEST:
        text = f"{text[: 2 * _LONGEST]}.. ({len(text) // 2} octets)"
    place = f"{item.offset:6}" if item.offset >= 0 else " " * 6
    word = f"  {item.word}" if item.word else ""
    return f"{place}    {'  ' * item.depth}{item.title}: {text}{word}"


def hex_dump(octets: bytes) -> Iterator[str]:
    """Sixteen octets a line: offset, hexadecimal, and what is printable in ASCII."""
    for start in range(0, len(octets), 16):
        row = octets[start : start + 16]
        ascii_text = "".join(chr(c) if 32 <= c < 127 else "." for c in row)
        yield f"{start:04x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {ascii_text}"
    yield ""
