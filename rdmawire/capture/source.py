"""Where a capture is read from: a file, or standard input."""

import os
import stat
import sys
from collections.abc import Iterator
from io import UnsupportedOperation
from typing import Protocol

from rdmawire.capture.borrowed import Borrowed
from rdmawire.capture.compression import CHUNK
from rdmawire.capture.refusal import read_refusal, shown
from rdmawire.errors import CaptureError

STREAM = "-"
"""The path that means standard input, or standard output."""
STANDARD_INPUT = "standard input"
"""What a capture from there is called."""
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""What names a file."""


class Readable(Protocol):
    """What is needed of an open file: ``read`` gives what is there, ``None`` for not yet."""

    def read(self, size: int, /) -> bytes | None: ...

    def close(self) -> None: ...


class Source:
    """A file as it is stored: its octets in chunks, and how far they have been read.

    ``size`` is how many there are, ``None`` for a pipe; ``position`` is how many were read.
    """

    def __init__(self, file: Readable, name: str, size: int | None, chunk: int = CHUNK) -> None:
        self._file = file
        self._chunk = chunk
        self.name = name
        self.size = size
        self.position = 0
        self.closed = False

    def chunks(self) -> Iterator[bytes]:
        """The octets, up to the end of the file."""
        while chunk := self._read():
            self.position += len(chunk)
            yield chunk

    def _read(self) -> bytes:
        self.check_open()
        try:
            chunk = self._file.read(self._chunk)
        except OSError as error:
            raise read_refusal(error, self.name) from error
        if chunk is None:
            raise CaptureError(f"{self.name}: is set not to wait, and gives no octets yet")
        return chunk

    def check_open(self) -> None:
        """:class:`CaptureError` if it has been closed."""
        if self.closed:
            raise CaptureError(f"{self.name}: is closed; open it again to read it")

    def close(self) -> None:
        """Read no more."""
        self.closed = True
        self._file.close()


def open_source(path: AnyPath) -> Source:
    """The file of this name, standard input for ``-``; :class:`CaptureError` if it cannot be."""
    place = os.fsdecode(path)
    name = shown(place)
    if place == STREAM:
        return _standard_input()
    try:
        file = open(place, "rb", buffering=0)  # noqa: SIM115 - the source closes it
    except OSError as error:
        raise read_refusal(error, name) from error
    except ValueError as error:
        raise CaptureError(f"{place!r} is no name of a file: {error}") from error
    return Source(file, name, _size(file.fileno()))


def _size(descriptor: int) -> int | None:
    """Octets of a regular file."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _standard_input() -> Source:
    if sys.stdin is None:
        raise CaptureError(f"{STANDARD_INPUT}: is closed; name a file")
    try:
        descriptor = sys.stdin.fileno()
        file = open(descriptor, "rb", buffering=0, closefd=False)  # noqa: SIM115
    except UnsupportedOperation:
        return Source(Borrowed(sys.stdin.buffer), STANDARD_INPUT, None)
    except (OSError, ValueError) as error:
        raise CaptureError(f"{STANDARD_INPUT}: cannot be read: {error}") from error
    return Source(file, STANDARD_INPUT, _size(descriptor))
