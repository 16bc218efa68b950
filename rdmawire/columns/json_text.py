"""The objects of ``rdmawire dissect -T json`` and ``-T ndjson`` for fast-path frames."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rdmawire.columns.fast_path import bits
from rdmawire.columns.frame_text import (
    MARK,
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
    places_of,
    seconds_texts,
    segments,
    with_bytes,
)
from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.node import Derived, Extra, Node
from rdmawire.dissect.output import (
    MAX_NUMBER_BITS,
    as_object,
    dumped,
    gathered,
    json_value,
    layer_object,
    words_of,
)
from rdmawire.dissect.tree import Item, ItemLayout, generated_items
from rdmawire.wire.header import Header
from rdmawire.wire.ib import ICRC
from rdmawire.wire.inet import UDP


class ObjectParts:
    """Makes the parts of the object of a frame; ``file`` is the name of the capture.

    ``around`` is what is before each object, and after it.
    """

    def __init__(self, file: str, around: tuple[str, str]) -> None:
        self._file = file
        self._before, self._after = around

    def __call__(self, shape: FrameShape) -> Iterator[Part]:
        """Return the parts for frames with these headers."""
        yield Constant(self._before)
        yield OfFrames(self._frames)
        for table, base in shape.headers:
            yield from _layer(shape, table, base)
            yield Constant(", ")
        yield OfFrames(PayloadText(shape, _around_bytes).texts)
        yield from _icrc(shape)
        yield Constant(_after_layers() + self._after)

    def _frames(self, some: OpcodeFrames) -> Iterator[str]:
        """What is before the first layer."""
        head = f'{{"file": {dumped(self._file)}, "number": '.replace("%", "%%")
        template = head + '%d, "time": "%s", "length": %d, "captured": %d, "comments": [], '
        template += '"layers": ['
        heads = some.fast.records.heads
        columns = some.numbers.tolist(), seconds_texts(some.times), heads["length"].tolist()
        return map(template.__mod__, zip(*columns, heads["captured"].tolist(), strict=True))


def _after_layers() -> str:
    """What follows the layers of a frame without errors."""
    return dumped(as_object(Dissection(1, b"", 0, 0))).partition('"layers": [')[2]


def _inside(values: dict[str, Any]) -> str:
    """The names and values of an object, without its braces."""
    return dumped(values)[1:-1]


def _fields(found: Iterable[Item]) -> dict[str, Any]:
    return gathered((item.name, json_value(item)) for item in found)


def _layer(shape: FrameShape, table: type[Header], base: int) -> Iterator[Part]:
    """One layer: its fields, and the words for their values."""
    head = {"name": table.label, "offset": base, "length": table.SIZE}
    yield Constant(f'{{{_inside(head)}, "fields": {{')
    between = ""
    for segment in segments(table):
        yield Constant(between)
        yield _segment(table, base, segment)
        between = ", "
    extras = list(generated_items(Node("", 0, b"", None, known_extras(shape, table))))
    if extras:
        yield Constant(f"{between}{_inside(_fields(extras))}")
    if table is UDP:
        stream = f', "{generated.UDP_STREAM.name}": %d'.__mod__
        yield OfFrames(lambda some: map(stream, some.streams))
    yield Constant('}, "words": ')
    yield _words(table, base, extras)
    yield Constant("}")


def _segment(table: type[Header], base: int, segment: Segment) -> Part:
    rows, places = segment
    if not places:
        row = rows[0].row
        return OfNumber(bits(row.bit, row.width), base, _number(rows[0]))

    def written(data: bytes) -> str:
        header = with_bytes(table, places, data)
        return _inside(_fields(row.item(header, base) for row in rows))

    return OfBytes([base + at for at in places], written)


def _number(layout: ItemLayout) -> Callable[[int], str]:
    """Return what writes a row with a number: decimal, or hexadecimal digits as text."""
    name, show, *_ = layout.usual
    width = layout.row.width
    before = f"{dumped(name)}: "
    if width <= MAX_NUMBER_BITS:
        scale = show.scale
        return f"{before}%d".__mod__ if scale == 1 else lambda number: f"{before}{number * scale}"
    return f'{before}"0x%0{-(-width // 4)}x"'.__mod__


def _words(table: type[Header], base: int, extras: list[Item]) -> Part:
    """The words of a layer, as an object."""
    said = [row for segment in segments(table) for row in segment.rows if row.may_have_words]
    if not said:
        return Constant(dumped(gathered(words_of(extras))))
    places = places_of(table, said)

    def written(data: bytes) -> str:
        header = with_bytes(table, places, data)
        return dumped(gathered(words_of([*(row.item(header, base) for row in said), *extras])))

    return OfBytes([base + at for at in places], written)


def _around_bytes(node: Node, field: Derived) -> tuple[str, str]:
    """A layer of bytes: what is before their digits, and after them."""
    node.extras = (Extra(field, MARK.to_bytes(2, "big")),)
    before, _, after = dumped(layer_object(node)).partition(f"{MARK:x}")
    return before, after + ", "


def _icrc(shape: FrameShape) -> Iterator[Part]:
    """The ICRC, whose offset depends on the length of the payload."""

    def around(tail: Tail) -> tuple[str, str]:
        at = shape.icrc(tail)
        node = Node(ICRC.label, at, bytes(ICRC.SIZE), ICRC(MARK), known_extras(shape, ICRC))
        before, _, after = dumped(layer_object(node)).partition(str(MARK))
        return before, after

    yield OfTail(shape, lambda tail: around(tail)[0])
    yield OfFrames(lambda some: map(str, some.icrcs))
    yield OfTail(shape, lambda tail: around(tail)[1])
