"""What the operating system refused, in words that say what to do."""

import errno

from rdmawire.errors import CaptureError
from rdmawire.screen import safe

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
    return safe(path) or "''"


def _refusal(error: OSError, name: str, words: dict[int, str]) -> CaptureError:
    number = errno.EACCES if error.errno == errno.EPERM else error.errno
    return CaptureError(f"{name}: {words.get(number or 0) or error.strerror or error}")
