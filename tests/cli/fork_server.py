"""A process that has imported the command line already, and forks one process for each command.

Commands start in a few milliseconds instead of half a second. Each is a process as any other: its
standard streams, directory, environment, signals, exit status and end of the interpreter are its
own. What a process does before its imports are done, and what imports cost, is tested with
processes of Python that start anew (``RDMAWIRE`` in :mod:`tests.cli.command`).
"""

import gc
import multiprocessing.process
import os
import pkgutil
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
from pickle import dumps, loads
from subprocess import PIPE

ROOT = Path(__file__).parents[2]
_NOT_PRELOADED = ("rdmawire.__main__", "rdmawire.cluster", "rdmawire.memory.gpu.cuda")
"""What starts a command when it is imported, or threads, or needs a library of an extra."""

_SERVE = "from tests.cli.fork_server import serve; run = serve({fd}); run()"
_MOST = 1 << 20


class ForkServer:
    """The client's side: one server for each process of tests, started by the first command."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            program = _SERVE.format(fd=theirs.fileno())
            # Python finds out what its standard streams are when it starts: pipes.
            self._server = subprocess.Popen(
                [sys.executable, "-c", program],
                cwd=ROOT, pass_fds=(theirs.fileno(),), stdin=PIPE, stdout=PIPE, stderr=PIPE,
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
        socket.send_fds(self._socket, [dumps((list(words), env, os.getcwd()))], theirs)
        for stream in theirs:
            os.close(stream)
        with ThreadPoolExecutor(3) as threads:
            threads.submit(_write_all, stdin_end, stdin)
            readers = [threads.submit(_read_all, end) for end in (stdout_end, stderr_end)]
            self._socket.settimeout(timeout)
            status = loads(self._socket.recv(_MOST))
            stdout, stderr = (reader.result() for reader in readers)
        return status, stdout, stderr


def _write_all(fd: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(fd, "wb") as pipe:
        pipe.write(data)


def _read_all(fd: int) -> bytes:
    with open(fd, "rb") as pipe:
        return pipe.read()


@cache
def fork_server(_process: int) -> ForkServer:
    """The server of this process: ``_process`` is its PID."""
    return ForkServer()


def serve(fd: int) -> Callable[[], None]:
    """Fork a process for each request; return the command's function in each of them.

    The server itself ends when its client does.
    """
    requests = socket.socket(fileno=fd)
    _preload()
    gc.freeze()
    while True:
        message, streams, _, _ = socket.recv_fds(requests, _MOST, 3)
        if not message:
            os._exit(0)
        child = os.fork()
        if child == 0:
            requests.close()
            return _prepared(loads(message), streams)
        for stream in streams:
            os.close(stream)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        requests.send(dumps(status))


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
