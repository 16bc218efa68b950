"""Trials of endurance: programs that start and end all the time, and programs that are killed.

The programs are those of ``csrc/tests``: ``endurance`` and ``stream`` compare every byte of their
messages, ``mortal`` connects by librdmacm.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from tools.acceptance.processes import Program
from tools.acceptance.reports import reason
from tools.acceptance.service import Service, Usage, wait_for
from tools.acceptance.trial import Plan, Size, TrialError, left

_SOURCES: Final = Path(__file__).parents[2] / "csrc" / "tests"
_LOSS: Final = "loss=0.0005,seed=1"
_DISORDER: Final = "loss=0.0005,duplicate=0.0005,reorder=0.002,seed=1"
_AT_ONCE: Final = 3
_WARM_UP: Final = 6
"""Programs after which caches have their size."""
_MESSAGES: Final = 200, 4000
_KILLED: Final = 0.125
"""Share of programs that are killed."""
_LIFE_SECONDS: Final = 2.0
"""Maximum life of a program that is killed."""
_STREAM_MESSAGES: Final = 500_000
"""Messages of one program that sends small ones without a break."""
_LIMIT_SECONDS: Final = 300
_POLL_SECONDS: Final = 0.02
_MAX_GROWTH: Final = 32 << 20
"""Bytes by which the resident memory of a service may grow: the allocator does not return all."""
_DONE: Final = re.compile(r"(\d+) messages, (\d+) lost")
_SERVED: Final = re.compile(
    r"(\d+) established, (\d+) left, (\d+) exceeded, (\d+) failed, (\d+) messages"
)
_PORT: Final = 7471
_CALLS: Final = 29
"""Calls of the libraries that a client makes in all, without polls."""
_CLIENT_SECONDS: Final = 0.06
"""Approximate run time of such a client."""


def plans(size: Size) -> tuple[Plan, ...]:
    """Return the trials, which share the minutes."""
    seconds = size.minutes * 60 / 4
    return (
        Plan(f"{size.kills} programs are killed", _kill),
        Plan("endurance: programs come and go", partial(_endure, seconds=seconds, loses=False)),
        Plan(
            "endurance: programs come and go, packets are lost",
            partial(_endure, seconds=seconds, loses=True),
            ("--network", _LOSS),
        ),
        Plan("endurance: small messages without a break", partial(_stream, seconds=seconds)),
        Plan(
            "endurance: small messages, packets are lost, duplicated and reordered",
            partial(_stream, seconds=seconds),
            ("--network", _DISORDER),
        ),
    )


def compiled(name: str, service: Service, folder: Path) -> Path:
    """Compile a program of ``csrc/tests`` into a folder, with the libraries of a service.

    ``TrialError`` if that cannot be done.
    """
    program = folder / name
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-pthread"]
    libs = [f"-L{service.files.folder / 'lib'}", "-lrdmacm", "-libverbs"]
    words = [os.environ.get("CC", "cc"), *flags, str(_SOURCES / f"{name}.c"), "-o", str(program)]
    try:
        subprocess.run([*words, *libs], capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise TrialError(f"no C compiler: {words[0]} is not found") from error
    except subprocess.CalledProcessError as error:
        raise TrialError(f"{name}.c: {reason(error.stderr)}") from error
    return program


# Endurance.


class ProgramMix:
    """Programs of ``endurance`` on a service, :data:`_AT_ONCE` at a time, of which some are killed.

    ``messages`` and ``lost`` are those of programs that ended by themselves; only messages of UC
    and UD are lost.
    """

    def __init__(self, service: Service, folder: Path, program: Path, *, loses: bool) -> None:
        self._service, self._folder, self._program = service, folder, program
        self._loses = loses
        self._random = Random(1)
        self._running: dict[Program, float] = {}
        """Programs, and the time at which each is killed, or fails the trial."""
        self._victims: set[Program] = set()
        self.programs = self.killed = self.messages = self.lost = 0

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Start programs while ``goes_on()``, wait for the last. ``TrialError`` if one fails."""
        try:
            while goes_on() or self._running:
                if goes_on() and len(self._running) < _AT_ONCE:
                    self._start()
                for program, end in tuple(self._running.items()):
                    self._check(program, end)
                time.sleep(_POLL_SECONDS)
        finally:
            for program in self._running:
                program.end()

    def _start(self) -> None:
        self.programs += 1
        messages = self._random.randint(*_MESSAGES)
        words = f"{self._program} {self.programs} {messages} {int(self._loses)}"
        output = self._folder / f"program-{self.programs}"
        program = Program(words, self._service.variables({}), output)
        is_victim = self._random.random() < _KILLED
        life = self._random.uniform(0, _LIFE_SECONDS) if is_victim else _LIMIT_SECONDS
        self._running[program] = time.monotonic() + life
        if is_victim:
            self._victims.add(program)

    def _check(self, program: Program, end: float) -> None:
        if program.status is not None:
            del self._running[program]
            self._count(program)
        elif time.monotonic() > end:
            if program not in self._victims:
                raise TrialError(f"no end within {_LIMIT_SECONDS} s: {reason(program.output)}")
            os.killpg(program.process.pid, signal.SIGKILL)

    def _count(self, program: Program) -> None:
        """Add the messages of a program that has ended. ``TrialError`` if it failed."""
        was_killed = program.status == -signal.SIGKILL and program in self._victims
        self._victims.discard(program)
        self.killed += was_killed
        if was_killed:
            return
        messages, lost = _done(program)
        self.messages += messages
        self.lost += lost


def _done(program: Program) -> tuple[int, int]:
    """All messages of an ended program, and those lost. ``TrialError`` if it failed."""
    found = _DONE.search(program.output)
    if program.status or found is None:
        words = " ".join(map(str, program.process.args))  # type: ignore[arg-type]
        raise TrialError(f"{words}: exit status {program.status}: {reason(program.output)}")
    return int(found[1]), int(found[2])


def _endure(service: Service, folder: Path, _: Size, *, seconds: float, loses: bool) -> str:
    before = service.usage()
    mix = ProgramMix(service, folder, compiled("endurance", service, folder), loses=loses)
    mix.run(lambda: mix.programs < _WARM_UP)
    left(service, before)
    warm, deadline = service.usage(), time.monotonic() + seconds
    mix.run(lambda: time.monotonic() < deadline)
    what, memory = left(service, before), _memory(warm, service.usage())
    return f"{_counts(mix)} in {seconds:.0f} s; {what}; {memory}"


def _stream(service: Service, folder: Path, _: Size, *, seconds: float) -> str:
    """Run one program after another, as many as fit into the time."""
    before = service.usage()
    command = str(compiled("stream", service, folder))
    messages = _streamed(service, folder, f"{command} 0 {_STREAM_MESSAGES // 10}")
    left(service, before)
    warm, start, seed = service.usage(), time.monotonic(), 0
    while time.monotonic() - start < seconds:
        seed += 1
        messages += _streamed(service, folder, f"{command} {seed} {_STREAM_MESSAGES}")
    took, what = time.monotonic() - start, left(service, before)
    memory = _memory(warm, service.usage())
    return f"{messages:,} messages, all data right in {took:.0f} s; {what}; {memory}"


def _streamed(service: Service, folder: Path, command: str) -> int:
    """Run a program that sends small messages; return how many. ``TrialError`` if it fails."""
    program = Program(command, service.variables({}), folder / "output")
    try:
        program.wait(_LIMIT_SECONDS)
    finally:
        program.end()
    return _done(program)[0]


def _counts(mix: ProgramMix) -> str:
    lost = f", {mix.lost:,} more lost by UC and UD" if mix.lost else ""
    return (
        f"{mix.programs} programs, {mix.killed} of them killed;"
        f" {mix.messages - mix.lost:,} messages, all data right{lost}"
    )


def _memory(warm: Usage, end: Usage) -> str:
    """Return the resident memory of a service in words; ``TrialError`` if it grew.

    ``warm`` is what it had after the first programs.
    """
    text = f"{warm.resident >> 20} MiB resident at first, {end.resident >> 20} MiB in the end"
    if end.resident - warm.resident > _MAX_GROWTH:
        raise TrialError(text)
    return text


# Kills.


def _kill(service: Service, folder: Path, size: Size) -> str:
    before = service.usage()
    program = compiled("mortal", service, folder)
    random = Random(1)
    server = Program(f"{program} serve {_PORT}", service.variables({}), folder / "server")
    try:
        if not wait_for(lambda: "listening" in server.output, _LIMIT_SECONDS):
            raise TrialError(f"no server: {reason(server.output)}")
        for seed in range(size.kills):
            _kill_one(service, folder, f"{program} connect 10.0.0.1 {_PORT} {seed}", random)
        if not wait_for(lambda: not service.objects()["qps"], _LIMIT_SECONDS):
            raise TrialError(f"the server keeps connections: {service.objects()}")
    finally:
        server.end()
    return f"{_served(server)}; {left(service, before)}"


def _kill_one(service: Service, folder: Path, command: str, random: Random) -> None:
    """Run a client that is killed before one of its calls, or at any moment in one of them."""
    before_call = random.random() < 0.5
    calls = random.randint(1, _CALLS) if before_call else 0
    client = Program(f"{command} {calls}", service.variables({}), folder / "client")
    if before_call:
        client.wait(_LIMIT_SECONDS)
    else:
        time.sleep(random.uniform(0, _CLIENT_SECONDS))
    client.end(signal.SIGKILL)
    if client.status not in (0, -signal.SIGKILL):
        raise TrialError(f"exit status {client.status}: {reason(client.output)}")


def _served(server: Program) -> str:
    """Return what a server saw; ``TrialError`` unless it has missed no end of a client."""
    found = _SERVED.search(server.output)
    if server.status or found is None:
        raise TrialError(f"the server ends with {server.status}: {reason(server.output)}")
    established, orderly, exceeded, failed, messages = map(int, found.groups())
    if established != orderly + exceeded or not exceeded:
        raise TrialError(f"the server has not seen the end of each client: {found[0]}")
    return (
        f"of {established} connections {orderly} ended in order and {exceeded} by exceeded"
        f" retries, {failed} were not made; {messages:,} messages right"
    )
