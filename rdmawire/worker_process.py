"""Worker processes that end with the process that started them, and leave Ctrl-C to it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from threading import Thread

_INTERRUPT = (signal.SIGINT,)


def begin_worker(*, own_group: bool = False) -> None:
    """Prepare this worker process; call it before its work.

    Ctrl-C is for the main process, SIGTERM ends the worker at once, and so does the end of the main
    process, whatever its reason. With ``own_group`` the process leads a process group: processes
    that it starts are in it, and are killed with it when the main process ends.
    """
    if own_group:
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
    Thread(target=_end_with_parent, args=(own_group,), daemon=True).start()


def _end_with_parent(own_group: bool) -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        if own_group:
            kill_own_group()
        os._exit(1)


def kill_own_group() -> None:
    """Kill this process and all others of its process group, which it must lead."""
    os.killpg(os.getpid(), signal.SIGKILL)


def discard_output() -> None:
    """Discard what this process writes to standard output from now on: it is the main process's."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in this thread, for workers that are started: they inherit it.

    So a worker is not interrupted before :func:`begin_worker`, which ends that.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
