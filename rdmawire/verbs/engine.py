"""The interface of an engine to its driver: frames, timers and events, and one thread at a time.

:class:`Engine` is the interface between a software RNIC and its driver, which is a simulator or an
event loop. An engine does no I/O and reads no time by itself: its driver passes the time of each
frame and timer, and applications, which post work in between, cause :data:`Clock` to be called.

There is no lock: a program with several threads needs one of its own. The decorators refuse a
second thread inside an engine. ``_thread`` is the thread that is inside, which may enter again. No
function is called between reading and setting it, so CPython does not switch threads there, and two
threads that enter at once are detected.
"""

from collections.abc import Callable, Sequence
from errno import EBUSY
from functools import wraps
from inspect import isfunction, signature
from threading import get_ident
from typing import Any, Protocol, TypeAlias, TypeVar

from rdmawire.errors import VerbsError
from rdmawire.verbs.async_event import Event

Clock: TypeAlias = Callable[[], int]
"""Returns the time in nanoseconds. It never goes back."""

BURST = 64
"""Maximum frames of one call to ``transmit``: few enough to stay in a processor's cache."""


class Engine(Protocol):
    """A software RNIC without I/O. Frames are Ethernet frames without FCS, times are in ns."""

    clock: Clock | None
    """Time for verbs, which applications call between frames; set by the engine's driver."""

    def receive(self, frame: bytes, now: int) -> None:
        """Process a frame. Its contents never lead to an exception."""

    def receive_all(self, frames: Sequence[bytes], now: int) -> None:
        """Process frames that arrived together, which costs less for each."""

    def transmit(self, now: int, most: int = BURST) -> list[bytes]:
        """Return the next frames to send, at most ``most``; none if nothing is ready."""

    @property
    def sends_more(self) -> bool:
        """Whether ``transmit`` may return more frames without another call first."""

    def next_timer(self) -> int | None:
        """Return when ``handle_timer`` is due, or ``None``. Changes no state."""

    def handle_timer(self, now: int) -> None:
        """Do what is due at ``now``."""

    def next_event(self) -> Event | None:
        """Remove and return the oldest event, or return ``None``."""


C = TypeVar("C", bound=type)


def in_use(what: object) -> VerbsError:
    """The error for a second thread inside ``what``."""
    name = type(what).__name__
    return VerbsError(f"another thread is inside this {name}: let one in at a time", EBUSY)


def one_thread(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method to raise ``VerbsError`` EBUSY in a second thread while one is inside."""
    return _without_arguments(method) if _takes_nothing(method) else _with_arguments(method)


def _takes_nothing(method: Callable[..., Any]) -> bool:
    return len(signature(method).parameters) == 1


def _without_arguments(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a method without arguments, such as ``next_timer``: its calls take half the time."""

    @wraps(method)
    def entered(self: Any) -> Any:
        thread = get_ident()  # first: after a call CPython may switch threads
        outer = self._thread
        if outer is None:
            self._thread = thread
        elif outer != thread:
            raise in_use(self)
        try:
            return method(self)
        finally:
            self._thread = outer

    return entered


def _with_arguments(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def entered(self: Any, *args: Any, **kwargs: Any) -> Any:
        thread = get_ident()  # first: after a call CPython may switch threads
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
    """Wrap all public methods and setters of a class with :func:`one_thread`, except ``but``."""

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
