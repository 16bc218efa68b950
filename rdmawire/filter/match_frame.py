"""From a tree to a question about a frame."""

import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, product
from typing import Any, TypeGuard, cast

from rdmawire.dissect.generated import TCP_LENGTH
from rdmawire.dissect.node import Dissection, Node
from rdmawire.filter.ast import (
    And,
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
    Not,
    Or,
    Prefix,
    Present,
    Quantifier,
    Range,
    Slice,
    Span,
    Test,
    Value,
    Xor,
)
from rdmawire.filter.names import Name, field_named
from rdmawire.filter.regex import compile_pattern
from rdmawire.filter.typecheck import WORKED_OUT
from rdmawire.wire.inet import TCP
from rdmawire.wire.show import decimal, ipv4, ipv6, mac

Values = Callable[[Dissection], list[Any]]
"""The values of something in a frame; an empty list where it is not there."""

MOST = 10_000
"""Values of arithmetic over fields that a frame has several times; the first ones count."""


def values_of(value: Value) -> Values:
    """What gives the values of a part of a filter."""
    return _COMPILED[type(value)](value)


def _constant(constant: Constant) -> Values:
    found = [constant.value]
    return lambda _: found


def _field(field: Field) -> Values:
    name = field_named(field)
    if field.layers:
        return _in_layers(name, field.layers)
    if name.frame is not None:
        return name.frame
    if name.starts:
        return lambda frame: [octets for _, octets in _spans(frame, name)]
    return _of_nodes(name) if name.derived else _of_headers(name)


def _of_nodes(name: Name) -> Values:
    of_node = _of_node(name)

    def values(frame: Dissection) -> list[Any]:
        found: list[Any] = []
        for node in frame.nodes:
            found += of_node(node)
        return found

    return values


def _of_headers(name: Name) -> Values:
    tables = name.tables

    def values(frame: Dissection) -> list[Any]:
        found: list[Any] = []
        for node in frame.nodes:
            read = tables.get(type(node.header))  # type: ignore[arg-type]
            if read is not None:
                found += read(node)
        return found

    return values


def _of_node(name: Name) -> Callable[[Node], list[Any]]:
    tables, derived = name.tables, name.derived

    def values(node: Node) -> list[Any]:
        read = tables.get(type(node.header))  # type: ignore[arg-type]
        found = list(read(node)) if read is not None else []
        if node.extras:
            found += [value for field, value in node.extras if field in derived]
        return found

    return values


def _spans(frame: Dissection, name: Name) -> list[tuple[int, bytes]]:
    """The octets of each layer of a protocol, with its number."""
    runs: list[list[bytes]] = []
    for node in frame.nodes:
        if runs and node.name in name.belongs:
            runs[-1].append(node.octets)
        elif node.name in name.starts:
            runs.append([_begun(frame, node)])
    return [(layer, b"".join(run)) for layer, run in enumerate(runs, 1)]


def _begun(frame: Dissection, node: Node) -> bytes:
    """The octets of a protocol's first header; TCP has those that the segment carries."""
    if not isinstance(node.header, TCP):
        return node.octets
    carried = sum(cast(int, value) for field, value in node.extras if field is TCP_LENGTH)
    return frame.data[node.offset : node.offset + node.header.data_offset * 4 + carried]


def widely(value: Value) -> Values:
    """The values to search: of a protocol, with all that it carries."""
    if not isinstance(value, Field) or not field_named(value).starts:
        return values_of(value)
    starts = field_named(value).starts

    def values(frame: Dissection) -> list[Any]:
        found = (node.offset for node in frame.nodes if node.name in starts)
        return [frame.data[offset:] for offset in found]

    return values


def _in_layers(name: Name, spans: tuple[Span, ...]) -> Values:
    def values(frame: Dissection) -> list[Any]:
        found = list(_layered(frame, name))
        wanted = _wanted(spans, max((layer for layer, _ in found), default=0))
        return [value for layer, value in found if wanted(layer)]

    return values


def _wanted(spans: tuple[Span, ...], last: int) -> Callable[[int], bool]:
    starts = [(span.start if span.start >= 0 else last + 1 + span.start, span) for span in spans]
    return lambda layer: any(
        start <= layer and (span.length is None or layer < start + span.length)
        for start, span in starts
    )


def _layered(frame: Dissection, name: Name) -> Iterator[tuple[int, Any]]:
    """Values, with the number of the header that has them among those of its kind."""
    if name.frame is not None:
        yield from ((1, value) for value in name.frame(frame))
    elif name.starts:
        yield from _spans(frame, name)
    else:
        of_node, layer = _of_node(name), 0
        for node in frame.nodes:
            layer += node.name in name.layers
            yield from ((max(layer, 1), value) for value in of_node(node))


def _slice(part: Slice) -> Values:
    of, spans, join = values_of(part.of), part.spans, "" if part.kind is Kind.TEXT else b""

    def values(frame: Dissection) -> list[Any]:
        pieces = ([cut(value, span) for span in spans] for value in of(frame))
        return [join.join(piece) for piece in pieces if None not in piece]

    return values


def cut(value: Any, span: Span) -> Any:
    """A part of octets or text; ``None`` where it does not reach that far."""
    size = len(value)
    start = span.start + size if span.start < 0 else span.start
    end = size if span.length is None else start + span.length
    return value[start:end] if 0 <= start < end <= size else None


def _negative(part: Negative) -> Values:
    of = values_of(part.of)
    return lambda frame: [-value for value in of(frame)]


def _arithmetic(part: Arithmetic) -> Values:
    left, right = values_of(part.left), values_of(part.right)
    work = WORKED_OUT[part.operator] if part.kind in (Kind.NUMBER, Kind.DURATION) else _masked

    def values(frame: Dissection) -> list[Any]:
        pairs = islice(product(left(frame), right(frame)), MOST)
        return list(_worked_out(work, pairs))

    return values


def _worked_out(work: Callable[[Any, Any], Any], pairs: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    """The results; a division by zero has none."""
    for one, other in pairs:
        try:
            yield work(one, other)
        except ZeroDivisionError:
            continue


def _masked(one: bytes, other: bytes) -> bytes:
    """The bits that both have; of octets, those of the shorter length."""
    return bytes(left & right for left, right in zip(one, other, strict=False))


def _call(call: Call) -> Values:
    arguments = [values_of(argument) for argument in call.arguments]
    if call.function == "len":
        return _length(call.arguments[0], arguments[0])
    if call.function in _OF_ALL:
        return _of_all(_OF_ALL[call.function], arguments)
    each = (
        _WRITERS[call.arguments[0].kind] if call.function == "string" else _OF_EACH[call.function]
    )
    return lambda frame: [each(value) for value in arguments[0](frame)]


def _of_all(function: Callable[[list[Any]], Any], arguments: list[Values]) -> Values:
    def values(frame: Dissection) -> list[Any]:
        found = [value for argument in arguments for value in argument(frame)]
        return [function(found)] if found else []

    return values


def _length(of: Value, values: Values) -> Values:
    """Octets of a value; of a number, those that Wireshark keeps it in."""
    if of.kind is not Kind.NUMBER:
        return lambda frame: [len(value) for value in values(frame)]
    width = field_named(of).width if isinstance(of, Field) else 64
    return lambda frame: [width // 8 for _ in values(frame)]


_WRITERS: dict[Kind, Callable[[Any], str]] = {
    Kind.NUMBER: decimal,
    Kind.MAC: mac,
    Kind.IPV4: ipv4,
    Kind.IPV6: ipv6,
}
_OF_ALL: dict[str, Callable[[list[Any]], Any]] = {"count": len, "max": max, "min": min}
_OF_EACH: dict[str, Callable[[Any], Any]] = {"abs": abs, "upper": str.upper, "lower": str.lower}
_COMPILED: dict[type, Callable[[Any], Values]] = {
    Constant: _constant,
    Field: _field,
    Slice: _slice,
    Negative: _negative,
    Arithmetic: _arithmetic,
    Call: _call,
}


Question = Callable[[Dissection], bool]
Relation = Callable[[Any, Any], bool]
Judge = Callable[[Any], bool]
"""Whether one value is as the filter wants it."""

RELATIONS: dict[Compare, Relation] = {
    Compare.EQ: operator.eq,
    Compare.NE: operator.ne,
    Compare.LT: operator.lt,
    Compare.LE: operator.le,
    Compare.GT: operator.gt,
    Compare.GE: operator.ge,
}


def question(test: Test) -> Question:
    """What answers whether a frame passes a test."""
    return _QUESTIONS[type(test)](test)


def _present(test: Present) -> Question:
    values = values_of(test.of)
    if isinstance(test.of, Field | Slice):
        return lambda frame: bool(values(frame))
    return lambda frame: any(map(_not_zero, values(frame)))


def _not_zero(value: Any) -> bool:
    return any(value) if isinstance(value, bytes) else value != 0


def _of_values(values: Values, judge: Judge, quantifier: Quantifier) -> Question:
    """Whether any value, or all of at least one, are judged good."""
    if quantifier is Quantifier.ANY:
        return lambda frame: any(map(judge, values(frame)))

    def every(frame: Dissection) -> bool:
        found = values(frame)
        return bool(found) and all(map(judge, found))

    return every


def _judge(compare: Relation, constant: Any) -> Judge:
    """What compares a value with a constant; of a prefix, only its bits count."""
    if isinstance(constant, Prefix):
        octets, cut = constant.octets, constant.cut
        return lambda value: compare(cut(value), octets)
    return lambda value: compare(value, constant)


def _comparison(test: Comparison) -> Question:
    relation, left = RELATIONS[test.compare], values_of(test.left)
    if isinstance(test.right, Constant):
        return _of_values(left, _judge(relation, test.right.value), test.quantifier)
    return _pairs(left, values_of(test.right), _cutting(relation), test.quantifier)


def _cutting(relation: Relation) -> Relation:
    """The relation, where what stands on the right may be a prefix."""
    return lambda one, other: _judge(relation, other)(one)


def _pairs(left: Values, right: Values, relation: Relation, quantifier: Quantifier) -> Question:
    def answer(frame: Dissection) -> bool:
        ones, others = left(frame), right(frame)
        if quantifier is Quantifier.ANY:
            return any(relation(*pair) for pair in product(ones, others))
        return bool(ones and others) and all(relation(*pair) for pair in product(ones, others))

    return answer


def _membership(test: Membership) -> Question:
    values, quantifier = values_of(test.of), test.quantifier
    plain = frozenset(member.value for member in test.members if is_plain(member))
    others = [
        _member(values, member, quantifier) for member in test.members if not is_plain(member)
    ]
    if quantifier is Quantifier.ALL:
        return _one_for_all(values, plain, others)
    return lambda frame: (
        any(value in plain for value in values(frame)) or any(other(frame) for other in others)
    )


def is_plain(member: Member) -> TypeGuard[Constant]:
    """Whether a member is one value: such are looked up all at once."""
    return isinstance(member, Constant) and not isinstance(member.value, Prefix)


def _one_for_all(values: Values, plain: frozenset[Any], others: list[Question]) -> Question:
    """As in Wireshark: there is one member that all values are."""

    def answer(frame: Dissection) -> bool:
        found = set(values(frame))
        same = len(found) == 1 and found <= plain
        return same or any(other(frame) for other in others)

    return answer


def _member(values: Values, member: Member, quantifier: Quantifier) -> Question:
    if not isinstance(member, Range):
        return _pairs(values, values_of(member), _cutting(operator.eq), quantifier)
    low, high = values_of(member.low), values_of(member.high)
    above, below = _cutting(operator.ge), _cutting(operator.le)

    def answer(frame: Dissection) -> bool:
        bounds = list(product(low(frame), high(frame)))

        def is_inside(value: Any) -> bool:
            return any(above(value, least) and below(value, most) for least, most in bounds)

        return _of_values(values, is_inside, quantifier)(frame)

    return answer


def _contains(test: Contains) -> Question:
    values = widely(test.of)
    if isinstance(test.part, Constant):
        part = test.part.value
        return _of_values(values, lambda value: bool(part) and part in value, test.quantifier)
    return _pairs(values, values_of(test.part), lambda one, part: part in one, test.quantifier)


def _matches(test: Matches) -> Question:
    found_in = compile_pattern(test.pattern)
    if test.of.kind is Kind.TEXT:
        return _of_values(
            values_of(test.of),
            lambda value: found_in(value.encode("utf-8", "backslashreplace")),
            test.quantifier,
        )
    return _of_values(widely(test.of), found_in, test.quantifier)


def _not(test: Not) -> Question:
    of = question(test.of)
    return lambda frame: not of(frame)


def _and(test: And) -> Question:
    parts = [question(part) for part in test.tests]
    return lambda frame: all(part(frame) for part in parts)


def _or(test: Or) -> Question:
    parts = [question(part) for part in test.tests]
    return lambda frame: any(part(frame) for part in parts)


def _xor(test: Xor) -> Question:
    parts = [question(part) for part in test.tests]
    return lambda frame: sum(part(frame) for part in parts) % 2 == 1


_QUESTIONS: dict[type, Callable[[Any], Question]] = {
    Present: _present,
    Comparison: _comparison,
    Membership: _membership,
    Contains: _contains,
    Matches: _matches,
    Not: _not,
    And: _and,
    Or: _or,
    Xor: _xor,
}
