"""One thread at a time: an adapter that two threads use at once is refused, not corrupted.

There is no lock: who has several threads has one of its own. ``_thread`` is the thread that is
inside, which may come in again. Nothing is called between reading and setting it, so CPython does
not switch threads there, and two that come together are found out.
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
    """The refusal of a second thread."""
    name = type(what).__name__
    return VerbsError(f"another thread is inside this {name}: let one in at a time", EBUSY)


def one_thread(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that refuses a second thread while one is inside: ``VerbsError`` EBUSY."""

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
    """Have all public methods and setters of a class refuse a second thread, ``but`` these."""

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
