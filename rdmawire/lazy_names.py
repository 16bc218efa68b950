"""Public names of a package that are loaded when they are first used (PEP 562).

The module of such a name needs a library that takes long to import, or a large part of rdmawire.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def lazy_names(package: str, modules: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of ``package``, which loads a name at its first use.

    ``modules`` has the names of each module; modules are relative to the package. ``__getattr__``
    raises ``AttributeError`` for other names.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
