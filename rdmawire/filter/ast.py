"""What a filter says, as a tree: tests over values, each of a known kind.

Printing a tree gives a filter that means the same and is read as the same tree.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

from rdmawire.dissect.fields import seconds
from rdmawire.units import EPOCH, SECOND
from rdmawire.wire.show import Kind as Notation
from rdmawire.wire.show import ipv4, ipv6


class Kind(Enum):
    """The kinds of values; each says in words what it is."""

    NUMBER = "a number"
    FLAG = "a flag"
    MAC = "an Ethernet address"
    IPV4 = "an IPv4 address"
    IPV6 = "an IPv6 address"
    OCTETS = "octets"
    PROTOCOL = "a protocol"
    TEXT = "text"
    TIME = "a date"
    DURATION = "a time in seconds"
    PRESENCE = "either there or not"


SIZES = {Kind.MAC: 6, Kind.IPV4: 4, Kind.IPV6: 16}
"""Octets of the kinds that always have as many."""
OCTETS = frozenset({Kind.OCTETS, Kind.PROTOCOL, *SIZES})
"""Kinds whose values are octets: they can be sliced."""
SEARCHED = frozenset({Kind.OCTETS, Kind.PROTOCOL, Kind.MAC, Kind.TEXT})
"""Kinds that `contains` looks into."""
MATCHED = frozenset({Kind.OCTETS, Kind.PROTOCOL, Kind.TEXT})
"""Kinds that `matches` looks into."""
ADDED = frozenset({Kind.NUMBER, Kind.DURATION})
"""Kinds that can be added."""
MASKED = frozenset({Kind.NUMBER, *OCTETS})
"""Kinds that `&` goes with."""

BY_NOTATION = {
    Notation.DEC: Kind.NUMBER,
    Notation.HEX: Kind.NUMBER,
    Notation.BOOL: Kind.FLAG,
    Notation.MAC: Kind.MAC,
    Notation.IPV4: Kind.IPV4,
    Notation.IPV6: Kind.IPV6,
    Notation.OCTETS: Kind.OCTETS,
    Notation.DIGITS: Kind.OCTETS,
    Notation.PRESENCE: Kind.PRESENCE,
    Notation.TEXT: Kind.TEXT,
}


class Prefix(NamedTuple):
    """An address of which only the first ``bits`` count; the others are zero."""

    octets: bytes
    bits: int

    def cut(self, address: Any) -> bytes:
        """Another address with the bits behind the prefix set to zero."""
        behind = len(address) * 8 - self.bits
        number = int.from_bytes(address, "big") >> behind << behind
        return number.to_bytes(len(address), "big")


class Quantifier(Enum):
    """How many of a field's values a test asks for."""

    ANY = "any"
    ALL = "all"


class Compare(Enum):
    """The comparisons."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


@dataclass(frozen=True, slots=True)
class Span:
    """Some octets of a value, or some layers of a protocol.

    ``start`` may count from the end, as -1; no ``length`` is as many as there are.
    """

    start: int
    length: int | None

    def __str__(self) -> str:
        length = "" if self.length is None else str(self.length)
        return f"{self.start}:{length}"


@dataclass(frozen=True, slots=True)
class Field:
    """The values of a field, or of a protocol; ``layers`` are the occurrences that count."""

    name: str
    kind: Kind
    layers: tuple[Span, ...] = ()

    def __str__(self) -> str:
        layers = f"#[{_listed(self.layers)}]" if self.layers else ""
        return self.name + layers


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that the filter states."""

    kind: Kind
    value: Any

    def __str__(self) -> str:
        return _WRITERS[self.kind](self.value)


@dataclass(frozen=True, slots=True)
class Slice:
    """Octets of a value, those of each span behind one another."""

    of: "Value"
    spans: tuple[Span, ...]
    kind: Kind

    def __str__(self) -> str:
        return f"{self.of}[{_listed(self.spans)}]"


@dataclass(frozen=True, slots=True)
class Call:
    """A function of values."""

    function: str
    arguments: tuple["Value", ...]
    kind: Kind

    def __str__(self) -> str:
        return f"{self.function}({_listed(self.arguments)})"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two values put together: ``+ - * / %`` or ``&``."""

    operator: str
    left: "Value"
    right: "Value"
    kind: Kind

    def __str__(self) -> str:
        return f"{{{self.left} {self.operator} {self.right}}}"


@dataclass(frozen=True, slots=True)
class Negative:
    """A number with its sign turned."""

    of: "Value"
    kind: Kind

    def __str__(self) -> str:
        return f"-{self.of}"


Value = Field | Constant | Slice | Call | Arithmetic | Negative


@dataclass(frozen=True, slots=True)
class Present:
    """Whether a field is there; of arithmetic, whether it is not zero."""

    of: Value

    def __str__(self) -> str:
        return str(self.of)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether any pair of values, or every pair of at least one, compares like this."""

    compare: Compare
    left: Value
    right: Value
    quantifier: Quantifier = Quantifier.ANY

    def __str__(self) -> str:
        operator = _EQUALITIES.get((self.compare, self.quantifier), "")
        if operator:
            return f"{self.left} {operator} {self.right}"
        return _every(self.quantifier, f"{self.left} {self.compare.value} {self.right}")


@dataclass(frozen=True, slots=True)
class Range:
    """Values from ``low`` to ``high``, both included."""

    low: Field | Constant
    high: Field | Constant

    def __str__(self) -> str:
        return f"{self.low} .. {self.high}"


Member = Field | Constant | Range


@dataclass(frozen=True, slots=True)
class Membership:
    """Whether a value is, or all are, one of the members."""

    of: Value
    members: tuple[Member, ...]
    quantifier: Quantifier = Quantifier.ANY

    def __str__(self) -> str:
        return _every(self.quantifier, f"{self.of} in {{{_listed(self.members)}}}")


@dataclass(frozen=True, slots=True)
class Contains:
    """Whether octets or text have others in them."""

    of: Value
    part: Value
    quantifier: Quantifier = Quantifier.ANY

    def __str__(self) -> str:
        return _every(self.quantifier, f"{self.of} contains {self.part}")


@dataclass(frozen=True, slots=True)
class Matches:
    """Whether a regular expression is found in octets or text."""

    of: Value
    pattern: bytes
    quantifier: Quantifier = Quantifier.ANY

    def __str__(self) -> str:
        return _every(self.quantifier, f"{self.of} matches {quoted(self.pattern)}")


@dataclass(frozen=True, slots=True)
class Not:
    """What does not hold."""

    of: "Test"

    def __str__(self) -> str:
        return f"not {_grouped(self.of)}"


@dataclass(frozen=True, slots=True)
class And:
    """Tests that all hold."""

    tests: tuple["Test", ...]

    def __str__(self) -> str:
        return " and ".join(map(_grouped, self.tests))


@dataclass(frozen=True, slots=True)
class Xor:
    """Tests of which an odd number holds."""

    tests: tuple["Test", ...]

    def __str__(self) -> str:
        return " xor ".join(map(_grouped, self.tests))


@dataclass(frozen=True, slots=True)
class Or:
    """Tests of which at least one holds."""

    tests: tuple["Test", ...]

    def __str__(self) -> str:
        return " or ".join(map(_grouped, self.tests))


Test = Present | Comparison | Membership | Contains | Matches | Not | And | Xor | Or

_EQUALITIES = {
    (Compare.EQ, Quantifier.ANY): "==",
    (Compare.EQ, Quantifier.ALL): "===",
    (Compare.NE, Quantifier.ALL): "!=",
    (Compare.NE, Quantifier.ANY): "!==",
}


def parts(test: Any) -> Iterator[Any]:
    """A tree's nodes, each before what is below it."""
    waiting = [test]
    while waiting:
        part = waiting.pop()
        yield part
        below = [getattr(part, field.name) for field in fields(part)]
        flat = [each for one in below for each in (one if isinstance(one, tuple) else (one,))]
        waiting += [each for each in reversed(flat) if hasattr(each, "__dataclass_fields__")]


def field_names(test: Test) -> tuple[str, ...]:
    """The fields and protocols in a tree, each once, in their order."""
    return tuple(dict.fromkeys(part.name for part in parts(test) if isinstance(part, Field)))


def _listed(parts: tuple[Any, ...]) -> str:
    return ", ".join(map(str, parts))


def _every(quantifier: Quantifier, text: str) -> str:
    return f"all {text}" if quantifier is Quantifier.ALL else text


def _grouped(test: Test) -> str:
    return f"({test})" if isinstance(test, And | Or | Xor) else str(test)


def quoted(octets: bytes) -> str:
    """Octets between quotes, with escapes for all but plain letters and marks."""
    return '"' + "".join(map(_letter, octets)) + '"'


def _letter(octet: int) -> str:
    plain = 32 <= octet < 127 and octet not in b'"\\'
    return chr(octet) if plain else f"\\x{octet:02x}"


def _address(write: Callable[[bytes], str]) -> Callable[[bytes | Prefix], str]:
    def text(value: bytes | Prefix) -> str:
        if isinstance(value, Prefix):
            return f"{write(value.octets)}/{value.bits}"
        return write(value)

    return text


def _hex(value: bytes) -> str:
    return value.hex(":") or '""'


def date_text(time_ns: int) -> str:
    """A date as filters write it, in UTC."""
    whole, rest = divmod(time_ns, SECOND)
    moment = (EPOCH + timedelta(seconds=whole)).replace(tzinfo=None)
    return f"{moment.isoformat(' ')}.{rest:09d}Z"


_WRITERS: dict[Kind, Callable[[Any], str]] = {
    Kind.NUMBER: str,
    Kind.FLAG: str,
    Kind.MAC: _hex,
    Kind.IPV4: _address(ipv4),
    Kind.IPV6: _address(ipv6),
    Kind.OCTETS: _hex,
    Kind.PROTOCOL: _hex,
    Kind.TEXT: lambda value: quoted(value.encode()),
    Kind.TIME: lambda value: f'"{date_text(value)}"',
    Kind.DURATION: seconds,
}
