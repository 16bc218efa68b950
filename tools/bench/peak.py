"""How long a command takes, and its peak memory: ``python -m tools.bench.peak COMMAND ...``.

A small program of its own: a child counts the memory of the parent that it was forked from.
"""

import json
import resource
import subprocess
import sys
import time
from typing import NamedTuple


class Ran(NamedTuple):
    """A command that has run: seconds of wall clock, and bytes of memory at its peak."""

    seconds: float
    peak: int


def ran(*command: str) -> Ran:
    """Run a command, its output thrown away."""
    done = subprocess.run(
        (sys.executable, "-m", "tools.bench.peak", *command), stdout=subprocess.PIPE, check=True
    )
    return Ran(*json.loads(done.stdout))


def main(command: list[str]) -> None:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - start
    # Linux counts in kibibytes: getrusage(2).
    print(json.dumps((seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)))


if __name__ == "__main__":
    main(sys.argv[1:])
