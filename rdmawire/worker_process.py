"""Worker processes that end with the process that started them, and leave Ctrl-C to it."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import parent_process
from types import FrameType
from typing import Final, NoReturn

_OF_TERMINAL: Final = (signal.SIGINT, signal.SIGHUP)
"""Signals that a terminal sends to all processes of a command."""
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_cleanups: Final[list[Callable[[], object]]] = []
"""What this process must do before it ends."""


def begin_worker(*, own_group: bool = False, cleans_up: bool = False) -> None:
    """Prepare this worker process; call it before its work.

    Ctrl-C is for the main process, SIGTERM ends the worker at once, and so does the end of the main
    process, whatever its reason. With ``own_group`` the process leads a process group: processes
    that it starts are in it, and are killed with it when the main process ends. With ``cleans_up``
    what :func:`add_cleanup` was called with is called before the worker ends.
    """
    if own_group:
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _clean_up_and_end if cleans_up else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    threading.Thread(target=_end_with_parent, args=(own_group,), daemon=True).start()


def _end_with_parent(own_group: bool) -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        if own_group:
            kill_own_group()
        _clean_up_and_end()


def _clean_up_and_end(_: int = 0, __: FrameType | None = None) -> NoReturn:
    try:
        while _cleanups:
            _cleanups.pop()()
    finally:
        os._exit(1)


def add_cleanup(work: Callable[[], object]) -> None:
    """Note what must be done if a signal, or the end of the main process, ends this worker."""
    _cleanups.append(work)


def remove_cleanup(work: Callable[[], object]) -> None:
    """Forget what :func:`add_cleanup` was called with, if it is not forgotten yet."""
    if work in _cleanups:
        _cleanups.remove(work)


@contextmanager
def cleaned_up(work: Callable[[], object]) -> Iterator[None]:
    """Call ``work`` at the end of the context, also if this worker is ended before."""
    add_cleanup(work)
    try:
        yield
    finally:
        remove_cleanup(work)
        work()


def kill_own_group() -> None:
    """Kill this process and all others of its process group, which it must lead."""
    os.killpg(os.getpid(), signal.SIGKILL)


def discard_output() -> None:
    """Discard what this process writes to standard output from now on: it is the main process's."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


@contextmanager
def _blocked(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Block signals in this thread, for processes that are started: they inherit it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def terminal_blocked() -> AbstractContextManager[None]:
    """Block Ctrl-C and hangups while processes are started.

    So a worker is not interrupted before :func:`begin_worker`, which unblocks them, and the
    resource tracker of :mod:`multiprocessing` does not end before its processes.
    """
    return _blocked(_OF_TERMINAL)


def ending_blocked() -> AbstractContextManager[None]:
    """Block Ctrl-C, SIGTERM and hangups while processes are forked.

    A forked process has the handlers of this one until :func:`begin_worker`, which unblocks the
    signals: so none of them is lost, or handled by a worker as if it were the main process.
    """
    return _blocked(_ENDING)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Let this process handle Ctrl-C, SIGTERM and SIGHUP after the body of the context.

    It is for short work that must be completed. Outside the main thread, to which no signal comes,
    it does nothing.
    """
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    received: list[tuple[int, FrameType | None]] = []
    if threading.current_thread() is not threading.main_thread():
        ours = {}
    for number in ours:
        signal.signal(number, lambda *arguments: received.append(arguments))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        for ended, frame in received[:1]:
            ours[signal.Signals(ended)](ended, frame)
