"""Octets as a file says them: by a word, as text, as hexadecimal digits."""

from typing import Final

from rdmawire.traffic.scenario.document import Node, NodeError, Pairs, Scalar, TextError, listed
from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.kind import Definitions, Json, Leaf, misfit, parsed
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.record import Key, Record
from rdmawire.traffic.scenario.form.reference import SPAN
from rdmawire.traffic.scenario.model import Content, Fill, Mark, Span

_WORDS: Final = {fill.value: fill for fill in (Fill.ZEROS, Fill.COUNT, Fill.RANDOM)}


def _fill(text: str) -> Content:
    if text not in _WORDS:
        raise TextError(word=text, known=list(_WORDS))
    return Content(fill=_WORDS[text])


def _text(text: str) -> Content:
    return Content(fill=Fill.TEXT, octets=_some(units.encoded(text)))


def _hex(text: str) -> Content:
    return Content(fill=Fill.HEX, octets=_some(units.octets(text)))


def _some(octets: bytes) -> bytes:
    if not octets:
        raise TextError("one octet at least")
    return octets


FILL: Final = Leaf(
    said=f"one of {listed(_WORDS)}",
    parse=_fill,
    samples=tuple(_WORDS),
    shown=lambda content: content.fill.value,
)
TEXT: Final = Leaf(
    said="text", parse=_text, samples=("hello", '"hello, world"'), types=("string", "number")
)
HEX: Final = Leaf(
    said="hexadecimal digits",
    parse=_hex,
    samples=('"00 ff"', "deadbeef"),
    types=("string", "number"),
)

CONTENT_KEYS: Final = {
    "fill": Key(
        kind=FILL,
        into=("content",),
        help="What it holds: zeros; count, which is 00 01 .. ff 00 ..; random, of the seed.",
    ),
    "text": Key(
        kind=TEXT, into=("content",), help="What it holds, as text, again and again until it ends."
    ),
    "hex": Key(
        kind=HEX, into=("content",), help="What it holds, as digits, again and again until it ends."
    ),
}


def _octets(mark: Mark, content: Content | None = None) -> Content:
    del mark
    return content or Content()


OCTETS: Final = Record(called="octets", plan=_octets, keys=CONTENT_KEYS)


class Inline:
    """Octets of a message: text, or ``{hex: ...}``."""

    said = "text, or {hex: digits}"
    samples = ("hello", "{hex: 00 ff}", "{text: hello}")
    parts = (OCTETS,)

    def read(self, node: Node, reading: Reading) -> bytes:
        if isinstance(node, Scalar):
            return _encoded(node)
        content = OCTETS.read(node, reading)
        if content.fill not in (Fill.TEXT, Fill.HEX):
            raise misfit(node, self.said)
        return content.octets

    def json(self, known: Definitions) -> Json:
        return {"anyOf": [{"type": ["string", "number", "boolean"]}, OCTETS.json(known)]}


def _encoded(node: Scalar) -> bytes:
    """The octets of a text; none where there are quotes and nothing in them."""
    return b"" if not node.text and not node.plain else parsed(node, "text", units.encoded)


INLINE: Final = Inline()


class Same:
    """What memory must hold: that of other memory, or octets."""

    said = "memory such as client.source, zeros, count, {text: ...} or {hex: ...}"
    samples = ("client.source", "zeros", "{hex: 00 ff}", "{text: hello}")
    parts = (OCTETS,)

    def read(self, node: Node, reading: Reading) -> Span | Content:
        if isinstance(node, Pairs):
            return self._foreseen(node, OCTETS.read(node, reading))
        if isinstance(node, Scalar) and node.text in _WORDS:
            return self._foreseen(node, FILL.read(node, reading))
        return SPAN.read(node, reading)

    def _foreseen(self, node: Node, content: Content) -> Content:
        """Nobody knows what chance will bring."""
        if content.fill is Fill.RANDOM:
            raise NodeError(node.mark, "random octets", self.said)
        return content

    def json(self, known: Definitions) -> Json:
        return {"anyOf": [{"type": "string"}, OCTETS.json(known)], "description": self.said}


SAME: Final = Same()
