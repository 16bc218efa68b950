"""A process that has imported the command line already, and forks one process for each command.

Commands start in a few milliseconds instead of half a second. Each is a process as any other: its
standard streams, directory, environment, signals, exit status and end of the interpreter are its
own. What a process does before its imports are done, and what imports cost, is tested with
processes of Python that start anew (``RDMAWIRE`` in :mod:`tests.cli.command`).

A client connects to the server's socket and sends the words, the environment and the directory of a
command with three descriptors, its standard streams; the reply is its exit status.
"""

import gc
import marshal
import multiprocessing.process
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
_NOT_PRELOADED = ("rdmawire.__main__", "rdmawire.cluster", "rdmawire.memory.gpu.cuda")
"""What starts a command when it is imported, or threads, or needs a library of an extra."""

_SERVE = "from tests.cli.fork_server import serve; run = serve({listener}, {client}); run()"
_MAX_REQUEST = 1 << 20

_CLIENT = """\
#!{python} -IS
import marshal, os, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({path!r})
request = marshal.dumps((sys.argv[1:], dict(os.environ), os.getcwd()))
socket.send_fds(server, [request], (0, 1, 2))
status = marshal.loads(server.recv(100))
sys.exit(status if status >= 0 else 128 - status)
"""


class ForkServer:
    """The client's side: one server for each process of tests, started by the first command."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="rdmawire-tests-")
        self.path = f"{self._folder.name}/socket"
        # The server ends when its client does: then the other end of this pair is closed.
        self._alive, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.path)
            listener.listen()
            fds = listener.fileno(), theirs.fileno()
            program = _SERVE.format(listener=fds[0], client=fds[1])
            # Python finds out what its standard streams are when it starts: pipes.
            self._server = subprocess.Popen(
                [sys.executable, "-c", program],
                cwd=ROOT, pass_fds=fds, stdin=PIPE, stdout=PIPE, stderr=PIPE,
            )  # fmt: skip

    def run(
        self, words: Sequence[str], stdin: bytes, env: dict[str, str], timeout: float
    ) -> tuple[int, bytes, bytes]:
        """Run a command in the present directory: its exit status, output and errors.

        The status is negative for a signal. ``TimeoutError`` if it takes ``timeout`` seconds.
        """
        given, stdin_end = os.pipe()
        stdout_end, output = os.pipe()
        stderr_end, errors = os.pipe()
        theirs = (given, output, errors)
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server,
            ThreadPoolExecutor(3) as threads,
        ):
            server.settimeout(timeout)
            server.connect(self.path)
            socket.send_fds(server, [marshal.dumps((list(words), env, os.getcwd()))], theirs)
            for stream in theirs:
                os.close(stream)
            threads.submit(write_all, stdin_end, stdin)
            readers = [threads.submit(read_all, end) for end in (stdout_end, stderr_end)]
            status = int(marshal.loads(server.recv(_MAX_REQUEST)))
            stdout, stderr = (reader.result() for reader in readers)
        return status, stdout, stderr

    @property
    def bin(self) -> Path:
        """A folder for PATH in which ``rdmawire`` is a client of this server."""
        folder = Path(self._folder.name, "bin")
        if not folder.exists():
            folder.mkdir()
            program = folder / "rdmawire"
            program.write_text(_CLIENT.format(python=sys.executable, path=self.path))
            program.chmod(0o755)
        return folder


def write_all(fd: int, data: bytes) -> None:
    """Write to a pipe, which may have no reader any more, and close it."""
    with suppress(BrokenPipeError), open(fd, "wb") as pipe:
        pipe.write(data)


def read_all(fd: int) -> bytes:
    """Read a pipe to its end, and close it."""
    with open(fd, "rb") as pipe:
        return pipe.read()


@cache
def fork_server(_process: int) -> ForkServer:
    """The server of this process: ``_process`` is its PID."""
    return ForkServer()


def serve(listener: int, client: int) -> Callable[[], None]:
    """Fork a process for each request; return the command's function in each of them.

    ``listener`` is the socket that listens, ``client`` one that is closed when the client ends.
    """
    listening, alive = socket.socket(fileno=listener), socket.socket(fileno=client)
    _preload()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what waits for commands is not waited for
    while not select.select([listening, alive], [], [])[0].count(alive):
        connection = listening.accept()[0]
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            alive.close()
            return _command(connection)
        connection.close()
    os._exit(0)


def _command(connection: socket.socket) -> Callable[[], None]:
    """Return in a process of its own, whose exit status is sent when it ends."""
    message, streams, _, _ = socket.recv_fds(connection, _MAX_REQUEST, 3)
    child = os.fork()
    if child == 0:
        connection.close()
        return _prepared(marshal.loads(message), streams)
    for stream in streams:
        os.close(stream)
    connection.send(marshal.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    os._exit(0)


def _preload() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does
    import rdmawire

    for module in pkgutil.walk_packages(rdmawire.__path__, "rdmawire."):
        if module.name not in _NOT_PRELOADED and ".layers" not in module.name:
            import_module(module.name)


def _prepared(
    request: tuple[list[str], dict[str, str], str], streams: Sequence[int]
) -> Callable[[], None]:
    """Become the process of a command: streams, environment, directory and signals are its own."""
    words, env, directory = request
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(directory)
    # Spawned processes begin where Python began, as far as ``multiprocessing`` remembers it.
    multiprocessing.process.ORIGINAL_DIR = directory  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.argv = ["-c", *words]
    from rdmawire.cli.main import main

    return main
