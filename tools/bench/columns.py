"""Whole captures as columns, beside tshark over the same file, and the memory that both take.

``python -m tools.bench.columns CAPTURE`` reads the columns once, for its memory to be measured.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from rdmawire.columns import iter_columns
from tools.bench.peak import Ran, ran
from tools.bench.peer import RDMAWIRE
from tools.bench.rate import Figure, Memory, best_rate

BOTH = (
    *("frame.number", "frame.time_epoch", "frame.len", "ip.src", "ip.dst"),
    *("udp.srcport", "udp.dstport", "infiniband.bth.opcode", "infiniband.bth.destqp"),
    *("infiniband.bth.psn", "infiniband.bth.a", "infiniband.bth.p_key"),
)
"""The fields that tshark is asked for too."""
COLUMNS = (*BOTH, "infiniband.aeth.msn", "infiniband.reth.dmalen")
_STATUS = "rdmawire.icrc.status"
_TSHARK = "tshark -T fields, 12 fields"


def read(path: Path) -> int:
    """Read the columns of every frame, block by block."""
    return sum(block.rows for block in iter_columns(path, COLUMNS))


def good_icrcs(path: Path) -> int:
    """Verify the ICRC of every frame, many at once."""
    statuses = (block[_STATUS].values for block in iter_columns(path, (_STATUS,)))
    return sum(int(np.count_nonzero(status == "good")) for status in statuses)


def _tshark(path: Path) -> Ran | None:
    """The 12 fields of the whole file by tshark, once: it takes some fifteen seconds."""
    if not shutil.which("tshark"):
        return None
    return ran("tshark", "-r", str(path), "-T", "fields", *_asked(BOTH))


def _dissect(path: Path, frames: int, *options: str) -> int:
    """`rdmawire dissect` with these options; its output is thrown away."""
    command = (RDMAWIRE, "dissect", *options, str(path))
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return frames


def _asked(fields: Iterable[str]) -> Iterator[str]:
    return chain.from_iterable(("-e", field) for field in fields)


Job = tuple[str, Callable[[], int], str]
"""What is measured: its name, what does it, and the peer that it is held against."""


def jobs(path: Path, frames: int) -> Iterator[Job]:
    """Everything that is measured on a capture of so many frames."""
    as_text = "-T", "fields", *_asked(BOTH)
    as_file = "-T", "parquet", *_asked(COLUMNS), "-o", str(path.with_suffix(".parquet"))
    dissect = partial(_dissect, path, frames)
    yield "iter_columns, 14 columns", partial(read, path), _TSHARK
    yield "iter_columns, every ICRC verified", partial(good_icrcs, path), ""
    yield "rdmawire dissect -T fields, 12 fields", partial(dissect, *as_text), _TSHARK
    yield "rdmawire dissect -T parquet, 14 columns", partial(dissect, *as_file), _TSHARK


def measure(name: str, path: Path, frames: int) -> Iterator[Figure | Memory]:
    """All figures for one capture of so many frames, printed as they come."""
    volume = path.stat().st_size / frames / 1e9
    peers = {}
    if tshark := _tshark(path):
        rate = peers[_TSHARK] = frames / tshark.seconds
        yield Figure(f"{name}: {_TSHARK}", rate, None, "", rate * volume).shown()
        yield Memory(f"{name}: {_TSHARK}", tshark.peak).shown()
    for label, count, rival in jobs(path, frames):
        rate = best_rate(count)
        ratio = rate / peers[rival] if rival in peers else None
        yield Figure(f"{name}: {label}", rate, ratio, rival, rate * volume).shown()
    own = ran(sys.executable, "-m", "tools.bench.columns", str(path))
    yield Memory(f"{name}: iter_columns, 14 columns", own.peak).shown()


if __name__ == "__main__":
    read(Path(sys.argv[1]))
