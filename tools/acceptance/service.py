"""A verbs service in a process of its own, and the resources that it holds."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rdmawire.verbs_service import ProgramFiles, is_served, read_counters
from tools.acceptance.case import Frames
from tools.acceptance.reports import captured

START_SECONDS: Final = 60
_LOOK_SECONDS: Final = 0.05
_TSHARK_FRAMES: Final = 1000
_TSHARK: Final = (
    *("-Y", "_ws.malformed", "--disable-protocol", "rpcordma"),
    *("-o", "infiniband.identify_payload:FALSE"),
)
"""Without guesses: Wireshark takes short payloads for other protocols, truncated."""
_OBJECTS: Final = ("qps", "cqs", "mrs", "contexts")


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of a process. ``resident`` is its memory in bytes."""

    descriptors: int
    threads: int
    shared_mappings: int
    """Mappings of shared memory: rings and copy buffers."""
    resident: int

    def text(self) -> str:
        """The numbers in words."""
        return (
            f"{self.descriptors} descriptors, {self.threads} threads,"
            f" {self.shared_mappings} shared mappings, {self.resident >> 20} MiB resident"
        )


class ServiceError(Exception):
    """The service did not start, or ended."""


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds, at most ``seconds``. Return whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


class Service:
    """`rdmawire verbs serve` with a private socket and a capture, while a `with` block runs."""

    def __init__(
        self, folder: Path, options: tuple[str, ...] = (), *, capture: bool = True
    ) -> None:
        self.socket = folder / "verbs.sock"
        self.capture = folder / "frames.pcap" if capture else None
        self.files = ProgramFiles(self.socket)
        self._log = folder / "service.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        words = [sys.executable, "-m", "rdmawire", "verbs", "serve", "-q"]
        words += ["--socket", str(self.socket), *self._options]
        words += ["-w", str(self.capture)] if self.capture else []
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            self._wait_for_start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def _wait_for_start(self) -> None:
        if not wait_for(lambda: self.ended or self._answers(), START_SECONDS) or self.ended:
            raise ServiceError(f"the service did not start: {self.log.strip()}")

    def _answers(self) -> bool:
        """Whether the service answers a call, which it does once all files are written."""
        try:
            return is_served(self.socket) and bool(read_counters(self.socket))
        except OSError:
            return False

    @property
    def pid(self) -> int:
        """The process of the service."""
        assert self._process is not None
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process is None or self._process.poll() is not None

    @property
    def log(self) -> str:
        """What the service printed."""
        return self._log.read_text(errors="replace")

    def usage(self) -> Usage:
        """Return what the service holds now. ``ServiceError`` if it has ended."""
        proc = Path(f"/proc/{self.pid}")
        try:
            pages = int((proc / "statm").read_text().split()[1])
            return Usage(
                len(os.listdir(proc / "fd")),
                len(os.listdir(proc / "task")),
                (proc / "maps").read_text().count("/memfd:rdmawire"),
                pages * resource.getpagesize(),
            )
        except (OSError, IndexError) as error:
            raise ServiceError(f"the service has ended: {self.log.strip()}") from error

    def objects(self) -> dict[str, int]:
        """Return how many objects all devices hold, by kind."""
        try:
            devices = read_counters(self.socket).values()
        except OSError as error:
            raise ServiceError(f"the service does not answer: {self.log.strip()}") from error
        return {kind: sum(counters.get(kind, 0) for counters in devices) for kind in _OBJECTS}

    def variables(self, others: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program that uses the service."""
        environment = {**os.environ, **others}
        return {**environment, **self.files.command_variables(environment)}

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """End the process, so that its capture is whole."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def frames(self) -> Frames:
        """Return what the capture holds, after :meth:`end`, and remove it."""
        if self.capture is None or not self.capture.exists():
            return Frames()
        words = [sys.executable, "-m", "rdmawire", "dissect", "-q", str(self.capture)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        found = captured(done.stdout)
        if found.count:
            found = replace(found, tshark_malformed=self._tshark())
        self.capture.unlink()
        return found

    def _tshark(self) -> int | None:
        """Return how many of the first frames tshark calls malformed; ``None`` without tshark."""
        if not shutil.which("tshark"):
            return None
        words = ["tshark", "-r", str(self.capture), "-c", str(_TSHARK_FRAMES), *_TSHARK]
        return len(subprocess.run(words, capture_output=True, check=False).stdout.splitlines())
