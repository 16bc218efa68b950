"""Where a capture is written to: a file that appears when it is complete, or a stream."""

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from io import FileIO, UnsupportedOperation
from pathlib import Path
from typing import Protocol

from rdmawire.capture.source import STREAM, AnyPath, NonClosingStream, shown, write_refusal
from rdmawire.errors import CaptureError


class Writable(Protocol):
    """What is needed of an open file: ``write`` says how many bytes it took."""

    def write(self, data: memoryview, /) -> int | None: ...

    def close(self) -> None: ...


class Sink(Protocol):
    """Takes the bytes of a capture, until either ``commit`` or ``discard`` ends it.

    ``write`` and ``commit`` may raise ``OSError``; then it is to be discarded.
    """

    def write(self, data: bytes | memoryview) -> None: ...

    def commit(self) -> None: ...

    def discard(self) -> None: ...


def _write_all(file: Writable, data: bytes | memoryview) -> None:
    """Write until all bytes are taken."""
    view = memoryview(data)
    while view:
        taken = file.write(view)
        if taken is None:
            raise BlockingIOError("is set not to wait, and takes no bytes now")
        view = view[taken:]


_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
"""The flag of open(2) for a file without a name; 0 where the system has none."""


class FileSink:
    """Writes a file that gets its name when all of it is on the disk.

    Until then it has no name, if the file system supports that (open(2), O_TMPFILE), so that a
    killed process leaves nothing behind. Else its name is ``.rdmawire-*.part``. Another file is
    replaced by rename(2), for which the new one needs a name: it has that of a part between two
    system calls.

    ``mode`` is that of the file it replaces, whose permissions it keeps.
    """

    def __init__(self, target: Path, mode: int | None = None) -> None:
        self._target = target
        self._part = target.with_name(f".rdmawire-{secrets.token_hex(8)}.part")
        unnamed = _open_unnamed(target.parent)
        self._is_named = unnamed is None
        self._file = unnamed or open(self._part, "xb", buffering=0)  # noqa: SIM115 - closed by commit or discard
        if mode is not None:
            self._permit(stat.S_IMODE(mode))

    def _permit(self, mode: int) -> None:
        try:
            os.fchmod(self._file.fileno(), mode)
        except OSError:
            self.discard()
            raise

    def write(self, data: bytes | memoryview) -> None:
        _write_all(self._file, data)

    def commit(self) -> None:
        os.fsync(self._file.fileno())
        if self._is_named or not self._link(self._target):
            self._replace()
        self._file.close()

    def _replace(self) -> None:
        if not self._is_named:
            self._is_named = self._link(self._part)
        os.replace(self._part, self._target)

    def _link(self, name: Path) -> bool:
        """Give the file its first name; false if another file has it."""
        folder = os.open(name.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # With a folder given, Python calls linkat(2), which follows the link of /proc.
            os.link(_descriptor(self._file), name.name, dst_dir_fd=folder)
        except FileExistsError:
            return False
        finally:
            os.close(folder)
        return True

    def discard(self) -> None:
        with suppress(OSError):  # it is given up: an error in that is of no use to anyone
            self._file.close()
        if self._is_named:
            with suppress(OSError):
                self._part.unlink(missing_ok=True)


def _open_unnamed(folder: Path) -> FileIO | None:
    """A new file without a name in ``folder``; ``None`` if it could not get one later.

    That is so if the file system has no such files, or /proc is missing. Other errors of the
    folder are reported when a named file is opened in it.
    """
    if not _O_TMPFILE:
        return None
    try:
        descriptor = os.open(folder, _O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError:
        return None
    file = open(descriptor, "wb", buffering=0)  # noqa: SIM115 - the sink closes it
    if os.path.exists(_descriptor(file)):
        return file
    file.close()
    return None


def _descriptor(file: FileIO) -> str:
    """The path by which the system knows an open file."""
    return f"/proc/self/fd/{file.fileno()}"


class StreamSink:
    """Writes to what is no regular file: a pipe, a device, standard output."""

    def __init__(self, file: Writable) -> None:
        self._file = file

    def write(self, data: bytes | memoryview) -> None:
        _write_all(self._file, data)

    def commit(self) -> None:
        self._file.close()

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()


def open_sink(path: AnyPath) -> tuple[Sink, str]:
    """Where to write, and what to call it; :class:`CaptureError` if it cannot be written."""
    place = os.fsdecode(path)
    name = shown(place)
    if place == STREAM:
        return _standard_output(), "standard output"
    try:
        return _sink(place), name
    except OSError as error:
        raise write_refusal(error, name) from error
    except ValueError as error:
        raise CaptureError(f"{place!r} is no name of a file: {error}") from error


def _sink(place: str) -> Sink:
    """The sink for a path. Symbolic links stay, and what they point at is replaced.

    What is no file is opened by the path as given: the links of ``/dev/fd`` name pipes, which no
    other path leads to.
    """
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError:
        return FileSink(_behind_links(place))
    if not stat.S_ISREG(mode):
        return StreamSink(open(place, "wb", buffering=0))
    target = _behind_links(place)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "is read-only")
    return FileSink(target, mode)


def _behind_links(place: str) -> Path:
    return Path(os.path.realpath(place))


def _standard_output() -> Sink:
    name = "standard output"
    if sys.stdout is None:
        raise CaptureError(f"{name}: is closed; name a file")
    try:
        sys.stdout.flush()
        return StreamSink(open(sys.stdout.fileno(), "wb", buffering=0, closefd=False))
    except UnsupportedOperation:
        return StreamSink(NonClosingStream(sys.stdout.buffer))
    except OSError as error:
        raise write_refusal(error, name) from error
