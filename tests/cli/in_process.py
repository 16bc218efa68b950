"""The command line in the process of the tests: a call takes milliseconds.

Its standard streams are pipes at the descriptors 0, 1 and 2. The words, the environment, the
handlers of signals, the garbage collector and the path of modules are after a call as before it.
What a process does before its imports are done, and at its end, is tested with processes of their
own (``RDMAWIRE`` in :mod:`tests.cli.command`).
"""

import gc
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper

from rdmawire.cli.main import main
from tests.cli.fork_server import read_all, write_all

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_in_process(
    words: Sequence[str], stdin: bytes, env: dict[str, str], *, is_merged: bool = False
) -> tuple[int, bytes, bytes]:
    """Run a command in this process: its exit status, and the bytes of its output and errors.

    With ``is_merged`` errors go where the output goes, as with ``2>&1`` in a shell.
    """
    with ThreadPoolExecutor(3) as threads, ExitStack() as restored:
        for context in (_settings(words, env), _input(threads, stdin)):
            restored.enter_context(context)
        output = restored.enter_context(_output(threads, 1))
        errors = restored.enter_context(_output(threads, 2))
        if is_merged:
            os.dup2(1, 2)
        restored.enter_context(_streams())
        status = _status()
        restored.close()
        return status, output.result(), errors.result()


def _status() -> int:
    try:
        main()
    except SystemExit as ended:
        sys.stdout.flush()
        return ended.code if isinstance(ended.code, int) else 0
    raise AssertionError("the command line returned without an exit status")


@contextmanager
def _settings(words: Sequence[str], env: dict[str, str]) -> Iterator[None]:
    """Set the words and the environment of a command; restore what it may change of the process."""
    before = sys.argv, sys.path[:], dict(os.environ), gc.isenabled()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.argv = ["-c", *words]
    _set_environment(env)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        sys.argv, sys.path[:], environment, collects = before
        _set_environment(environment)
        (gc.enable if collects else gc.disable)()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _set_environment(env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()


@contextmanager
def _input(threads: ThreadPoolExecutor, data: bytes) -> Iterator[None]:
    """Make descriptor 0 a pipe from which ``data`` comes."""
    reading, writing = os.pipe()
    with _replaced(0, reading):
        threads.submit(write_all, writing, data)
        yield


@contextmanager
def _output(threads: ThreadPoolExecutor, number: int) -> Iterator[Future[bytes]]:
    """Make a descriptor a pipe; the result is all that is written to it."""
    reading, writing = os.pipe()
    with _replaced(number, writing):
        yield threads.submit(read_all, reading)


@contextmanager
def _replaced(number: int, by: int) -> Iterator[None]:
    """Let a standard descriptor be ``by``, which is closed at the end."""
    before = os.dup(number)
    os.dup2(by, number)
    os.close(by)
    try:
        yield
    finally:
        os.dup2(before, number)
        os.close(before)


@contextmanager
def _streams() -> Iterator[None]:
    """Make the streams of Python those that it has when it starts with these descriptors."""
    before = sys.stdin, sys.stdout, sys.stderr
    # Kept to the end, like ``sys.__stderr__``: a stream that is freed closes what it wraps.
    output, errors = (BufferedWriter(FileIO(number, "wb", closefd=False)) for number in (1, 2))
    streams = (
        TextIOWrapper(BufferedReader(FileIO(0, closefd=False)), "utf-8"),
        TextIOWrapper(output, "utf-8"),
        TextIOWrapper(errors, "utf-8", "backslashreplace", write_through=True),
    )
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for stream in streams:
            with suppress(OSError):  # what cannot be written is no concern of the next call
                stream.close()
