"""The socket of a service: its path, listening there, and whether a service answers."""

import os
import shlex
import socket
import stat
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EACCES, EADDRINUSE, ENAMETOOLONG, ENOENT
from pathlib import Path
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.verbs_service.protocol import MAX_REASON, version
from rdmawire.verbs_service.trusted_folder import check_peer, trusted_users

MAX_SOCKET_PATH: Final = 107
"""Maximum bytes of a socket's path: ``sun_path`` of unix(7) without the NUL."""
_HELLO: Final = 1
"""The number of the call that is the first of each connection, in every version."""
_WORD: Final = 8
_HELLO_REPLY: Final = 2 * _WORD
"""Bytes of its reply: 0, and the number of devices."""
_ANSWER_TIMEOUT: Final = 60.0
"""Seconds in which a service answers. In a checkout it may compile the libraries first."""


def default_socket(environment: Mapping[str, str]) -> Path:
    """Return the path of the socket that libraries use when RDMAWIRE_VERBS is not set."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    folder = Path(runtime, "rdmawire") if runtime else Path(f"/tmp/rdmawire-{os.getuid()}")  # noqa: S108
    return folder / "verbs.sock"


def given_socket(environment: Mapping[str, str]) -> Path:
    """Return the path of the socket that RDMAWIRE_VERBS names, else the default."""
    given = environment.get("RDMAWIRE_VERBS")
    return Path(given) if given else default_socket(environment)


def check_socket_path(path: Path) -> None:
    """``VerbsError`` ENAMETOOLONG for a path of more than :data:`MAX_SOCKET_PATH` bytes."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise VerbsError(
            f"{path}: {length} bytes, and the path of a socket has {MAX_SOCKET_PATH} at most: name"
            " a shorter one",
            ENAMETOOLONG,
        )


def check_is_socket(path: Path) -> None:
    """``VerbsError`` EADDRINUSE if there is a file that is no socket, or is of another user."""
    with suppress(OSError):
        found = path.lstat()
        if not stat.S_ISSOCK(found.st_mode):
            raise VerbsError(f"{path}: exists, and is no socket: name another path", EADDRINUSE)
        if found.st_uid not in trusted_users():
            text = f"{path}: belongs to user {found.st_uid}: name another path"
            raise VerbsError(text, EADDRINUSE)


def listen(path: Path) -> socket.socket:
    """Listen on a socket file, in place of one that no service answers at any more.

    ``VerbsError`` EADDRINUSE if a service does, or if the file is another one.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_dead(path)
        listener.bind(os.fspath(path))
        listener.listen(socket.SOMAXCONN)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def remove_dead(path: Path) -> None:
    """Remove a socket file at which no service answers.

    ``VerbsError`` EADDRINUSE if a service does, or for another file.
    """
    check_is_socket(path)
    if not path.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)  # another program may accept none
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            text = f"{path}: a socket of another program ({error.strerror}): name another path"
            raise VerbsError(text, EADDRINUSE) from error
    raise other_service(path, "running")


def is_served(path: Path) -> bool:
    """Whether a service answers at a socket. Waits for one that is starting.

    ``VerbsError`` EACCES if it belongs to another user than this one, or root.
    """
    try:
        with connected(path, _ANSWER_TIMEOUT) as probe:
            probe.send(array("Q", (_HELLO, version())).tobytes())
            reply = probe.recv(_WORD + MAX_REASON + 1)
    except OSError:
        return False
    is_refusal = any(reply[:_WORD]) and len(reply) % _WORD == 0  # of another version
    return len(reply) == _HELLO_REPLY or is_refusal


@contextmanager
def connected(path: Path, timeout: float) -> Iterator[socket.socket]:
    """Yield a connection to a service, whose calls take at most ``timeout`` seconds.

    ``OSError`` if no service is there, ``VerbsError`` EACCES if it belongs to another user.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(timeout)
        sock.connect(os.fspath(path))
        check_peer(sock, path)
        yield sock


def other_service(path: Path, doing: str) -> VerbsError:
    """Return the error for a socket that another service has, which is "running" or "starting"."""
    advice = "use it by `rdmawire verbs env`, or name another path"
    return VerbsError(f"{path}: a service is {doing} there: {advice}", EADDRINUSE)


def no_service(path: Path) -> VerbsError:
    """Return the error for a socket at which no service answers.

    ``VerbsError`` ENAMETOOLONG is raised for a path that is too long for a socket.
    """
    check_socket_path(path)
    if not may_use(path):
        return VerbsError(
            f"{path}: Permission denied: name a socket of this user, or have its owner share it"
            f" (chmod a+w {path}, in a folder that others may enter)",
            EACCES,
        )
    is_given = path == given_socket(os.environ)
    option = "" if is_given else f" --socket {shlex.quote(os.fspath(path))}"
    return VerbsError(
        f"no verbs service answers at {path}: start one with `rdmawire verbs serve{option}`", ENOENT
    )


def may_use(path: Path) -> bool:
    """Whether this user may connect to the socket, or there is none."""
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError as error:
        return not isinstance(error, PermissionError)
    return not is_socket or os.access(path, os.W_OK)
