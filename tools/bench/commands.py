"""`rdmawire dissect` beside tshark, in each form of output: with one process, and with all cores.

``python -m tools.bench.commands CAPTURE FRAMES`` measures one capture of that number of frames.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tools.bench.columns import BOTH
from tools.bench.peer import RDMAWIRE, TWO_FIELDS
from tools.bench.rate import Figure, best_rate

_FILTER = ("-Y", "infiniband.bth.opcode == 17")
_TWELVE = ("-T", "fields", *chain.from_iterable(("-e", field) for field in BOTH))
_COUNT = 100_000


class Form(NamedTuple):
    """A form of output: the options of rdmawire and of tshark, ``None`` if tshark cannot do it.

    tshark reads the first ``tshark_frames`` frames, since it takes up to two minutes for a million.
    """

    label: str
    options: tuple[str, ...]
    tshark: tuple[str, ...] | None
    tshark_frames: int = 1_000_000


_LINES = Form("a line per frame", (), ())
_COUNTS = Form("-q, every checksum", ("-q",), None)
FORMS = (
    _LINES,
    Form("-V", ("-V",), ("-V",), _COUNT),
    Form("-T json", ("-T", "json"), ("-T", "json"), _COUNT),
    Form("-T ndjson (-T ek)", ("-T", "ndjson"), ("-T", "ek"), _COUNT),
    Form("-Y, lines", _FILTER, _FILTER),
    Form("-T fields, 2 fields, -c", (*TWO_FIELDS, "-c", str(_COUNT)), TWO_FIELDS, _COUNT),
    Form("-T fields, 12 fields", _TWELVE, _TWELVE),
    _COUNTS,
)
"""Every form of output."""
FEW_FORMS = (_LINES, _COUNTS)
"""Those with which reading the file takes the largest part of the time."""


def measure(name: str, path: Path, frames: int, forms: Iterable[Form] = FORMS) -> Iterator[Figure]:
    """Yield the figures of a capture of ``frames`` frames, and print each when it is known.

    rdmawire reads all frames, except where a form has the option ``-c``.
    """
    cores = len(os.sched_getaffinity(0))
    for form in forms:
        yield from _rows(f"{name}: {form.label}", form, path, frames, cores)


def _rows(name: str, form: Form, path: Path, frames: int, cores: int) -> Iterator[Figure]:
    peer = None
    if form.tshark is not None and shutil.which("tshark"):
        count = min(frames, form.tshark_frames)
        command = ("tshark", "-r", str(path), "-c", str(count), *form.tshark)
        peer = best_rate(partial(_run, count, command))
        yield Figure(f"{name}, tshark", peer).shown()
    read = min(frames, _COUNT) if "-c" in form.options else frames
    for jobs in sorted({1, cores}):
        command = (RDMAWIRE, "dissect", "-j", str(jobs), *form.options, str(path))
        rate = best_rate(partial(_run, read, command))
        ratio = rate / peer if peer else None
        yield Figure(f"{name}, {jobs} jobs", rate, ratio, "tshark").shown()


def _run(frames: int, command: tuple[str, ...]) -> int:
    """Run a command over ``frames`` frames, its output thrown away.

    Python may keep compiled modules, as it does where a package is installed.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    null = subprocess.DEVNULL
    subprocess.run(command, stdout=null, stderr=null, check=True, env=env)
    return frames


if __name__ == "__main__":
    list(measure(Path(sys.argv[1]).stem, Path(sys.argv[1]), int(sys.argv[2])))
