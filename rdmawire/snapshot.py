"""Support for ``copy.deepcopy`` of complete engines and simulators: values that both copies share.

A row of a table never changes, and code compares it by identity, so a copy of an engine keeps the
row itself: the class of such values has ``__deepcopy__ = shared``.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, TypeVar

T = TypeVar("T")


def shared(value: T, _: object) -> T:
    """Return the value itself as its deep copy."""
    return value


def copy_each(things: Iterable[object], memo: dict[int, Any]) -> None:
    """Copy objects that refer to each other in long chains, without recursion into the chains.

    All copies are made first, then filled; afterwards ``memo`` has them. Their classes have
    slots, and take no arguments when they are made.
    """
    originals = tuple(things)
    for thing in originals:
        memo[id(thing)] = object.__new__(type(thing))
    for thing in originals:
        state: Any = thing.__getstate__()
        for name, value in deepcopy(state[1], memo).items():
            setattr(memo[id(thing)], name, value)
