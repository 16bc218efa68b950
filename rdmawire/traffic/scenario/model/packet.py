"""Packets that the verb ``inject`` sends: the types of its keys."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from rdmawire.fabric.field import named
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Node, NodeError, Scalar, TextError
from rdmawire.traffic.scenario.model.host import ContentKeys, content_of
from rdmawire.traffic.scenario.references import FIELD, value_of
from rdmawire.traffic.scenario.section import Found, OneSection, key
from rdmawire.traffic.scenario.types import (
    Content,
    Custom,
    Definitions,
    Fill,
    Json,
    Many,
    Number,
    Parsed,
    Size,
    Word,
    pairs_of,
    parse_hex,
    parse_number,
)
from rdmawire.wire.field_registry import Value, both
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.serial import MODULUS

MAX_PAYLOAD: Final = 16 << 10
"""Bytes of payload, at most."""


class Psn(NamedTuple):
    """A PSN: ``number`` itself, or if it is ``relative``, the expected one plus ``number``."""

    number: int
    relative: bool


EXPECTED: Final = Psn(0, relative=True)
_EXPECTED: Final = re.compile(r"expected(?:\s*([+-]\s*[0-9]{1,8}))?")


def parse_psn(text: str) -> Psn:
    """Read ``expected``, ``expected+1``, ``expected-2`` or a number of 24 bits."""
    if found := _EXPECTED.fullmatch(text):
        ahead = (found[1] or "0").replace(" ", "")
        psn = Psn(int(ahead), relative=True)
    else:
        psn = Psn(parse_number(text), relative=False)
    least = 1 - MODULUS if psn.relative else 0
    if not least <= psn.number < MODULUS:
        raise TextError
    return psn


def format_psn(psn: Psn) -> str:
    """Write a PSN as a file does."""
    if not psn.relative:
        return str(psn.number)
    return f"expected{psn.number:+d}" if psn.number else "expected"


PSN: Final = Parsed(
    "a PSN: expected, expected+1, expected-2, or a number of 24 bits",
    parse_psn,
    ("expected", "expected+1", "expected-2", "0xfffffe"),
    format_psn,
    types=("string", "integer"),
)


def parse_opcode(text: str) -> int:
    """Read ``RC_SEND_ONLY``, or a number of 8 bits."""
    if text in Opcode.__members__:
        return Opcode[text]
    try:
        number = parse_number(text)
    except TextError:
        raise TextError(word=text, known=tuple(Opcode.__members__)) from None
    if not 0 <= number < 1 << 8:
        raise TextError
    return number


OPCODE: Final = Parsed(
    "an opcode such as RC_RDMA_WRITE_ONLY, or a number of 8 bits",
    parse_opcode,
    ("RC_RDMA_WRITE_ONLY", "RC_SEND_ONLY", "0x1f"),
    types=("string", "integer"),
)

HEADERS_BY_NAME: Final[Mapping[str, type[Header]]] = {
    table.label: table for layout in LAYOUTS.values() for table in layout.headers
}
"""Extended transport headers by their names."""
HEADERS: Final = Many(Word(HEADERS_BY_NAME), alone=True)
PAD: Final = Number(0, 64)
OFFSET: Final = Number(-(1 << 63), (1 << 63))


def _parse_packet(text: str) -> bytes:
    data = parse_hex(text)
    if not BTH.SIZE <= len(data) <= MAX_PAYLOAD:
        raise TextError(f"{BTH.SIZE} to {MAX_PAYLOAD} bytes, from the BTH to the pad")
    return data


PACKET: Final = Parsed(
    "hexadecimal digits of a packet from the BTH to the pad",
    _parse_packet,
    ('"04 00 ff ff 00 00 00 12 80 00 00 64"', "0a00ffff0000001200000064" + "00" * 16),
    types=("string", "number"),
)


# Fields.


def _read_fields(node: Node, context: ParseContext) -> Mapping[str, Value]:
    pairs = pairs_of(node, FIELDS.description)
    return dict(context.every(partial(_read_field, *pair, context) for pair in pairs))


def _read_field(name: Scalar, node: Node, context: ParseContext) -> tuple[str, Value]:
    field = FIELD.read(name, context)
    if not named(field):
        raise NodeError(name.mark, quote(name.text), "a field of a header, such as bth.psn")
    if several := both(named(field)):
        raise NodeError(name.mark, quote(name.text), f"one field: this name is {several}")
    return field, value_of(field, node)


def _fields_schema(definitions: Definitions) -> Json:
    return {"type": "object", "propertyNames": FIELD.json(definitions)}


FIELDS: Final = Custom(
    "fields with one value each, such as {bth.ackreq: 1}",
    ("{bth.ackreq: 1}", "{reth.dmalen: 65, ip.ttl: 0}"),
    _read_fields,
    schema=_fields_schema,
)
"""Fields with the value that each gets."""


# Payload.


class Payload(NamedTuple):
    """``size`` bytes of a content."""

    content: Content
    size: int


class PayloadKeys(ContentKeys):
    """The payload of a packet: ``size`` bytes of a content, by default as many as it has."""

    called: ClassVar = "a payload"
    short: ClassVar = "size"

    size: Annotated[
        int | None,
        Size(0, MAX_PAYLOAD),
        key("Size in bytes; by default that of `text` or `hex`."),
    ] = None

    def finish(self, found: Found, context: ParseContext) -> Any:  # noqa: ARG002
        content = content_of(self)
        if self.size is None and content.fill not in (Fill.TEXT, Fill.HEX):
            what = "'fill' without 'size'" if "fill" in found.nodes else "nothing"
            raise NodeError(found.mark, what, "a size, or text, or hex")
        size = len(content.data) if self.size is None else self.size
        if size > MAX_PAYLOAD:
            raise NodeError(found.mark, f"{size} bytes", f"{MAX_PAYLOAD} at most")
        return Payload(content, size)


PAYLOAD: Final = OneSection(PayloadKeys)


# The ICRC.

ICRCS: Final = ("good", "stale", "bad")
"""What the ICRC is: right; that of the packet before ``fields``; right, with one bit inverted."""
ICRC: Final = Word(ICRCS)
