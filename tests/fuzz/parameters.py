"""Values of parameters of tests, of which all but chosen ones are slow."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def fast_or_slow(names: Iterable[str], fast: Collection[str]) -> list[Any]:
    """Return the names as values of a parameter, with the mark ``slow`` unless in ``fast``.

    Raise ``AssertionError`` if a name in ``fast`` is none of ``names``.
    """
    values = list(names)
    assert set(fast) <= set(values), set(fast) - set(values)
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in values]


def slow(values: Iterable[Any]) -> list[Any]:
    """Return the values with the mark ``slow``."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
