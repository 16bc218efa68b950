"""Parsers as targets: a Python function that takes bytes.

A function may raise the exceptions that are expected; any other, a failed assertion, other values
than the expected ones or a call that takes too long is a
:class:`~rdmawire.fuzz.oracle.Violation`. A form says what of the frames of a case the function
gets.
"""

import os
import signal
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import FrameType
from typing import Any, Final, NoReturn, Protocol, runtime_checkable

from rdmawire.decode import LINK_TYPES
from rdmawire.errors import Ended, FuzzError, RdmaError
from rdmawire.fuzz.exception_text import exception_name, exception_text, raised_in
from rdmawire.fuzz.frame_map import map_frame
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.oracle import TIME, Violation
from rdmawire.fuzz.other_values import OtherValuesError
from rdmawire.terminal import quote, shorten, suggest

EXPECTED: Final[tuple[type[BaseException], ...]] = (RdmaError,)
"""The exceptions that a parser may raise by default."""
DEFAULT_SECONDS: Final = 10.0
"""Seconds that a call may take."""
_MAX_NAMES: Final = 300
"""Characters of the names of expected exceptions in a report."""
_MESSAGES: Final = ("mad", "directed_mad", "mpa_request", "mpa_reply", "mpa_fpdu")

Form = Callable[[Sequence[SeedFrame]], Iterator[bytes]]
"""What a parser gets of the frames of a case: an argument for each call."""


class Parser(Protocol):
    """Something that parses frames."""

    @property
    def name(self) -> str:
        """A name for reports."""
        ...

    def judge(self, frames: Sequence[SeedFrame]) -> Violation | None:
        """Parse the frames in order; return the first violation, or ``None``."""
        ...

    def judge_all(self, cases: Sequence[Sequence[SeedFrame]]) -> Iterable[Violation | None]:
        """Judge each case by itself, in order; what is yielded early need not be judged again."""
        ...


@runtime_checkable
class CheckedParser(Protocol):
    """A parser that needs something which may be missing."""

    def check(self) -> None:
        """Raise :class:`FuzzError` if something that the parser needs is missing."""
        ...


def frame_form(frames: Sequence[SeedFrame]) -> Iterator[bytes]:
    """Each frame as it is."""
    return (frame.data for frame in frames)


def packet_form(frames: Sequence[SeedFrame]) -> Iterator[bytes]:
    """Of each frame the bytes from the BTH to the pad, without CRCs; frames without one whole."""
    for data, link_type, _ in frames:
        bth = map_frame(data, link_type).find("bth")
        yield data if bth is None else data[bth.offset : -4]


def message_form(frames: Sequence[SeedFrame]) -> Iterator[bytes]:
    """Of each frame the bytes from its datagram, start-up frame or FPDU on, else from the BTH."""
    return _from_first(frames, (*_MESSAGES, "bth"))


def segment_form(frames: Sequence[SeedFrame]) -> Iterator[bytes]:
    """Of each frame the bytes from its datagram or DDP segment on, else from the BTH."""
    return _from_first(frames, ("mad", "directed_mad", "ddp", "bth"))


def _from_first(frames: Sequence[SeedFrame], labels: Sequence[str]) -> Iterator[bytes]:
    """Of each frame the bytes from the first header with one of these labels on."""
    for data, link_type, _ in frames:
        found = map_frame(data, link_type)
        places = [found.find(label) for label in labels]
        yield data[next((place.offset for place in places if place is not None), 0) :]


def linked_form(frames: Sequence[SeedFrame]) -> Iterator[bytes]:
    """Each frame after a byte: the index of its link type among :data:`LINK_TYPES`, sorted."""
    for data, link_type, _ in frames:
        if link_type in LINK_TYPES:
            yield bytes((sorted(LINK_TYPES).index(link_type),)) + data


def stream_form(frames: Sequence[SeedFrame]) -> Iterator[bytes]:
    """All frames in one buffer, each after its length (two bytes, big-endian)."""
    pieces = (frame.data[:0xFFFF] for frame in frames)
    yield b"".join(struct.pack(">H", len(piece)) + piece for piece in pieces)


FORMS: Final[dict[str, Form]] = {
    "frame": frame_form,
    "packet": packet_form,
    "message": message_form,
    "segment": segment_form,
    "linked": linked_form,
    "stream": stream_form,
}
"""The forms by name."""


def form_named(name: str) -> Form:
    """Return a form. Raises :class:`FuzzError` for an unknown name."""
    if name not in FORMS:
        raise FuzzError(f"no form is named {quote(name)}{suggest(name, FORMS)}: {', '.join(FORMS)}")
    return FORMS[name]


def loaded(name: str) -> Any:
    """Return what ``package.module:name`` names, or a builtin. Raises :class:`FuzzError`."""
    module, colon, attribute = name.partition(":")
    if not colon:
        module, attribute = "builtins", name
    found = _imported(name, module)
    try:
        for word in attribute.split("."):
            found = getattr(found, word)
    except AttributeError as error:
        raise FuzzError(f"{quote(name)}: {error}: write package.module:name") from error
    return found


def _imported(name: str, module: str) -> Any:
    """Return a module of the user. Raises :class:`FuzzError`, for ``name``, if it has none."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise FuzzError(f"{quote(name)}: no module has such a name: write package.module:name")
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):
            raise FuzzError(
                f"{quote(name)}: there is no module {quote(str(error.name))} in the current folder "
                "or on PYTHONPATH: run the command in the folder of the module"
            ) from error
        raise FuzzError(f"{quote(name)}: importing it raises {exception_text(error)}") from error
    except (Exception, SystemExit) as error:  # whatever the module raises while it is imported
        raise FuzzError(f"{quote(name)}: importing it raises {exception_text(error)}") from error


_NOT_RUN_BY_A_CALL: Final = (isgeneratorfunction, iscoroutinefunction, isasyncgenfunction)


def function_named(name: str) -> Callable[[bytes], object]:
    """Return the function ``package.module:function``. Raises :class:`FuzzError` for others."""
    found = loaded(name)
    if not callable(found):
        raise FuzzError(f"{quote(name)} cannot be called")
    if any(is_kind(found) for is_kind in _NOT_RUN_BY_A_CALL):
        raise FuzzError(
            f"{quote(name)} is a generator or coroutine: a call does not run it; wrap it"
        )
    function: Callable[[bytes], object] = found
    return function


def exceptions_named(names: Sequence[str]) -> tuple[type[BaseException], ...]:
    """Return exception classes: ``ValueError``, ``package.module:Error``.

    Raises :class:`FuzzError` for other names.
    """
    found = tuple(map(loaded, names))
    for name, kind in zip(names, found, strict=True):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise FuzzError(f"{quote(name)} is not an exception class")
    return found


class TimeLimitError(BaseException):
    """A call took too long. No ``except Exception`` of a parser catches it."""


def no_result(seconds: float, expected: str) -> Violation:
    """Return the violation of a call that takes longer than ``seconds``."""
    happened = f"no result within {seconds:g} s"
    return Violation(0, TIME, expected, happened, "", "time | no result in time")


class FunctionParser:
    """A function that takes bytes; ``expected`` are the exceptions that it may raise.

    - ``seconds``: how long a call may take; it is not checked outside the main thread.
    - ``isolated``: whether the calls are in a process of their own, to which Ctrl-C does not come:
      then ``KeyboardInterrupt`` is an exception as any other.

    If a call forks, only the process that made it goes on.
    """

    def __init__(
        self,
        function: Callable[[bytes], object],
        form: Form = frame_form,
        *,
        expected: tuple[type[BaseException], ...] = EXPECTED,
        seconds: float = DEFAULT_SECONDS,
        name: str = "",
        isolated: bool = False,
    ) -> None:
        self.name = name or getattr(function, "__qualname__", "a parser")
        self._interrupts = () if isolated else (KeyboardInterrupt, Ended)
        self._function = function
        self._form = form
        self._exceptions = expected
        self.seconds = seconds

    def judge(self, frames: Sequence[SeedFrame]) -> Violation | None:
        """Call the function; ``place`` of a violation is the index of the call."""
        for place, data in enumerate(self._form(frames)):
            found = self._call(data)
            if found is not None:
                return found._replace(place=place)
        return None

    def judge_all(self, cases: Sequence[Sequence[SeedFrame]]) -> Iterator[Violation | None]:
        """Judge each case."""
        return map(self.judge, cases)

    def _call(self, data: bytes) -> Violation | None:
        process = os.getpid()
        try:
            return self._outcome(data)
        finally:
            if os.getpid() != process:  # two processes must not judge the cases that follow
                os._exit(0)

    def _outcome(self, data: bytes) -> Violation | None:
        """Call the function, and judge how the call ends."""
        try:
            with _time_limit(self.seconds):
                self._function(data)
        except self._exceptions:
            return None
        except self._interrupts:
            raise
        except TimeLimitError:
            return no_result(self.seconds, self._expected)
        except OtherValuesError as error:
            signature = f"values | {error.about}"
            return Violation(0, "values", error.expected, error.found, "", signature)
        except BaseException as error:  # whatever a parser raises is a finding
            return self._raised(error)
        return None

    def _raised(self, error: BaseException) -> Violation:
        place, line = raised_in(error)
        happened = f"{exception_text(error)} in {place}, line {line}"
        signature = f"exception | {exception_name(error)} | {place}"
        return Violation(0, "exception", self._expected, happened, "", signature)

    @property
    def _expected(self) -> str:
        names = ", ".join(kind.__name__ for kind in self._exceptions)
        return f"a result or {shorten(names, _MAX_NAMES)}" if names else "a result"


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`TimeLimitError` in the body after ``seconds``, where signals allow it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _expired(_: int, __: FrameType | None) -> NoReturn:
    raise TimeLimitError
