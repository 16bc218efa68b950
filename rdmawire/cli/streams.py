"""Standard output and standard error, made fit to be written to.

Standard output is what a run is for: where it cannot be written, the run fails. Standard error
says what stands beside it: a run goes on without, whoever closed it or does not read it.
"""

import os
import stat
import sys
from codecs import getincrementaldecoder
from contextlib import suppress
from io import TextIOWrapper
from typing import Protocol, TextIO

import click

from rdmawire.capture.source import STREAM
from rdmawire.capture.writer import format_named
from rdmawire.terminal import escape, escape_lines


class Beside(TextIOWrapper):
    """A stream whose text may be lost: writing to it is never an error."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


class BytesLike(Protocol):
    """Something that takes the bytes of a text."""

    def write(self, data: bytes) -> None: ...


class Screen:
    """Writes UTF-8 text to a terminal, with control characters escaped."""

    def __init__(self, terminal: BytesLike) -> None:
        self._terminal = terminal
        self._decode = getincrementaldecoder("utf-8")("backslashreplace").decode

    def write(self, data: bytes) -> None:
        self._terminal.write(escape_lines(self._decode(data)).encode())


def print_text(text: str) -> None:
    """Print a text as it is; on a terminal its control characters are escaped."""
    sys.stdout.write(escape_lines(text) if sys.stdout.isatty() else text)


def prepare() -> bool:
    """Make both streams fit; false if there is no standard output."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open to the end
    elif isinstance(sys.stderr, TextIOWrapper):
        wait(sys.stderr)
        sys.stderr = Beside(
            sys.stderr.buffer, sys.stderr.encoding, "backslashreplace", write_through=True
        )
    if isinstance(sys.stdout, TextIOWrapper):
        wait(sys.stdout)
        sys.stdout.reconfigure(errors="backslashreplace")
    return sys.stdout is not None


def wait(stream: TextIO) -> None:
    """Have a write wait for room: Python drops text where a descriptor is set not to wait."""
    with suppress(OSError, ValueError):  # no descriptor: nothing to wait for
        os.set_blocking(stream.fileno(), True)


def complain(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"rdmawire: {escape(' '.join(text.split()))}\n")
    sys.stderr.flush()


_STANDARD_OUTPUT = 1
"""Its number, in every process."""
KNOWN = ".pcap or .pcapng, packed as .gz, .xz, .zst or .lz4 say"


def check_suffix(path: str) -> None:
    """:class:`click.UsageError` for a name that says no format.

    Standard output needs none, and neither does what is there already and no file: a device, or
    a pipe.
    """
    if path == STREAM or format_named(path) or _is_no_file(path):
        return
    raise click.UsageError(f"-w {escape(path)} names no format; end it in {KNOWN}")


def by_own_name(path: str) -> str:
    """The path, or ``-`` where it is another name of the pipe that standard output is.

    ``/dev/stdout`` is one: what else is said must not go there either.
    """
    with suppress(OSError, ValueError):  # nothing is there, or no name may be so, or it is closed
        found, output = os.stat(path), os.fstat(_STANDARD_OUTPUT)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISCHR(found.st_mode):
            return STREAM if os.path.samestat(found, output) else path
    return path


def _is_no_file(path: str) -> bool:
    try:
        return os.path.exists(path) and not os.path.isfile(path)
    except ValueError:  # a byte that no name may have
        return False
