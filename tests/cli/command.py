"""The command line run as people run it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cli.fork_server import fork_server
from tests.cli.in_process import run_in_process
from tests.waiting import HANG

CAPTURES = Path(__file__).parents[2] / "captures"
RNR = str(CAPTURES / "linux" / "rxe61_rnr.pcap")
WRITE = str(CAPTURES / "linux" / "rxe61_write_bw.pcap")

# A job in the background ignores interrupts, and one under nohup hangups; what they start does
# too, unless told otherwise.
_HEEDING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); "
)
RDMAWIRE = [sys.executable, "-c", _HEEDING + "from rdmawire.cli.main import main; main()"]

_WITH_PROCESSES = (["fuzz", "run"], ["fuzz", "replay"], ["sweep"], ["verbs"])


def starts_processes(words: Sequence[str]) -> bool:
    """Whether a command starts processes, or imports modules of the present folder."""
    return any(list(words[: len(begin)]) == begin for begin in _WITH_PROCESSES)


def rdmawire(
    *words: str, stdin: bytes = b"", env: dict[str, str] | None = None, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """What becomes of a call; ``before`` is Python that runs in the process first.

    With that, or with variables of Python's own, Python starts anew. Commands that start processes
    are forked, all others run in the process of the tests.
    """
    starts_anew = before or any(name.startswith("PYTHON") for name in env or ())
    env = {**os.environ, "TZ": "UTC", **(env or {})}
    if starts_anew:
        *python, program = RDMAWIRE
        done = subprocess.run(
            [*python, before + program, *words],
            input=stdin, capture_output=True, check=False, timeout=HANG, env=env,
        )  # fmt: skip
        status, stdout, stderr = done.returncode, done.stdout, done.stderr
    elif starts_processes(words):
        status, stdout, stderr = fork_server(os.getpid()).run(words, stdin, env, HANG)
    else:
        status, stdout, stderr = run_in_process(words, stdin, env)
    assert b"Traceback" not in stderr
    return subprocess.CompletedProcess(words, status, stdout.decode(), stderr.decode())


def refused(*words: str, status: int, stdin: bytes = b"") -> str:
    """The one line that an error comes to."""
    done = rdmawire(*words, stdin=stdin)
    lines = [line for line in done.stderr.splitlines() if line.startswith("rdmawire: ")]
    assert done.returncode == status, done.stderr
    assert len(lines) == 1
    return lines[0]


def mistake(*words: str) -> str:
    """As :func:`refused` with status 2 and no output, of a call that ends before any work.

    It runs in this process, also if the command would start others.
    """
    status, output, errors = run_in_process(words, b"", {**os.environ, "TZ": "UTC"})
    (line,) = errors.decode().splitlines()
    assert (status, output) == (2, b"")
    assert line.startswith("rdmawire: ")
    return line


def broken(tmp_path: Path, data: bytes) -> str:
    """The name of a file with these bytes."""
    path = tmp_path / "broken.pcap"
    path.write_bytes(data)
    return str(path)
