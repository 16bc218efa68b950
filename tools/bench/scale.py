"""What a fabric takes as it grows: time for each frame, and memory.

``python -m tools.bench.scale`` measures and keeps what the page on performance draws;
``python -m tools.bench.scale NICS`` measures one fabric, in a process of its own.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.bench.fabric import QPS, Cluster
from tools.bench.machine import machine
from tools.bench.rate import Figure, Memory

DATA = Path(__file__).parents[2] / "docs" / "data" / "scale.json"
SIZES = (10, 30, 100, 300, 1000)
ROUNDS = 3


class Scale(NamedTuple):
    """Adapters that have written all their messages: frames on links, and what they took.

    ``seconds`` are the processor's, ``peak`` is memory in bytes.
    """

    nics: int
    qps: int
    frames: int
    seconds: float
    peak: int

    @property
    def rate(self) -> float:
        """Frames put on links in a second of the processor."""
        return self.frames / self.seconds


def here(nics: int) -> Scale:
    """Measured in this process, which should have done nothing else."""
    made = Cluster(nics)
    start = time.process_time()
    frames = made.run()
    seconds = round(time.process_time() - start, 4)
    # Linux counts in kibibytes: getrusage(2).
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return Scale(nics, nics * QPS, frames, seconds, peak)


def measured(nics: int) -> Scale:
    """Measured in a process of its own."""
    command = (sys.executable, "-m", "tools.bench.scale", str(nics))
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Scale(*json.loads(done.stdout))


def best(sizes: tuple[int, ...] = SIZES, rounds: int = ROUNDS) -> list[Scale]:
    """The quickest of some runs of each size. They take turns: a machine has slow hours."""
    found = [[measured(nics) for nics in sizes] for _ in range(rounds)]
    return [min(runs, key=lambda run: run.seconds) for runs in zip(*found, strict=True)]


def measure() -> Iterator[Figure | Memory]:
    """Figures, printed as they come."""
    for run in best((10, 100, 1000), 1):
        name = f"fabric: {run.nics} adapters, {run.qps} queue pairs"
        yield Figure(name, run.rate).shown()
        yield Memory(name, run.peak).shown()


def main(arguments: list[str]) -> None:
    if arguments:
        print(json.dumps(here(int(arguments[0]))))
        return
    runs = best()
    rows = ",\n".join(f" {json.dumps(run._asdict())}" for run in runs)
    DATA.write_text(f'{{\n"machine": {json.dumps(machine())},\n"runs": [\n{rows}\n]\n}}\n')
    for run in runs:
        print(
            f"{run.nics:5} adapters {run.frames:8} frames {run.rate:9,.0f}/s {run.peak >> 20} MiB"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
