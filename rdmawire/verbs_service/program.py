"""What a program needs to use a service: libraries, a private ``/sys``, and variables."""

import fcntl
import os
import shutil
import socket
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import EACCES, EADDRINUSE, ENAMETOOLONG, ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rdmawire.errors import VerbsError
from rdmawire.verbs_service.libraries import PRELOAD, copy_libraries, libraries
from rdmawire.verbs_service.protocol import MAX_REASON, version

if TYPE_CHECKING:
    from rdmawire.topology import Machine
    from rdmawire.verbs_service.device import EmulatedDevice

CUDA_LOADING: Final = "CUDA_MODULE_LOADING"
"""The variable of CUDA that says when kernels are loaded."""
VARIABLES: Final = ("RDMAWIRE_VERBS", "RDMAWIRE_SYSFS", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""The variables that :meth:`ProgramFiles.variables` returns."""
_TREES: Final = ("sys", "dev", "bin", "share")
"""Folders that are removed with the service; that of the libraries stays."""


def default_socket(environment: Mapping[str, str]) -> Path:
    """Return the path of the socket that libraries use when RDMAWIRE_VERBS is not set."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    folder = Path(runtime, "rdmawire") if runtime else Path(f"/tmp/rdmawire-{os.getuid()}")  # noqa: S108
    return folder / "verbs.sock"


def given_socket(environment: Mapping[str, str]) -> Path:
    """Return the path of the socket that RDMAWIRE_VERBS names, else the default."""
    given = environment.get("RDMAWIRE_VERBS")
    return Path(given) if given else default_socket(environment)


MAX_SOCKET_PATH: Final = 107
"""Maximum bytes of a socket's path: ``sun_path`` of unix(7) without the NUL."""


_HELLO: Final = 1
"""The number of the call that is the first of each connection, in every version."""
_WORD: Final = 8
_HELLO_REPLY: Final = 2 * _WORD
"""Bytes of its reply: 0, and the number of devices."""
_ANSWER_TIMEOUT: Final = 60.0
"""Seconds in which a service answers. In a checkout it may compile the libraries first."""


def check_socket_path(path: Path) -> None:
    """``VerbsError`` ENAMETOOLONG for a path that no socket has."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise VerbsError(
            f"{path}: {length} bytes, and the path of a socket has {MAX_SOCKET_PATH} at most: name"
            " a shorter one",
            ENAMETOOLONG,
        )


def is_served(path: Path) -> bool:
    """Whether a service answers at a socket. Waits for one that is starting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(_ANSWER_TIMEOUT)
        try:
            probe.connect(os.fspath(path))
            probe.send(array("Q", (_HELLO, version())).tobytes())
            reply = probe.recv(_WORD + MAX_REASON + 1)
        except OSError:
            return False
    is_refusal = any(reply[:_WORD]) and len(reply) % _WORD == 0  # of another version
    return len(reply) == _HELLO_REPLY or is_refusal


class ProgramFiles:
    """The files beside a socket: ``verbs.sock.rdmawire`` with ``lib``, ``sys``, ``dev``, ``bin``.

    One service at a time has them: :meth:`write` locks the folder.
    """

    def __init__(self, path: Path) -> None:
        self.socket = path.absolute()
        self.folder = self.socket.with_name(f"{path.name}.rdmawire")
        self._lock: int | None = None

    @property
    def sysfs(self) -> Path:
        """The private ``/sys``."""
        return self.folder / "sys"

    def write(
        self, machine: "Machine", devices: "Sequence[EmulatedDevice]", rates: Sequence[float]
    ) -> tuple[str, ...]:
        """Write all files, in place of those of a service that was killed.

        Returns a sentence for each library that is missing.
        ``LibraryError`` without libraries, ``OSError`` for files that cannot be written,
        ``VerbsError`` EADDRINUSE if another service has the files.
        """
        from rdmawire.verbs_service.rdma_tool import write_rdma
        from rdmawire.verbs_service.sysfs import write_tree

        found = libraries()
        try:
            self._take_lock()
            self._remove_trees()
            copy_libraries(self.folder / "lib", found.paths)
            write_tree(self.folder, machine, devices, rates)
            write_rdma(self.folder, devices)
        except OSError as error:
            self._give_up()
            raise OSError(error.errno, error.strerror, os.fspath(self.folder)) from error
        return found.notes

    def _take_lock(self) -> None:
        self.folder.mkdir(exist_ok=True)
        lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise VerbsError(f"{self.socket}: a service is starting there", EADDRINUSE) from None
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def _give_up(self) -> None:
        """Remove the files that were written before an error."""
        if self._lock is None:
            return  # nothing: another service may have the files
        shutil.rmtree(self.folder / "lib", ignore_errors=True)
        self.remove()
        with suppress(OSError):
            self.folder.rmdir()

    def _remove_trees(self) -> None:
        for name in _TREES:
            if (self.folder / name).exists():
                shutil.rmtree(self.folder / name)

    def remove(self) -> None:
        """Remove the files that :meth:`write` wrote, but the libraries.

        Shells that have the variables start programs after the end of the service, too: the loader
        would complain for each that there is no library to preload.
        """
        if self._lock is None:
            return
        self._remove_trees()
        os.close(self._lock)
        self._lock = None

    def variables(self, environment: Mapping[str, str], *, preload: bool = True) -> dict[str, str]:
        """Return the variables of a program, which extend those of ``environment``.

        Without ``preload`` the program sees the machine's own ``/sys``.
        """
        lib = self.folder / "lib"
        own = {
            "RDMAWIRE_VERBS": os.fspath(self.socket),
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
            "RDMAWIRE_SYSFS": None,
            "LD_LIBRARY_PATH": ":".join(_without(lib, environment.get("LD_LIBRARY_PATH"))) or None,
            "LD_PRELOAD": ":".join(_without(lib / PRELOAD, environment.get("LD_PRELOAD"))) or None,
        }


def no_service(path: Path) -> VerbsError:
    """Return the error for a socket at which no service answers.

    ``VerbsError`` ENAMETOOLONG is raised for a path that no socket has.
    """
    check_socket_path(path)
    if not _may_use(path):
        return VerbsError(f"{path}: Permission denied: name a socket of this user", EACCES)
    return VerbsError(
        f"no verbs service answers at {path}: start one with `rdmawire verbs serve`", ENOENT
    )


def _may_use(path: Path) -> bool:
    """Whether this user may connect to the socket, or there is none."""
    try:
        return not path.exists() or os.access(path, os.W_OK)
    except PermissionError:
        return False


def _before(path: Path, others: str | None) -> str:
    """Put a path at the head of a list, and remove it from the rest."""
    return ":".join([os.fspath(path), *_without(path, others)])


def _without(path: Path, others: str | None) -> list[str]:
    """Return the paths of a list without this one."""
    return [one for one in (others or "").split(":") if one and one != os.fspath(path)]
