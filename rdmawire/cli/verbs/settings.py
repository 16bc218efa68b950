"""The options of a service, and the session that they configure."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from rdmawire.capture.io import STREAM
from rdmawire.cli.command import F, IntegerType, PathType, option
from rdmawire.cli.streams import complain, open_host
from rdmawire.errors import VerbsError
from rdmawire.terminal import escape

if TYPE_CHECKING:
    from rdmawire.verbs_service import SessionSettings, VerbsSession

MAX_DEVICES = 254
_SUFFIXES = (".pcap", ".pcapng")
_STANDARD_OUTPUT = Path("/dev/stdout")
_FOLDER_PREFIX = "rdmawire-verbs-"
_SOCKET_NAME = "verbs.sock"

SUMMARY_AS_JSON = option(
    "Output", "--json", "as_json", is_flag=True, help="Print the summary as one JSON object."
)
"""The option of `rdmawire verbs` and of `rdmawire verbs serve`."""


def service_options(socket_help: str) -> Callable[[F], F]:
    """Return a decorator that adds the options of a service; ``socket_help`` is of --socket."""
    added = (
        option(
            "Devices", "--devices", type=IntegerType(1, MAX_DEVICES), metavar="N",
            help="Number of devices: rw0 with 10.0.0.1, rw1 with 10.0.0.2, ...  [default: 2, or "
            "the adapters of --host]",
        ),
        option(
            "Devices", "--host", metavar="HOST",
            help="A device for each adapter of this host, with its name, place in PCI and rate: a "
            "name or file of `rdmawire topo`, such as dgx-h100.",
        ),
        option(
            "Devices", "--first-address", type=IntegerType(1, MAX_DEVICES), default=1,
            show_default=True, metavar="N",
            help="The address of the first device is 10.0.0.N. Joined services need different "
            "ones.",
        ),
        option(
            "Devices", "--socket", type=PathType(path_type=Path), metavar="PATH", help=socket_help
        ),
        option(
            "Network", "--network", default="", metavar="TEXT",
            help="loss=0.001,latency=10us,rate=25G,duplicate=0.01,reorder=0.01,seed=1: a link "
            "with any of these; the name or file of a scenario: its switches and links, with a "
            "device for each host; udp=PORT,peer=HOST:PORT: other services.  [default: direct, "
            "without loss]",
        ),
        option(
            "Network", "-w", "--pcap", metavar="FILE",
            help="Capture all frames to FILE.pcap, FILE.pcapng or a FIFO.",
        ),
    )  # fmt: skip

    def decorate(command: F) -> F:
        for one in reversed(added):
            command = one(command)
        return command

    return decorate


def _settings_of(given: dict[str, Any]) -> "SessionSettings":
    """Return the settings of a session from the values of options."""
    from rdmawire.verbs_service import SessionSettings

    host = given["host"]
    return SessionSettings(
        given["devices"],
        given["network"],
        _capture_path(given["pcap"]),
        None if host is None else open_host(host).machine,
        given["first_address"],
    )


def _capture_path(path: str | None) -> Path | None:
    """Return the path of a live capture; ``UsageError`` for a regular file of another format."""
    if path is None or path == STREAM:
        return None if path is None else _STANDARD_OUTPUT
    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        is_regular = True
    if is_regular and not path.endswith(_SUFFIXES):
        expected = " or ".join(_SUFFIXES)
        raise click.UsageError(f"-w {escape(path)}: the name of a capture ends in {expected}")
    return Path(path)


def _folder() -> TemporaryDirectory[str]:
    """Return a temporary folder for a socket: in TMPDIR if its path is short and safe, or in /tmp.

    It is safe if no other user can replace the folder.
    """
    from rdmawire.verbs_service import ProgramFiles
    from rdmawire.verbs_service.service_socket import MAX_SOCKET_PATH

    made = TemporaryDirectory(prefix=_FOLDER_PREFIX)
    path = Path(made.name, _SOCKET_NAME)
    with suppress(VerbsError):
        ProgramFiles(path).is_claimed()  # checks the folders
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
            return made
    made.cleanup()
    return TemporaryDirectory(prefix=_FOLDER_PREFIX, dir="/tmp")


@contextmanager
def with_session(socket: Path | None, given: dict[str, Any]) -> "Iterator[VerbsSession]":
    """Serve on a socket, or on one in a temporary folder; the service ends with the context.

    ``given`` are the values of options.
    """
    from rdmawire.verbs_service import ProgramFiles

    with ExitStack() as stack:
        if socket is None:
            socket = Path(stack.enter_context(_folder()), _SOCKET_NAME)
        try:
            files = ProgramFiles(socket)
            stack.callback(files.remove)
            files.claim()  # before the imports, which take long: `rdmawire verbs env` waits
            from rdmawire.verbs_service import VerbsSession

            session = VerbsSession(files, _settings_of(given))
        except OSError as error:
            named = escape(str(error.filename or socket))
            raise click.ClickException(f"{named}: {error.strerror or error}") from None
        stack.callback(session.close)
        for note in session.notes:
            complain(f"note: {note}")
        yield session
