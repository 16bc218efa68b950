"""Standard output and standard error.

A run fails if standard output cannot be written. It goes on if standard error cannot. Every command
imports this module, `rdmawire --help` too: it imports little, so that starting stays fast.
"""

import os
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Protocol, TextIO

from rdmawire.terminal import escape, escape_lines

if TYPE_CHECKING:
    from rdmawire.topology import FoundMachine


_USAGE = 2


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


def write_encoded(parts: Iterable[bytes]) -> None:
    """Write parts of a text, in the encoding of standard output, to it."""
    sys.stdout.flush()
    sys.stdout.buffer.writelines(parts)


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


def complain_of_each(error: Exception) -> None:
    """Write each line of an error to standard error: a file may have several errors."""
    for line in str(error).splitlines():
        complain(line)


def bytes_of_input() -> bytes:
    """Read standard input up to one byte more than the maximum of a scenario or a host."""
    from rdmawire.traffic.scenario.document import MAX_BYTES

    return sys.stdin.buffer.read(MAX_BYTES + 1)


def open_host(source: str) -> "FoundMachine":
    """Return a host by a name, a file or a folder, or ``-`` for the text on standard input.

    End with status 2 after a line for each error of a file in YAML.
    """
    from rdmawire.capture.io import STANDARD_INPUT, STREAM
    from rdmawire.traffic.scenario import topology_file

    with each_error_of_yaml():
        if source != STREAM:
            return topology_file.open_host(source)
        return topology_file.parse_topology(bytes_of_input(), STANDARD_INPUT)


@contextmanager
def each_error_of_yaml() -> Iterator[None]:
    """End with status 2 after a line for each error of a file that is read within."""
    import click

    from rdmawire.traffic.scenario.document import ScenarioError

    try:
        yield
    except ScenarioError as error:
        complain_of_each(error)
        raise click.exceptions.Exit(_USAGE) from None
