"""Calls of the C library that change a file, each for paths of every kind.

``python changing_calls.py KIND`` prints ``[function, path, folder, error]`` for each, with the
number of the error or 0. ``private_machine.py`` runs it, with the preload library.
"""

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from typing import Final

_AT_FDCWD, _AT_EMPTY_PATH, _AT_NOFOLLOW = -100, 0x1000, 0x100
_PATH, _FOLDER, _OTHER, _FD = "path", "folder", "other", "fd"
_OWN: Final = (os.geteuid(), os.getegid())
_NONE: Final = None
_WRITE: Final = os.O_WRONLY | os.O_CREAT
_AT: Final = (_FOLDER, _PATH)

_Calls = dict[str, tuple[object, ...]]
_Places = tuple[tuple[str, str], ...]

MAKE: Final[_Calls] = {
    "mkdir": (_PATH, 0o700),
    "mkdirat": (*_AT, 0o700),
    "mkfifo": (_PATH, 0o600),
    "mkfifoat": (*_AT, 0o600),
    "mknod": (_PATH, 0o100600, 0),
    "mknodat": (*_AT, 0o100600, 0),
    "__xmknod": (0, _PATH, 0o100600, ctypes.byref(ctypes.c_uint64())),
    "__xmknodat": (0, *_AT, 0o100600, ctypes.byref(ctypes.c_uint64())),
    "symlink": (b"target", _PATH),
    "symlinkat": (b"target", *_AT),
    "link": (_OTHER, _PATH),
    "linkat": (_AT_FDCWD, _OTHER, *_AT, 0),
    "rename": (_OTHER, _PATH),
    "renameat": (_AT_FDCWD, _OTHER, *_AT),
    "renameat2": (_AT_FDCWD, _OTHER, *_AT, 0),
}
TAKE: Final[_Calls] = {
    "unlink": (_PATH,),
    "unlinkat": (*_AT, 0),
    "rmdir": (_PATH,),
    "remove": (_PATH,),
    "rename ": (_PATH, b"taken"),
    "renameat ": (*_AT, _AT_FDCWD, b"taken"),
    "renameat2 ": (*_AT, _AT_FDCWD, b"taken", 0),
    "link ": (_PATH, b"taken"),
    "linkat ": (*_AT, _AT_FDCWD, b"taken", 0),
}
OPEN: Final[_Calls] = {
    "open": (_PATH, _WRITE, 0o600),
    "open64": (_PATH, _WRITE, 0o600),
    "openat": (*_AT, _WRITE, 0o600),
    "openat64": (*_AT, _WRITE | os.O_TRUNC, 0o600),
    "__open_2": (_PATH, os.O_RDWR),
    "__openat_2": (*_AT, os.O_RDONLY | os.O_TRUNC),
    "creat": (_PATH, 0o600),
    "creat64": (_PATH, 0o600),
    "fopen": (_PATH, b"w"),
    "fopen64": (_PATH, b"r+"),
}
ALTER: Final[_Calls] = {
    "chmod": (_PATH, 0o640),
    "fchmodat": (*_AT, 0o600, 0),
    "chown": (_PATH, *_OWN),
    "lchown": (_PATH, *_OWN),
    "fchownat": (*_AT, *_OWN, 0),
    "fchownat ": (*_AT, *_OWN, _AT_NOFOLLOW),
    "truncate": (_PATH, 3),
    "truncate64": (_PATH, 2),
    "utime": (_PATH, _NONE),
    "utimes": (_PATH, _NONE),
    "lutimes": (_PATH, _NONE),
    "futimesat": (*_AT, _NONE),
    "utimensat": (*_AT, _NONE, 0),
    "utimensat ": (*_AT, _NONE, _AT_NOFOLLOW),
}
ATTRIBUTES: Final[_Calls] = {  # a file system may have none
    "setxattr": (_PATH, b"user.a", b"1", 1, 0),
    "lsetxattr": (_PATH, b"user.a", b"1", 1, 0),
    "removexattr": (_PATH, b"user.a"),
    "lremovexattr": (_PATH, b"user.a"),
}
BY_DESCRIPTOR: Final[_Calls] = {
    "fchmod": (_FD, 0o600),
    "chmod  ": (b"/proc/self/fd/%d", 0o600),
    "fchown": (_FD, *_OWN),
    "fchownat  ": (_FD, b"", *_OWN, _AT_EMPTY_PATH),
    "futimens": (_FD, _NONE),
    "futimes": (_FD, _NONE),
    "futimesat  ": (_FD, _NONE, _NONE),
    "fsetxattr": (_FD, b"user.a", b"1", 1, 0),
    "fremovexattr": (_FD, b"user.a"),
}

_CLASS: Final = "/sys/class/infiniband"
_MTU: Final = "class/net/lo/mtu"
REACHED: Final = (
    ("/", f"{_CLASS}/../net/lo/mtu"),
    ("/", "/sys/devices/pci00f0:00/..//virtual/./net/lo/mtu"),
    ("/", f"{_CLASS}/rw0/device/../../../../{_MTU}"),
    ("/", "sys/class/infiniband/../net/lo/mtu"),
    ("/sys/class", "infiniband/../net/lo/mtu"),
    ("/sys/class/net", "../infiniband/../net/lo/mtu"),
    (_CLASS, "../net/lo/mtu"),
    (_CLASS, "rw0/out/mtu"),
    ("/", f"{_CLASS}/rw0/out/mtu"),
    (f"{_CLASS}/rw0/out", "mtu"),
    (_CLASS, "./..//net/../net/lo/mtu"),
    (f"{_CLASS}/..", "net/lo/mtu"),
    (f"{_CLASS}/../net", "lo/mtu"),
    (f"{_CLASS}/rw0/ports/1", f"../../../../../../../../{_MTU}"),
    ("/dev/infiniband", f"../../sys/{_MTU}"),
)
"""Folders, and paths from there that name a file of the machine by way of the private tree."""
PRIVATE: Final = (
    ("/", f"{_CLASS}/rw0/node_desc"),
    ("/", "/sys/class/net/../infiniband//rw0/node_desc"),
    ("/", "sys/class/infiniband/rw0/node_desc"),
    ("/sys/class", "infiniband/rw0/node_desc"),
    ("/sys/class/net", "../infiniband/rw0/node_desc"),
    (_CLASS, "rw0/node_desc"),
    (f"{_CLASS}/rw0/ports", "../node_desc"),
    (f"{_CLASS}/rw0", "node_desc"),
)
MISSING: Final = (
    ("/", f"{_CLASS}/new"),
    ("/sys/class", "infiniband/new"),
    (_CLASS, "new"),
    (f"{_CLASS}/rw0/ports", "../new"),
)
PLAIN: Final = (
    ("/", f"/sys/{_MTU}"),
    ("/sys/class/net", "lo/mtu"),
    ("/sys/class", "../class/net/lo/mtu"),
    ("/", f"sys/{_MTU}"),
)
"""Paths that name a file of the machine without the private tree."""

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, arguments: tuple[object, ...], values: dict[str, object]) -> int:
    """The error of a call, or 0."""
    given = [values.get(one, one) if isinstance(one, str) else one for one in arguments]
    given = [one % values[_FD] if isinstance(one, bytes) and b"%d" in one else one for one in given]
    function = getattr(_libc, name.strip())
    function.restype = ctypes.c_void_p if name.startswith("fopen") else ctypes.c_int
    ctypes.set_errno(0)
    result = function(*given)
    failed = result is None if name.startswith("fopen") else result < 0
    return ctypes.get_errno() if failed else 0


def _folders(folder: str) -> Iterator[tuple[str, int]]:
    """The folder as working directory, and by descriptors of several kinds."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    above = os.open(os.path.dirname(folder), os.O_RDONLY)
    name = os.path.basename(folder) or "."
    kinds = {
        "descriptor": fd,
        "O_PATH": os.open(folder, os.O_PATH),
        "duplicate": os.dup(fd),
        "of a descriptor": os.open(name, os.O_RDONLY, dir_fd=above),
    }
    yield from kinds.items()
    os.chdir(folder)
    yield "directory", _AT_FDCWD
    os.fchdir(fd)
    yield "fchdir", _AT_FDCWD
    for number in (above, *kinds.values()):
        os.close(number)


def errors(calls: _Calls, places: _Places, other: bytes) -> Iterator[tuple[str, str, str, int]]:
    """Do all calls for all paths."""
    for folder, path in places:
        for kind, number in _folders(folder):
            for name, arguments in calls.items():
                if number != _AT_FDCWD and _FOLDER not in arguments and _FD not in arguments:
                    continue
                values: dict[str, object] = {_PATH: path.encode(), _FOLDER: number, _OTHER: other}
                if calls is BY_DESCRIPTOR:
                    at = None if number == _AT_FDCWD else number
                    values[_FD] = opened = os.open(path, os.O_RDONLY, dir_fd=at)
                yield name, f"{folder}: {path}", kind, _call(name, arguments, values)
                if calls is BY_DESCRIPTOR:
                    os.close(opened)


_GROUPS: Final[dict[str, tuple[tuple[str, _Calls, _Places], ...]]] = {
    "reached": (
        ("make", MAKE, REACHED + PRIVATE),
        ("make new", MAKE, MISSING),
        ("take", TAKE, REACHED + PRIVATE),
        ("take missing", TAKE, MISSING),
        ("open", OPEN, REACHED),
        ("open private", OPEN, PRIVATE),
        ("open missing", OPEN, MISSING),
        ("alter", ALTER | ATTRIBUTES, REACHED),
        ("alter private", ALTER, PRIVATE),
        ("alter missing", ALTER, MISSING),
        ("descriptor", BY_DESCRIPTOR, REACHED),
        ("descriptor private", BY_DESCRIPTOR, PRIVATE),
    ),
    "plain": (("plain", ALTER | OPEN, PLAIN),),
}


def main() -> None:
    """Do the calls of a kind."""
    other = os.path.abspath("d/other/file").encode()
    groups = _GROUPS[sys.argv[1]]
    print(json.dumps({name: [*errors(calls, at, other)] for name, calls, at in groups}))


if __name__ == "__main__":
    main()
