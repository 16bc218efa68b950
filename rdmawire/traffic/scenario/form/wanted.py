"""Fields of frames by their names, and the values that are wanted of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from rdmawire.fabric.field import named, names, usual_name
from rdmawire.fabric.refusal import FabricError
from rdmawire.screen import quoted
from rdmawire.traffic.scenario.document import (
    Items,
    Node,
    NodeError,
    Scalar,
    TextError,
    described,
    listed,
)
from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.kind import Definitions, Json, pairs_of, parsed
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.verbs.ah import mapped
from rdmawire.wire.address import mac_octets
from rdmawire.wire.header import Row
from rdmawire.wire.naming import Named, siblings
from rdmawire.wire.show import Kind as Notation

_BITS_OF_FRAME: Final = 64
"""Of ``frame.number`` and ``frame.length``."""

Value = int | bytes
Wanted = Value | range | tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class FieldName:
    """The name of a field."""

    said: str = "a field such as bth.psn or infiniband.bth.psn"
    samples: tuple[str, ...] = ("bth.psn", "aeth.value", "frame.number", "infiniband.bth.psn")

    def read(self, node: Node, reading: Reading) -> str:  # noqa: ARG002 - a kind
        return parsed(node, self.said, _name)

    def json(self, known: Definitions) -> Json:
        known["field"] = {"enum": [*names()]}
        return {"$ref": "#/$defs/field"}


FIELD: Final = FieldName()


def _name(text: str) -> str:
    try:
        return usual_name(text)
    except FabricError:
        fields = siblings(names(), text)
        expected = f"a field of {text.rpartition('.')[0]}: {listed(fields)}" if fields else ""
        raise TextError(expected, word=text, known=fields or list(names())) from None


@dataclass(frozen=True, slots=True)
class Where:
    """Fields, and what each must be: a number, a word of its table, a range, or a list of them."""

    said: str = "fields with values, such as {bth.psn: 100..200}"
    samples: tuple[str, ...] = (
        "{bth.psn: 100..200, bth.opcode: [RC_ACKNOWLEDGE, CNP]}",
        "{ip.src: 10.0.0.1, frame.number: 1..}",
    )

    def read(self, node: Node, reading: Reading) -> Mapping[str, Wanted]:
        seen: dict[str, str] = {}
        pairs = pairs_of(node, self.said)
        return dict(reading.every(partial(self._read, *pair, seen, reading) for pair in pairs))

    def _read(
        self, key: Scalar, node: Node, seen: dict[str, str], reading: Reading
    ) -> tuple[str, Wanted]:
        name = FIELD.read(key, reading)
        rival = seen.setdefault(name, key.text)
        if rival != key.text:
            besides = f"{quoted(key.text)} besides {quoted(rival)}"
            raise NodeError(key.mark, besides, "a field by one of its names")
        return name, wanted(name, node, reading)

    def json(self, known: Definitions) -> Json:
        return {"type": "object", "propertyNames": FIELD.json(known)}


WHERE: Final = Where()


def wanted(field: str, node: Node, reading: Reading) -> Wanted:
    """The value or values of a field that a node says."""
    if not isinstance(node, Items):
        return _one(field, node)
    values: list[Value] = []
    for item in node.items:
        value = _one(field, item)
        some = value if isinstance(value, range) else range(1)
        reading.spend(some.stop - some.start, item)
        values += value if isinstance(value, range) else [value]
    return tuple(values)


def _one(field: str, node: Node) -> Value | range:
    found = named(field)
    if found and isinstance(found[0].row, Row) and found[0].row.octets:
        return octets_of(field, found[0].row, node)
    scale = found[0].scale if found else 1
    width = found[0].row.width + scale.bit_length() - 1 if found else _BITS_OF_FRAME
    words = _words(found)
    listing = f", or one of {listed(list(words)[:4])}{' ...' if len(words) > 4 else ''}"
    said = f"a value or a range of {width} bits for {field}{listing if words else ''}"
    return parsed(node, said, partial(_number, width=width, words=words, scale=scale))


def _number(text: str, width: int, words: Mapping[str, int], scale: int) -> int | range:
    if text in words:
        return words[text]
    try:
        least, most = units.between(text, units.number)
    except TextError as error:
        raise TextError(error.expected, word=text, known=list(words)) from None
    if least < 0 or max(least, most or 0) >> width:
        raise TextError
    if most is not None and least == most:
        if least % scale:
            raise TextError(f"a multiple of {scale}")
        return least
    return range(least, (1 << width) if most is None else most + 1)


def _words(found: Sequence[Named]) -> dict[str, int]:
    """What the numbers of a field are called, in all the meanings that its name stands for."""
    enums = (meaning.enum for one in found for meaning in one.meanings() if meaning.enum)
    words = {str(word.name): int(word.value) for enum in enums for word in enum}
    truths = {"false": 0, "true": 1} if found and found[0].row.width == 1 else {}
    return words or truths


def _gid(text: str) -> bytes:
    """An IPv6 address; an IPv4 one as the GID that it has."""
    return IPv6Address(text).packed if ":" in text else mapped(IPv4Address(text).packed)


_NOTATIONS: Final[dict[Notation, tuple[str, Callable[[str], bytes]]]] = {
    Notation.MAC: ("an Ethernet address", mac_octets),
    Notation.IPV4: ("an IPv4 address", lambda text: IPv4Address(text).packed),
    Notation.IPV6: ("an IPv6 address", _gid),
}
"""How octets are written that are not digits."""
_DIGITS: Final[tuple[str, Callable[[str], bytes]]] = "hexadecimal digits", bytes.fromhex


def octets_of(field: str, row: Row, node: Node) -> bytes:
    """Octets as the field is written usually, or as hexadecimal digits."""
    called, parse = _NOTATIONS.get(row.meaning.show.kind, _DIGITS)
    length = row.width // 8
    said = f"{called} of {length} octets for {field}"

    def octets(text: str) -> bytes:
        try:
            found = parse(text)
        except ValueError:
            raise TextError from None
        if len(found) != length:
            raise TextError
        return found

    return parsed(node, said, octets)


def value_of(field: str, node: Node) -> Value:
    """The one value that a field is given."""
    value = _one(field, node)
    if isinstance(value, range):
        raise NodeError(node.mark, described(node), f"one value for {field}")
    return value
