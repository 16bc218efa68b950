"""Run all benchmarks: ``python -m tools.bench [--frames N] [--json FILE]``."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from tools.bench import (
    columns,
    commands,
    dissecting,
    edit,
    fabric,
    fuzz,
    gen,
    gpudirect,
    nic,
    scale,
    verbs,
)
from tools.bench.machine import machine
from tools.bench.rate import Figure, Memory
from tools.bench.traffic import large_frames, small_frames, write


def _capture(folder: str, name: str, frames: Iterator[bytes], count: int) -> Path:
    path = Path(folder, name)
    write(path, list(frames), count)
    return path


@click.command()
@click.option("--small", default=1_000_000, show_default=True, help="Small frames to read.")
@click.option("--large", default=200_000, show_default=True, help="Frames of 4 KiB to read.")
@click.option("--peer", default=5_000, show_default=True, help="Frames that Scapy reads.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Also write JSON here.")
def bench(small: int, large: int, peer: int, report: Path | None) -> None:
    """Measure reading, checking, editing, making traffic, the RNIC beside Scapy and tshark."""
    click.echo(machine())
    with tempfile.TemporaryDirectory() as folder:
        click.echo(f"writing {small} small and {large} large frames ...")
        captures = (
            ("small", _capture(folder, "small.pcap", small_frames(), small), small),
            ("large", _capture(folder, "large.pcap", large_frames(), large), large),
        )
        figures: list[Figure | Memory] = []
        for name, path, frames in captures:
            figures += columns.measure(name, path, frames)
            figures += dissecting.measure(name, path, frames, peer)
            figures += commands.measure(name, path, frames)
            figures += edit.measure(name, path, frames, peer)
        path = _capture(folder, "small.pcapng", small_frames(), small)
        figures += commands.measure("small, pcapng", path, small, commands.FEW_FORMS)
    figures += nic.measure()
    figures += fabric.measure()
    figures += gen.measure()
    figures += scale.measure()
    figures += fuzz.measure()
    figures += verbs.measure()
    gpudirect.measure()
    figures.append(dissecting.start_up())
    if report:
        report.write_text(json.dumps([figure._asdict() for figure in figures], indent=1))


if __name__ == "__main__":
    bench()
