"""Where a capture is read from: a file, or standard input."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import UnsupportedOperation
from typing import Protocol, TypeVar

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


_Found = TypeVar("_Found", bytes, int)


class Readable(Protocol):
    """What is needed of an open file: what is there, ``None`` for nothing yet."""

    def read(self, size: int, /) -> bytes | None: ...

    def readinto(self, buffer: memoryview, /) -> int | None: ...

    def close(self) -> None: ...


class Source:
    """A file as it is stored: its octets in chunks, and how far they have been read.

    ``size`` is how many there are to read when it is opened, ``None`` for a pipe; ``position`` is
    how many were read.
    """

    def __init__(self, file: Readable, name: str, size: int | None, chunk: int = CHUNK) -> None:
        self._file = file
        self._chunk = chunk
        self.name = name
        self.size = size
        self.position = 0
        self.closed = False
        self._failure: CaptureError | None = None

    def chunks(self) -> Iterator[bytes]:
        """The octets, up to the end of the file."""
        while chunk := self._read():
            self.position += len(chunk)
            yield chunk
        self.check_end()

    def fill(self, buffer: memoryview) -> int:
        """Read until ``buffer`` is full or the file ends. Return how many bytes were read.

        After a read error it returns fewer: :meth:`check_end` raises the error.
        """
        filled = 0
        try:
            while filled < len(buffer) and (count := self._read_into(buffer[filled:])):
                filled += count
                self.position += count
        except CaptureError as error:
            self._failure = error
        return filled

    def check_end(self) -> None:
        """:class:`CaptureError` if reading ended before the size that the file had when opened."""
        if self._failure is not None:
            raise self._failure
        if self.size is not None and self.position < self.size:
            raise CaptureError(
                f"{self.name}: became shorter while it was read: {self.position} of {self.size}"
                " bytes could be read; read it again when nothing writes to it"
            )

    def _read(self) -> bytes:
        with self._refusals():
            return _there(self._file.read(self._chunk))

    def _read_into(self, buffer: memoryview) -> int:
        with self._refusals():
            return _there(self._file.readinto(buffer))

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        self.check_open()
        try:
            yield
        except BlockingIOError:
            raise CaptureError(
                f"{self.name}: is set not to wait, and gives no octets yet"
            ) from None
        except OSError as error:
            raise read_refusal(error, self.name) from error

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


def _there(found: _Found | None) -> _Found:
    """The result of a read; ``BlockingIOError`` if nothing can be read yet."""
    if found is None:
        raise BlockingIOError
    return found


def _size(descriptor: int) -> int | None:
    """Bytes of a regular file that are left to read."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return None
    return max(status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR), 0)


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
