"""A parser in a process of its own, so that a call that ends the process is a finding.

A function written in C may end its process by a signal, call ``exit`` or never come back to the
interpreter, which no exception handler sees. The main process sends cases and gets a result for
each; when the process ends, the first case without a result is the one that ended it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.command_target import signal_name
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.parser_target import Parser, no_result
from rdmawire.worker_process import begin_worker

PROCESS: Final = "process"
"""``Violation.what`` of a call that ends its process."""
_EXPECTED: Final = "a result or an exception"
_STARTUP_S: Final = 120.0
"""Seconds that a process may take to start: it imports the module of the function."""
_MARGIN_S: Final = 5.0
"""Seconds that a case may take beyond the limits of its calls, which Python code keeps itself."""
_END_S: Final = 5.0
"""Seconds that a process may take to end after its connection was closed."""


class _Worker(NamedTuple):
    """A process that judges cases, and the connection to it."""

    process: BaseProcess
    cases: Connection

    def stop(self) -> int:
        """End the process; return its exit status, negative for a signal."""
        self.cases.close()
        self.process.join(_END_S)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        return self.process.exitcode or 0

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.stop()


class IsolatedParser:
    """A parser in a process of its own, which is started again if a case ends it.

    - ``make`` returns the parser; it is called in that process, and must be importable there.
    - ``seconds`` is the time limit of a call. The process is killed if it does not keep it.

    While results of :meth:`judge_all` are not all read, other cases are judged in another process.
    The processes are daemons of :mod:`multiprocessing`: the parser cannot start processes with that
    module.
    """

    def __init__(self, make: Callable[[], Parser], name: str, seconds: float) -> None:
        self.name = name
        self._make = make
        self._seconds = seconds
        self._idle: list[_Worker] = []

    def judge(self, frames: Sequence[SeedFrame]) -> Violation | None:
        """Parse the frames in order; return the first violation, or ``None``."""
        (result,) = self.judge_all([frames])
        return result

    def judge_all(self, cases: Sequence[Sequence[SeedFrame]]) -> Iterator[Violation | None]:
        """Judge each case by itself; results are yielded as they come.

        Raises :class:`FuzzError` if the process ends before its first case.
        """
        judged = 0
        while judged < len(cases):
            worker = self._idle.pop() if self._idle else self._started()
            try:
                for result in self._results(worker, cases[judged:]):
                    judged += 1
                    yield result
            except BaseException:  # unread results would be taken for those of the next cases
                worker.kill()
                raise
            if not worker.cases.closed:
                self._idle.append(worker)

    def close(self) -> None:
        """End the processes that wait; others are started when they are needed."""
        while self._idle:
            self._idle.pop().kill()

    def _results(
        self, worker: _Worker, cases: Sequence[Sequence[SeedFrame]]
    ) -> Iterator[Violation | None]:
        """Yield the results of cases, up to the first one that ends the process."""
        with suppress(BrokenPipeError):  # it ended after its last case: the first one shows it
            worker.cases.send(cases)
        for frames in cases:
            yield self._result(worker, frames)
            if worker.cases.closed:
                return

    def _result(self, worker: _Worker, frames: Sequence[SeedFrame]) -> Violation | None:
        """Return the result of the next case; if the process ends, close the connection."""
        if not worker.cases.poll(self._seconds * max(len(frames), 1) + _MARGIN_S):
            worker.kill()
            return no_result(self._seconds, _EXPECTED)._replace(place=_last(frames))
        try:
            result: Violation | None = worker.cases.recv()
        except (EOFError, ConnectionResetError):
            happened = _ending(worker.stop())
            signature = f"{PROCESS} | {happened}"
            return Violation(_last(frames), PROCESS, _EXPECTED, happened, "", signature)
        return result

    def _started(self) -> _Worker:
        """Start the process, and wait until it is ready."""
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._make), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        try:
            if ours.poll(_STARTUP_S):
                ours.recv()
                return worker
            worker.process.kill()
            reason = f"is not ready after {_STARTUP_S:g} s"
        except (EOFError, ConnectionResetError):
            reason = "ends before its first case"
        except BaseException:
            worker.kill()
            raise
        raise FuzzError(f"{self.name}: its process {reason}: {_ending(worker.stop())}")


def _last(frames: Sequence[SeedFrame]) -> int:
    """Return the index of the last frame; which call of a case ended it is not known."""
    return max(len(frames) - 1, 0)


def _ending(status: int) -> str:
    """Say how a process has ended."""
    ending = f"by {signal_name(-status)}" if status < 0 else f"with status {status}"
    return f"the process ended {ending}"


def _serve(cases: Connection, make: Callable[[], Parser]) -> None:
    """Judge the cases that come, until the connection is closed."""
    begin_worker()
    parser = make()
    try:
        cases.send(None)
        while True:
            for result in parser.judge_all(cases.recv()):
                cases.send(result)
    except (EOFError, BrokenPipeError):
        return  # the main process has closed its end
