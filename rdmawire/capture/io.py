"""Input and output files of captures: named files, pipes, standard input and output.

Errors of the system become :class:`~rdmawire.errors.CaptureError` with advice on what to do.
"""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO, UnsupportedOperation
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

from rdmawire.capture.compression import CHUNK
from rdmawire.errors import CaptureError
from rdmawire.terminal import escape

if TYPE_CHECKING:
    from pathlib import Path

STREAM = "-"
"""The path of standard input and standard output."""
STANDARD_INPUT = "standard input"
"""The name of standard input in messages."""
_STANDARD_OUTPUT = "standard output"
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""A path of a file."""

_NAMING = {
    errno.ENOTDIR: "a part of its path is no folder; check its name",
    errno.ELOOP: "its symbolic links form a loop; correct them, or name the file itself",
    errno.ENAMETOOLONG: "its name is longer than names of files may be; check it, or shorten it",
    errno.ENXIO: "there is no such device; name another file",
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
    errno.EPIPE: "the reader has closed the pipe",
}


def read_error(error: OSError, name: str) -> CaptureError:
    """Return the error for a file that could not be read."""
    return _with_advice(error, name, _READING)


def write_error(error: OSError, name: str) -> CaptureError:
    """Return the error for a file that could not be written."""
    return _with_advice(error, name, _WRITING)


def _with_advice(error: OSError, name: str, advice: dict[int, str]) -> CaptureError:
    number = errno.EACCES if error.errno == errno.EPERM else error.errno
    return CaptureError(f"{name}: {advice.get(number or 0) or error.strerror or error}")


def display_path(path: str) -> str:
    """Return a path on one line, with escapes for what a terminal cannot show."""
    return escape(path) or "''"


class NonClosingStream:
    """Wraps a stream of Python, which stays open when this is closed."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, size: int, /) -> bytes | None:
        return self._stream.read(size)

    def readinto(self, buffer: memoryview, /) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: memoryview, /) -> int | None:
        return self._stream.write(data)

    def close(self) -> None:
        """Leave the stream open."""


# Reading.


class Readable(Protocol):
    """An open file; reading returns ``None`` if there is no data yet."""

    def read(self, size: int, /) -> bytes | None: ...

    def readinto(self, buffer: memoryview, /) -> int | None: ...

    def close(self) -> None: ...


_Result = TypeVar("_Result", bytes, int)


class InputFile:
    """A file being read, as it is stored.

    ``size`` is the number of bytes to read when it was opened, ``None`` for a pipe; ``position``
    the number of bytes read so far.
    """

    def __init__(self, file: Readable, name: str, size: int | None, chunk: int = CHUNK) -> None:
        self._file = file
        self._chunk = chunk
        self.name = name
        self.size = size
        self.position = 0
        self.closed = False
        self._failure: CaptureError | None = None

    @property
    def left(self) -> int:
        """Bytes not read yet of those that the file had when it was opened; 0 for a pipe."""
        return max((self.size or 0) - self.position, 0)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes up to the end of the file."""
        while chunk := self._read():
            self.position += len(chunk)
            yield chunk
        self.check_end()

    def fill(self, buffer: memoryview) -> int:
        """Read until ``buffer`` is full or the file ends; return the number of bytes read.

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
        """Raise :class:`CaptureError` if reading ended before the size that the file had."""
        if self._failure is not None:
            raise self._failure
        if self.size is not None and self.position < self.size:
            raise CaptureError(
                f"{self.name}: became shorter while it was read: {self.position} of {self.size}"
                " bytes could be read; read it again when nothing writes to it"
            )

    def _read(self) -> bytes:
        self.check_open()
        try:
            return _available(self._file.read(self._chunk))
        except OSError as error:
            raise self._error(error) from error

    def _read_into(self, buffer: memoryview) -> int:
        self.check_open()
        try:
            return _available(self._file.readinto(buffer))
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> CaptureError:
        if isinstance(error, BlockingIOError):
            reason = "is in non-blocking mode and has no data yet; read it when it has"
            return CaptureError(f"{self.name}: {reason}")
        return read_error(error, self.name)

    def check_open(self) -> None:
        """Raise :class:`CaptureError` if the file has been closed."""
        if self.closed:
            raise CaptureError(f"{self.name}: is closed; open it again to read it")

    def close(self) -> None:
        """Close the file."""
        self.closed = True
        self._file.close()


def _available(result: _Result | None) -> _Result:
    """Return the result of a read; raises ``BlockingIOError`` if there is no data yet."""
    if result is None:
        raise BlockingIOError
    return result


def open_input(path: AnyPath) -> InputFile:
    """Open a file, or standard input for ``-``; raises :class:`CaptureError` if it cannot be."""
    text = os.fsdecode(path)
    if text == STREAM:
        return _standard_input()
    name = display_path(text)
    with _opening(text, _READING):
        file = open(text, "rb", buffering=0)  # noqa: SIM115 - close() closes it
        return InputFile(file, name, _size(file.fileno()))


@contextmanager
def _opening(path: str, advice: dict[int, str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _with_advice(error, display_path(path), advice) from error
    except ValueError as error:
        raise CaptureError(f"{path!r} is no name of a file: {error}") from error


def _size(descriptor: int) -> int | None:
    """Return the bytes of a regular file that are left to read."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return None
    return max(status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR), 0)


def _standard_input() -> InputFile:
    if sys.stdin is None:
        raise CaptureError(f"{STANDARD_INPUT}: is closed; name a file")
    try:
        descriptor = sys.stdin.fileno()
        file = open(descriptor, "rb", buffering=0, closefd=False)  # noqa: SIM115
    except UnsupportedOperation:
        return InputFile(NonClosingStream(sys.stdin.buffer), STANDARD_INPUT, None)
    except (OSError, ValueError) as error:
        raise CaptureError(f"{STANDARD_INPUT}: cannot be read: {error}") from error
    return InputFile(file, STANDARD_INPUT, _size(descriptor))


class ChunkBuffer:
    """A window of a file, ``buffer``, and the index in it of the next byte to read, ``at``.

    Buffers are never changed, only replaced: a caller may keep one. No more of the file is held
    than what was asked for and one chunk. Chunks are joined only for data that spans several.
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
        """Offset in the file of the next byte."""
        return self._base + self.at

    def need(self, count: int) -> int:
        """Extend the buffer to ``count`` bytes from ``at`` on.

        Returns the number of bytes from there on; it is less only where the file ends.
        """
        left = len(self.buffer) - self.at
        if left >= count:
            return left
        return self._join(left, count) if left else self._advance(count)

    def _advance(self, count: int) -> int:
        """Replace the buffer, which is used up, with the next chunk."""
        if not self._refill():
            return 0
        self._base += self.at - self._taken
        self.buffer, self.at = self._chunk, self._taken
        self._taken = len(self._chunk)
        left = len(self.buffer) - self.at
        return left if left >= count else self._join(left, count)

    def _join(self, left: int, count: int) -> int:
        """Join data that lies in several chunks."""
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
        """Read a chunk if the current one is used up; return false at the end of the file."""
        if self._taken == len(self._chunk):
            self._chunk, self._taken = next(self._chunks, b""), 0
        return bool(self._chunk)

    def skip(self, count: int) -> int:
        """Move ``at`` on by ``count`` bytes, which are not kept; return the bytes skipped."""
        skipped = 0
        while skipped < count and (left := self.need(1)):
            step = min(left, count - skipped)
            self.at += step
            skipped += step
        return skipped

    def damage(self, reason: str, at: int | None = None) -> CaptureError:
        """Return the error for damage at an index of the buffer, by default the next byte."""
        return CaptureError(f"{self.name}: {reason}", self._base + (self.at if at is None else at))


# Writing.


class Writable(Protocol):
    """An open file; ``write`` returns the number of bytes written, ``None`` for none now."""

    def write(self, data: memoryview, /) -> int | None: ...

    def close(self) -> None: ...


class OutputFile:
    """A pipe, a device or standard output being written.

    Either ``commit`` or ``discard`` ends it. ``write`` and ``commit`` raise ``OSError``; discard
    it then.
    """

    def __init__(self, file: Writable, name: str) -> None:
        self._file = file
        self.name = name

    def write(self, data: bytes | memoryview) -> None:
        """Write all of the data."""
        view = memoryview(data)
        while view:
            written = self._file.write(view)
            if written is None:
                raise BlockingIOError("is in non-blocking mode and takes no bytes now")
            view = view[written:]

    def commit(self) -> None:
        """Complete what was written."""
        self._file.close()

    def discard(self) -> None:
        """Discard what was written, if possible."""
        with suppress(OSError):  # the data are discarded: the error is irrelevant
            self._file.close()


_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
"""The flag of open(2) for a file without a name; 0 where the system has none."""


class AtomicFile(OutputFile):
    """A file being written, which gets its name when it is complete and stored on disk.

    Until then it has no name, if the file system supports that (open(2), O_TMPFILE), so that a
    killed process leaves no file. Otherwise its name is ``.rdmawire-*.part``. An existing
    file is replaced by rename(2), for which the new one needs a name: it has that of a part between
    two system calls.

    ``mode`` is that of the file it replaces, whose permissions it keeps.
    """

    def __init__(self, target: "Path", name: str, mode: int | None = None) -> None:
        self._target = target
        self._part = target.with_name(f".rdmawire-{os.urandom(8).hex()}.part")
        unnamed = _open_unnamed(target.parent)
        self._is_named = unnamed is None
        self._open: FileIO = unnamed or open(self._part, "xb", buffering=0)  # noqa: SIM115
        super().__init__(self._open, name)
        if mode is not None:
            try:
                os.fchmod(self._open.fileno(), stat.S_IMODE(mode))
            except OSError:
                self.discard()
                raise

    def commit(self) -> None:
        os.fsync(self._open.fileno())
        if self._is_named or not self._link(self._target):
            self._replace()
        self._open.close()

    def _replace(self) -> None:
        if not self._is_named:
            self._is_named = self._link(self._part)
        os.replace(self._part, self._target)

    def _link(self, path: "Path") -> bool:
        """Give the file its first name; return false if another file has it."""
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # With a folder given, Python calls linkat(2), which follows the link of /proc.
            os.link(_descriptor(self._open), path.name, dst_dir_fd=folder)
        except FileExistsError:
            return False
        finally:
            os.close(folder)
        return True

    def discard(self) -> None:
        super().discard()
        if self._is_named:
            with suppress(OSError):
                self._part.unlink(missing_ok=True)


def _open_unnamed(folder: "Path") -> FileIO | None:
    """Open a new file without a name in ``folder``; return ``None`` if it could not get one later.

    This happens if the file system has no such files, or /proc is missing. Other errors of the
    folder are reported when a named file is opened in it.
    """
    if not _O_TMPFILE:
        return None
    try:
        descriptor = os.open(folder, _O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError:
        return None
    file = open(descriptor, "wb", buffering=0)  # noqa: SIM115 - AtomicFile closes it
    if os.path.exists(_descriptor(file)):
        return file
    file.close()
    return None


def _descriptor(file: FileIO) -> str:
    """Return the path of an open file in /proc."""
    return f"/proc/self/fd/{file.fileno()}"


def open_output(path: AnyPath) -> OutputFile:
    """Open a file for writing, or standard output for ``-``.

    A symbolic link stays, and the file that it points at is replaced. Raises
    :class:`CaptureError` if the file cannot be written.
    """
    text = os.fsdecode(path)
    if text == STREAM:
        return _standard_output()
    with _opening(text, _WRITING):
        return _output(text)


def _output(path: str) -> OutputFile:
    from pathlib import Path

    name, target = display_path(path), Path(os.path.realpath(path))
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return AtomicFile(target, name)
    if not stat.S_ISREG(mode):
        # Open the given path: the links of /dev/fd name pipes, which no other path leads to.
        return OutputFile(open(path, "wb", buffering=0), name)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "is read-only")
    return AtomicFile(target, name, mode)


def _standard_output() -> OutputFile:
    if sys.stdout is None:
        raise CaptureError(f"{_STANDARD_OUTPUT}: is closed; name a file")
    try:
        sys.stdout.flush()
        file = open(sys.stdout.fileno(), "wb", buffering=0, closefd=False)  # noqa: SIM115
        return OutputFile(file, _STANDARD_OUTPUT)
    except UnsupportedOperation:
        return OutputFile(NonClosingStream(sys.stdout.buffer), _STANDARD_OUTPUT)
    except OSError as error:
        raise write_error(error, _STANDARD_OUTPUT) from error


@contextmanager
def output_file(path: AnyPath) -> Iterator[OutputFile]:
    """Write a file in a ``with`` statement: it appears, complete, if that ends without an error.

    Raises :class:`CaptureError` if the file cannot be written.
    """
    output = open_output(path)
    try:
        yield output
        output.commit()
    except BaseException as error:
        output.discard()
        if isinstance(error, OSError):
            raise write_error(error, output.name) from error
        raise
