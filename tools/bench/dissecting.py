"""Reading captures: walking, parsing, verifying, dissecting; beside Scapy and tshark."""

import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import click

from rdmawire.capture import open_capture
from rdmawire.dissect import Dissector
from rdmawire.wire import roce
from rdmawire.wire.codec import reader
from rdmawire.wire.ib import BTH
from rdmawire.wire.icrc import icrc_ipv4
from rdmawire.wire.inet import ROCE_PORT
from tools.bench import peer
from tools.bench.rate import Figure, best_rate

_DISSECTED = 100_000
"""Frames that are dissected in full; more would only take longer."""


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


def dissect(path: Path, frames: int) -> int:
    """Dissect the first frames into trees."""
    dissector = Dissector()
    count = 0
    with open_capture(path) as capture:
        for record in islice(capture, frames):
            dissector.dissect(record.data, time_ns=record.time_ns)
            count += 1
    return count


Job = tuple[str, Callable[[Path], int], str]
"""What is measured: its name, what does it, and the peer that it is held against."""


def jobs(frames: int) -> Iterator[Job]:
    """Everything that is measured on a capture of so many frames."""
    dissected = min(frames, _DISSECTED)
    yield "walk, two fields", walk_two_fields, "Scapy, two fields"
    yield "parse, all fields", parse_all_fields, "Scapy, all fields"
    yield "verify every ICRC, one by one", verify_icrc, ""
    yield "dissect into trees", partial(dissect, frames=dissected), "Scapy, all fields"
    yield "rdmawire stats", partial(stats, frames=frames), ""


def stats(path: Path, frames: int) -> int:
    """Count everything by the command."""
    subprocess.run((peer.RDMAWIRE, "stats", path), stdout=subprocess.DEVNULL, check=True)
    return frames


def measure(name: str, path: Path, frames: int, peer_frames: int) -> Iterator[Figure]:
    """All figures for one capture of so many frames, printed as they come."""
    peers = peer.scapy(path, peer_frames)
    for label, rate in peers.items():
        yield Figure(f"{name}: {label}", rate).shown()
    for label, run, rival in jobs(frames):
        rate = best_rate(partial(run, path))
        ratio = rate / peers[rival] if rival in peers else None
        yield Figure(f"{name}: {label}", rate, ratio, rival).shown()


def start_up() -> Figure:
    """How long `rdmawire --help` takes: the best of five."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run((peer.RDMAWIRE, "--help"), capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    click.echo(f"{'rdmawire --help':<48} {min(times):>12.3f} s")
    return Figure("rdmawire --help, starts per second", 1 / min(times))
