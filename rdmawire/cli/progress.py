"""Progress on standard error; apart from its stream, which starts without captures."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rdmawire.capture import Reader
from rdmawire.capture.io import display_path
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector

if TYPE_CHECKING:
    from rich.status import Status

_SOON: Final = 0.5
"""Seconds after which a late bar appears."""
_PARTS: Final = 10_000
"""Steps of a late bar."""
_Value = TypeVar("_Value")


@contextmanager
def bar(name: str, size: int) -> Iterator[Callable[[int], object]]:
    """Draw a bar of ``size`` units while the context lasts; it yields the function that sets it.

    Nothing is drawn if standard error is not a terminal.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    console = Console(file=sys.stderr)
    if not console.is_interactive:
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as drawn:
        task = drawn.add_task(escape(name), total=size)
        yield lambda done: drawn.update(task, completed=done)


class StatusLine(Generic[_Value]):
    """A line of progress: calling it shows ``words`` of a value, in a terminal."""

    def __init__(self, words: Callable[[_Value], str], status: "Status | None") -> None:
        self._words = words
        self._status = status

    def __call__(self, value: _Value) -> None:
        if self._status is not None:
            self._status.update(self._words(value))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Remove the line while the context lasts, so that other text can be printed."""
        if self._status is None:
            yield
            return
        self._status.stop()
        try:
            yield
        finally:
            self._status.start()


@contextmanager
def status_line(words: Callable[[_Value], str]) -> Iterator[StatusLine[_Value]]:
    """Show a line of progress while the context lasts; it yields the line.

    Nothing is shown if standard error is not a terminal.
    """
    from rich.console import Console

    console = Console(file=sys.stderr)
    if not console.is_interactive:
        yield StatusLine(words, None)
        return
    with console.status("starting") as status:
        yield StatusLine(words, status)


@contextmanager
def file_bar(path: str, least: int, *, wanted: bool) -> Iterator[Callable[[int], object]]:
    """Draw a bar of the bytes read of a file, if ``wanted`` and of at least ``least`` bytes."""
    size = os.path.getsize(path) if wanted and os.path.isfile(path) else 0
    if size < least:
        yield lambda _: None
        return
    with bar(display_path(path), size) as report:
        yield report


@contextmanager
def late_bar(name: str, *, wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """Draw a bar once the work takes long; it yields a function of the work done and the total."""
    if not wanted:
        yield lambda _, __: None
        return
    with ExitStack() as stack:
        yield _LateBar(name, stack)


class _LateBar:
    """Draws a bar after :data:`_SOON` seconds; the stack removes it."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        self._name = name
        self._stack = stack
        self._begun = perf_counter()
        self._draw: Callable[[int], object] | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._draw is None and perf_counter() - self._begun > _SOON:
            self._draw = self._stack.enter_context(bar(self._name, _PARTS))
        if self._draw is not None:
            self._draw(done * _PARTS // total)


_LONG = 8 << 20
"""Size in bytes from which a file gets a progress bar."""
_FRAMES_PER_UPDATE = 512


def dissected(reader: Reader, ports: Iterable[int], *, progress: bool) -> Iterator[Dissection]:
    """Yield the frames of one capture; ``progress`` draws a bar for long files."""
    frames = Dissector(ports).capture(reader)
    if progress and (reader.size or 0) >= _LONG:
        return _with_progress(frames, reader)
    return frames


def texts_with_bar(
    texts: Iterator[bytes], path: str, position: Callable[[], int]
) -> Iterator[bytes]:
    """Yield the texts of a file, and draw a bar if it is long.

    ``position`` returns the number of bytes that were read. The bar is drawn from the first text
    on, by a thread: until then, other processes may be forked.
    """
    first = next(texts, None)
    if first is None:
        return
    yield first
    with file_bar(path, _LONG, wanted=True) as done:
        for text in texts:
            done(position())
            yield text


def _with_progress(frames: Iterator[Dissection], reader: Reader) -> Iterator[Dissection]:
    with bar(reader.name, reader.size or 0) as done:
        for count, frame in enumerate(frames):
            if count % _FRAMES_PER_UPDATE == 0:
                done(reader.position)
            yield frame
