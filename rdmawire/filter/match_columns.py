"""Filters over columns: many frames at once.

A column holds a field's value in each frame as a number: flags and numbers unsigned, in the units
that Wireshark shows; Ethernet and IPv4 addresses their octets as one number; times as
nanoseconds. IPv6 addresses are sixteen plain octets (``V16``).
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rdmawire.filter.ast import (
    And,
    Arithmetic,
    Compare,
    Comparison,
    Constant,
    Field,
    Kind,
    Membership,
    Not,
    Or,
    Prefix,
    Present,
    Range,
    Test,
    Value,
    Xor,
    parts,
)
from rdmawire.filter.lexer import FilterError
from rdmawire.filter.match_frame import RELATIONS, is_plain
from rdmawire.filter.names import field_named

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]


_KINDS = frozenset(
    {Kind.NUMBER, Kind.FLAG, Kind.MAC, Kind.IPV4, Kind.IPV6, Kind.TIME, Kind.DURATION}
)
"""Kinds that columns hold as numbers, or as sixteen octets."""
_TIMES = frozenset({Kind.TIME, Kind.DURATION})
_FAR = 1 << 63
"""Nanoseconds that columns of times do not hold, nor as many before the epoch."""


def is_simple(test: Test) -> bool:
    """Whether :func:`~rdmawire.filter.match_columns.evaluate_columns` can answer it.

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


class AnyColumn(Protocol):
    """What a column must have; where ``valid`` is false, the frame lacks the field."""

    @property
    def values(self) -> "NDArray[Any]": ...

    @property
    def valid(self) -> "Bools": ...


class Column(NamedTuple):
    """The values of one field."""

    values: "NDArray[Any]"
    valid: "Bools"


Columns = Mapping[str, AnyColumn]


def evaluate_columns(test: Test, columns: Columns) -> "Bools":
    """Which frames pass; :class:`FilterError` for a tree that is not simple.

    ``columns`` has one for each of the tree's names.
    """
    if not is_simple(test):
        raise FilterError("this filter needs whole frames, not columns", 0)
    return _evaluated(test, columns)


def _evaluated(test: Test, columns: Columns) -> "Bools":
    return _EVALUATED[type(test)](test, columns)


class _Side(NamedTuple):
    """One side of a comparison: numbers, or rows of two halves; and where it is there."""

    values: Any
    valid: Any


def _side(value: Value, columns: Columns) -> _Side:
    if isinstance(value, Field):
        column = columns[value.name]
        return _Side(_numbers(column.values), column.valid)
    if isinstance(value, Arithmetic):
        left, right = _side(value.left, columns), _side(value.right, columns)
        return _Side(left.values & right.values, left.valid & right.valid)
    assert isinstance(value, Constant)
    return _Side(_number(value), True)


def _numbers(values: "NDArray[Any]") -> Any:
    """A column as whole numbers; sixteen octets as two numbers."""
    import numpy as np

    if values.dtype.kind == "V":
        halves = np.ascontiguousarray(values).view(">u8").reshape(-1, 2)
        return _Wide(halves[:, 0].astype(np.uint64), halves[:, 1].astype(np.uint64))
    return values.astype(np.int64 if values.dtype.kind == "i" else np.uint64)


def _number(constant: Constant) -> Any:
    import numpy as np

    value = constant.value
    octets = value.octets if isinstance(value, Prefix) else value
    if constant.kind is Kind.IPV6:
        high, low = (int.from_bytes(half, "big") for half in (octets[:8], octets[8:]))
        return _Wide(np.uint64(high), np.uint64(low))
    if isinstance(octets, bytes):
        return np.uint64(int.from_bytes(octets, "big"))
    return np.int64(octets) if constant.kind in _SIGNED else np.uint64(octets)


_SIGNED = (Kind.TIME, Kind.DURATION)


class _Wide:
    """Numbers of 128 bits, as their upper and lower halves."""

    def __init__(self, high: Any, low: Any) -> None:
        self.high, self.low = high, low

    def __and__(self, other: "_Wide") -> "_Wide":
        return _Wide(self.high & other.high, self.low & other.low)

    def __eq__(self, other: object) -> Any:
        assert isinstance(other, _Wide)
        return (self.high == other.high) & (self.low == other.low)

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    def __lt__(self, other: "_Wide") -> Any:
        return (self.high < other.high) | (self.high == other.high) & (self.low < other.low)

    def __le__(self, other: "_Wide") -> Any:
        return (self < other) | (self == other)

    def __gt__(self, other: "_Wide") -> Any:
        return other < self

    def __ge__(self, other: "_Wide") -> Any:
        return other <= self

    __hash__ = None  # type: ignore[assignment]


def _compared(compare: Compare, left: _Side, value: Value, columns: Columns) -> "Bools":
    """A comparison, where both sides are there; of a prefix, only its bits count."""
    right = _side(value, columns)
    ours = left.values
    if isinstance(value, Constant) and isinstance(value.value, Prefix):
        ours = ours & _mask(value.value)
    found: Bools = RELATIONS[compare](ours, right.values) & left.valid & right.valid
    return found


def _mask(prefix: Prefix) -> Any:
    import numpy as np

    size = len(prefix.octets)
    ones = prefix.cut(b"\xff" * size)
    if size == 16:
        return _number(Constant(Kind.IPV6, ones))
    return np.uint64(int.from_bytes(ones, "big"))


def _present(test: Present, columns: Columns) -> "Bools":
    side = _side(test.of, columns)
    if isinstance(test.of, Field):
        return columns[test.of.name].valid.copy()
    found: Bools = (side.values != 0) & side.valid
    return found


def _comparison(test: Comparison, columns: Columns) -> "Bools":
    return _compared(test.compare, _side(test.left, columns), test.right, columns)


def _membership(test: Membership, columns: Columns) -> "Bools":
    import numpy as np

    side = _side(test.of, columns)
    at_once = test.of.kind is not Kind.IPV6
    plain = [_number(member) for member in test.members if at_once and is_plain(member)]
    found: Bools = np.zeros_like(side.valid)
    if plain:
        found |= np.isin(side.values, plain) & side.valid
    for member in test.members:
        if isinstance(member, Range):
            above = _compared(Compare.GE, side, member.low, columns)
            found |= above & _compared(Compare.LE, side, member.high, columns)
        elif not (at_once and is_plain(member)):
            found |= _compared(Compare.EQ, side, member, columns)
    return found


def _not(test: Not, columns: Columns) -> "Bools":
    return ~_evaluated(test.of, columns)


def _joined(combine: Callable[["Bools", "Bools"], "Bools"]) -> Callable[[Any, Columns], "Bools"]:
    return lambda test, columns: reduce(combine, (_evaluated(part, columns) for part in test.tests))


_EVALUATED: dict[type, Callable[[Any, Columns], "Bools"]] = {
    Present: _present,
    Comparison: _comparison,
    Membership: _membership,
    Not: _not,
    And: _joined(lambda one, other: one & other),
    Or: _joined(lambda one, other: one | other),
    Xor: _joined(lambda one, other: one ^ other),
}
