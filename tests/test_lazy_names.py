"""Public names that are loaded when they are first used."""

import sys
from types import ModuleType

import pytest

from rdmawire.lazy_names import lazy_names


def test_a_name_is_loaded_once_and_other_names_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package, module = ModuleType("late"), ModuleType("late.numbers")
    module.__dict__["ONE"] = one = object()
    package.__dict__["__getattr__"] = lazy_names("late", {"numbers": ("ONE", "TWO")})
    monkeypatch.setitem(sys.modules, "late", package)
    monkeypatch.setitem(sys.modules, "late.numbers", module)
    assert package.ONE is one
    assert package.__dict__["ONE"] is one
    with pytest.raises(AttributeError, match="'TWO'"):
        _ = package.TWO
    with pytest.raises(AttributeError, match="module 'late' has no attribute 'THREE'"):
        _ = package.THREE
