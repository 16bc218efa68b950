"""Folders in which no other user can change what programs load.

Programs load libraries from the folder beside a socket. So each folder on its path must belong to
this user or to root, and others may write to it only if its sticky bit keeps them from renaming
what is not theirs. Each is opened below the one before, without following links, and checked by its
descriptor: what was checked is what is used.
"""

import grp
import os
import pwd
import shutil
import socket
import stat
from contextlib import suppress
from errno import EACCES, EPERM
from pathlib import Path
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.verbs_service.connection import peer_of

_LOOK: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE, _PUBLIC = 0o700, 0o755
_ALL_USERS: Final = 2**32 - 1
"""The number of users of the first user namespace: user_namespaces(7)."""
_OTHER_SOCKET: Final = "name a socket in a folder of this user"


def trusted_users() -> set[int]:
    """Return the users whose files and services are used: this one, root, and the named ones.

    The variable ``RDMAWIRE_USER`` names one. If this user is root, ``SUDO_UID`` of sudo(8) names
    another, who called sudo.
    """
    users = {0, os.geteuid()}
    names = ("RDMAWIRE_USER", "SUDO_UID") if os.geteuid() == 0 else ("RDMAWIRE_USER",)
    return users | {int(one) for one in map(os.environ.get, names) if one and one.isdecimal()}


def check_peer(connected: socket.socket, path: Path) -> None:
    """``VerbsError`` EACCES unless the service at the socket ``path`` is of a trusted user."""
    _, user = peer_of(connected)
    if user not in trusted_users():
        text = f"{path}: the service there belongs to user {user}: {_OTHER_SOCKET}"
        raise VerbsError(f"{text}, or trust that one by RDMAWIRE_USER={user}", EACCES)


def open_parent(path: Path, *, create: bool = False) -> int:
    """Return a descriptor of the folder of ``path``, which has no links, after checks on the way.

    With ``create`` missing folders are made, the last one for this user alone. ``VerbsError`` EPERM
    for a folder that others can change or replace, ``OSError`` for one that cannot be opened.
    """
    users = _users_above()
    at, opened = Path("/"), os.open("/", _LOOK)
    try:
        for folder in path.parents[-2::-1]:
            _check(opened, at, users)
            mode = _PRIVATE if folder == path.parent else _PUBLIC
            child = _open(folder.name, _LOOK, opened, folder, mode if create else None)
            os.close(opened)
            at, opened = folder, child
        _check(opened, at, trusted_users())
    except BaseException:
        os.close(opened)
        raise
    return opened


def open_own(name: str, folder: int, path: Path, *, create: bool = True) -> int:
    """Return a descriptor of the folder ``name`` in an open one, which only its owner can change.

    With ``create`` it is made if it is missing, and belongs to this user; without it may be of
    another trusted user. ``path`` is for errors: ``VerbsError`` EPERM for a folder of others or for
    another file, ``OSError`` if it cannot be opened.
    """
    try:
        opened = _open(name, _READ, folder, path, _PUBLIC if create else None)
    except NotADirectoryError:
        text = f"{path}: is a link or no folder: remove it, or name another socket"
        raise VerbsError(text, EPERM) from None
    try:
        _check(opened, path, {os.geteuid()} if create else trusted_users(), is_shared=False)
    except BaseException:
        os.close(opened)
        raise
    return opened


def remove_entry(name: str, folder: int) -> None:
    """Remove a file or a tree in an open folder, if there is one. Links are not followed."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _open(name: str, flags: int, folder: int, path: Path, mode: int | None) -> int:
    """Open a name in a folder. If it is missing and ``mode`` is given, make it as a folder first.

    ``OSError`` with ``path``.
    """
    try:
        try:
            return os.open(name, flags, dir_fd=folder)
        except FileNotFoundError:
            if mode is None:
                raise
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=folder)
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _check(opened: int, path: Path, users: set[int], *, is_shared: bool = True) -> None:
    """``VerbsError`` EPERM unless a folder belongs to ``users``, and no others may write to it.

    With ``is_shared`` others may write to a folder whose sticky bit is set.
    """
    found = os.fstat(opened)
    if found.st_uid not in users:
        raise VerbsError(f"{path}: belongs to user {found.st_uid}: {_OTHER_SOCKET}", EPERM)
    by_group = found.st_mode & stat.S_IWGRP and not _is_private_group(found.st_uid, found.st_gid)
    is_sticky = is_shared and found.st_mode & stat.S_ISVTX
    if (by_group or found.st_mode & stat.S_IWOTH) and not is_sticky:
        reason = "other users can write to it: remove their permission (chmod go-w), or"
        raise VerbsError(f"{path}: {reason} {_OTHER_SOCKET}", EPERM)


def _is_private_group(user: int, group: int) -> bool:
    """Whether a group is one user's alone: the primary one, of the same name, without others."""
    try:
        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    is_own = owner.pw_gid == group and owner.pw_name == found.gr_name
    return is_own and set(found.gr_mem) <= {owner.pw_name}


def _users_above() -> set[int]:
    """Return the users to whom folders above that of a socket may belong.

    In a user namespace, as of a container, one of them is the overflow user. Linux shows it as the
    owner of files of all users outside, such as root: user_namespaces(7).
    """
    users = trusted_users()
    counts = Path("/proc/self/uid_map").read_text().split()[2::3]
    if sum(map(int, counts)) < _ALL_USERS:
        users.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return users
