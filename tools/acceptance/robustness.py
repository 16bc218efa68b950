"""Trials of many processes, many queue pairs, killed peers and a killed service."""

import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from tools.acceptance import endurance
from tools.acceptance.case import Case
from tools.acceptance.ibverbs_utils import pingpong
from tools.acceptance.perftest import run as perftest
from tools.acceptance.processes import Program
from tools.acceptance.reports import reason
from tools.acceptance.service import Service, ServiceError, wait_for
from tools.acceptance.trial import Plan, Size, Trial, TrialError, left

_LIMIT_SECONDS: Final = 240
_END_SECONDS: Final = 60
"""Seconds in which programs must notice that a peer or the service is gone."""
_RUNS_FOR: Final = "-D 60"


def plans(size: Size) -> tuple[Plan, ...]:
    """Return all trials, in the order of the page."""
    return (
        Plan(f"{size.processes} processes, each compares its data", _processes),
        Plan(f"{size.queue_pairs} queue pairs of one process", _queue_pairs),
        Plan("a peer is killed", _peer_killed),
        Plan("the service is killed", _service_killed),
        *endurance.plans(size),
    )


def chosen(size: Size, patterns: Sequence[str]) -> list[Plan]:
    """Return the trials that have one of the texts in their name; all without texts."""
    return [
        plan
        for plan in plans(size)
        if not patterns or any(pattern in plan.name for pattern in patterns)
    ]


def trials(plans: Iterable[Plan], size: Size) -> Iterator[Trial]:
    """Run trials, one after the other."""
    for plan in plans:
        yield _tried(plan, size)


def _tried(plan: Plan, size: Size) -> Trial:
    """Run a trial with a service of its own."""
    with tempfile.TemporaryDirectory(prefix="rdmawire-robustness-") as folder:
        try:
            with Service(Path(folder), plan.options, capture=False) as service:
                what = plan.run(service, Path(folder), size)
        except (ServiceError, TrialError) as error:
            return Trial(plan.name, passed=False, what=str(error))
    return Trial(plan.name, passed=True, what=what)


class _Pair:
    """A server and a client, ended at the end of the `with` block."""

    def __init__(self, case: Case, service: Service, folder: Path, port: int) -> None:
        self._case, self._service, self._folder, self._port = case, service, folder, port

    def __enter__(self) -> Self:
        self.server = self._start(self._case.server, "server")
        self.server.wait_until_ready(self._port)
        self.client = self._start(self._case.client, "client")
        return self

    def __exit__(self, *_: object) -> None:
        self.client.end()
        self.server.end()

    def _start(self, command: str, role: str) -> Program:
        words = command.format(server="rw0", client="rw1")
        words = words.replace(f"-p {self._case.port}", f"-p {self._port}")
        output = self._folder / f"{role}-{self._port}"
        return Program(words, self._service.variables({}), output)


def _processes(service: Service, folder: Path, size: Size) -> str:
    before = service.usage()
    case = pingpong("ibv_rc_pingpong", "RC", "-c -e")
    start = time.monotonic()
    with ExitStack() as stack:
        pairs = [
            stack.enter_context(_Pair(case, service, folder, 19000 + index))
            for index in range(size.processes // 2)
        ]
        programs = [program for pair in pairs for program in (pair.server, pair.client)]
        for program in programs:
            program.wait(start + _LIMIT_SECONDS - time.monotonic())
        _check_ended_well(programs)
    return f"all data right in {time.monotonic() - start:.0f} s; {left(service, before)}"


def _queue_pairs(service: Service, folder: Path, size: Size) -> str:
    before = service.usage()
    # perftest counts four messages for each completion, also for the last one of a queue pair: with
    # another number of messages it can stop to poll before all queue pairs have sent theirs.
    case = perftest("ib_write_bw", "RC", f"-q {size.queue_pairs} -n 8 -t 4 -s 4096")
    start = time.monotonic()
    with _Pair(case, service, folder, 19100) as pair:
        for program in (pair.client, pair.server):
            program.wait(start + _LIMIT_SECONDS - time.monotonic())
        _check_ended_well([pair.client, pair.server])
    return f"done in {time.monotonic() - start:.0f} s; {left(service, before)}"


def _check_ended_well(programs: list[Program]) -> None:
    for program in programs:
        if program.status != 0:
            raise TrialError(f"exit status {program.status}: {reason(program.output)}")


def _peer_killed(service: Service, folder: Path, _: Size) -> str:
    before = service.usage()
    with _Pair(perftest("ib_send_bw", "RC", _RUNS_FOR), service, folder, 19200) as pair:
        _wait_for_traffic(service)
        os.killpg(pair.server.process.pid, signal.SIGKILL)
        what = _error_of(pair.client)
    return f"the client ends with an error: {what}; {left(service, before)}"


def _service_killed(service: Service, folder: Path, _: Size) -> str:
    with _Pair(perftest("ib_send_bw", "RC", _RUNS_FOR), service, folder, 19300) as pair:
        _wait_for_traffic(service)
        service.kill()
        what = [_error_of(program) for program in (pair.client, pair.server)]
    return f"both end with an error: {what[0]} (client), {what[1]} (server)"


def _wait_for_traffic(service: Service) -> None:
    if not wait_for(lambda: service.objects()["qps"] >= 2, _END_SECONDS):
        raise TrialError("the programs did not connect")
    time.sleep(1)


def _error_of(program: Program) -> str:
    """Return the error with which a program ends."""
    if not program.wait(_END_SECONDS):
        raise TrialError(f"a program does not end within {_END_SECONDS} s")
    if program.status == 0:
        raise TrialError("a program ends without an error")
    return reason(program.output)
