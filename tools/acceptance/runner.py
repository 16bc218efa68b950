"""Runs one case: services, a server and a client; and judges the result."""

import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tools.acceptance.case import (
    ADDRESSES,
    DEVICES,
    JOINED_ADDRESSES,
    Case,
    Frames,
    Package,
    Result,
    UnitTest,
    Verdict,
)
from tools.acceptance.packages import missing, version
from tools.acceptance.processes import Program
from tools.acceptance.reports import measured, reason, shortened, unit_tests
from tools.acceptance.service import Service, ServiceError

_GOOD_OUTCOMES = ("ok", "skipped", "expected")
_PREPARE_SECONDS = 1800
_INTERPRETERS = ("{python}", "sh")
"""Programs of cases that run others."""


@dataclass(frozen=True, slots=True)
class ProgramPaths:
    """Where programs are that are in no Debian package; empty for what is missing."""

    tests: str = ""
    """Folder of rdma-core's Python tests."""
    nccl: str = ""
    """Command line of the driver of NCCL's transport."""
    sources: Path | None = None
    """Folder of checkouts of packages that have a repository."""
    python: str = sys.executable
    """The Python that has packages of PyPI."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What server and client printed and returned; ``None`` for one that did not end in time."""

    client: int | None
    output: str
    server: int | None = 0
    server_output: str = ""


def run(case: Case, paths: ProgramPaths) -> Result:
    """Run a case, and end all that it started."""
    if needed := _missing(case, paths):
        return Result(case, Verdict.MISSING, needed)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rdmawire-acceptance-") as folder:
        prepare, client, server = _commands(case, paths, folder)
        try:
            _prepare(prepare, folder)
            with _services(case, Path(folder)) as services:
                ended = _programs(case, services, (client, server))
        except ServiceError as error:
            return Result(case, Verdict.FAILED, shortened(str(error)))
        frames = services[0].frames()
    result = judged(case, ended, frames)
    return replace(result, seconds=round(time.monotonic() - start, 1))


def _prepare(command: str, folder: str) -> None:
    """Run the command that prepares a case; ``ServiceError`` if it fails or does not end."""
    if not command:
        return
    words = shlex.split(command)
    try:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, check=False, timeout=_PREPARE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"{words[0]}: no end within {_PREPARE_SECONDS} s") from error
    if done.returncode:
        said = reason(done.stderr + done.stdout)
        raise ServiceError(f"{words[0]}: exit status {done.returncode}: {said}")


def _missing(case: Case, paths: ProgramPaths) -> str:
    """Return what a case needs that is not here."""
    program = next((word for word in case.client.split() if "=" not in word and word != "env"), "")
    if program == "{nccl}":
        return "" if paths.nccl else "needs --nccl FILE: libnccl.so.2 of nvidia-nccl-cu12"
    if fault := _missing_package(case.package, paths):
        return fault
    if "{tests}" in case.client and not paths.tests:
        return f"needs the package {case.package.debian}"
    if program in _INTERPRETERS or case.package.needed[1:]:
        lacks = missing((case,))
        return f"needs the packages {', '.join(lacks)}" if lacks else ""
    if shutil.which(program):
        return ""
    return (
        f"needs {program}" if case.package.checkout else f"needs the package {case.package.debian}"
    )


def _missing_package(package: Package, paths: ProgramPaths) -> str:
    """Return what of a package is neither Debian's nor here."""
    if package.pypi and not version(package, paths.python):
        return f"needs the package {package.pypi} of PyPI"
    if package.checkout and not (paths.sources and (paths.sources / package.checkout).is_dir()):
        return f"needs --sources FOLDER with {package.checkout}, a checkout of {package.repository}"
    return ""


@contextmanager
def _services(case: Case, folder: Path) -> Iterator[list[Service]]:
    """Run the services of a case: one, or two that are joined by UDP."""
    options = _options(case)
    with ExitStack() as stack:
        services = []
        for index, words in enumerate(options):
            place = folder / f"service{index}"
            place.mkdir()
            services.append(stack.enter_context(Service(place, words, capture=index == 0)))
        yield services


def _options(case: Case) -> list[tuple[str, ...]]:
    if not case.joined:
        return [("--network", case.network)] if case.network else [()]
    ports = [_free_port() for _ in range(2)]
    networks = [f"udp={ports[i]},peer=127.0.0.1:{ports[1 - i]}" for i in range(2)]
    firsts = [address.rpartition(".")[2] for address in JOINED_ADDRESSES]
    return [
        ("--network", network, "--first-address", first)
        for network, first in zip(networks, firsts, strict=True)
    ]


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _commands(case: Case, paths: ProgramPaths, folder: str) -> tuple[str, str, str]:
    """Return the command lines of the preparation, of the client and of the server."""
    addresses = JOINED_ADDRESSES if case.joined else ADDRESSES
    values = {
        "server": DEVICES[0],
        "client": DEVICES[0 if case.joined else 1],
        "address": addresses[0],
        "own_address": addresses[1],
        "folder": folder,
        "tests": paths.tests,
        "nccl": paths.nccl,
        "checkout": (paths.sources or Path()) / case.package.checkout,
        "python": paths.python,
    }
    prepare, client, server = (
        command.format(**values) for command in (case.prepare, case.client, case.server)
    )
    return prepare, client, server


def _programs(case: Case, services: list[Service], commands: tuple[str, str]) -> Ended:
    deadline = time.monotonic() + case.limit
    folder = services[0].socket.parents[1]
    environment = [service.variables(dict(case.environment)) for service in services]
    server = Program(commands[1], environment[0], folder / "server") if commands[1] else None
    try:
        if server and not case.client_waits:
            server.wait_until_ready(case.port, case.ready)
        client = Program(commands[0], environment[-1], folder / "client")
        try:
            client.wait(deadline - time.monotonic())
            server_status = _server_status(case, server, deadline)
            return Ended(
                client.status, client.output, server_status, server.output if server else ""
            )
        finally:
            client.end()
    finally:
        if server:
            server.end()


def _server_status(case: Case, server: Program | None, deadline: float) -> int | None:
    if server is None or not case.server_ends:
        return 0
    server.wait(deadline - time.monotonic())
    return server.status


def judged(case: Case, ended: Ended, frames: Frames) -> Result:
    """Return the result of a case whose programs ended, or did not in time."""
    tests = unit_tests(case.report, ended.output) if case.report else ()
    result = Result(case, Verdict.PASSED, frames=frames, figure=measured(ended.output), tests=tests)
    if case.raw:
        frames = replace(frames, malformed=0, tshark_malformed=None)
    if case.refused:
        return replace(result, verdict=_refusal(case, ended), reason=reason(ended.output))
    if fault := next(_faults(case, ended, frames, tests), ""):
        return replace(result, verdict=Verdict.FAILED, reason=fault)
    return replace(result, reason=_counts(tests))


def _refusal(case: Case, ended: Ended) -> Verdict:
    both = ended.output + ended.server_output
    refused = bool(ended.client) and re.search(case.refused, both)
    return Verdict.REFUSED if refused else Verdict.FAILED


def _faults(case: Case, ended: Ended, frames: Frames, tests: tuple[UnitTest, ...]) -> Iterator[str]:
    """Yield what is wrong, the cause before its consequences."""
    if failed := [test for test in tests if test.outcome not in _GOOD_OUTCOMES]:
        names = ", ".join(test.name.rpartition(".")[2] for test in failed)
        yield f"{_counts(tests)}; failed: {names}"
    both = (("client", ended.client, ended.output), ("server", ended.server, ended.server_output))
    for role, status, output in both:
        if status is None:
            yield f"{role}: no end within {case.limit} s: {reason(output)}"
        if status:
            yield f"{role}: exit status {status}: {reason(output)}"
    if case.expect and not re.search(case.expect, ended.output):
        yield f"what is expected is not printed: {reason(ended.output)}"
    if case.frames and not frames.count:
        yield "no frames were captured"
    if frames.faulty:
        yield (
            f"{frames.bad_icrc} frames with a bad ICRC, {frames.malformed} malformed,"
            f" {frames.tshark_malformed or 0} of the first malformed for tshark"
        )


def _counts(tests: tuple[UnitTest, ...]) -> str:
    """Return how many tests there are by outcome."""
    outcomes = [test.outcome for test in tests]
    return ", ".join(
        f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(sorted(outcomes))
    )
