"""Programs that cannot load the stand-in libraries, found by their executable files.

ELF: System V ABI, chapters 4 and 5. Variables that are ignored: ld.so(8), secure-execution mode.
"""

import os
import stat
from pathlib import Path
from struct import Struct, error

_HEADER = Struct("<4sBB26xQ14xHH")
"""The header of a 64-bit file up to the number of program headers."""
_SEGMENT = Struct("<I4xQ16xQ")
_MAGIC, _OF_64_BITS, _LITTLE_ENDIAN = b"\x7fELF", 2, 1
_INTERPRETER = 3
_MAX_SEGMENTS, _MAX_NAME = 256, 4096

_SECURE = (
    "has more rights than this user, so Linux ignores LD_LIBRARY_PATH and LD_PRELOAD: run a copy"
    " without the set-user-ID bit, set-group-ID bit and capabilities"
)
_FOREIGN = "is for another processor or word size than the libraries: build it for this one"
_STATIC = (
    "is linked statically, and loads no libibverbs.so.1: link it dynamically (programs that it"
    " starts do find the devices)"
)
_OF_MUSL = "uses musl, and the libraries were built for glibc: build it for glibc"
_OF_GLIBC = "uses glibc, and the libraries were built for musl: build it for musl"
_MUSL = b"ld-musl"


def note_of(path: str) -> str | None:
    """Return why the program in a file will find no devices, and what to do, or ``None``.

    It is ``None`` for a file that is not ELF, such as a script.
    """
    try:
        if _is_secure(path):
            return _SECURE
        with Path(path).open("rb") as file:
            return _note_of_elf(file.fileno())
    except (OSError, error):
        return None  # it may be executable and not readable


def _is_secure(path: str) -> bool:
    """Whether Linux runs the file with other rights than this process has."""
    found = os.stat(path)
    if "security.capability" in os.listxattr(path):
        return os.getuid() != 0
    sets_user = found.st_mode & stat.S_ISUID and found.st_uid != os.geteuid()
    sets_group = found.st_mode & stat.S_ISGID and found.st_gid != os.getegid()
    return bool(sets_user or sets_group)


def _note_of_elf(fd: int) -> str | None:
    data = os.pread(fd, _HEADER.size, 0)
    if not data.startswith(_MAGIC):
        return None
    _, bits, order, start, size, count = _HEADER.unpack(data)
    if bits != _OF_64_BITS or order != _LITTLE_ENDIAN:
        return _FOREIGN
    if size < _SEGMENT.size:
        return None  # Linux does not execute it
    interpreter = _interpreter(fd, range(start, start + size * min(count, _MAX_SEGMENTS), size))
    if interpreter is None:
        return _STATIC
    is_of_musl = _MUSL in interpreter
    if is_of_musl == _is_of_musl():
        return None
    return _OF_MUSL if is_of_musl else _OF_GLIBC


def _is_of_musl() -> bool:
    """Whether this interpreter uses musl: the libraries are built for what it uses."""
    return any(_MUSL in line for line in Path("/proc/self/maps").read_bytes().splitlines())


def _interpreter(fd: int, places: range) -> bytes | None:
    """The dynamic linker that the file names, if it has one."""
    for place in places:
        kind, offset, length = _SEGMENT.unpack(os.pread(fd, _SEGMENT.size, place))
        if kind == _INTERPRETER:
            return os.pread(fd, min(length, _MAX_NAME), offset)
    return None
