"""The command line run as people run it."""

import os
import subprocess
import sys
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

WITH_PROCESSES = ("fuzz", "sweep", "verbs")
"""Commands that start processes, or import modules of the present folder."""


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
    elif set(words[:1]).intersection(WITH_PROCESSES):
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


def broken(tmp_path: Path, data: bytes) -> str:
    """The name of a file with these bytes."""
    path = tmp_path / "broken.pcap"
    path.write_bytes(data)
    return str(path)
