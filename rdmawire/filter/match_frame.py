"""Evaluation of a display filter on one dissected frame: the tree is compiled to closures."""

import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, product
from typing import Any, TypeGuard, cast

from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.generated import TCP_LENGTH
from rdmawire.dissect.node import Node
from rdmawire.filter.ast import (
    Arithmetic,
    Call,
    CompareOp,
    Comparison,
    Constant,
    Contains,
    FieldReference,
    Logic,
    Matches,
    Member,
    Membership,
    Negative,
    Not,
    Prefix,
    Present,
    Quantifier,
    Slice,
    SliceRange,
    Test,
    Value,
    ValueRange,
    ValueType,
)
from rdmawire.filter.names import FilterField, lookup
from rdmawire.filter.regex import compile_pattern
from rdmawire.filter.typecheck import OPERATIONS
from rdmawire.wire.inet import TCP
from rdmawire.wire.show import ipv4, ipv6, mac

ValueReader = Callable[[Dissection], list[Any]]
"""A function that returns the values of a part of a filter in a frame; a list, maybe empty."""

MAX_RESULTS = 10_000
"""Results of arithmetic that are kept where a frame has many values of both operands."""


def compile_value(value: Value) -> ValueReader:
    """Return a function that gives the values of this part of a filter in a frame."""
    return _VALUE_COMPILERS[type(value)](value)


def _constant(constant: Constant) -> ValueReader:
    found = [constant.value]
    return lambda _: found


def _field(field: FieldReference) -> ValueReader:
    known = lookup(field)
    if field.layers:
        return _in_layers(known, field.layers)
    if known.frame is not None:
        return known.frame
    if known.starts:
        return lambda frame: [data for _, data in _protocol_layers(frame, known)]
    return _of_nodes(known) if known.generated else _of_headers(known)


def _of_nodes(field: FilterField) -> ValueReader:
    of_node = _of_node(field)

    def values(frame: Dissection) -> list[Any]:
        found: list[Any] = []
        for node in frame.nodes:
            found += of_node(node)
        return found

    return values


def _of_headers(field: FilterField) -> ValueReader:
    tables = field.tables

    def values(frame: Dissection) -> list[Any]:
        found: list[Any] = []
        for node in frame.nodes:
            read = tables.get(type(node.header))  # type: ignore[arg-type]
            if read is not None:
                found += read(node)
        return found

    return values


def _of_node(wanted: FilterField) -> Callable[[Node], list[Any]]:
    tables, generated = wanted.tables, wanted.generated

    def values(node: Node) -> list[Any]:
        read = tables.get(type(node.header))  # type: ignore[arg-type]
        found = list(read(node)) if read is not None else []
        if node.extras:
            found += [value for field, value in node.extras if field in generated]
        return found

    return values


def _protocol_layers(frame: Dissection, field: FilterField) -> list[tuple[int, bytes]]:
    """Return the number of each layer of a protocol, from 1, and its bytes."""
    layers: list[list[bytes]] = []
    for node in frame.nodes:
        if layers and node.name in field.continues:
            layers[-1].append(node.data)
        elif node.name in field.starts:
            layers.append([_first_bytes(frame, node)])
    return [(number, b"".join(parts)) for number, parts in enumerate(layers, 1)]


def _first_bytes(frame: Dissection, node: Node) -> bytes:
    """Return the bytes of the first header of a protocol; for TCP, with the segment's data."""
    if not isinstance(node.header, TCP):
        return node.data
    carried = sum(cast(int, value) for field, value in node.extras if field is TCP_LENGTH)
    return frame.data[node.offset : node.offset + node.header.data_offset * 4 + carried]


def compile_searched(value: Value) -> ValueReader:
    """Like :func:`compile_value`, but a protocol extends to the end of the frame."""
    if not isinstance(value, FieldReference) or not lookup(value).starts:
        return compile_value(value)
    starts = lookup(value).starts

    def values(frame: Dissection) -> list[Any]:
        offsets = (node.offset for node in frame.nodes if node.name in starts)
        return [frame.data[offset:] for offset in offsets]

    return values


def _in_layers(field: FilterField, spans: tuple[SliceRange, ...]) -> ValueReader:
    def values(frame: Dissection) -> list[Any]:
        found = list(_with_layers(frame, field))
        is_wanted = _layer_test(spans, max((layer for layer, _ in found), default=0))
        return [value for layer, value in found if is_wanted(layer)]

    return values


def _layer_test(spans: tuple[SliceRange, ...], last: int) -> Callable[[int], bool]:
    starts = [(span.start if span.start >= 0 else last + 1 + span.start, span) for span in spans]
    return lambda layer: any(
        start <= layer and (span.length is None or layer < start + span.length)
        for start, span in starts
    )


def _with_layers(frame: Dissection, field: FilterField) -> Iterator[tuple[int, Any]]:
    """Yield the values of a field, each with the number of its layer, from 1."""
    if field.frame is not None:
        yield from ((1, value) for value in field.frame(frame))
    elif field.starts:
        yield from _protocol_layers(frame, field)
    else:
        of_node, layer = _of_node(field), 0
        for node in frame.nodes:
            layer += node.name in field.layers
            yield from ((max(layer, 1), value) for value in of_node(node))


def _slice(part: Slice) -> ValueReader:
    of, spans, join = compile_value(part.of), part.spans, "" if part.type is ValueType.TEXT else b""

    def values(frame: Dissection) -> list[Any]:
        sliced = ([slice_value(value, span) for span in spans] for value in of(frame))
        return [join.join(parts) for parts in sliced if None not in parts]

    return values


def slice_value(value: Any, span: SliceRange) -> Any:
    """Return a part of bytes or text; ``None`` if the span goes beyond the end."""
    size = len(value)
    start = span.start + size if span.start < 0 else span.start
    end = size if span.length is None else start + span.length
    return value[start:end] if 0 <= start < end <= size else None


def _negative(part: Negative) -> ValueReader:
    of = compile_value(part.of)
    return lambda frame: [-value for value in of(frame)]


def _arithmetic(part: Arithmetic) -> ValueReader:
    left, right = compile_value(part.left), compile_value(part.right)
    is_number = part.type in (ValueType.NUMBER, ValueType.DURATION)
    operation = OPERATIONS[part.operator] if is_number else _and_bytes

    def values(frame: Dissection) -> list[Any]:
        pairs = islice(product(left(frame), right(frame)), MAX_RESULTS)
        return list(_results(operation, pairs))

    return values


def _results(
    operation: Callable[[Any, Any], Any], pairs: Iterable[tuple[Any, Any]]
) -> Iterator[Any]:
    """Yield the results of an operation; division by zero has none."""
    for one, other in pairs:
        try:
            yield operation(one, other)
        except ZeroDivisionError:
            continue


def _and_bytes(one: bytes, other: bytes) -> bytes:
    """Return the bitwise AND of two byte strings, of the length of the shorter one."""
    return bytes(left & right for left, right in zip(one, other, strict=False))


def _call(call: Call) -> ValueReader:
    arguments = [compile_value(argument) for argument in call.arguments]
    if call.function == "len":
        return _length(call.arguments[0], arguments[0])
    if call.function in _OF_ALL:
        return _of_all(_OF_ALL[call.function], arguments)
    each = (
        _WRITERS[call.arguments[0].type] if call.function == "string" else _OF_EACH[call.function]
    )
    return lambda frame: [each(value) for value in arguments[0](frame)]


def _of_all(function: Callable[[list[Any]], Any], arguments: list[ValueReader]) -> ValueReader:
    def values(frame: Dissection) -> list[Any]:
        found = [value for argument in arguments for value in argument(frame)]
        return [function(found)] if found else []

    return values


def _length(of: Value, values: ValueReader) -> ValueReader:
    """Return the size of a value in bytes; of a number, the size that Wireshark stores it in."""
    if of.type is not ValueType.NUMBER:
        return lambda frame: [len(value) for value in values(frame)]
    width = lookup(of).width if isinstance(of, FieldReference) else 64
    return lambda frame: [width // 8 for _ in values(frame)]


_WRITERS: dict[ValueType, Callable[[Any], str]] = {
    ValueType.NUMBER: str,
    ValueType.MAC: mac,
    ValueType.IPV4: ipv4,
    ValueType.IPV6: ipv6,
}
_OF_ALL: dict[str, Callable[[list[Any]], Any]] = {"count": len, "max": max, "min": min}
_OF_EACH: dict[str, Callable[[Any], Any]] = {"abs": abs, "upper": str.upper, "lower": str.lower}
_VALUE_COMPILERS: dict[type, Callable[[Any], ValueReader]] = {
    Constant: _constant,
    FieldReference: _field,
    Slice: _slice,
    Negative: _negative,
    Arithmetic: _arithmetic,
    Call: _call,
}


Predicate = Callable[[Dissection], bool]
Relation = Callable[[Any, Any], bool]
ValueTest = Callable[[Any], bool]

OPERATORS: dict[CompareOp, Relation] = {
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.GT: operator.gt,
    CompareOp.GE: operator.ge,
}


def compile_test(test: Test) -> Predicate:
    """Return a function that tests whether a frame passes."""
    return _TEST_COMPILERS[type(test)](test)


def _present(test: Present) -> Predicate:
    values = compile_value(test.of)
    if isinstance(test.of, FieldReference | Slice):
        return lambda frame: bool(values(frame))
    return lambda frame: any(map(_not_zero, values(frame)))


def _not_zero(value: Any) -> bool:
    return any(value) if isinstance(value, bytes) else value != 0


def _quantified(values: ValueReader, passes: ValueTest, quantifier: Quantifier) -> Predicate:
    """Test whether any value passes or, for ``all``, whether there are values and all pass."""
    if quantifier is Quantifier.ANY:
        return lambda frame: any(map(passes, values(frame)))

    def every(frame: Dissection) -> bool:
        found = values(frame)
        return bool(found) and all(map(passes, found))

    return every


def _compared_with(compare: Relation, constant: Any) -> ValueTest:
    """Return a comparison with a constant; with a prefix, only the bits of the prefix count."""
    if isinstance(constant, Prefix):
        address, mask = constant.address, constant.mask
        return lambda value: compare(mask(value), address)
    return lambda value: compare(value, constant)


def _comparison(test: Comparison) -> Predicate:
    relation, left = OPERATORS[test.compare], compile_value(test.left)
    if isinstance(test.right, Constant):
        return _quantified(left, _compared_with(relation, test.right.value), test.quantifier)
    return _pairs(left, compile_value(test.right), _prefix_aware(relation), test.quantifier)


def _prefix_aware(relation: Relation) -> Relation:
    """Return the relation for a right side that may be a prefix."""
    return lambda one, other: _compared_with(relation, other)(one)


def _pairs(
    left: ValueReader, right: ValueReader, relation: Relation, quantifier: Quantifier
) -> Predicate:
    def answer(frame: Dissection) -> bool:
        ones, others = left(frame), right(frame)
        if quantifier is Quantifier.ANY:
            return any(relation(*pair) for pair in product(ones, others))
        return bool(ones and others) and all(relation(*pair) for pair in product(ones, others))

    return answer


def _membership(test: Membership) -> Predicate:
    values, quantifier = compile_value(test.of), test.quantifier
    plain = frozenset(member.value for member in test.members if is_single_value(member))
    others = [
        _member(values, member, quantifier)
        for member in test.members
        if not is_single_value(member)
    ]
    if quantifier is Quantifier.ALL:
        return _all_equal_one_member(values, plain, others)
    return lambda frame: (
        any(value in plain for value in values(frame)) or any(other(frame) for other in others)
    )


def is_single_value(member: Member) -> TypeGuard[Constant]:
    """Whether a member is a single value: those are looked up in one set."""
    return isinstance(member, Constant) and not isinstance(member.value, Prefix)


def _all_equal_one_member(
    values: ValueReader, plain: frozenset[Any], others: list[Predicate]
) -> Predicate:
    """Test as Wireshark does: all values are equal, to one member."""

    def answer(frame: Dissection) -> bool:
        found = set(values(frame))
        same = len(found) == 1 and found <= plain
        return same or any(other(frame) for other in others)

    return answer


def _member(values: ValueReader, member: Member, quantifier: Quantifier) -> Predicate:
    if not isinstance(member, ValueRange):
        return _pairs(values, compile_value(member), _prefix_aware(operator.eq), quantifier)
    low, high = compile_value(member.low), compile_value(member.high)
    above, below = _prefix_aware(operator.ge), _prefix_aware(operator.le)

    def answer(frame: Dissection) -> bool:
        bounds = list(product(low(frame), high(frame)))

        def is_inside(value: Any) -> bool:
            return any(above(value, least) and below(value, most) for least, most in bounds)

        return _quantified(values, is_inside, quantifier)(frame)

    return answer


def _contains(test: Contains) -> Predicate:
    values = compile_searched(test.of)
    if isinstance(test.part, Constant):
        part = test.part.value
        return _quantified(values, lambda value: bool(part) and part in value, test.quantifier)
    return _pairs(values, compile_value(test.part), lambda one, part: part in one, test.quantifier)


def _matches(test: Matches) -> Predicate:
    found_in = compile_pattern(test.pattern)
    if test.of.type is ValueType.TEXT:
        return _quantified(
            compile_value(test.of),
            lambda value: found_in(value.encode("utf-8", "backslashreplace")),
            test.quantifier,
        )
    return _quantified(compile_searched(test.of), found_in, test.quantifier)


def _not(test: Not) -> Predicate:
    of = compile_test(test.of)
    return lambda frame: not of(frame)


_COMBINED: dict[str, Callable[[Iterable[bool]], bool]] = {
    "and": all,
    "or": any,
    "xor": lambda passed: sum(passed) % 2 == 1,
}


def _logic(test: Logic) -> Predicate:
    parts, combine = [compile_test(part) for part in test.tests], _COMBINED[test.operator]
    return lambda frame: combine(part(frame) for part in parts)


_TEST_COMPILERS: dict[type, Callable[[Any], Predicate]] = {
    Present: _present,
    Comparison: _comparison,
    Membership: _membership,
    Contains: _contains,
    Matches: _matches,
    Not: _not,
    Logic: _logic,
}
