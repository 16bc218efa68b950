"""Detects a second thread inside an adapter, and refuses it.

There is no lock: a program with several threads needs one of its own. ``_thread`` is the thread
that is inside, which may enter again. Nothing is called between reading and setting it, so CPython
does not switch threads there, and two threads that enter at once are detected.
"""

from collections.abc import Callable
from errno import EBUSY
from functools import wraps
from inspect import isfunction
from threading import get_ident
from typing import Any, TypeVar

from rdmawire.errors import VerbsError

C = TypeVar("C", bound=type)


def in_use(what: object) -> VerbsError:
    """The error for a second thread inside ``what``."""
    name = type(what).__name__
    return VerbsError(f"another thread is inside this {name}: let one in at a time", EBUSY)


def one_thread(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method to raise ``VerbsError`` EBUSY in a second thread while one is inside."""

    @wraps(method)
    def entered(self: Any, *args: Any, **kwargs: Any) -> Any:
        thread = get_ident()  # first: behind a call CPython may switch threads
        outer = self._thread
        if outer is None:
            self._thread = thread
        elif outer != thread:
            raise in_use(self)
        try:
            return method(self, *args, **kwargs)
        finally:
            self._thread = outer

    return entered


def one_thread_at_a_time(*but: str) -> Callable[[C], C]:
    """Wrap all public methods and setters of a class with :func:`one_thread`, ``but`` these."""

    def decorate(cls: C) -> C:
        for name, member in list(vars(cls).items()):
            if name.startswith("_") or name in but:
                continue
            if isfunction(member):
                setattr(cls, name, one_thread(member))
            elif isinstance(member, property) and member.fset is not None:
                setattr(cls, name, member.setter(one_thread(member.fset)))
        return cls

    return decorate
