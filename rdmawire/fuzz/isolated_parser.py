"""A parser in a process of its own, so that a call that ends the process is a finding.

A function written in C may end its process by a signal, call ``exit`` or never come back to the
interpreter, which no exception handler sees. The main process sends cases and gets a line of JSON
for each; when the process ends, or writes something else, the first case without a result is the
one that caused it. What the function does to its process stays there: the process leads a process
group, which is killed with it, and its standard output is discarded.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from time import monotonic
from typing import Any, BinaryIO, Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.command_target import signal_name
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.parser_target import Parser, no_result
from rdmawire.worker_process import (
    add_cleanup,
    begin_worker,
    discard_output,
    kill_own_group,
    remove_cleanup,
    terminal_blocked,
)

PROCESS: Final = "process"
"""``Violation.what`` of a call that ends its process."""
_EXPECTED: Final = "a result or an exception"
_STARTUP_S: Final = 120.0
"""Seconds that a process may take to start: it imports the module of the function."""
_MAX_STARTS: Final = 3
"""Processes in a row that may be killed while they start."""
_MARGIN_S: Final = 5.0
"""Seconds that a case may take beyond the limits of its calls, which Python code keeps itself."""
_END_S: Final = 5.0
"""Seconds that a process may take to end after its connection was closed."""
_CHECK_S: Final = 0.25
"""Seconds between two checks that a process still runs, while no result comes."""
_MAX_LINE: Final = 1 << 16
"""Bytes of a line of a process, at most."""
_JUNK: Final = "the process wrote to the connection of the fuzzer"


class _NoResultError(Exception):
    """A process sent something else than a result."""


class _Worker:
    """A process that judges cases, and the connections to it: ``cases`` go there."""

    def __init__(self, make: Callable[[], Parser]) -> None:
        context = get_context("spawn")
        theirs, self.cases = context.Pipe(duplex=False)
        self._results, lines = context.Pipe(duplex=False)
        self._read = bytearray()
        self.process: BaseProcess = context.Process(
            target=_serve, args=(theirs, lines, make), daemon=True
        )
        with terminal_blocked():
            self.process.start()
        add_cleanup(self.kill)
        theirs.close()
        lines.close()

    @property
    def has_ended(self) -> bool:
        """Whether :meth:`stop` or :meth:`kill` was called."""
        return self.cases.closed

    def receive(self, seconds: float) -> dict[str, Any]:
        """Return the next values that the process sends.

        Raises ``TimeoutError`` if none come within ``seconds``, ``EOFError`` if the process has
        ended, and :class:`_NoResultError` for something else than an object of JSON.
        """
        end = monotonic() + seconds
        while b"\n" not in self._read:
            if len(self._read) > _MAX_LINE:
                raise _NoResultError
            self._wait(end)
            block = os.read(self._results.fileno(), _MAX_LINE)
            if not block:
                raise EOFError
            self._read += block
        line, _, self._read = self._read.partition(b"\n")
        return _values(line)

    def _wait(self, end: float) -> None:
        """Wait until there is something to read, at the latest until the time ``end``."""
        while not self._results.poll(max(min(_CHECK_S, end - monotonic()), 0)):
            # A process that the function started may hold the connection open.
            if self.process.exitcode is not None and not self._results.poll():
                raise EOFError
            if monotonic() >= end:
                raise TimeoutError

    def stop(self) -> int:
        """End the process and its group; return its exit status, negative for a signal."""
        self._close()
        self.process.join(_END_S)
        return self._kill_group()

    def kill(self) -> None:
        """Kill the process and its group."""
        if not self.has_ended:
            self._close()
            self._kill_group()

    def _close(self) -> None:
        remove_cleanup(self.kill)
        self.cases.close()
        self._results.close()

    def _kill_group(self) -> int:
        assert self.process.pid is not None
        with suppress(ProcessLookupError):  # it has ended alone, or does not lead a group yet
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        return self.process.exitcode or 0


def _values(line: bytes | bytearray) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _NoResultError from error
    if not isinstance(found, dict):
        raise _NoResultError
    return found


class IsolatedParser:
    """A parser in a process of its own, which is started again if a case ends it.

    - ``make`` returns the parser; it is called in that process, and must be importable there.
    - ``seconds`` is the time limit of a call. The process is killed if it does not keep it.

    While results of :meth:`judge_all` are not all read, other cases are judged in another process.
    The processes are daemons of :mod:`multiprocessing`: the parser cannot start processes with that
    module. What it starts in other ways is killed with its process.
    """

    def __init__(self, make: Callable[[], Parser], name: str, seconds: float) -> None:
        self.name = name
        self._make = make
        self._seconds = seconds
        self._idle: list[_Worker] = []
        Finalize(self, _kill_all, (self._idle,), exitpriority=1)

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
            if not worker.has_ended:
                self._idle.append(worker)

    def close(self) -> None:
        """End the processes that wait; others are started when they are needed."""
        _kill_all(self._idle)

    def _results(
        self, worker: _Worker, cases: Sequence[Sequence[SeedFrame]]
    ) -> Iterator[Violation | None]:
        """Yield the results of cases, up to the first one that ends the process."""
        with suppress(BrokenPipeError):  # it ended after its last case: the first one shows it
            worker.cases.send(cases)
        for frames in cases:
            yield self._result(worker, frames)
            if worker.has_ended:
                return

    def _result(self, worker: _Worker, frames: Sequence[SeedFrame]) -> Violation | None:
        """Return the result of the next case; if there is none, end the process."""
        try:
            return _violation(worker.receive(self._seconds * max(len(frames), 1) + _MARGIN_S))
        except TimeoutError:
            worker.kill()
            return no_result(self._seconds, _EXPECTED)._replace(place=_last(frames))
        except EOFError:
            happened = _ending(worker.stop())
        except _NoResultError:
            worker.kill()
            happened = _JUNK
        signature = f"{PROCESS} | {happened}"
        return Violation(_last(frames), PROCESS, _EXPECTED, happened, "", signature)

    def _started(self) -> _Worker:
        """Start a process, again if it is killed meanwhile; return it when it is ready."""
        status = 0
        for _ in range(_MAX_STARTS):
            worker = _Worker(self._make)
            if self._is_ready(worker):
                return worker
            if (status := worker.stop()) >= 0:
                break
        raise FuzzError(f"{self.name}: its process ends before its first case: {_ending(status)}")

    def _is_ready(self, worker: _Worker) -> bool:
        """Wait until a process is ready; return false if it has ended."""
        try:
            worker.receive(_STARTUP_S)
        except EOFError:
            return False
        except (TimeoutError, _NoResultError) as error:
            worker.kill()
            reason = f"is not ready after {_STARTUP_S:g} s"
            if isinstance(error, _NoResultError):
                reason = f"cannot be used: {_JUNK}"
            raise FuzzError(f"{self.name}: its process {reason}") from error
        except BaseException:
            worker.kill()
            raise
        return True


def _kill_all(workers: list[_Worker]) -> None:
    """Kill processes, and empty their list."""
    while workers:
        workers.pop().kill()


def _last(frames: Sequence[SeedFrame]) -> int:
    """Return the index of the last frame; which call of a case ended it is not known."""
    return max(len(frames) - 1, 0)


def _ending(status: int) -> str:
    """Say how a process has ended."""
    ending = f"by {signal_name(-status)}" if status < 0 else f"with status {status}"
    return f"the process ended {ending}"


def _violation(values: dict[str, Any]) -> Violation | None:
    """Return the violation that a process sent, or ``None``."""
    try:
        shown = values["violation"]
        return None if shown is None else Violation(**shown)
    except (KeyError, TypeError) as error:
        raise _NoResultError from error


def _send(lines: BinaryIO, **values: Any) -> None:
    """Write values as a line of JSON."""
    lines.write(json.dumps(values).encode() + b"\n")
    lines.flush()


def _serve(cases: Connection, results: Connection, make: Callable[[], Parser]) -> None:
    """Judge the cases that come, until the connection is closed."""
    begin_worker(own_group=True)
    discard_output()
    parser = make()
    with open(results.fileno(), "wb", closefd=False) as lines:
        try:
            _send(lines, ready=True)
            while True:
                for shown in parser.judge_all(cases.recv()):
                    _send(lines, violation=None if shown is None else shown._asdict())
        except (EOFError, BrokenPipeError):  # the main process has closed its end
            kill_own_group()
        except OSError:  # the function has closed ours
            os._exit(1)
