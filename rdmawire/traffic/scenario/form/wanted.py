"""Fields of frames by the names of the wire's tables, and the values that are wanted of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from rdmawire.fabric.field import names, row_of
from rdmawire.fabric.refusal import FabricError
from rdmawire.nic.address import mapped
from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.kind import Definitions, Json, pairs_of, parsed
from rdmawire.traffic.scenario.form.mistake import Misread, Unfit, listed
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.source import Items, Node, Scalar, described
from rdmawire.wire.address import mac_octets
from rdmawire.wire.header import Row
from rdmawire.wire.show import Kind as Notation

_BITS_OF_FRAME: Final = 64
"""Of ``frame.number`` and ``frame.length``."""

Value = int | bytes
Wanted = Value | range | tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class FieldName:
    """The name of a field."""

    said: str = "a field of the wire's tables, such as bth.psn"
    samples: tuple[str, ...] = ("bth.psn", "aeth.value", "frame.number")

    def read(self, node: Node, reading: Reading) -> str:  # noqa: ARG002 - a kind
        return parsed(node, self.said, _name)

    def json(self, known: Definitions) -> Json:
        known["field"] = {"enum": [*names()]}
        return {"$ref": "#/$defs/field"}


FIELD: Final = FieldName()


def _name(text: str) -> str:
    try:
        row_of(text)
    except FabricError:
        label = text.partition(".")[0]
        fields = [name for name in names() if name.startswith(f"{label}.")]
        expected = f"a field of {label}: {listed(fields)}" if fields else ""
        raise Unfit(expected, word=text, known=fields or list(names())) from None
    return text


@dataclass(frozen=True, slots=True)
class Where:
    """Fields, and what each must be: a number, a word of its table, a range, or a list of them."""

    said: str = "fields with values, such as {bth.psn: 100..200}"
    samples: tuple[str, ...] = (
        "{bth.psn: 100..200, bth.opcode: [RC_ACKNOWLEDGE, CNP]}",
        "{ip.src: 10.0.0.1, frame.number: 1..}",
    )

    def read(self, node: Node, reading: Reading) -> Mapping[str, Wanted]:
        pairs = pairs_of(node, self.said)
        return dict(reading.every(partial(self._read, *pair, reading) for pair in pairs))

    def _read(self, key: Scalar, node: Node, reading: Reading) -> tuple[str, Wanted]:
        name = FIELD.read(key, reading)
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
    row = row_of(field)
    if row is not None and row.octets:
        return octets_of(row, node)
    width = _BITS_OF_FRAME if row is None else row.width
    words = {} if row is None else _words(row)
    named = f", or one of {listed(list(words)[:4])}{' ...' if len(words) > 4 else ''}"
    said = f"a value or a range of {width} bits for {field}{named if words else ''}"
    return parsed(node, said, partial(_number, width=width, words=words))


def _number(text: str, width: int, words: Mapping[str, int]) -> int | range:
    if text in words:
        return words[text]
    try:
        least, most = units.between(text, units.number)
    except Unfit as error:
        raise Unfit(error.expected, word=text, known=list(words)) from None
    if least < 0 or max(least, most or 0) >> width:
        raise Unfit
    if most is not None and least == most:
        return least
    return range(least, (1 << width) if most is None else most + 1)


def _words(row: Row) -> dict[str, int]:
    """What the numbers of a row are called, in all of its meanings."""
    enums = (meaning.enum for meaning in row.meanings() if meaning.enum is not None)
    words = {str(one.name): int(one.value) for enum in enums for one in enum}
    return words or ({"false": 0, "true": 1} if row.width == 1 else {})


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


def octets_of(row: Row, node: Node) -> bytes:
    """Octets as the field is written usually, or as hexadecimal digits."""
    called, parse = _NOTATIONS.get(row.meaning.show.kind, _DIGITS)
    length = row.width // 8
    said = f"{called} of {length} octets for {row.name}"

    def octets(text: str) -> bytes:
        try:
            found = parse(text)
        except ValueError:
            raise Unfit from None
        if len(found) != length:
            raise Unfit
        return found

    return parsed(node, said, octets)


def value_of(field: str, node: Node) -> Value:
    """The one value that a field is given."""
    value = _one(field, node)
    if isinstance(value, range):
        raise Misread(node.mark, described(node), f"one value for {field}")
    return value
