"""Bytes given in a file: by a word, as text, or as hexadecimal digits."""

from typing import Annotated, Any, ClassVar, Final

from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Node, NodeError, Pairs, Scalar, TextError, listed
from rdmawire.traffic.scenario.references import SPAN
from rdmawire.traffic.scenario.section import Found, Section, key, read_section
from rdmawire.traffic.scenario.types import (
    Content,
    Custom,
    Definitions,
    Fill,
    Json,
    Parsed,
    Span,
    invalid,
    parse_hex,
    parse_utf8,
    parsed,
)

_WORDS: Final = {fill.value: fill for fill in (Fill.ZEROS, Fill.COUNT, Fill.RANDOM)}


def _fill(text: str) -> Content:
    if text not in _WORDS:
        raise TextError(word=text, known=list(_WORDS))
    return Content(fill=_WORDS[text])


def _text(text: str) -> Content:
    return Content(fill=Fill.TEXT, data=_some(parse_utf8(text)))


def _hex(text: str) -> Content:
    return Content(fill=Fill.HEX, data=_some(parse_hex(text)))


def _some(data: bytes) -> bytes:
    if not data:
        raise TextError("one byte at least")
    return data


FILL: Final = Parsed(
    description=f"one of {listed(_WORDS)}",
    parse=_fill,
    examples=tuple(_WORDS),
    formatted=lambda content: content.fill.value,
)
TEXT: Final = Parsed(
    description="text",
    parse=_text,
    examples=("hello", '"hello, world"'),
    types=("string", "number"),
)
HEX: Final = Parsed(
    description="hexadecimal digits",
    parse=_hex,
    examples=('"00 ff"', "deadbeef"),
    types=("string", "number"),
)

FillKey = Annotated[
    Content | None,
    FILL,
    key("What it holds: zeros; count, which is 00 01 .. ff 00 ..; random, from the seed."),
]
TextKey = Annotated[Content | None, TEXT, key("What it holds, as text, repeated to its end.")]
HexKey = Annotated[
    Content | None, HEX, key("What it holds, as hexadecimal digits, repeated to its end.")
]


def content_of(section: Any) -> Content:
    """Return the content of ``fill``, ``text`` or ``hex`` of a section; zeros without any."""
    return section.fill or section.text or section.hex or Content()


class ContentKeys(Section):
    """Bytes, given by one of these keys."""

    called: ClassVar = "bytes"
    alternatives: ClassVar = (("fill", "text", "hex"),)

    fill: FillKey = None
    text: TextKey = None
    hex: HexKey = None

    def finish(self, found: Found, context: ParseContext) -> Content:  # noqa: ARG002
        return content_of(self)


def _read_inline(node: Node, context: ParseContext) -> bytes:
    if isinstance(node, Scalar):
        return _encoded(node)
    content: Content = read_section(ContentKeys, node, context)
    if content.fill not in (Fill.TEXT, Fill.HEX):
        raise invalid(node, INLINE.description)
    return content.data


def _inline_schema(definitions: Definitions) -> Json:
    text = {"type": ["string", "number", "boolean"]}
    return {"anyOf": [text, ContentKeys.json_schema(definitions)]}


def _encoded(node: Scalar) -> bytes:
    """Return the bytes of a text; none for an empty quoted text."""
    return b"" if not node.text and not node.plain else parsed(node, "text", parse_utf8)


INLINE: Final = Custom(
    "text, or {hex: digits}",
    ("hello", "{hex: 00 ff}", "{text: hello}"),
    _read_inline,
    schema=_inline_schema,
    inner=(ContentKeys,),
)
"""Bytes of a message: text, or ``{hex: ...}``."""


def _read_same(node: Node, context: ParseContext) -> Span | Content:
    if isinstance(node, Pairs):
        return _foreseen(node, read_section(ContentKeys, node, context))
    if isinstance(node, Scalar) and node.text in _WORDS:
        return _foreseen(node, FILL.read(node, context))
    span: Span = SPAN.read(node, context)
    return span


def _foreseen(node: Node, content: Content) -> Content:
    """Return the content; :class:`NodeError` for random bytes, which cannot be expected."""
    if content.fill is Fill.RANDOM:
        raise NodeError(node.mark, "random bytes", SAME.description)
    return content


def _same_schema(definitions: Definitions) -> Json:
    both = [{"type": "string"}, ContentKeys.json_schema(definitions)]
    return {"anyOf": both, "description": SAME.description}


SAME: Final = Custom(
    "memory such as client.source, zeros, count, {text: ...} or {hex: ...}",
    ("client.source", "zeros", "{hex: 00 ff}", "{text: hello}"),
    _read_same,
    schema=_same_schema,
    inner=(ContentKeys,),
)
"""Expected content of memory: that of other memory, or bytes."""
