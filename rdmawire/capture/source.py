"""Where a capture is read from: a file, or standard input."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import UnsupportedOperation
from typing import BinaryIO, Protocol, TypeVar

from rdmawire.capture.compression import CHUNK
from rdmawire.errors import CaptureError
from rdmawire.terminal import escape


class NonClosingStream:
    """A stream of somebody else's, to be read or written but left open."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, size: int, /) -> bytes | None:
        """What the stream gives."""
        return self._stream.read(size)

    def readinto(self, buffer: memoryview, /) -> int:
        """How many bytes the stream put into the buffer."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: memoryview, /) -> int | None:
        """How many bytes the stream took."""
        return self._stream.write(data)

    def close(self) -> None:
        """Leave it open."""


_NAMING = {
    errno.ENOTDIR: "a part of its path is no folder; check its name",
    errno.ELOOP: "its symbolic links lead round in a circle; mend them, or name the file itself",
    errno.ENAMETOOLONG: "its name is longer than names of files may be; check it, or shorten it",
    errno.ENXIO: "nothing is behind this device; name another file",
    errno.EIO: "the device failed; check it and its cables, then try again",
}
_READING = {
    **_NAMING,
    errno.ENOENT: "there is no such file; check its name",
    errno.EISDIR: "is a folder; name a capture file in it",
    errno.EACCES: "there is no permission to read it; have it granted, or read as its owner",
}
_WRITING = {
    **_NAMING,
    errno.ENOENT: "its folder does not exist; create it first",
    errno.EISDIR: "is a folder; name a file in it",
    errno.EACCES: "there is no permission to write it or in its folder; write elsewhere",
    errno.EROFS: "its file system is read-only; write elsewhere",
    errno.ENOSPC: "no space is left on the device; free some, or write elsewhere",
    errno.EDQUOT: "the disk quota is used up; free some of it, or write elsewhere",
    errno.EFBIG: "it would be longer than files may be; raise that limit, or write elsewhere",
    errno.EPIPE: "nobody reads it any more",
}


def read_refusal(error: OSError, name: str) -> CaptureError:
    """The error for a capture that could not be read."""
    return _refusal(error, name, _READING)


def write_refusal(error: OSError, name: str) -> CaptureError:
    """The error for a capture that could not be written."""
    return _refusal(error, name, _WRITING)


def shown(path: str) -> str:
    """A path on one line, with what a screen cannot show as escapes."""
    return escape(path) or "''"


def _refusal(error: OSError, name: str, words: dict[int, str]) -> CaptureError:
    number = errno.EACCES if error.errno == errno.EPERM else error.errno
    return CaptureError(f"{name}: {words.get(number or 0) or error.strerror or error}")


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
    """A file as it is stored: its bytes in chunks, and how far they have been read.

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
        """The bytes, up to the end of the file."""
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
            raise CaptureError(f"{self.name}: is set not to wait, and gives no bytes yet") from None
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
        return Source(NonClosingStream(sys.stdin.buffer), STANDARD_INPUT, None)
    except (OSError, ValueError) as error:
        raise CaptureError(f"{STANDARD_INPUT}: cannot be read: {error}") from error
    return Source(file, STANDARD_INPUT, _size(descriptor))


class BytesLike:
    """A stretch of the file, ``buffer``, and the place in it that is read next, ``at``.

    Buffers are never changed, only replaced: whoever holds one may keep it. Of the file no
    more is held than was asked for, and one chunk. What is asked for is put together only where
    it lies in several chunks; elsewhere the buffer is the chunk itself.
    """

    def __init__(self, chunks: Iterator[bytes], name: str) -> None:
        self._chunks = chunks
        self._base = 0
        self._chunk = b""
        self._taken = 0
        self.name = name
        self.buffer = b""
        self.at = 0

    @property
    def offset(self) -> int:
        """Bytes of the file before the place."""
        return self._base + self.at

    def need(self, count: int) -> int:
        """Have ``count`` bytes stand at the place; how many do, fewer only where the file ends."""
        left = len(self.buffer) - self.at
        if left >= count:
            return left
        return self._gather(left, count) if left else self._go_on(count)

    def _go_on(self, count: int) -> int:
        """The buffer is used up: go on in the chunk behind it."""
        if not self._refill():
            return 0
        self._base += self.at - self._taken
        self.buffer, self.at = self._chunk, self._taken
        self._taken = len(self._chunk)
        left = len(self.buffer) - self.at
        return left if left >= count else self._gather(left, count)

    def _gather(self, left: int, count: int) -> int:
        """Put together what lies in several chunks."""
        parts = [self.buffer[self.at :]]
        while left < count and self._refill():
            part = self._chunk[self._taken : self._taken + count - left]
            parts.append(part)
            self._taken += len(part)
            left += len(part)
        self._base += self.at
        self.buffer, self.at = b"".join(parts), 0
        return left

    def _refill(self) -> bool:
        """Have a chunk with bytes that nobody has taken; false where the file ends."""
        if self._taken == len(self._chunk):
            self._chunk, self._taken = next(self._chunks, b""), 0
        return bool(self._chunk)

    def skip(self, count: int) -> int:
        """Move the place on without keeping what is passed; by how much, as with :meth:`need`."""
        passed = 0
        while passed < count and (left := self.need(1)):
            step = min(left, count - passed)
            self.at += step
            passed += step
        return passed

    def damage(self, reason: str, at: int | None = None) -> CaptureError:
        """The error for damage at this place of the buffer."""
        return CaptureError(f"{self.name}: {reason}", self._base + (self.at if at is None else at))
