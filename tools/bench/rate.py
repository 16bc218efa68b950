"""How fast something is and what memory it takes, and how such figures are shown."""

import time
from collections.abc import Callable
from typing import NamedTuple

import click

_RUNS = 3


class Figure(NamedTuple):
    """A measurement: how many each second, and how many times a peer's."""

    name: str
    rate: float
    ratio: float | None = None
    peer: str = ""
    gigabytes_per_second: float | None = None
    unit: str = "frames/s"

    def shown(self) -> "Figure":
        """The figure, printed."""
        data = self.gigabytes_per_second
        volume = f"{data:7.3f} GB/s" if data else ""
        digits = 1 if self.ratio and self.ratio >= 1 else 2
        times = f"{self.ratio:8.{digits}f} x {self.peer}" if self.ratio else ""
        click.echo(f"{self.name:<48} {self.rate:>12,.0f} {self.unit} {volume}{times}")
        return self


class Memory(NamedTuple):
    """The most memory that something had at once, in bytes."""

    name: str
    peak: int

    def shown(self) -> "Memory":
        """The figure, printed."""
        click.echo(f"{self.name:<48} {self.peak / (1 << 20):>12,.0f} MiB at its peak")
        return self


def best_rate(count: Callable[[], int]) -> float:
    """Frames each second of something that says how many it has done: the best of three."""
    rates = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        done = count()
        rates.append(done / (time.perf_counter() - start))
    return max(rates)
