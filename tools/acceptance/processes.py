"""Programs with a time limit: each in a process group of its own, which is ended as a whole."""

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.acceptance.service import wait_for

_READY_SECONDS: Final = 30
_GRACE_SECONDS: Final = 3
_QUIET_CHECKS: Final = 6
_POLLING_SECONDS: Final = 2.0
"""Processor time of a server that polls, after which it listens."""
_LISTENING: Final = "0A"


class Program:
    """A running program, whose output goes to a file."""

    def __init__(self, command: str, environment: Mapping[str, str], output: Path) -> None:
        self._output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=output.parent,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """What the program printed so far."""
        return self._output.read_text(errors="replace")

    @property
    def status(self) -> int | None:
        """The exit status, ``None`` while the program runs."""
        return self.process.poll()

    def wait_until_ready(self, port: int, ready: str = "") -> None:
        """Wait until the program prints ``ready``, a regular expression, or listens at a TCP port.

        Without both (port 0), wait until it sleeps for a while, or has polled for one.
        """
        if ready or port:
            wait_for(lambda: self.status is not None or self._is_ready(port, ready), _READY_SECONDS)
            return
        quiet = 0
        deadline = time.monotonic() + _READY_SECONDS
        while self.status is None and quiet < _QUIET_CHECKS and time.monotonic() < deadline:
            state, used = _state(self.process.pid)
            if used >= _POLLING_SECONDS:
                break
            quiet = quiet + 1 if state == "S" else 0
            time.sleep(0.1)

    def _is_ready(self, port: int, ready: str) -> bool:
        return bool(re.search(ready, self.output)) if ready else listens(port)

    def wait(self, seconds: float) -> bool:
        """Wait for the end. Return whether the program ended by itself in time."""
        return wait_for(lambda: self.status is not None, max(seconds, 0))

    def end(self, first: signal.Signals = signal.SIGTERM) -> None:
        """End all processes of the program's group by a signal, or else by SIGKILL."""
        for number in (first, signal.SIGKILL):
            if not self._signal(number) or self.wait(_GRACE_SECONDS):
                break
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: signal.Signals) -> bool:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return False
        return True


def listens(port: int) -> bool:
    """Whether a process listens at a TCP port."""
    wanted = re.compile(rf"^\s*\d+: \w+:{port:04X} \w+:\w+ {_LISTENING}\b", re.MULTILINE)
    return any(
        wanted.search(Path(table).read_text()) for table in ("/proc/net/tcp", "/proc/net/tcp6")
    )


def _state(pid: int) -> tuple[str, float]:
    """Return the state of a process, as "S", and the seconds of processor time that it used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return "", 0.0
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
