"""Where a capture is written to: a file that appears when it is complete, or a stream."""

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import Protocol

from rdmawire.capture.borrowed import Borrowed
from rdmawire.capture.refusal import shown, write_refusal
from rdmawire.capture.source import STREAM, AnyPath
from rdmawire.errors import CaptureError


class Writable(Protocol):
    """What is needed of an open file: ``write`` says how many octets it took."""

    def write(self, octets: memoryview, /) -> int | None: ...

    def close(self) -> None: ...


class Sink(Protocol):
    """Takes the octets of a capture, until either ``commit`` or ``discard`` ends it.

    ``write`` and ``commit`` may raise ``OSError``; then it is to be discarded.
    """

    def write(self, octets: bytes | memoryview) -> None: ...

    def commit(self) -> None: ...

    def discard(self) -> None: ...


def _write_all(file: Writable, octets: bytes | memoryview) -> None:
    """Write until all octets are taken."""
    view = memoryview(octets)
    while view:
        taken = file.write(view)
        if taken is None:
            raise BlockingIOError("is set not to wait, and takes no octets now")
        view = view[taken:]


class FileSink:
    """Writes beside the file asked for, and gives it its name when all is on the disk.

    ``mode`` is that of the file it replaces, whose permissions it keeps.
    """

    def __init__(self, target: Path, mode: int | None = None) -> None:
        self._target = target
        self._part = target.with_name(f".rdmawire-{secrets.token_hex(8)}.part")
        self._file = open(self._part, "xb", buffering=0)  # noqa: SIM115 - closed by its end
        if mode is not None:
            self._permit(stat.S_IMODE(mode))

    def _permit(self, mode: int) -> None:
        try:
            self._part.chmod(mode)
        except OSError:
            self.discard()
            raise

    def write(self, octets: bytes | memoryview) -> None:
        _write_all(self._file, octets)

    def commit(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._part, self._target)

    def discard(self) -> None:
        with suppress(OSError):  # it is given up: an error in that is of no use to anyone
            self._file.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)


class StreamSink:
    """Writes to what is no regular file: a pipe, a device, standard output."""

    def __init__(self, file: Writable) -> None:
        self._file = file

    def write(self, octets: bytes | memoryview) -> None:
        _write_all(self._file, octets)

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
        return StreamSink(Borrowed(sys.stdout.buffer))
    except OSError as error:
        raise write_refusal(error, name) from error
