"""A dissection as plain objects for JSON.

Fields go by the names of ``rdmawire fields``, and have the values that they have in ``-T fields``,
columns and filters. Numbers are numbers, those of more than 53 bits hexadecimal text; flags are
``true`` or ``false``, addresses and bytes are text. A field that a layer has several times is a
list.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from rdmawire.dissect.fields import seconds
from rdmawire.dissect.node import Dissection, Node
from rdmawire.dissect.tree import Item, items
from rdmawire.wire.show import BOOL, BYTES


def dumped(value: object, indent: int | None = None) -> str:
    """JSON for machines: ASCII alone, so that no locale breaks it and it harms no terminal."""
    # JSON need not escape the one control character above the printable ones.
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def as_object(frame: Dissection) -> dict[str, Any]:
    """The frame with a list of its layers, the state of its checksums, and what is wrong."""
    malformed = frame.malformed
    return {
        "file": frame.file,
        "number": frame.number,
        "time": seconds(frame.time_ns),
        "length": frame.length,
        "captured": len(frame.data),
        "comments": list(frame.comments),
        "layers": [_layer(node) for node in frame.nodes],
        "bad_checksums": [str(check) for check in frame.bad_checks],
        "malformed": malformed.reason if malformed else None,
    }


def _layer(node: Node) -> dict[str, Any]:
    found = list(items(node))
    layer = {
        "name": node.name,
        "offset": node.offset,
        "length": len(node.data),
        "fields": _gathered((item.name, _value(item)) for item in found),
        "words": _gathered(_words(found)),
    }
    if node.reassembled:
        layer["reassembled"] = True
    return layer


def _gathered(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values by name; a name that comes several times has a list of them."""
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _value(item: Item) -> Any:
    value, show = item.value, item.show
    if isinstance(value, tuple):
        return list(value)
    if show is BOOL:
        return bool(value)
    if isinstance(value, bytes):
        return value.hex() if show is BYTES else item.text
    if isinstance(value, str):
        return item.text
    # A double, which is what many readers of JSON keep numbers in, has 53 bits.
    return value * show.scale if item.width <= 53 else f"0x{value:0{-(-item.width // 4)}x}"


def _words(found: list[Item]) -> Iterator[tuple[str, str]]:
    """The words for values that have one, and bytes that are text as text."""
    for item in found:
        if item.word:
            yield item.name, item.word
        elif item.show is BYTES and item.text != _value(item):
            yield item.name, item.text
