"""Checks of arguments and settings: constraints as values, and functions that raise.

A constraint describes the allowed values. An error gives the value's name, what was found and
what is allowed::

    check("Link.latency", -5, TIME, FabricError)
    FabricError: Link.latency: -5 is not a number of nanoseconds from 0 to 18446744073709551615

``error`` is the class that a check raises, by default ``VerbsError`` with EINVAL. An integer is an
``int``: sums of other types, such as NumPy's, may not fit.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from rdmawire.errors import VerbsError
from rdmawire.terminal import describe

T = TypeVar("T")

BytesLike = bytes | bytearray | memoryview

MAX_UINT64: Final = (1 << 64) - 1
"""The largest integer, unless a constraint gives another one."""

Error = Callable[[str], Exception]


# Constraints.


class Constraint(Protocol):
    """A constraint of a value."""

    def problem(self, value: object) -> str:
        """Return what was found and what is allowed; empty if the value is valid."""


class Integer(NamedTuple):
    """An integer from ``low`` to ``high``; ``called`` names it in messages."""

    low: int = 0
    high: int = MAX_UINT64
    called: str = "an integer"

    def problem(self, value: object) -> str:
        if isinstance(value, int) and self.low <= value <= self.high:
            return ""
        return f"{describe(value)} is not {self.called} from {self.low} to {self.high}"


_NANOSECONDS: Final = "a number of nanoseconds"
TIME: Final = Integer(called=_NANOSECONDS)
PERIOD: Final = Integer(1, called=_NANOSECONDS)


class Number(NamedTuple):
    """An ``int`` or a ``float`` from ``low`` to ``high``; never NaN."""

    low: float
    high: float

    def problem(self, value: object) -> str:
        if isinstance(value, int | float) and self.low <= value <= self.high:
            return ""
        return f"{describe(value)} is not a number from {self.low:g} to {self.high:g}"


class InstanceOf(NamedTuple):
    """An instance of ``types``, but of none of the classes ``but``."""

    types: type | tuple[type, ...]
    but: tuple[type, ...] = ()

    def problem(self, value: object) -> str:
        if isinstance(value, self.types) and not isinstance(value, self.but):
            return ""
        types = self.types if isinstance(self.types, tuple) else (self.types,)
        return f"{describe(value)} is not of type {' or '.join(one.__name__ for one in types)}"


class OneOf(NamedTuple):
    """One of a few words or integers."""

    values: tuple[str | int, ...]

    def problem(self, value: object) -> str:
        if isinstance(value, str | int) and value in self.values:
            return ""
        found = repr(value) if isinstance(value, str) else describe(value)
        return f"{found} is not one of {', '.join(map(str, self.values))}"


class NoneOr(NamedTuple):
    """``None``, or a value that ``each`` allows."""

    each: Constraint

    def problem(self, value: object) -> str:
        return "" if value is None else self.each.problem(value)


class CollectionOf(NamedTuple):
    """A collection of values that ``each`` allows; of a range, only its ends are checked."""

    each: Constraint

    def problem(self, value: object) -> str:
        if not isinstance(value, Collection) or isinstance(value, str | bytes):
            return f"{describe(value)} is not a collection"
        some = (value[0], value[-1]) if isinstance(value, range) and value else value
        return _first_problem(self.each, some)


class MappingOf(NamedTuple):
    """A mapping from keys to values that two constraints allow."""

    keys: Constraint
    values: Constraint

    def problem(self, value: object) -> str:
        if not isinstance(value, Mapping):
            return f"{describe(value)} is not a mapping"
        return _first_problem(self.keys, value) or _first_problem(self.values, value.values())


def _first_problem(constraint: Constraint, values: Collection[object]) -> str:
    return next((problem for value in values if (problem := constraint.problem(value))), "")


# Checks of settings, by constraints.


def check(where: str, value: object, constraint: Constraint, error: Error = VerbsError) -> None:
    """Raise ``error`` for a value that its constraint does not allow. ``where`` names the value."""
    if problem := constraint.problem(value):
        raise error(f"{where}: {problem}")


def check_values(
    owner: str,
    values: Mapping[str, object],
    constraints: Mapping[str, Constraint],
    error: Error = VerbsError,
) -> None:
    """Raise ``error`` for the first of some named values that its constraint does not allow."""
    for name, constraint in constraints.items():
        check(f"{owner}.{name}", values[name], constraint, error)


def check_attributes(
    made: object, constraints: Mapping[str, Constraint], error: Error = VerbsError
) -> None:
    """Raise ``error`` for the first attribute of an object that its constraint does not allow."""
    owner = type(made).__name__
    for name, constraint in constraints.items():
        check(f"{owner}.{name}", getattr(made, name), constraint, error)


# Checks of arguments, by calls.


def check_int(
    name: str, value: object, low: int = 0, high: int = MAX_UINT64, error: Error = VerbsError
) -> None:
    """Raise ``error`` unless ``value`` is an integer from ``low`` to ``high``."""
    if not isinstance(value, int) or not low <= value <= high:
        raise error(f"{name}: {Integer(low, high).problem(value)}")


def check_time(now: object) -> None:
    """Raise ``VerbsError`` EINVAL unless ``now`` is a time in integer nanoseconds.

    Per-packet code calls this only for values that are not exactly ``int``.
    """
    if not isinstance(now, int) or not 0 <= now <= MAX_UINT64:
        raise VerbsError(f"now: {TIME.problem(now)}")


def check_type(name: str, value: object, type_: type, error: Error = VerbsError) -> None:
    """Raise ``error`` unless ``value`` is an instance of ``type_``."""
    if not isinstance(value, type_):
        raise error(f"{name}: {InstanceOf(type_).problem(value)}")


def check_bytes(name: str, value: object, length: int, error: Error = VerbsError) -> None:
    """Raise ``error`` unless ``value`` is ``bytes`` of this length."""
    check_type(name, value, bytes, error)
    if isinstance(value, bytes) and len(value) != length:
        raise error(f"{name}: {len(value)} bytes found, not {length}")


def check_range(address: object, length: object) -> None:
    """Raise ``VerbsError`` EINVAL unless both are integers.

    The memory decides whether the range is valid.
    """
    if address.__class__ is not int or length.__class__ is not int:
        check_type("address", address, int)
        check_type("length", length, int)


def byte_count(data: BytesLike, name: str = "data", error: Error = VerbsError) -> int:
    """Return the length of ``data`` in bytes; raise ``error`` unless it is bytes-like."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise error(f"{name}: {describe(data)} is not bytes")
    return len(data)


def as_bytes(name: str, data: BytesLike) -> bytes:
    """Return an immutable copy of ``data``; raise ``VerbsError`` EINVAL unless it is bytes-like."""
    byte_count(data, name)
    return bytes(data)


def check_methods(name: str, value: object, *methods: str) -> None:
    """Raise ``VerbsError`` EINVAL for a class, or an object without these methods.

    For arguments that are recognised by methods and have no common base class.
    """
    for method in methods:
        if isinstance(value, type) or not callable(getattr(value, method, None)):
            raise VerbsError(f"{name}: {describe(value)} has no method {method}()")


def iterate(name: str, values: Iterable[T]) -> Iterator[T]:
    """Return an iterator over ``values``; raise ``VerbsError`` EINVAL if not iterable."""
    try:
        return iter(values)
    except TypeError:
        raise VerbsError(f"{name}: {describe(values)} is not a sequence") from None
