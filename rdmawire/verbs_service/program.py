"""The files and variables that programs need: libraries, a private ``/sys`` and ``/dev``."""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from errno import EEXIST, EISDIR, EPERM
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rdmawire.errors import VerbsError
from rdmawire.verbs_service.libraries import PRELOAD, copy_libraries, libraries
from rdmawire.verbs_service.service_socket import (
    check_is_socket,
    check_socket_path,
    is_served,
    may_use,
    other_service,
)
from rdmawire.verbs_service.trusted_folder import open_own, open_parent, remove_entry

if TYPE_CHECKING:
    from rdmawire.topology import Machine
    from rdmawire.verbs_service.device import EmulatedDevice

CUDA_LOADING: Final = "CUDA_MODULE_LOADING"
"""The variable of CUDA that says when kernels are loaded."""
_TREES: Final = ("sys", "dev", "bin", "share")
"""Folders that are removed with the service; that of the libraries stays."""
_LIBRARIES: Final = "lib"
_START_PERIOD: Final = 0.02
"""Seconds between two looks for a service that is starting."""
_START_ATTEMPTS: Final = 1500
"""Maximum looks for it."""
_CLAIM_ATTEMPTS: Final = 25
"""Maximum looks for its files: its process may have been started at the same time."""
_LOCK_ATTEMPTS: Final = 20
"""How often a service tries to lock its folder: :meth:`ProgramFiles.is_claimed` has it briefly."""


class ProgramFiles:
    """The files beside a socket: ``verbs.sock.rdmawire`` with ``lib``, ``sys``, ``dev``, ``bin``.

    One service at a time has them: :meth:`claim` locks the folder. Raises ``VerbsError`` EISDIR for
    the path ``/``, which cannot be that of a socket.
    """

    def __init__(self, path: Path) -> None:
        given = path.absolute()
        if not given.name:
            raise VerbsError(f"{path}: a folder, and no socket: name a path in it", EISDIR)
        self.socket = Path(os.path.realpath(given.parent), path.name)
        self._link = given.parent if given.parent.is_symlink() else None
        self.folder = self.socket.with_name(f"{path.name}.rdmawire")
        self._user = os.geteuid()
        self._lock: int | None = None
        self._kept: tuple[str, ...] = ()
        """Names of the folders that :meth:`remove` leaves."""

    @property
    def sysfs(self) -> Path:
        """The private ``/sys``."""
        return self.folder / "sys"

    def claim(self) -> None:
        """Take the folder for a service that is starting, and make it if it is missing.

        ``VerbsError`` EADDRINUSE if another service has it, EPERM for a folder that other users can
        change (:mod:`rdmawire.verbs_service.trusted_folder`), EEXIST for one with files that no
        service has. ``OSError`` if it cannot be made.
        """
        check_socket_path(self.socket)
        check_is_socket(self.socket)
        for _ in range(_LOCK_ATTEMPTS):
            if self._lock is not None:
                return
            with ExitStack() as opened:
                folder = self._open(create=True)
                opened.callback(os.close, folder)
                if self._is_locked(folder):
                    opened.pop_all()
                    self._lock = folder
                    return
            time.sleep(_START_PERIOD)
        raise other_service(self.socket, "running" if self.socket.exists() else "starting")

    def write(
        self, machine: "Machine", devices: "Sequence[EmulatedDevice]", rates: Sequence[float]
    ) -> tuple[str, ...]:
        """Write all files, in place of those of a service that was killed.

        Returns a sentence for each library or device that is missing. Raises as :meth:`claim`, and
        ``LibraryError`` without libraries, ``OSError`` for files that cannot be written.
        """
        self.claim()
        mask = os.umask(0o077)
        os.umask(mask | stat.S_IWGRP | stat.S_IWOTH)
        try:
            return self._write(machine, devices, rates)
        except BaseException as error:
            self.remove()
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror, os.fspath(self.folder)) from error
            raise
        finally:
            os.umask(mask)

    def _write(
        self, machine: "Machine", devices: "Sequence[EmulatedDevice]", rates: Sequence[float]
    ) -> tuple[str, ...]:
        from rdmawire.verbs_service.rdma_tool import write_rdma
        from rdmawire.verbs_service.sysfs import notes_of_machine, write_tree

        assert self._lock is not None
        found = libraries()
        for name in _TREES:
            remove_entry(name, self._lock)
        copies = open_own(_LIBRARIES, self._lock, self.folder / _LIBRARIES)
        try:
            copy_libraries(copies, found.paths)
        finally:
            os.close(copies)
        opened = Path(f"/proc/self/fd/{self._lock}")  # the folder, even if it is renamed
        write_tree(opened, machine, devices, rates)
        write_rdma(opened, devices)
        self._kept = (_LIBRARIES,)
        return found.notes + notes_of_machine()

    def _is_locked(self, folder: int) -> bool:
        """Lock the folder. Return ``False`` if that is impossible now, or it was removed."""
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        found = {*os.listdir(folder)}
        if others := found - {_LIBRARIES, *_TREES}:
            named = min(others)
            text = f"{self.folder}: has {named!r}, which no service made: name another socket"
            raise VerbsError(text, EEXIST)
        self._kept = (_LIBRARIES,) if _LIBRARIES in found else ()
        return os.fstat(folder).st_nlink > 0

    def is_claimed(self) -> bool:
        """Whether a service is running or starting there. Raises as :meth:`check`."""
        with suppress(OSError):
            folder = self._open()
            try:
                fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(folder)
        return False

    def check(self) -> None:
        """``VerbsError`` EPERM if others than this user or root can change the files.

        Another errno says why there are none.
        """
        try:
            folder = self._open()
            self._user = os.fstat(folder).st_uid
            os.close(folder)
        except OSError as error:
            text = f"{self.folder}: {error.strerror}: the service has no files for programs"
            raise VerbsError(text, error.errno or EPERM) from error

    def _open(self, *, create: bool = False) -> int:
        if self._link is not None:
            text = f"{self._link}: is a link: remove it, or name {self.socket} itself"
            raise VerbsError(text, EPERM)
        parent = open_parent(self.socket, create=create)
        try:
            return open_own(self.folder.name, parent, self.folder, create=create)
        finally:
            os.close(parent)

    def wait_for_service(self, on_wait: Callable[[], None]) -> bool:
        """Whether a service answers to this user. Waits for one that is starting, 30 s at most.

        ``on_wait`` is called when one is found. Raises as :meth:`check` and :func:`is_served`.
        """
        waits = False
        for attempt in range(_START_ATTEMPTS):
            if is_served(self.socket):
                return True
            if not may_use(self.socket):
                break
            if self.is_claimed():
                if not waits:
                    on_wait()
                waits = True
            elif waits or attempt > _CLAIM_ATTEMPTS:
                break
            time.sleep(_START_PERIOD)
        return False

    def remove(self) -> None:
        """Remove the files that :meth:`write` wrote, but the libraries.

        Shells that have the variables start programs after the end of the service, too: the loader
        would complain for each that there is no library to preload.
        """
        if self._lock is None:
            return
        for name in (_LIBRARIES, *_TREES):
            if name not in self._kept:
                remove_entry(name, self._lock)
        with suppress(OSError):
            self.folder.rmdir()  # if nothing was written
        os.close(self._lock)
        self._lock = None

    def variables(self, environment: Mapping[str, str], *, preload: bool = True) -> dict[str, str]:
        """Return the variables of a program, which extend those of ``environment``.

        Without ``preload`` the program sees the machine's own ``/sys``.
        """
        lib = self.folder / "lib"
        own = {
            "RDMAWIRE_VERBS": os.fspath(self.socket),
            "RDMAWIRE_USER": str(self._user),
            "RDMAWIRE_SYSFS": os.fspath(self.sysfs),
            "LD_LIBRARY_PATH": _before(lib, environment.get("LD_LIBRARY_PATH")),
        }
        if preload:
            own["LD_PRELOAD"] = _before(lib / PRELOAD, environment.get("LD_PRELOAD"))
        return own

    def command_variables(
        self, environment: Mapping[str, str], *, preload: bool = True
    ) -> dict[str, str]:
        """Return :meth:`variables`, and those that only a command on this machine gets.

        In its PATH ``rdma`` lists the devices. CUDA loads all kernels at the start unless
        ``environment`` says otherwise. Loading one later waits for running kernels, and copies
        wait meanwhile: a running kernel of NCCL that needs copied data would never end.
        """
        path = _before(self.folder / "bin", environment.get("PATH", os.defpath))
        loading = environment.get(CUDA_LOADING, "EAGER")
        own = {"PATH": path, CUDA_LOADING: loading}
        return {**self.variables(environment, preload=preload), **own}

    def variables_without(self, environment: Mapping[str, str]) -> dict[str, str | None]:
        """Return variables as they were before :meth:`variables`; ``None`` to unset one."""
        lib = self.folder / "lib"
        return {
            "RDMAWIRE_VERBS": None,
            "RDMAWIRE_USER": None,
            "RDMAWIRE_SYSFS": None,
            "LD_LIBRARY_PATH": ":".join(_without(lib, environment.get("LD_LIBRARY_PATH"))) or None,
            "LD_PRELOAD": ":".join(_without(lib / PRELOAD, environment.get("LD_PRELOAD"))) or None,
        }


def _before(path: Path, others: str | None) -> str:
    """Put a path at the head of a list, and remove it from the rest."""
    return ":".join([os.fspath(path), *_without(path, others)])


def _without(path: Path, others: str | None) -> list[str]:
    """Return the paths of a list without this one."""
    return [one for one in (others or "").split(":") if one and one != os.fspath(path)]
