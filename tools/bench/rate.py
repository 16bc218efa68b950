"""How fast something is, and how a figure is shown."""

import time
from collections.abc import Callable
from typing import NamedTuple

import click

_RUNS = 3


class Figure(NamedTuple):
    """A measurement: frames each second, and how many times a peer's."""

    name: str
    frames_per_second: float
    ratio: float | None = None
    peer: str = ""

    def show(self) -> None:
        """Print the figure."""
        times = f"{self.ratio:8.1f} x {self.peer}" if self.ratio else ""
        click.echo(f"{self.name:<48} {self.frames_per_second:>12,.0f} frames/s {times}")


def best_rate(count: Callable[[], int]) -> float:
    """Frames each second of something that says how many it has done: the best of three."""
    rates = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        done = count()
        rates.append(done / (time.perf_counter() - start))
    return max(rates)
