"""Syntax tree of a display filter: tests of values, and the type of each value.

``str()`` of a tree is a filter text that parses to an equal tree.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

from rdmawire.units import EPOCH, SECOND, decimal_seconds
from rdmawire.wire.show import Kind as Notation
from rdmawire.wire.show import ipv4, ipv6


class ValueType(Enum):
    """Types of values in a filter; the text of each completes "it is ..." in messages."""

    NUMBER = "a number"
    FLAG = "a flag"
    MAC = "an Ethernet address"
    IPV4 = "an IPv4 address"
    IPV6 = "an IPv6 address"
    BYTES = "bytes"
    PROTOCOL = "a protocol"
    TEXT = "text"
    TIME = "a date"
    DURATION = "a time in seconds"
    PRESENCE = "either there or not"


ADDRESS_SIZES = {ValueType.MAC: 6, ValueType.IPV4: 4, ValueType.IPV6: 16}
"""Size of an address, in bytes."""
SLICEABLE = frozenset({ValueType.BYTES, ValueType.PROTOCOL, *ADDRESS_SIZES})
"""Types whose values are bytes, so that slices of them are possible."""
SEARCHABLE = frozenset({ValueType.BYTES, ValueType.PROTOCOL, ValueType.MAC, ValueType.TEXT})
"""Types on the left of ``contains``."""
MATCHABLE = frozenset({ValueType.BYTES, ValueType.PROTOCOL, ValueType.TEXT})
"""Types on the left of ``matches``."""
ADDABLE = frozenset({ValueType.NUMBER, ValueType.DURATION})
"""Types that ``+`` and ``-`` take."""
MASKABLE = frozenset({ValueType.NUMBER, *SLICEABLE})
"""Types that ``&`` takes."""

TYPES_BY_NOTATION = {
    Notation.DEC: ValueType.NUMBER,
    Notation.HEX: ValueType.NUMBER,
    Notation.BOOL: ValueType.FLAG,
    Notation.MAC: ValueType.MAC,
    Notation.IPV4: ValueType.IPV4,
    Notation.IPV6: ValueType.IPV6,
    Notation.BYTES: ValueType.BYTES,
    Notation.DIGITS: ValueType.BYTES,
    Notation.PRESENCE: ValueType.PRESENCE,
    Notation.TEXT: ValueType.TEXT,
}


class Prefix(NamedTuple):
    """A network prefix: an address whose bits after the first ``bits`` are zero."""

    address: bytes
    bits: int

    def mask(self, address: Any) -> bytes:
        """Return another address with the bits after the prefix set to zero."""
        host_bits = len(address) * 8 - self.bits
        number = int.from_bytes(address, "big") >> host_bits << host_bits
        return number.to_bytes(len(address), "big")


class Quantifier(Enum):
    """Whether one value of a field must pass a test, or each of its values."""

    ANY = "any"
    ALL = "all"


class CompareOp(Enum):
    """Comparison operators."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


@dataclass(frozen=True, slots=True)
class SliceRange:
    """A range of bytes in a slice, or of layers after ``#``.

    A negative ``start`` counts from the end. ``length`` is ``None`` for a range up to the end.
    """

    start: int
    length: int | None

    def __str__(self) -> str:
        length = "" if self.length is None else str(self.length)
        return f"{self.start}:{length}"


@dataclass(frozen=True, slots=True)
class FieldReference:
    """The values of a field or a protocol, in the given ``layers`` only if there are any."""

    name: str
    type: ValueType
    layers: tuple[SliceRange, ...] = ()

    def __str__(self) -> str:
        layers = f"#[{_joined_by_comma(self.layers)}]" if self.layers else ""
        return self.name + layers


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal, converted to the type that it is compared with."""

    type: ValueType
    value: Any

    def __str__(self) -> str:
        return _WRITERS[self.type](self.value)


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes of a value: those of each span, concatenated."""

    of: "Value"
    spans: tuple[SliceRange, ...]
    type: ValueType

    def __str__(self) -> str:
        return f"{self.of}[{_joined_by_comma(self.spans)}]"


@dataclass(frozen=True, slots=True)
class Call:
    """A function call."""

    function: str
    arguments: tuple["Value", ...]
    type: ValueType

    def __str__(self) -> str:
        return f"{self.function}({_joined_by_comma(self.arguments)})"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A binary operation on two values: ``+ - * / %`` or ``&``."""

    operator: str
    left: "Value"
    right: "Value"
    type: ValueType

    def __str__(self) -> str:
        return f"{{{self.left} {self.operator} {self.right}}}"


@dataclass(frozen=True, slots=True)
class Negative:
    """The negative of a number."""

    of: "Value"
    type: ValueType

    def __str__(self) -> str:
        return f"-{self.of}"


Value = FieldReference | Constant | Slice | Call | Arithmetic | Negative


@dataclass(frozen=True, slots=True)
class Present:
    """Test whether a field is present or, for arithmetic, whether a result is not zero."""

    of: Value

    def __str__(self) -> str:
        return str(self.of)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Test whether any pair of values, or each of at least one pair, compares like this."""

    compare: CompareOp
    left: Value
    right: Value
    quantifier: Quantifier = Quantifier.ANY

    def __str__(self) -> str:
        operator = _EQUALITIES.get((self.compare, self.quantifier), "")
        if operator:
            return f"{self.left} {operator} {self.right}"
        return _with_quantifier(self.quantifier, f"{self.left} {self.compare.value} {self.right}")


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The values from ``low`` to ``high``, inclusive."""

    low: FieldReference | Constant
    high: FieldReference | Constant

    def __str__(self) -> str:
        return f"{self.low} .. {self.high}"


Member = FieldReference | Constant | ValueRange


@dataclass(frozen=True, slots=True)
class Membership:
    """Test whether a value, or each value, is in a set."""

    of: Value
    members: tuple[Member, ...]
    quantifier: Quantifier = Quantifier.ANY

    def __str__(self) -> str:
        return _with_quantifier(
            self.quantifier, f"{self.of} in {{{_joined_by_comma(self.members)}}}"
        )


@dataclass(frozen=True, slots=True)
class Contains:
    """Test whether bytes or text contain other bytes or text."""

    of: Value
    part: Value
    quantifier: Quantifier = Quantifier.ANY

    def __str__(self) -> str:
        return _with_quantifier(self.quantifier, f"{self.of} contains {self.part}")


@dataclass(frozen=True, slots=True)
class Matches:
    """Test whether a regular expression is found in bytes or text."""

    of: Value
    pattern: bytes
    quantifier: Quantifier = Quantifier.ANY

    def __str__(self) -> str:
        return _with_quantifier(self.quantifier, f"{self.of} matches {quote(self.pattern)}")


@dataclass(frozen=True, slots=True)
class Not:
    """Negation of a test."""

    of: "Test"

    def __str__(self) -> str:
        return f"not {_parenthesized(self.of)}"


@dataclass(frozen=True, slots=True)
class Logic:
    """Tests of which all must pass (``and``), at least one (``or``), or an odd number (``xor``)."""

    operator: str
    tests: tuple["Test", ...]

    def __str__(self) -> str:
        return f" {self.operator} ".join(map(_parenthesized, self.tests))


Test = Present | Comparison | Membership | Contains | Matches | Not | Logic

_EQUALITIES = {
    (CompareOp.EQ, Quantifier.ANY): "==",
    (CompareOp.EQ, Quantifier.ALL): "===",
    (CompareOp.NE, Quantifier.ALL): "!=",
    (CompareOp.NE, Quantifier.ANY): "!==",
}


def nodes(test: Any) -> Iterator[Any]:
    """Yield all nodes of a tree, parents before their children."""
    stack = [test]
    while stack:
        node = stack.pop()
        yield node
        children = [getattr(node, field.name) for field in fields(node)]
        flat = [each for one in children for each in (one if isinstance(one, tuple) else (one,))]
        stack += [each for each in reversed(flat) if hasattr(each, "__dataclass_fields__")]


def field_names(test: Test) -> tuple[str, ...]:
    """Return the fields and protocols that a tree names, each once, in order of appearance."""
    return tuple(
        dict.fromkeys(node.name for node in nodes(test) if isinstance(node, FieldReference))
    )


def _joined_by_comma(parts: tuple[Any, ...]) -> str:
    return ", ".join(map(str, parts))


def _with_quantifier(quantifier: Quantifier, text: str) -> str:
    return f"all {text}" if quantifier is Quantifier.ALL else text


def _parenthesized(test: Test) -> str:
    return f"({test})" if isinstance(test, Logic) else str(test)


def quote(data: bytes) -> str:
    """Write bytes as a string literal, with escapes for all that is not printable ASCII."""
    return '"' + "".join(map(_escaped_byte, data)) + '"'


def _escaped_byte(byte: int) -> str:
    printable = 32 <= byte < 127 and byte not in b'"\\'
    return chr(byte) if printable else f"\\x{byte:02x}"


def _address(write: Callable[[bytes], str]) -> Callable[[bytes | Prefix], str]:
    def text(value: bytes | Prefix) -> str:
        if isinstance(value, Prefix):
            return f"{write(value.address)}/{value.bits}"
        return write(value)

    return text


def _hex(value: bytes) -> str:
    return value.hex(":") or '""'


def format_date(time_ns: int) -> str:
    """Write a time, in ns since the epoch, as a date literal in UTC."""
    whole, rest = divmod(time_ns, SECOND)
    moment = (EPOCH + timedelta(seconds=whole)).replace(tzinfo=None)
    return f"{moment.isoformat(' ')}.{rest:09d}Z"


_WRITERS: dict[ValueType, Callable[[Any], str]] = {
    ValueType.NUMBER: str,
    ValueType.FLAG: str,
    ValueType.MAC: _hex,
    ValueType.IPV4: _address(ipv4),
    ValueType.IPV6: _address(ipv6),
    ValueType.BYTES: _hex,
    ValueType.PROTOCOL: _hex,
    ValueType.TEXT: lambda value: quote(value.encode()),
    ValueType.TIME: lambda value: f'"{format_date(value)}"',
    ValueType.DURATION: decimal_seconds,
}
