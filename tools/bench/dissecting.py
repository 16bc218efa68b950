"""Reading captures: walking, parsing, verifying, dissecting; beside Scapy and tshark."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import click

from rdmawire.analysis.dissector import Dissector
from rdmawire.capture import open_capture
from rdmawire.wire import roce
from rdmawire.wire.codec import reader
from rdmawire.wire.ib import BTH
from rdmawire.wire.icrc import icrc_ipv4
from rdmawire.wire.inet import ROCE_PORT

_DISSECTED = 100_000
"""Frames that are dissected in full; more would only take longer."""


class Figure(NamedTuple):
    """A measurement: frames each second, and how many times a peer's."""

    name: str
    frames_per_second: float
    ratio: float | None = None
    peer: str = ""

    def show(self) -> None:
        """Print the figure."""
        times = f"{self.ratio:8.1f} x {self.peer}" if self.ratio else ""
        click.echo(f"{self.name:<44} {self.frames_per_second:>12,.0f} frames/s {times}")


_RUNS = 3


def _rate(count: Callable[[], int]) -> float:
    """Frames each second of something that says how many it has done: the best of three."""
    rates = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        done = count()
        rates.append(done / (time.perf_counter() - start))
    return max(rates)


def walk_two_fields(path: Path) -> int:
    """Walk all frames and read opcode and PSN of each."""
    fields = reader(BTH, "opcode", "psn")
    bth_offset = roce.bth_offset
    total = count = 0
    with open_capture(path) as capture:
        for buffer, start, end in capture.spans():
            bth = bth_offset(buffer, start, end)
            if bth >= 0:
                opcode, psn = fields(buffer, bth)
                total += opcode + psn
                count += 1
    return count


def parse_all_fields(path: Path) -> int:
    """Parse every header of every frame."""
    parse = roce.parse
    count = 0
    with open_capture(path) as capture:
        for buffer, start, end in capture.spans():
            parse(buffer, ROCE_PORT, start, end)
            count += 1
    return count


def verify_icrc(path: Path) -> int:
    """Verify the ICRC of every frame, one by one."""
    count = 0
    with open_capture(path) as capture:
        for buffer, start, end in capture.spans():
            found = int.from_bytes(buffer[end - 4 : end], "big")
            count += icrc_ipv4(buffer, start + 14, end - 4) == found
    return count


def dissect(path: Path) -> int:
    """Dissect frames into trees."""
    dissector = Dissector()
    count = 0
    with open_capture(path) as capture:
        for record in islice(capture, _DISSECTED):
            dissector.dissect(record.data, time_ns=record.time_ns)
            count += 1
    return count


def _scapy(path: Path, frames: int) -> Iterator[tuple[str, float]]:
    """Scapy's rates for two fields and for all fields of each frame."""
    from scapy.contrib import roce as scapy_roce
    from scapy.utils import PcapReader

    def two_fields() -> int:
        count = 0
        for packet in islice(PcapReader(str(path)), frames):
            bth = packet[scapy_roce.BTH]
            count += (bth.opcode + bth.psn) >= 0
        return count

    def all_fields() -> int:
        count = 0
        for packet in islice(PcapReader(str(path)), frames):
            layer = packet
            while layer:
                for field in layer.fields_desc:
                    getattr(layer, field.name)
                layer = layer.payload
            count += 1
        return count

    yield "two", _rate(two_fields)
    yield "all", _rate(all_fields)


def _tshark(path: Path) -> float | None:
    """The rate of tshark for two fields of each frame, if there is a tshark."""
    if not shutil.which("tshark"):
        return None
    command = ["tshark", "-r", str(path), "-T", "fields", "-e", "infiniband.bth.opcode"]
    command += ["-e", "infiniband.bth.psn", "-c", str(_DISSECTED)]

    def run() -> int:
        done = subprocess.run(command, capture_output=True, check=True)
        return done.stdout.count(b"\n")

    return _rate(run)


def measure(name: str, path: Path, peer_frames: int) -> Iterator[Figure]:
    """All figures for one capture, printed as they come."""
    scapy = dict(_scapy(path, peer_frames))
    tshark = _tshark(path)
    rows = [
        Figure(f"{name}: Scapy, two fields", scapy["two"]),
        Figure(f"{name}: Scapy, all fields", scapy["all"]),
    ]
    if tshark:
        rows.append(Figure(f"{name}: tshark -T fields, two fields", tshark))
    for figure in rows:
        figure.show()
        yield figure
    for label, run, peer in (
        ("walk, two fields", walk_two_fields, "two"),
        ("parse, all fields", parse_all_fields, "all"),
        ("verify every ICRC, one by one", verify_icrc, ""),
        ("dissect into trees", dissect, "all"),
    ):
        rate = _rate(partial(run, path))
        ratio = rate / scapy[peer] if peer else None
        figure = Figure(f"{name}: {label}", rate, ratio, f"Scapy, {peer} fields" if peer else "")
        figure.show()
        yield figure


def start_up() -> Figure:
    """How long `rdmawire --help` takes: the best of five."""
    command = [str(Path(sys.executable).with_name("rdmawire")), "--help"]
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    click.echo(f"{'rdmawire --help':<44} {min(times):>12.3f} s")
    return Figure("rdmawire --help, starts per second", 1 / min(times))
