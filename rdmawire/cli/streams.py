"""Standard output, and standard error with its progress bars.

A run fails if standard output cannot be written. It goes on if standard error cannot.
"""

import os
import stat
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOWrapper
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol, TextIO

import click

from rdmawire.capture import Reader
from rdmawire.capture.io import STREAM, display_path
from rdmawire.capture.writer import format_named
from rdmawire.terminal import escape, escape_lines

if TYPE_CHECKING:
    from rdmawire.dissect.dissection import Dissection

_SOON: Final = 0.5
"""Seconds after which a late bar appears."""
_PARTS: Final = 10_000
"""Steps of a late bar."""


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


def dissected(reader: Reader, ports: Iterable[int], *, progress: bool) -> "Iterator[Dissection]":
    """Yield the frames of one capture; ``progress`` draws a bar for long files."""
    from rdmawire.dissect.dissector import Dissector  # here, so that --help imports no header

    frames = Dissector(ports).capture(reader)
    if progress and (reader.size or 0) >= _LONG:
        return _with_progress(frames, reader)
    return frames


def _with_progress(frames: "Iterator[Dissection]", reader: Reader) -> "Iterator[Dissection]":
    with bar(reader.name, reader.size or 0) as done:
        for count, frame in enumerate(frames):
            if count % _FRAMES_PER_UPDATE == 0:
                done(reader.position)
            yield frame


class LossyStream(TextIOWrapper):
    """A stream that discards text which cannot be written: writing never raises ``OSError``."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


class ByteWriter(Protocol):
    """Something that takes the bytes of a text."""

    def write(self, data: bytes) -> None: ...


class EscapingTerminal:
    """Writes UTF-8 text to a terminal, with control characters escaped."""

    def __init__(self, terminal: ByteWriter) -> None:
        self._terminal = terminal
        self._decode = getincrementaldecoder("utf-8")("backslashreplace").decode

    def write(self, data: bytes) -> None:
        self._terminal.write(escape_lines(self._decode(data)).encode())


def print_text(text: str) -> None:
    """Print ``text``; on a terminal, escape its control characters."""
    sys.stdout.write(escape_lines(text) if sys.stdout.isatty() else text)


def prepare() -> bool:
    """Prepare both streams for hostile text; return false if there is no standard output."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open to the end
    elif isinstance(sys.stderr, TextIOWrapper):
        wait(sys.stderr)
        sys.stderr = LossyStream(
            sys.stderr.buffer, sys.stderr.encoding, "backslashreplace", write_through=True
        )
    if isinstance(sys.stdout, TextIOWrapper):
        wait(sys.stdout)
        sys.stdout.reconfigure(errors="backslashreplace")
    return sys.stdout is not None


def wait(stream: TextIO) -> None:
    """Make writes block: Python loses text when a descriptor is non-blocking."""
    with suppress(OSError, ValueError):  # no descriptor: nothing to wait for
        os.set_blocking(stream.fileno(), True)


def complain(text: str) -> None:
    """Write ``text`` as one line to standard error."""
    sys.stderr.write(f"rdmawire: {escape(' '.join(text.split()))}\n")
    sys.stderr.flush()


_STANDARD_OUTPUT = 1
"""File descriptor of standard output."""
_SUFFIXES = ".pcap or .pcapng, and .gz, .xz, .zst or .lz4 for compression"


def check_suffix(path: str) -> None:
    """Raise ``click.UsageError`` if the suffix of ``path`` names no capture format.

    Standard output needs no suffix, nor does an existing device or pipe.
    """
    if path == STREAM or format_named(path) or _is_no_file(path):
        return
    raise click.UsageError(f"-w {escape(path)} names no format; end it in {_SUFFIXES}")


def by_own_name(path: str) -> str:
    """Return ``-`` if ``path`` is another name of the pipe on standard output, else ``path``.

    ``/dev/stdout`` is such a name: then the summary must go to standard error.
    """
    with suppress(OSError, ValueError):  # missing, not a possible name, or closed
        found, output = os.stat(path), os.fstat(_STANDARD_OUTPUT)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISCHR(found.st_mode):
            return STREAM if os.path.samestat(found, output) else path
    return path


def _is_no_file(path: str) -> bool:
    try:
        return os.path.exists(path) and not os.path.isfile(path)
    except ValueError:  # a byte that no name may have
        return False
