"""Pools of processes that end at once, whatever they do, and leave Ctrl-C to the main process."""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import active_children, get_context
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any, Final

from rdmawire.worker_process import (
    begin_worker,
    discard_output,
    signals_deferred,
    terminal_blocked,
)

_END_S: Final = 5.0
"""Seconds that a process may take to end."""


class ProcessPool:
    """``processes`` processes that call functions, until :meth:`end`.

    Futures raise ``BrokenProcessPool`` if one of the processes is killed.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._workers: set[BaseProcess] = set()
        context = get_context("spawn")
        with terminal_blocked():
            self._pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin)

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Call a function in one of the processes, which are started for that."""
        before = set(active_children())
        with terminal_blocked():
            work = self._pool.submit(function, *args)
        self._workers |= set(active_children()) - before
        return work

    def end(self) -> None:
        """End the processes, whatever they do."""
        with signals_deferred():
            for worker in self._workers:
                worker.terminate()
            _kill_late(self._workers)
            self._pool.shutdown(cancel_futures=True)


def _kill_late(workers: Iterable[BaseProcess]) -> None:
    """Kill processes that have not ended after some time: they are in code in C."""
    late, end = list(workers), monotonic() + _END_S
    while late and (ended := wait_for([one.sentinel for one in late], max(end - monotonic(), 0))):
        late = [one for one in late if one.sentinel not in ended]
    for worker in late:
        worker.kill()


def _begin() -> None:
    """Prepare a process of the pool: modules of users may print when they are imported.

    The main process warns of what is missing, once.
    """
    begin_worker(cleans_up=True)
    discard_output()
    logging.getLogger("rdmawire").setLevel(logging.ERROR)
