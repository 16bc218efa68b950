"""The trees of ``rdmawire dissect -V`` for fast-path frames."""

from collections.abc import Callable, Iterator
from typing import Final

from rdmawire.columns.fast_path import bits
from rdmawire.columns.frame_text import (
    MARK,
    BoundedCache,
    Constant,
    FrameShape,
    OfBytes,
    OfFrames,
    OfNumber,
    OfTail,
    OpcodeFrames,
    Part,
    PayloadText,
    Segment,
    Tail,
    known_extras,
    seconds_texts,
    segments,
    with_bytes,
)
from rdmawire.dissect import generated
from rdmawire.dissect.fields import calendar
from rdmawire.dissect.node import Derived, Extra, Node
from rdmawire.dissect.output import NAMES_AT, named_line
from rdmawire.dissect.tree import (
    MAX_SHOWN_BYTES,
    ItemLayout,
    generated_items,
    generated_line,
    shortened,
    title,
)
from rdmawire.units import SECOND
from rdmawire.wire.header import Header
from rdmawire.wire.ib import ICRC
from rdmawire.wire.inet import UDP
from rdmawire.wire.show import byte_count


def tree_parts(shape: FrameShape) -> Iterator[Part]:
    """Return the parts of the tree of frames with these headers."""
    yield OfFrames(_headings)
    for table, base in shape.headers:
        yield from _header(shape, table, base)
    yield OfFrames(PayloadText(shape, _around_bytes, MAX_SHOWN_BYTES).texts)
    yield from _icrc(shape)
    yield Constant("\n")


def _headings(some: OpcodeFrames) -> Iterator[str]:
    relative = seconds_texts(some.times - some.first_ns)
    lengths = some.fast.records.heads["length"].tolist()
    columns = zip(some.numbers.tolist(), lengths, some.times.tolist(), relative, strict=True)
    for number, length, time, later in columns:
        whole, rest = divmod(time, SECOND)
        before, after = _calendar(whole)
        yield f"Frame {number}: {byte_count(length)}, {before}.{rest:09d}{after} (+{later})\n"


def _around_decimals(whole: int) -> tuple[str, str]:
    """Return the text of a time, in seconds since the epoch, before and after its decimals."""
    before, _, after = calendar(whole * SECOND).rpartition(".000000000")
    return before, after


_calendar: Final = BoundedCache(_around_decimals).__getitem__


def _header(shape: FrameShape, table: type[Header], base: int) -> Iterator[Part]:
    """The title of a header, its rows, and the fields beside it."""
    node = Node(table.label, base, bytes(table.SIZE), table(), known_extras(shape, table))
    yield Constant(_title(node))
    for segment in segments(table):
        yield _segment(table, base, segment)
    yield Constant(_extras(node))
    if table is UDP:
        before, after = _around(generated.UDP_STREAM)
        yield OfFrames(lambda some: map(f"{before}%d{after}".__mod__, some.streams))


def _title(node: Node) -> str:
    return f"{node.offset:6}  {title(node)}\n"


def _segment(table: type[Header], base: int, segment: Segment) -> Part:
    rows, places = segment
    if not places:
        row = rows[0].row
        return OfNumber(bits(row.bit, row.width), base, _number(rows[0], base))

    def written(data: bytes) -> str:
        header = with_bytes(table, places, data)
        return "".join(named_line(*row.line(header, base)) for row in rows)

    return OfBytes([base + at for at in places], written)


def _number(layout: ItemLayout, base: int) -> Callable[[int], str]:
    """Return what writes the line of a row from its number: a template of ``%``.

    The numbers are hexadecimal with all digits, or decimal.
    """
    prefix = f"{base + layout.byte:>6}{layout.label}"
    name, shown, width = layout.usual.name, layout.usual.write(0), NAMES_AT - len(prefix)
    after = "\n" if name == layout.row.name else f"  [{name}]\n"
    if shown == "0":
        return f"{prefix}%-{width}d{after}".__mod__
    digits = shown.removeprefix("0x")
    sign, spaces = shown[: -len(digits)], " " * (width - len(shown))
    return f"{prefix}{sign}%0{len(digits)}x{spaces}{after}".__mod__


def _extras(node: Node) -> str:
    return "".join(f"{generated_line(item)}\n" for item in generated_items(node))


def _around(field: Derived) -> tuple[str, str]:
    """The line of a field beside a header: what is before and after its number."""
    before, _, after = _extras(Node("", 0, b"", None, (Extra(field, MARK),))).partition(str(MARK))
    return before, after


def _around_bytes(node: Node, field: Derived) -> tuple[str, str]:
    """The title of bytes and their line up to the digits; and what is after the digits."""
    node.extras = (Extra(field, b""),)
    before = _title(node) + _extras(node).removesuffix("\n")
    digits = 2 * len(node.data)
    return before, shortened("0" * digits)[min(digits, 2 * MAX_SHOWN_BYTES) :] + "\n"


def _icrc(shape: FrameShape) -> Iterator[Part]:
    """The ICRC, whose offset depends on the length of the payload."""
    (layout,) = (row for segment in segments(ICRC) for row in segment.rows)

    def before(tail: Tail) -> str:
        at = shape.icrc(tail)
        return _title(Node(ICRC.label, at, bytes(ICRC.SIZE), ICRC())) + f"{at:>6}"

    write = _number(layout, 0)
    skipped = len(f"{0:>6}")
    yield OfTail(shape, before)
    yield OfFrames(lambda some: (write(crc)[skipped:] for crc in some.icrcs))
    yield Constant(_extras(Node("", 0, b"", None, known_extras(shape, ICRC))))
