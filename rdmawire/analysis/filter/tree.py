"""What a filter says, as a tree: tests over values, each of a known kind.

Printing a tree gives a filter that means the same and is read as the same tree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rdmawire.analysis.filter.kind import Kind, Prefix
from rdmawire.analysis.filter.moment import date_text
from rdmawire.analysis.frame import seconds
from rdmawire.wire.show import ipv4, ipv6


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
