"""Exceptions in the work of the service: the client that each belongs to, and their reports.

No exception is expected, and none may end the service: it drops the client whose work raised one,
and goes on for the others. That client is found by the traceback: functions of the engine have a
queue pair, a memory region or a completion queue as an argument. The client is the one that owns
the innermost of these.
"""

import traceback
from collections.abc import Callable, Iterator
from time import sleep
from types import FrameType
from typing import Final, Protocol, TypeVar

from rdmawire.verbs_service.diagnostics import warn

_PAUSE: Final = 0.001
"""Seconds to wait after an exception that belongs to no client, as it may be raised again at once:
far less than clients notice, and enough that the service does not use a processor for it."""


class Owner(Protocol):
    """A client, as :func:`responsible_client` knows it."""

    def owns(self, thing: object) -> bool:
        """Whether an object of the engine or of the service belongs to the client."""


C = TypeVar("C", bound=Owner)


def responsible_client(error: BaseException, clients: list[C], kinds: tuple[type, ...]) -> C | None:
    """Return the client that owns an object of the innermost possible function of a traceback.

    ``kinds`` are the classes of objects that clients own. Return ``None`` if no client owns any
    object that a function of the traceback has.
    """
    for thing in _objects(error, kinds):
        for client in clients:
            if client.owns(thing):
                return client
    return None


def _objects(error: BaseException, kinds: tuple[type, ...]) -> Iterator[object]:
    """Yield the objects of some classes that functions of a traceback have, the innermost first.

    Functions of the server are left out, since they have the objects of all clients.
    """
    for frame in reversed([*_frames(error)]):
        if frame.f_globals.get("__name__") not in _SHARED_MODULES:
            yield from (value for value in frame.f_locals.values() if isinstance(value, kinds))


def _frames(error: BaseException) -> Iterator[FrameType]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


_SHARED_MODULES: Final = frozenset({"rdmawire.verbs_service.server", __name__})


class Failures:
    """Prints exceptions on standard error. ``pause`` waits for a number of seconds."""

    def __init__(self, pause: Callable[[float], None] = sleep) -> None:
        self._pause = pause
        self._seen: set[tuple[type, str, int]] = set()

    def of_client(self, name: str, error: Exception) -> None:
        """Print that a client is closed because of ``error``."""
        warn(f"{name}: closed, its work raised an exception\n{_text(error)}")

    def of_service(self, error: Exception) -> None:
        """Print an exception that belongs to no client: once for each place that raises it."""
        *_, frame = _frames(error)
        place = type(error), frame.f_code.co_filename, frame.f_lineno
        if place not in self._seen:
            self._seen.add(place)
            warn(f"an exception that belongs to no client: the service goes on\n{_text(error)}")
        self._pause(_PAUSE)


def _text(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
