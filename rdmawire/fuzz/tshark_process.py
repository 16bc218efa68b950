"""Runs of tshark: its output in PDML, packet by packet, within limits of time and size."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from time import monotonic
from typing import IO, Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.command_target import DISSECTOR_BUG, signal_name
from rdmawire.worker_process import add_cleanup, remove_cleanup

PREFERENCES: Final = (
    "ip.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "tcp.reassemble_out_of_order:TRUE",
)
"""tshark verifies these checksums, and puts segments in order, only with these preferences."""
_SETTINGS: Final = [word for preference in PREFERENCES for word in ("-o", preference)]
DEFAULT_SECONDS: Final = 300.0
MAX_OUTPUT: Final = 1 << 30
"""Bytes that tshark may write for one capture."""
_BLOCK: Final = 1 << 18
_LAST_ERRORS: Final = 1 << 16
"""Bytes of tshark's messages that are kept: the last ones."""
_NOTICE: Final = "Running as user"
"""The beginning of a message that depends on the user, not on the capture."""
_START: Final = b"<packet>"
_END: Final = b"</packet>"


class TsharkError(FuzzError):
    """tshark did not read a capture to its end. ``line`` is the last one that it wrote."""

    def __init__(self, reason: str, line: str = "") -> None:
        super().__init__(f"tshark {reason}: {line}" if line else f"tshark {reason}")
        self.reason = reason
        self.line = line


def pdml_packets(
    path: Path, seconds: float = DEFAULT_SECONDS, max_output: int = MAX_OUTPUT
) -> Iterator[bytes]:
    """Yield the packets of a capture as tshark writes them in PDML.

    pyshark's own reader is not used: its event loop takes signals, such as Ctrl-C, from the caller.
    Raises :class:`TsharkError` if tshark ends with a signal or an error, or is waited for longer
    than ``seconds`` altogether, or writes more than ``max_output`` bytes.
    """
    command = ["tshark", "-n", "-r", str(path), "-T", "pdml", *_SETTINGS]
    run = _Run(command, seconds, max_output)
    try:
        yield from split_packets(run.blocks())
    finally:
        run.end()


def split_packets(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the elements ``packet`` of a document that is read in blocks."""
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(_END)
        for text in whole:
            before, start, packet = text.partition(_START)
            if not start:
                raise TsharkError("writes no PDML", before[-100:].decode(errors="replace").strip())
            yield start + packet + _END


class _Run:
    """A process that is read from. :class:`FuzzError` if it cannot be started."""

    def __init__(self, command: list[str], seconds: float, max_output: int) -> None:
        self._seconds = seconds
        self._waited = 0.0
        self._max_output = max_output
        self._read = 0
        self._errors = b""
        try:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise FuzzError(f"{command[0]}: cannot run it: {error.strerror or error}") from error
        add_cleanup(self.end)

    def blocks(self) -> Iterator[bytes]:
        """Yield the output in blocks. Raises :class:`TsharkError` if the process fails."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        with DefaultSelector() as selector:
            selector.register(self._process.stdout, EVENT_READ, True)
            selector.register(self._process.stderr, EVENT_READ, False)
            while selector.get_map():
                for stream, is_output in self._wait_for_output(selector):
                    block = self._block(stream)
                    if not block:
                        selector.unregister(stream)
                    elif is_output:
                        yield block
                    else:
                        self._errors = (self._errors + block)[-_LAST_ERRORS:]
        self._check_end()

    def end(self) -> None:
        """End the process if it still runs."""
        remove_cleanup(self.end)
        self._process.kill()
        self._process.communicate()

    def _wait_for_output(self, selector: DefaultSelector) -> list[tuple[IO[bytes], bool]]:
        """Return the streams that can be read. Only the time of waiting for them is counted."""
        start = monotonic()
        ready = selector.select(max(self._seconds - self._waited, 0))
        self._waited += monotonic() - start
        if not ready:
            raise self._too_slow()
        return [(key.fileobj, key.data) for key, _ in ready]  # type: ignore[misc]

    def _block(self, stream: IO[bytes]) -> bytes:
        block = os.read(stream.fileno(), _BLOCK)
        self._read += len(block)
        if self._read > self._max_output:
            raise TsharkError(f"writes more than {self._max_output} bytes", self._last_line)
        return block

    def _check_end(self) -> None:
        """Wait for the end of the process, whose output has ended, and judge it."""
        try:
            status = self._process.wait(max(self._seconds - self._waited, 0.1))
        except subprocess.TimeoutExpired:
            raise self._too_slow() from None
        if status < 0:
            raise TsharkError(f"ended with signal {signal_name(-status)}", self._last_line)
        if status:
            raise TsharkError(f"ended with status {status}", self._last_line)
        bugs = [line for line in self._lines() if DISSECTOR_BUG in line]
        if bugs:
            raise TsharkError("found a bug in one of its dissectors", bugs[-1])

    def _too_slow(self) -> TsharkError:
        return TsharkError(f"did not end within {self._seconds:g} s", self._last_line)

    def _lines(self) -> list[str]:
        """The lines of messages that are not empty."""
        lines = map(str.strip, self._errors.decode(errors="replace").splitlines())
        return [line for line in lines if line and not line.startswith(_NOTICE)]

    @property
    def _last_line(self) -> str:
        return self._lines()[-1][:200] if self._lines() else ""
