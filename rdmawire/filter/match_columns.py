"""Evaluation of a display filter on columns: many frames at once.

A column holds the value of a field in each frame as a number: flags and numbers unsigned, in the
units that Wireshark shows; Ethernet and IPv4 addresses as one big-endian number; times in ns. IPv6
addresses are 16 bytes (``V16``).
"""

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rdmawire.filter.ast import (
    Arithmetic,
    CompareOp,
    Comparison,
    Constant,
    FieldReference,
    Logic,
    Membership,
    Not,
    Prefix,
    Present,
    Test,
    Value,
    ValueRange,
    ValueType,
    nodes,
)
from rdmawire.filter.lexer import FilterError
from rdmawire.filter.match_frame import OPERATORS, is_single_value
from rdmawire.filter.names import lookup

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    BoolArray = NDArray[np.bool_]


_NUMERIC_TYPES = frozenset(
    {
        ValueType.NUMBER,
        ValueType.FLAG,
        ValueType.MAC,
        ValueType.IPV4,
        ValueType.IPV6,
        ValueType.TIME,
        ValueType.DURATION,
    }
)
"""Types that columns hold as numbers, or as 16 bytes."""
_TIMES = frozenset({ValueType.TIME, ValueType.DURATION})
_MAX_TIME = 1 << 63
"""Columns of times hold less than this, in ns, and no less than its negative."""


def is_simple(test: Test) -> bool:
    """Whether :func:`evaluate_columns` can evaluate a test.

    It can if the test only compares, masks, and looks up in sets, numbers, flags, times and
    addresses that a frame has once. Frames with a tunnel have them twice and must be evaluated
    one by one.
    """
    return all(map(_is_simple, nodes(test)))


def _is_simple(part: Any) -> bool:
    if isinstance(part, FieldReference):
        return part.type in _NUMERIC_TYPES and not part.layers and lookup(part).single
    if isinstance(part, Arithmetic):
        return part.operator == "&" and part.type is ValueType.NUMBER
    if isinstance(part, Constant):
        return part.type in _NUMERIC_TYPES and (
            part.type not in _TIMES or abs(part.value) < _MAX_TIME
        )
    return isinstance(part, Present | Comparison | Membership | ValueRange | Not | Logic)


class ColumnLike(Protocol):
    """A column: arrays of shape ``(rows,)``; ``valid`` is false where a frame has no such field."""

    @property
    def values(self) -> "NDArray[Any]": ...

    @property
    def valid(self) -> "BoolArray": ...


class FieldArray(NamedTuple):
    """The values of one field in many frames, in arrays of shape ``(rows,)``.

    Numbers, flags, Ethernet and IPv4 addresses are of any unsigned dtype, times ``int64`` ns, IPv6
    addresses ``V16``.
    """

    values: "NDArray[Any]"
    valid: "BoolArray"


Columns = Mapping[str, ColumnLike]


def evaluate_columns(test: Test, columns: Columns) -> "BoolArray":
    """Return for each frame whether it passes: a bool array of shape ``(rows,)``.

    ``columns`` has a column of as many rows for each of the test's
    :func:`~rdmawire.filter.field_names`. Raises :class:`FilterError` for a test that is not
    :func:`simple <is_simple>`.
    """
    if not is_simple(test):
        raise FilterError("this filter needs complete frames, not columns", 0)
    return _evaluated(test, columns)


def _evaluated(test: Test, columns: Columns) -> "BoolArray":
    return _EVALUATED[type(test)](test, columns)


class _Side(NamedTuple):
    """One side of a comparison: its numbers, and the frames that have it."""

    values: Any
    valid: Any


def _side(value: Value, columns: Columns) -> _Side:
    if isinstance(value, FieldReference):
        column = columns[value.name]
        return _Side(_numbers(column.values), column.valid)
    if isinstance(value, Arithmetic):
        left, right = _side(value.left, columns), _side(value.right, columns)
        return _Side(left.values & right.values, left.valid & right.valid)
    assert isinstance(value, Constant)
    return _Side(_number(value), True)


def _numbers(values: "NDArray[Any]") -> Any:
    """Return a column as integers; 16 bytes as two of them."""
    import numpy as np

    if values.dtype.kind == "V":
        halves = np.ascontiguousarray(values).view(">u8").reshape(-1, 2)
        return _Uint128(halves[:, 0].astype(np.uint64), halves[:, 1].astype(np.uint64))
    return values.astype(np.int64 if values.dtype.kind == "i" else np.uint64)


def _number(constant: Constant) -> Any:
    import numpy as np

    value = constant.value
    plain = value.address if isinstance(value, Prefix) else value
    if constant.type is ValueType.IPV6:
        high, low = (int.from_bytes(half, "big") for half in (plain[:8], plain[8:]))
        return _Uint128(np.uint64(high), np.uint64(low))
    if isinstance(plain, bytes):
        return np.uint64(int.from_bytes(plain, "big"))
    return np.int64(plain) if constant.type in _TIMES else np.uint64(plain)


class _Uint128:
    """Arrays of 128-bit numbers, as their high and low halves."""

    def __init__(self, high: Any, low: Any) -> None:
        self.high, self.low = high, low

    def __and__(self, other: "_Uint128") -> "_Uint128":
        return _Uint128(self.high & other.high, self.low & other.low)

    def __eq__(self, other: object) -> Any:
        assert isinstance(other, _Uint128)
        return (self.high == other.high) & (self.low == other.low)

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    def __lt__(self, other: "_Uint128") -> Any:
        return (self.high < other.high) | (self.high == other.high) & (self.low < other.low)

    def __le__(self, other: "_Uint128") -> Any:
        return (self < other) | (self == other)

    def __gt__(self, other: "_Uint128") -> Any:
        return other < self

    def __ge__(self, other: "_Uint128") -> Any:
        return other <= self

    __hash__ = None  # type: ignore[assignment]


def _compared(compare: CompareOp, left: _Side, value: Value, columns: Columns) -> "BoolArray":
    """Compare where a frame has both sides; with a prefix, only the bits of the prefix count."""
    right = _side(value, columns)
    ours = left.values
    if isinstance(value, Constant) and isinstance(value.value, Prefix):
        ours = ours & _mask(value.value)
    found: BoolArray = OPERATORS[compare](ours, right.values) & left.valid & right.valid
    return found


def _mask(prefix: Prefix) -> Any:
    import numpy as np

    size = len(prefix.address)
    ones = prefix.mask(b"\xff" * size)
    if size == 16:
        return _number(Constant(ValueType.IPV6, ones))
    return np.uint64(int.from_bytes(ones, "big"))


def _present(test: Present, columns: Columns) -> "BoolArray":
    side = _side(test.of, columns)
    if isinstance(test.of, FieldReference):
        return columns[test.of.name].valid.copy()
    found: BoolArray = (side.values != 0) & side.valid
    return found


def _comparison(test: Comparison, columns: Columns) -> "BoolArray":
    return _compared(test.compare, _side(test.left, columns), test.right, columns)


def _membership(test: Membership, columns: Columns) -> "BoolArray":
    import numpy as np

    side = _side(test.of, columns)
    at_once = test.of.type is not ValueType.IPV6
    plain = [_number(member) for member in test.members if at_once and is_single_value(member)]
    found: BoolArray = np.zeros_like(side.valid)
    if plain:
        found |= np.isin(side.values, plain) & side.valid
    for member in test.members:
        if isinstance(member, ValueRange):
            above = _compared(CompareOp.GE, side, member.low, columns)
            found |= above & _compared(CompareOp.LE, side, member.high, columns)
        elif not (at_once and is_single_value(member)):
            found |= _compared(CompareOp.EQ, side, member, columns)
    return found


def _not(test: Not, columns: Columns) -> "BoolArray":
    return ~_evaluated(test.of, columns)


_COMBINED: dict[str, Callable[["BoolArray", "BoolArray"], "BoolArray"]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def _logic(test: Logic, columns: Columns) -> "BoolArray":
    return reduce(_COMBINED[test.operator], (_evaluated(part, columns) for part in test.tests))


_EVALUATED: dict[type, Callable[[Any, Columns], "BoolArray"]] = {
    Present: _present,
    Comparison: _comparison,
    Membership: _membership,
    Not: _not,
    Logic: _logic,
}
