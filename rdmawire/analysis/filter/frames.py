"""From a tree to a question about a frame."""

import operator
from collections.abc import Callable
from itertools import product
from typing import Any, TypeGuard

from rdmawire.analysis.filter.kind import Kind, Prefix
from rdmawire.analysis.filter.regex import compile_pattern
from rdmawire.analysis.filter.tree import (
    And,
    Compare,
    Comparison,
    Constant,
    Contains,
    Field,
    Matches,
    Member,
    Membership,
    Not,
    Or,
    Present,
    Quantifier,
    Range,
    Slice,
    Test,
    Xor,
)
from rdmawire.analysis.filter.values import Values, values_of, widely
from rdmawire.analysis.node import Dissection

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
