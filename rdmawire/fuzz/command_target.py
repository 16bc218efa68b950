"""External commands as targets: a program that reads a pcap, such as ``tshark -r {pcap}``.

Many frames are given at once, fewer if the command is slow; if it fails, the frames are halved
until the one is found that makes it fail; if it does not end in time, they are given one by one. A
signal, another exit status than expected, no end in time, or a line of output that matches a
pattern is a violation.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import IO, Final, NamedTuple

from rdmawire.capture import LinkType, Record, create_capture
from rdmawire.errors import FuzzError
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.oracle import TIME, Violation
from rdmawire.terminal import quote, shorten
from rdmawire.worker_process import cleaned_up

PLACEHOLDER: Final = "{pcap}"
"""The word of a command that stands for the path of the capture."""
DISSECTOR_BUG: Final = r"Dissector bug"
"""Wireshark's words for a failed assertion in a dissector."""
DEFAULT_SECONDS: Final = 60.0
_FRAME_INTERVAL_NS: Final = 1_000_000
"""Nanoseconds between two frames."""
_MAX_LINE: Final = 200
MAX_OUTPUT: Final = 16 << 20
"""Bytes of a command's output that are kept and searched: the first ones."""
_BLOCK: Final = 1 << 16
_MAX_JOIN_S: Final = 1.0
"""Seconds to read what a command has written, after its end."""
_FIRST_CASES: Final = 25
"""Cases that a command gets at once after its first run, which has one: the command may hang."""
_SHORT_RUN_S: Final = 0.5
_LONG_RUN_S: Final = 2.0
"""Seconds of a run after which the next one gets more cases, or fewer."""
_MAX_FINDINGS: Final = 20
"""Findings of one call of :meth:`CommandParser.judge_all`, after which frames count as good."""


class Outcome(NamedTuple):
    """The result of a run: ``status`` as of :mod:`subprocess`, ``None`` if it ran out of time."""

    status: int | None
    output: str


class CommandParser:
    """A command that reads a capture.

    - ``command``: its words; :data:`PLACEHOLDER` stands for the path of the capture.
    - ``statuses``: exit statuses that are expected.
    - ``patterns``: regular expressions; a line of output that matches one is a violation.
    - ``seconds``: how long a run may take.
    - ``clock``: the time in seconds.

    Raises :class:`FuzzError` for a command without the placeholder or an invalid pattern.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        statuses: Sequence[int] = (0,),
        patterns: Sequence[str] = (DISSECTOR_BUG,),
        seconds: float = DEFAULT_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if not any(PLACEHOLDER in word for word in command):
            raise FuzzError(f"the command needs {PLACEHOLDER}, the path of the capture")
        self.name = command[0]
        self._command = tuple(command)
        self._statuses = frozenset(statuses)
        self._seconds = seconds
        self._clock = clock
        self._at_once = 1
        self._has_passed = False
        try:
            self._patterns = [re.compile(pattern) for pattern in patterns]
        except re.error as error:
            raise FuzzError(
                f"{quote(str(error.pattern))} is not a regular expression: {error}"
            ) from error
        self.runs = 0

    def check(self) -> None:
        """Raise :class:`FuzzError` if there is no such program."""
        if shutil.which(self.name) is None:
            raise FuzzError(
                f"{shorten(self.name)}: cannot run it: no program is found by this name"
            )

    def judge(self, frames: Sequence[SeedFrame]) -> Violation | None:
        """Run the command on the frames; ``place`` of a violation is the last frame it needs."""
        found = self._run(frames)
        return None if found is None else self._placed(frames, found)

    def _placed(self, frames: Sequence[SeedFrame], found: Violation) -> Violation:
        """Return the violation that frames have shown, at the last frame that it needs.

        Without an end in time that is the last frame of all: each run would take as long again.
        """
        needed, again = len(frames), None
        if found.what != TIME:
            needed = self._shortest(needed, lambda count: self._run(frames[:count]) is not None)
            again = self._run(frames[:needed]) if needed < len(frames) else None
        return (again or found)._replace(place=needed - 1)

    def judge_all(self, cases: Sequence[Sequence[SeedFrame]]) -> Iterator[Violation | None]:
        """Judge cases, with few runs of the command; results are yielded as they are known."""
        first = failures = 0
        while first < len(cases) and failures < _MAX_FINDINGS:
            for result in self._judged_together(cases[first : first + self._at_once]):
                first, failures = first + 1, failures + (result is not None)
                yield result
        yield from (None for _ in range(first, len(cases)))

    def _judged_together(self, cases: Sequence[Sequence[SeedFrame]]) -> Iterator[Violation | None]:
        """Judge cases with one run if none fails; yield results up to the first violation."""
        begun = self._clock()
        found = self._run(_joined(cases))
        if found is None:
            self._adapt(self._clock() - begun)
            yield from (None for _ in cases)
        elif len(cases) == 1:
            yield self._placed(cases[0], found)
        elif found.what == TIME:
            self._at_once = max(self._at_once // 2, 1)
            yield from self._one_by_one(cases)
        else:
            bad = self._first_bad(cases)
            yield from (None for _ in range(bad))
            yield self.judge(cases[bad])

    def _one_by_one(self, cases: Sequence[Sequence[SeedFrame]]) -> Iterator[Violation | None]:
        """Judge cases with a run for each; yield results up to the first violation."""
        for frames in cases:
            found = self.judge(frames)
            yield found
            if found is not None:
                return

    def _adapt(self, seconds: float) -> None:
        """Choose how many cases the next run gets, by the seconds that the last run took."""
        if not self._has_passed:
            self._has_passed, self._at_once = True, _FIRST_CASES
        elif seconds < _SHORT_RUN_S:
            self._at_once *= 2
        elif seconds > _LONG_RUN_S:
            self._at_once = max(self._at_once // 2, 1)

    def _first_bad(self, cases: Sequence[Sequence[SeedFrame]]) -> int:
        """The index of the first case with which the command fails; it fails with all cases."""

        def fails(count: int) -> bool:
            return self._run(_joined(cases[:count])) is not None

        return self._shortest(len(cases), fails) - 1

    @staticmethod
    def _shortest(count: int, fails: Callable[[int], bool]) -> int:
        """The least number for which ``fails`` is true; it is for ``count``."""
        least = 0
        while count - least > 1:
            middle = (least + count) // 2
            if fails(middle):
                count = middle
            else:
                least = middle
        return count

    def _run(self, frames: Sequence[SeedFrame]) -> Violation | None:
        """Run the command once, and judge its outcome."""
        self.runs += 1
        folder = Path(tempfile.mkdtemp(prefix="rdmawire-fuzz-"))
        with cleaned_up(partial(shutil.rmtree, folder, ignore_errors=True)):
            path = write_frames(folder, frames)
            command = [word.replace(PLACEHOLDER, str(path)) for word in self._command]
            return self._judged(_outcome(command, self._seconds))

    def _judged(self, outcome: Outcome) -> Violation | None:
        status, output = outcome
        last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
        if status is None:
            happened = f"no end within {self._seconds:g} s"
            return self._violation(TIME, "the command ends", happened, "")
        if status < 0:
            return self._violation("signal", "no signal", signal_name(-status), last)
        if status not in self._statuses:
            return self._violation("exit status", self._expected, str(status), last)
        for line in output.splitlines():
            for pattern in self._patterns:
                if pattern.search(line):
                    expected = f"no line that matches /{pattern.pattern}/"
                    return self._violation("output", expected, "a line that matches", line)
        return None

    @property
    def _expected(self) -> str:
        return " or ".join(map(str, sorted(self._statuses)))

    @staticmethod
    def _violation(what: str, expected: str, happened: str, line: str) -> Violation:
        line = line.strip()[:_MAX_LINE]
        signature = f"{what} | {happened} | {without_numbers(line)}"
        return Violation(
            0, what, expected, f"{happened}: {line}" if line else happened, "", signature
        )


def signal_name(number: int) -> str:
    """Return the name of a signal; real-time signals have numbers alone."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def without_numbers(line: str) -> str:
    """Return a line of output with its numbers and paths replaced, as part of a signature."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "N", re.sub(r"/\S+", "PATH", line))


def _joined(cases: Sequence[Sequence[SeedFrame]]) -> list[SeedFrame]:
    return [frame for frames in cases for frame in frames]


def _outcome(command: Sequence[str], seconds: float) -> Outcome:
    """Run a command, and kill the processes that it leaves running.

    Raises :class:`FuzzError` if it cannot be started.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  the caller's own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise FuzzError(
            f"{shorten(command[0])}: cannot run it: {error.strerror or error}"
        ) from error
    assert process.stdout is not None
    output = bytearray()
    reader = Thread(target=_read_first, args=(process.stdout, output), daemon=True)
    status: int | None = None
    with cleaned_up(partial(_kill_group, process)):
        reader.start()
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(seconds)
    reader.join(_MAX_JOIN_S)
    return Outcome(status, "" if status is None else bytes(output).decode(errors="replace"))


def _read_first(stream: IO[bytes], output: bytearray) -> None:
    """Read a stream to its end and close it; add its first bytes to ``output``."""
    with stream:
        while block := os.read(stream.fileno(), _BLOCK):
            output += block[: MAX_OUTPUT - len(output)]


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a command, which began a session, and the processes that it started."""
    with suppress(ProcessLookupError):  # they have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def write_frames(folder: Path, frames: Sequence[SeedFrame]) -> Path:
    """Write frames to a capture in ``folder``; return its path.

    It is a pcap, or a pcapng if the frames have several link types. Raises :class:`FuzzError` for a
    link type that neither has.
    """
    types = {frame.link_type for frame in frames} or {LinkType.ETHERNET}
    path = folder / ("frames.pcap" if len(types) == 1 else "frames.pcapng")
    if min(types) < 0:
        raise FuzzError(f"link type {min(types)}: no capture has such frames")
    with create_capture(path, link_type=min(types)) as writer:
        for number, (data, link_type, _) in enumerate(frames):
            writer.write(Record(data, number * _FRAME_INTERVAL_NS, len(data), link_type))
    return path
