"""Progress on standard error, for what takes long."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Final

from rdmawire.capture import Reader
from rdmawire.capture.source import shown
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.node import Dissection

_SOON: Final = 0.5
"""Seconds after which work is worth a bar."""
_PARTS: Final = 10_000
"""Into which such a bar is divided."""


@contextmanager
def bar(name: str, size: int) -> Iterator[Callable[[int], object]]:
    """A bar for so much of anything under a name, and what to tell how much of it is done.

    Where standard error is no terminal, nothing is drawn.
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


@contextmanager
def file_bar(path: str, least: int, *, wanted: bool) -> Iterator[Callable[[int], object]]:
    """What to tell how many bytes of a file were read: a bar, where wanted, from so many on."""
    size = os.path.getsize(path) if wanted and os.path.isfile(path) else 0
    if size < least:
        yield lambda _: None
        return
    with bar(shown(path), size) as told:
        yield told


@contextmanager
def late_bar(name: str, *, wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """What to tell how much is done, and of how much: a bar, where wanted, once it takes long."""
    if not wanted:
        yield lambda _, __: None
        return
    with ExitStack() as stack:
        yield _LateBar(name, stack)


class _LateBar:
    """Draws a bar as soon as there was time to wait for it; the stack takes it away."""

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
"""Bytes of a file that are worth a progress bar."""
_FRAMES_PER_UPDATE = 512


def dissected(reader: Reader, ports: Iterable[int], *, progress: bool) -> Iterator[Dissection]:
    """The frames of one capture; ``progress`` draws a bar on standard error for long files."""
    frames = Dissector(ports).capture(reader)
    if progress and (reader.size or 0) >= _LONG:
        return _with_progress(frames, reader)
    return frames


def _with_progress(frames: Iterator[Dissection], reader: Reader) -> Iterator[Dissection]:
    with bar(reader.name, reader.size or 0) as done:
        for count, frame in enumerate(frames):
            if count % _FRAMES_PER_UPDATE == 0:
                done(reader.position)
            yield frame
