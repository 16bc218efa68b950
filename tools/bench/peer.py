"""Scapy over a capture, and the names of programs and fields that benchmarks share."""

import json
import subprocess
import sys
from pathlib import Path

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
