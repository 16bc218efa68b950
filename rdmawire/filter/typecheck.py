"""What goes together in a filter: each part of a tree is made here, from parts that fit.

Where a literal meets a value, it takes that value's kind.
"""

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from rdmawire.filter.ast import (
    ADDED,
    MASKED,
    MATCHED,
    OCTETS,
    SEARCHED,
    Arithmetic,
    Call,
    Compare,
    Comparison,
    Constant,
    Contains,
    Field,
    Kind,
    Matches,
    Member,
    Membership,
    Negative,
    Present,
    Quantifier,
    Range,
    Slice,
    Span,
    Test,
    Value,
)
from rdmawire.filter.lexer import FilterError, Form, octets_of, shown
from rdmawire.filter.literals import Literal, integer
from rdmawire.filter.names import find, spelled, unknown, words
from rdmawire.filter.regex import PatternError, compile_pattern


class Operand(NamedTuple):
    """A value of the filter, or a literal whose kind is not known yet, and where it begins."""

    value: Value | Literal
    offset: int

    def __str__(self) -> str:
        return shown(str(self.value))


_NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)+")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_COMPARED = (OCTETS, frozenset({Kind.NUMBER}))


def _kind(operand: Operand) -> Kind:
    assert not isinstance(operand.value, Literal)
    return operand.value.kind


def known(operand: Operand) -> Value:
    """The operand, which may not be a literal."""
    if isinstance(operand.value, Literal):
        _refuse_literal(operand.value)
    return operand.value


def _refuse_literal(literal: Literal) -> NoReturn:
    if literal.token.form is Form.WORD and _WORD.fullmatch(literal.token.text):
        raise FilterError(unknown(literal.token.text), literal.token.offset)
    raise FilterError(f"a field is expected here, not {literal}", literal.token.offset)


def settled(operand: Operand, beside: Operand) -> Value:
    """The operand, as a value of the kind of the one beside it."""
    literal, other = operand.value, known(beside)
    if not isinstance(literal, Literal):
        _agree(operand, beside)
        return literal
    kind = Kind.OCTETS if other.kind is Kind.PROTOCOL else other.kind
    field = find(other.name) if isinstance(other, Field) else None
    try:
        if field is None:
            return Constant(kind, literal.value(kind))
        return Constant(kind, literal.value(kind, width=field.width, name=field.name))
    except FilterError:
        if _NAME.fullmatch(literal.token.text):
            _refuse_literal(literal)
        raise


def _agree(one: Operand, other: Operand) -> None:
    kinds = {_kind(one), _kind(other)}
    if Kind.PRESENCE in kinds:
        raise FilterError(f"{one} and {other} have no values to compare", one.offset)
    exact = len(kinds) == 1
    if not exact and not (kinds <= OCTETS and kinds & {Kind.OCTETS, Kind.PROTOCOL}):
        said = f"{one} is {_kind(one).value} and {other} is {_kind(other).value}"
        raise FilterError(f"{said}; they do not compare", one.offset)


def _both(left: Operand, right: Operand) -> tuple[Value, Value]:
    """Both sides, a literal on either taking the kind of the other."""
    if isinstance(left.value, Literal) and not isinstance(right.value, Literal):
        return settled(left, right), right.value
    return known(left), settled(right, left)


def presence(operand: Operand) -> Present:
    """Whether a field is there, or arithmetic not zero."""
    value = known(operand)
    if isinstance(value, Call):
        raise FilterError(f"compare {value.function}(...) with something", operand.offset)
    return Present(value)


def comparison(
    compare: Compare, left: Operand, right: Operand, quantifier: Quantifier
) -> Comparison:
    """A comparison of values of one kind; a constant comes to stand on the right."""
    one, other = _both(left, right)
    if isinstance(one, Constant):
        one, other, compare = other, one, _MIRRORED.get(compare, compare)
    return Comparison(compare, one, other, quantifier)


_MIRRORED = {
    Compare.LT: Compare.GT,
    Compare.LE: Compare.GE,
    Compare.GT: Compare.LT,
    Compare.GE: Compare.LE,
}


def _member(operand: Operand, of: Operand) -> Field | Constant:
    value = settled(operand, of)
    if isinstance(value, Field | Constant):
        return value
    raise FilterError("a set holds values and fields", operand.offset)


def membership(
    of: Operand, members: list[tuple[Operand, Operand | None]], quantifier: Quantifier
) -> Membership:
    """A value in a set of values and ranges."""
    known(of)
    found: list[Member] = []
    for low, high in members:
        first = _member(low, of)
        found.append(first if high is None else Range(first, _member(high, of)))
    return Membership(known(of), tuple(found), quantifier)


def contains(of: Operand, part: Operand, quantifier: Quantifier) -> Contains:
    """Octets in octets, or text in text."""
    if known(of).kind not in SEARCHED:
        _refuse(of, "contains", "octets and text")
    if isinstance(part.value, Literal):
        kind = Kind.TEXT if _kind(of) is Kind.TEXT else Kind.OCTETS
        return Contains(known(of), Constant(kind, part.value.value(kind)), quantifier)
    _agree(of, part)
    return Contains(known(of), part.value, quantifier)


def _refuse(operand: Operand, what: str, kinds: str) -> NoReturn:
    said = f"{what} is for {kinds}; {operand} is {_kind(operand).value}"
    hint = _instead(operand.value) if kinds.endswith("text") else ""
    raise FilterError(said + hint, operand.offset)


def _instead(value: Value | Literal) -> str:
    """What to write where text is looked into; text that is written of a number has no words."""
    if isinstance(value, Field) and words(value.name):
        return f"; compare it with a word, as {next(spelled(value.name))[0]}"
    return "; say string(...)"


def matches(of: Operand, pattern: Operand, quantifier: Quantifier) -> Test:
    """A regular expression in octets or text."""
    if known(of).kind not in MATCHED:
        _refuse(of, "matches", "octets and text")
    literal = pattern.value
    if not isinstance(literal, Literal) or literal.token.form not in (Form.TEXT, Form.RAW):
        raise FilterError('a regular expression stands in "..." or r"..."', pattern.offset)
    octets = octets_of(literal.token)
    try:
        compile_pattern(octets)
    except PatternError as error:
        raise FilterError(str(error), pattern.offset) from None
    return Matches(known(of), octets, quantifier)


def sliced(of: Operand, spans: tuple[Span, ...]) -> Operand:
    """Octets of a value; of text, letters."""
    kind = known(of).kind
    if kind not in OCTETS and kind is not Kind.TEXT:
        _refuse(of, "a slice", "octets, addresses and text")
    result = Kind.TEXT if kind is Kind.TEXT else Kind.OCTETS
    return Operand(Slice(known(of), spans, result), of.offset)


def arithmetic(operator: str, left: Operand, right: Operand) -> Operand:
    """A sum, product or mask; of plain numbers, what it comes to."""
    one, other = left.value, right.value
    if isinstance(one, Literal) and isinstance(other, Literal):
        return Operand(_worked_out(operator, one, other), left.offset)
    first, second = _both(left, right)
    for operand, value in ((left, first), (right, second)):
        if value.kind not in _OPERANDS[operator]:
            raise FilterError(
                f"{operand} is {value.kind.value}, {operator} is not for it", operand.offset
            )
    kind = first.kind if first.kind is not Kind.PROTOCOL else Kind.OCTETS
    return Operand(Arithmetic(operator, first, second, kind), left.offset)


_NUMBERS = frozenset({Kind.NUMBER})
_OPERANDS = {"+": ADDED, "-": ADDED, "*": _NUMBERS, "/": _NUMBERS, "%": _NUMBERS, "&": MASKED}
WORKED_OUT: dict[str, Callable[[int, int], int]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": lambda one, other: one // other,
    "%": lambda one, other: one % other,
    "&": lambda one, other: one & other,
}
"""What each operator does to two numbers."""


def _worked_out(operator: str, one: Literal, other: Literal) -> Literal:
    try:
        first, second = (
            (-1 if literal.sign == "-" else 1) * integer(literal.token.text)
            for literal in (one, other)
        )
        result = WORKED_OUT[operator](first, second)
    except ValueError:
        raise FilterError(f"{operator} needs a field or whole numbers", one.token.offset) from None
    except ZeroDivisionError:
        raise FilterError("a division by zero", other.token.offset) from None
    token = one.token._replace(form=Form.WORD, text=str(abs(result)))
    return Literal(token, "-" if result < 0 else "")


def negative(operand: Operand, sign: str, offset: int) -> Operand:
    """The operand with a sign before it."""
    value = operand.value
    if isinstance(value, Literal):
        turned = "-" if (value.sign == "-") != (sign == "-") else ""
        return Operand(Literal(value.token, turned), offset)
    if value.kind not in ADDED:
        raise FilterError(f"{operand} is {value.kind.value}; it has no sign", operand.offset)
    return operand if sign == "+" else Operand(Negative(value, value.kind), offset)


def _first(operands: list[Operand]) -> Operand:
    """The first operand that is no literal: the others are of its kind."""
    found = (each for each in operands if not isinstance(each.value, Literal))
    return next(found, operands[0])


class _Function(NamedTuple):
    """What a function takes, and what it gives; ``None`` for what it takes."""

    takes: frozenset[Kind]
    gives: Kind | None
    most: int = 1


_ALL = frozenset(Kind)
_TEXT = frozenset({Kind.TEXT})
FUNCTIONS = {
    "upper": _Function(_TEXT, Kind.TEXT),
    "lower": _Function(_TEXT, Kind.TEXT),
    "len": _Function(OCTETS | {Kind.TEXT, Kind.NUMBER}, Kind.NUMBER),
    "count": _Function(_ALL, Kind.NUMBER),
    "string": _Function(frozenset({Kind.NUMBER, Kind.MAC, Kind.IPV4, Kind.IPV6}), Kind.TEXT),
    "max": _Function(_ALL - {Kind.PRESENCE, Kind.PROTOCOL}, None, 100),
    "min": _Function(_ALL - {Kind.PRESENCE, Kind.PROTOCOL}, None, 100),
    "abs": _Function(ADDED, None),
}
"""The functions of filters."""


def call(name: str, offset: int, arguments: list[Operand]) -> Operand:
    """A function of values that it takes."""
    function = FUNCTIONS.get(name)
    if function is None:
        raise FilterError(
            f"no function is named '{shown(name)}'; there are {', '.join(FUNCTIONS)}", offset
        )
    if not 1 <= len(arguments) <= function.most:
        most = "one value" if function.most == 1 else f"1 to {function.most} values"
        raise FilterError(f"{shown(name)}() takes {most}, not {len(arguments)}", offset)
    first = _first(arguments)
    values = tuple(known(each) if each is first else settled(each, first) for each in arguments)
    if values[0].kind not in function.takes or (
        name == "count" and not isinstance(values[0], Field)
    ):
        raise FilterError(
            f"{name}() is not for {first}, which is {_kind(first).value}", first.offset
        )
    return Operand(Call(name, values, function.gives or values[0].kind), offset)
