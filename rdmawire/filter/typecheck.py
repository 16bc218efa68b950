"""Type checks of display filters: each function makes a node of the syntax tree or refuses it.

A literal takes the type of the value that it is compared with.
"""

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from rdmawire.filter.ast import (
    ADDABLE,
    MASKABLE,
    MATCHABLE,
    SEARCHABLE,
    SLICEABLE,
    Arithmetic,
    Call,
    CompareOp,
    Comparison,
    Constant,
    Contains,
    FieldReference,
    Matches,
    Member,
    Membership,
    Negative,
    Present,
    Quantifier,
    Slice,
    SliceRange,
    Test,
    Value,
    ValueRange,
    ValueType,
)
from rdmawire.filter.lexer import FilterError, TokenType, excerpt, unquote
from rdmawire.filter.literals import Literal, parse_integer
from rdmawire.filter.names import find_field, spelled_words, unknown_field, value_words
from rdmawire.filter.regex import PatternError, compile_pattern


class Operand(NamedTuple):
    """A value, or a literal whose type is not known yet, and its offset in the filter."""

    value: Value | Literal
    offset: int

    def __str__(self) -> str:
        return excerpt(str(self.value))


_NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)+")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")


def _type(operand: Operand) -> ValueType:
    assert not isinstance(operand.value, Literal)
    return operand.value.type


def require_typed(operand: Operand) -> Value:
    """Return the value of an operand that must not be a literal."""
    if isinstance(operand.value, Literal):
        _refuse_literal(operand.value)
    return operand.value


def _refuse_literal(literal: Literal) -> NoReturn:
    if literal.token.type is TokenType.WORD and _WORD.fullmatch(literal.token.text):
        raise FilterError(unknown_field(literal.token.text), literal.token.offset)
    raise FilterError(f"a field is expected here, not {literal}", literal.token.offset)


def typed_like(operand: Operand, other_operand: Operand) -> Value:
    """Return the value of an operand, a literal converted to the type of the other operand."""
    literal, other = operand.value, require_typed(other_operand)
    if not isinstance(literal, Literal):
        _check_comparable(operand, other_operand)
        return literal
    value_type = ValueType.BYTES if other.type is ValueType.PROTOCOL else other.type
    field = find_field(other.name) if isinstance(other, FieldReference) else None
    try:
        if field is None:
            return Constant(value_type, literal.convert(value_type))
        return Constant(value_type, literal.convert(value_type, width=field.width, name=field.name))
    except FilterError:
        if _NAME.fullmatch(literal.token.text):
            _refuse_literal(literal)
        raise


def _check_comparable(one: Operand, other: Operand) -> None:
    types = {_type(one), _type(other)}
    if ValueType.PRESENCE in types:
        raise FilterError(f"{one} and {other} have no values to compare", one.offset)
    exact = len(types) == 1
    if not exact and not (types <= SLICEABLE and types & {ValueType.BYTES, ValueType.PROTOCOL}):
        said = f"{one} is {_type(one).value} and {other} is {_type(other).value}"
        raise FilterError(f"{said}; they cannot be compared", one.offset)


def _typed_pair(left: Operand, right: Operand) -> tuple[Value, Value]:
    """Return both values; a literal on one side takes the type of the other side."""
    if isinstance(left.value, Literal) and not isinstance(right.value, Literal):
        return typed_like(left, right), right.value
    return require_typed(left), typed_like(right, left)


def presence(operand: Operand) -> Present:
    """Make a test whether a field is present, or arithmetic is not zero."""
    value = require_typed(operand)
    if isinstance(value, Call):
        raise FilterError(f"compare {value.function}(...) with something", operand.offset)
    return Present(value)


def comparison(
    compare: CompareOp, left: Operand, right: Operand, quantifier: Quantifier
) -> Comparison:
    """Make a comparison of two values of one type; a constant goes to the right side."""
    one, other = _typed_pair(left, right)
    if isinstance(one, Constant):
        one, other, compare = other, one, _MIRRORED.get(compare, compare)
    return Comparison(compare, one, other, quantifier)


_MIRRORED = {
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}


def _member(operand: Operand, of: Operand) -> FieldReference | Constant:
    value = typed_like(operand, of)
    if isinstance(value, FieldReference | Constant):
        return value
    raise FilterError("a set holds values and fields", operand.offset)


def membership(
    of: Operand, members: list[tuple[Operand, Operand | None]], quantifier: Quantifier
) -> Membership:
    """Make a test whether a value is in a set of values and ranges."""
    require_typed(of)
    found: list[Member] = []
    for low, high in members:
        first = _member(low, of)
        found.append(first if high is None else ValueRange(first, _member(high, of)))
    return Membership(require_typed(of), tuple(found), quantifier)


def contains(of: Operand, part: Operand, quantifier: Quantifier) -> Contains:
    """Make a test whether bytes contain bytes, or text contains text."""
    if require_typed(of).type not in SEARCHABLE:
        _refuse(of, "contains", "bytes and text")
    if isinstance(part.value, Literal):
        value_type = ValueType.TEXT if _type(of) is ValueType.TEXT else ValueType.BYTES
        return Contains(
            require_typed(of), Constant(value_type, part.value.convert(value_type)), quantifier
        )
    _check_comparable(of, part)
    return Contains(require_typed(of), part.value, quantifier)


def _refuse(operand: Operand, what: str, types: str) -> NoReturn:
    said = f"{what} is for {types}; {operand} is {_type(operand).value}"
    hint = _suggestion(operand.value) if types.endswith("text") else ""
    raise FilterError(said + hint, operand.offset)


def _suggestion(value: Value | Literal) -> str:
    """Say what to write instead: a word of the field if it has words, else ``string(...)``."""
    if isinstance(value, FieldReference) and value_words(value.name):
        return f"; compare it with a word, as {next(spelled_words(value.name))[0]}"
    return "; write string(...)"


def matches(of: Operand, pattern: Operand, quantifier: Quantifier) -> Test:
    """Make a test whether a regular expression is found in bytes or text."""
    if require_typed(of).type not in MATCHABLE:
        _refuse(of, "matches", "bytes and text")
    literal = pattern.value
    if not isinstance(literal, Literal) or literal.token.type not in (
        TokenType.TEXT,
        TokenType.RAW,
    ):
        raise FilterError('a regular expression is written in "..." or r"..."', pattern.offset)
    text = unquote(literal.token)
    try:
        compile_pattern(text)
    except PatternError as error:
        raise FilterError(str(error), pattern.offset) from None
    return Matches(require_typed(of), text, quantifier)


def sliced(of: Operand, spans: tuple[SliceRange, ...]) -> Operand:
    """Make a slice: bytes of a value, or characters of text."""
    value_type = require_typed(of).type
    if value_type not in SLICEABLE and value_type is not ValueType.TEXT:
        _refuse(of, "a slice", "bytes, addresses and text")
    result = ValueType.TEXT if value_type is ValueType.TEXT else ValueType.BYTES
    return Operand(Slice(require_typed(of), spans, result), of.offset)


def arithmetic(operator: str, left: Operand, right: Operand) -> Operand:
    """Make a binary operation; of two literals, compute the result."""
    one, other = left.value, right.value
    if isinstance(one, Literal) and isinstance(other, Literal):
        return Operand(_fold(operator, one, other), left.offset)
    first, second = _typed_pair(left, right)
    for operand, value in ((left, first), (right, second)):
        if value.type not in _OPERANDS[operator]:
            raise FilterError(
                f"{operand} is {value.type.value}, {operator} does not take it", operand.offset
            )
    value_type = first.type if first.type is not ValueType.PROTOCOL else ValueType.BYTES
    return Operand(Arithmetic(operator, first, second, value_type), left.offset)


_NUMBERS = frozenset({ValueType.NUMBER})
_OPERANDS = {"+": ADDABLE, "-": ADDABLE, "*": _NUMBERS, "/": _NUMBERS, "%": _NUMBERS, "&": MASKABLE}
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": lambda one, other: one // other,
    "%": lambda one, other: one % other,
    "&": lambda one, other: one & other,
}
"""The arithmetic operators."""


def _fold(operator: str, one: Literal, other: Literal) -> Literal:
    try:
        first, second = (
            (-1 if literal.sign == "-" else 1) * parse_integer(literal.token.text)
            for literal in (one, other)
        )
        result = OPERATIONS[operator](first, second)
    except ValueError:
        raise FilterError(f"{operator} needs a field or integers", one.token.offset) from None
    except ZeroDivisionError:
        raise FilterError("division by zero", other.token.offset) from None
    token = one.token._replace(type=TokenType.WORD, text=str(abs(result)))
    return Literal(token, "-" if result < 0 else "")


def negative(operand: Operand, sign: str, offset: int) -> Operand:
    """Apply a sign to an operand."""
    value = operand.value
    if isinstance(value, Literal):
        turned = "-" if (value.sign == "-") != (sign == "-") else ""
        return Operand(Literal(value.token, turned), offset)
    if value.type not in ADDABLE:
        raise FilterError(f"{operand} is {value.type.value}; it has no sign", operand.offset)
    return operand if sign == "+" else Operand(Negative(value, value.type), offset)


def _first(operands: list[Operand]) -> Operand:
    """Return the first operand that is not a literal: the others take its type."""
    found = (each for each in operands if not isinstance(each.value, Literal))
    return next(found, operands[0])


class _Function(NamedTuple):
    """Types that a function accepts, and the type that it returns: ``None`` for the same."""

    accepts: frozenset[ValueType]
    returns: ValueType | None
    max_arguments: int = 1


_ALL = frozenset(ValueType)
_TEXT = frozenset({ValueType.TEXT})
FUNCTIONS = {
    "upper": _Function(_TEXT, ValueType.TEXT),
    "lower": _Function(_TEXT, ValueType.TEXT),
    "len": _Function(SLICEABLE | {ValueType.TEXT, ValueType.NUMBER}, ValueType.NUMBER),
    "count": _Function(_ALL, ValueType.NUMBER),
    "string": _Function(
        frozenset({ValueType.NUMBER, ValueType.MAC, ValueType.IPV4, ValueType.IPV6}), ValueType.TEXT
    ),
    "max": _Function(_ALL - {ValueType.PRESENCE, ValueType.PROTOCOL}, None, 100),
    "min": _Function(_ALL - {ValueType.PRESENCE, ValueType.PROTOCOL}, None, 100),
    "abs": _Function(ADDABLE, None),
}
"""Functions by their names."""


def call(name: str, offset: int, arguments: list[Operand]) -> Operand:
    """Make a function call; raises :class:`FilterError` for arguments that do not fit."""
    function = FUNCTIONS.get(name)
    if function is None:
        raise FilterError(
            f"no function is named '{excerpt(name)}'; there are {', '.join(FUNCTIONS)}", offset
        )
    if not 1 <= len(arguments) <= function.max_arguments:
        most = (
            "one value" if function.max_arguments == 1 else f"1 to {function.max_arguments} values"
        )
        raise FilterError(f"{excerpt(name)}() takes {most}, not {len(arguments)}", offset)
    first = _first(arguments)
    values = tuple(
        require_typed(each) if each is first else typed_like(each, first) for each in arguments
    )
    if values[0].type not in function.accepts or (
        name == "count" and not isinstance(values[0], FieldReference)
    ):
        raise FilterError(
            f"{name}() is not for {first}, which is {_type(first).value}", first.offset
        )
    return Operand(Call(name, values, function.returns or values[0].type), offset)
