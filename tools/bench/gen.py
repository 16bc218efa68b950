"""Test traffic to a file, beside Scapy building the same frames and a loop that writes as much."""

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from rdmawire.capture import LinkType, create_capture
from rdmawire.capture.io import output_file
from rdmawire.traffic.generate import Sizes, TrafficSpec, Verb, generate
from tools.bench import peer
from tools.bench.rate import Figure, best_rate

_SCAPY = "Scapy builds them"
_PLAIN = "of writing as many bytes"
_BLOCK = 1 << 21
_IN_MEMORY = Path("/dev/shm")  # as Linux has it


class Job(NamedTuple):
    """What is measured, and whether it is compared with writing bytes alone.

    Captures go to a new folder in ``folder``, or where temporary files are kept.
    """

    name: str
    spec: TrafficSpec
    at_once: bool = True
    bytes: bool = False
    folder: Path | None = None


def _write(count: int, size: str, mtu: int = 1024, loss: float = 0.0) -> TrafficSpec:
    return TrafficSpec(verb=Verb.WRITE, sizes=Sizes.parse(size), mtu=mtu, count=count, loss=loss)


def jobs(scale: int) -> Iterator[Job]:
    """Everything that is measured; ``scale`` is small messages of the first."""
    yield Job("WRITE 64 B", _write(scale, "64"))
    yield Job("mix", TrafficSpec(verb=Verb.MIX, count=scale // 4))
    yield Job("WRITE 64 B, 0.1 % lost", _write(scale // 8, "64", loss=0.001))
    yield Job("WRITE 64 B, 1 % lost", _write(scale // 32, "64", loss=0.01))
    yield Job("WRITE 64 B, frame by frame", _write(scale // 32, "64"), at_once=False)
    yield Job("WRITE 1 MiB, MTU 4096", _write(scale // 1000, "1M", mtu=4096), bytes=True)
    if _IN_MEMORY.is_dir():
        spec = _write(scale // 4000, "1M", mtu=4096)
        yield Job("the same, a file in memory", spec, bytes=True, folder=_IN_MEMORY)


def measure(scale: int = 1_000_000) -> Iterator[Figure]:
    """All figures, printed as they come."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gen.pcap")
        make(Job("", _write(1, "64")), path)
        scapy = peer.scapy_builds(path)
        yield Figure("gen: Scapy builds the frames of WRITE 64 B", scapy).shown()
    for job in jobs(scale):
        with tempfile.TemporaryDirectory(dir=job.folder) as folder:
            yield _measured(job, Path(folder), scapy)


def make(job: Job, path: Path) -> int:
    """Write one capture; how many frames it has."""
    with create_capture(path, link_type=LinkType.ETHERNET) as writer:
        return generate(job.spec, writer, at_once=job.at_once).frames


def _measured(job: Job, folder: Path, scapy: float) -> Figure:
    """Of captures in an empty folder: none takes the place of another, which costs time, too."""
    names = (folder / f"{number}.pcap" for number in count())
    rate = best_rate(lambda: make(job, next(names)))
    last = next(names)
    frames, data = make(job, last), last.stat().st_size
    volume = rate * data / frames / 1e9
    name = f"gen: {job.name}"
    if not job.bytes:
        return Figure(name, rate, rate / scapy, _SCAPY, volume).shown()
    plain = best_rate(lambda: _plain(next(names), data)) / 1e9
    Figure("gen: as many bytes written, and no more", plain * 1e3, unit="MB/s").shown()
    return Figure(name, rate, volume / plain, _PLAIN, volume).shown()


def _plain(path: Path, size: int) -> int:
    """Write ``size`` bytes to a file, by the same calls."""
    block = bytes(range(256)) * (_BLOCK // 256)
    with output_file(path) as output:
        for _ in range(size // _BLOCK):
            output.write(block)
    return size


if __name__ == "__main__":
    for _ in measure():
        pass
