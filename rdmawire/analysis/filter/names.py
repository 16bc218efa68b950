"""Which fields a filter names, and whether columns of them are enough to answer it."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from rdmawire.analysis.filter.kind import Kind
from rdmawire.analysis.filter.tree import (
    And,
    Arithmetic,
    Comparison,
    Constant,
    Field,
    Membership,
    Not,
    Or,
    Present,
    Range,
    Test,
    Xor,
)
from rdmawire.analysis.filter.values import field_named

_KINDS = frozenset(
    {Kind.NUMBER, Kind.FLAG, Kind.MAC, Kind.IPV4, Kind.IPV6, Kind.TIME, Kind.DURATION}
)
"""Kinds that columns hold as numbers, or as sixteen octets."""
_TIMES = frozenset({Kind.TIME, Kind.DURATION})
_FAR = 1 << 63
"""Nanoseconds that columns of times do not hold, nor as many before the epoch."""


def parts(test: Any) -> Iterator[Any]:
    """A tree's nodes, each before what is below it."""
    waiting = [test]
    while waiting:
        part = waiting.pop()
        yield part
        below = [getattr(part, field.name) for field in fields(part)]
        flat = [each for one in below for each in (one if isinstance(one, tuple) else (one,))]
        waiting += [each for each in reversed(flat) if hasattr(each, "__dataclass_fields__")]


def names(test: Test) -> tuple[str, ...]:
    """The fields and protocols in a tree, each once, in their order."""
    return tuple(dict.fromkeys(part.name for part in parts(test) if isinstance(part, Field)))


def is_simple(test: Test) -> bool:
    """Whether :func:`~rdmawire.analysis.filter.columns.evaluate_columns` can answer it.

    That is so where it compares, masks and looks up in sets numbers, flags, times and addresses
    that a frame has once. Frames with a tunnel inside have them twice: ask those one by one.
    """
    return all(map(_is_simple, parts(test)))


def _is_simple(part: Any) -> bool:
    if isinstance(part, Field):
        return part.kind in _KINDS and not part.layers and field_named(part).single
    if isinstance(part, Arithmetic):
        return part.operator == "&" and part.kind is Kind.NUMBER
    if isinstance(part, Constant):
        return part.kind in _KINDS and (part.kind not in _TIMES or abs(part.value) < _FAR)
    return isinstance(part, Present | Comparison | Membership | Range | Not | And | Or | Xor)
