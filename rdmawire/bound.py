"""What the settings of an object may be: a table for each class, and one function that looks.

Who makes the object looks when it is made, and says in the error of its own floor what is wrong::

    BOUNDS = {"kmin": Whole(), "pmax": Real(0, 1)}
    reason = misfit("Marking", {"kmin": -1, "pmax": 0.5}, BOUNDS)

As for arguments, a whole number is an ``int``; of other kinds, such as NumPy's, sums may not fit.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol

from rdmawire.screen import shown

LARGEST: Final = (1 << 64) - 1
"""No setting is greater, unless its table says so."""


class Bound(Protocol):
    """What a value may be."""

    def wrong(self, value: object) -> str:
        """What was found and what is allowed; nothing, if that is the same."""


class Whole(NamedTuple):
    """A whole number from ``low`` to ``high``."""

    low: int = 0
    high: int = LARGEST
    called: str = "a whole number"

    def wrong(self, value: object) -> str:
        if isinstance(value, int) and self.low <= value <= self.high:
            return ""
        return f"{shown(value)} is not {self.called} from {self.low} to {self.high}"


_NANOSECONDS: Final = "a number of nanoseconds"
TIME: Final = Whole(called=_NANOSECONDS)
PERIOD: Final = Whole(1, called=_NANOSECONDS)


class Optional(NamedTuple):
    """``None``, or what is within a bound."""

    bound: Bound

    def wrong(self, value: object) -> str:
        return "" if value is None else self.bound.wrong(value)


class Real(NamedTuple):
    """A number from ``low`` to ``high``, whole or not; what is no number (NaN) is not."""

    low: float
    high: float

    def wrong(self, value: object) -> str:
        if isinstance(value, int | float) and self.low <= value <= self.high:
            return ""
        return f"{shown(value)} is not a number from {self.low:g} to {self.high:g}"


class Kind(NamedTuple):
    """An object of a class, but of none of the classes ``but``."""

    kind: type | tuple[type, ...]
    but: tuple[type, ...] = ()

    def wrong(self, value: object) -> str:
        if isinstance(value, self.kind) and not isinstance(value, self.but):
            return ""
        kinds = self.kind if isinstance(self.kind, tuple) else (self.kind,)
        return f"{shown(value)} is no {' or '.join(kind.__name__ for kind in kinds)}"


class Word(NamedTuple):
    """One of some words."""

    words: Collection[str]

    def wrong(self, value: object) -> str:
        if isinstance(value, str) and value in self.words:
            return ""
        found = repr(value) if isinstance(value, str) else shown(value)
        return f"{found} is not one of {', '.join(self.words)}"


class Many(NamedTuple):
    """A collection of values that are each within a bound."""

    each: Bound

    def wrong(self, value: object) -> str:
        if not isinstance(value, Collection) or isinstance(value, str | bytes):
            return f"{shown(value)} is not a collection"
        some = (value[0], value[-1]) if isinstance(value, range) and value else value
        return _first(self.each, some)


class Table(NamedTuple):
    """A mapping with keys and values that are each within a bound."""

    keys: Bound
    values: Bound

    def wrong(self, value: object) -> str:
        if not isinstance(value, Mapping):
            return f"{shown(value)} is not a mapping"
        return _first(self.keys, value) or _first(self.values, value.values())


def _first(bound: Bound, values: Collection[object]) -> str:
    """What is wrong with the first value of which anything is."""
    return next((reason for value in values if (reason := bound.wrong(value))), "")


def misfit(whose: str, values: Mapping[str, object], bounds: Mapping[str, Bound]) -> str:
    """Which setting is the first that is not within its bound, and why; nothing, if all are."""
    for name, bound in bounds.items():
        if reason := bound.wrong(values[name]):
            return f"{whose}.{name}: {reason}"
    return ""


def misfit_of(made: object, bounds: Mapping[str, Bound]) -> str:
    """As :func:`misfit`, of the attributes of an object."""
    values = {name: getattr(made, name) for name in bounds}
    return misfit(type(made).__name__, values, bounds)
