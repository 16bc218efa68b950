"""Other programs over a capture: the peers Scapy and tshark, and the command line's own formats."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tools.bench.rate import best_rate

TWO_FIELDS = ("-T", "fields", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn")
RDMAWIRE = str(Path(sys.executable).with_name("rdmawire"))


def scapy(path: Path, frames: int) -> dict[str, float]:
    """Scapy's rates for two fields and for all fields of the first frames."""
    command = (sys.executable, "-m", "tools.bench.peer_scapy", str(path), str(frames))
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def scapy_messages() -> float:
    """How many packets of 64 bytes Scapy builds, and reads again, in a second."""
    command = (sys.executable, "-m", "tools.bench.peer_scapy")
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    rate: float = json.loads(done.stdout)
    return rate


def scapy_builds(path: Path) -> float:
    """How many frames like the first two of a capture Scapy builds in a second."""
    command = (sys.executable, "-m", "tools.bench.peer_scapy", str(path))
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    rate: float = json.loads(done.stdout)
    return rate


def scapy_edits(path: Path, frames: int, copy: Path) -> float:
    """How many of the first frames of a capture Scapy edits in a second, and writes again."""
    command = (sys.executable, "-m", "tools.bench.peer_scapy", str(path), str(frames), str(copy))
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    rate: float = json.loads(done.stdout)
    return rate


def tshark(path: Path, frames: int) -> dict[str, float]:
    """The rate of tshark for two fields of the first frames; nothing if there is no tshark."""
    if not shutil.which("tshark"):
        return {}
    command = ("tshark", "-r", str(path), *TWO_FIELDS)
    return {"tshark -T fields, two fields": best_rate(lambda: first_frames(frames, *command))}


def dissect(path: Path, frames: int, *options: str) -> int:
    """`rdmawire dissect` with these options over the first frames."""
    return first_frames(frames, RDMAWIRE, "dissect", *options, str(path))


def first_frames(frames: int, *command: str) -> int:
    """Run a command that ``-c`` tells how many frames to read; its output is thrown away."""
    subprocess.run(
        (*command, "-c", str(frames)),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return frames
