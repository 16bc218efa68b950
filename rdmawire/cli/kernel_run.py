"""What commands that run GPU kernels share: their options, several seeds, and the timeline."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import click

from rdmawire.cli.command import IntegerType, option
from rdmawire.terminal import plural

if TYPE_CHECKING:
    from rdmawire.gpudirect.kernel import Forgotten, Happened

_MAX_SEEDS = 10_000
WRONG = 1
"""Exit status if data was wrong or missing."""

MODEL = option(
    "Memory", "--gpu", "model", type=click.Choice(["A100", "H200"]), default="H200",
    show_default=True,
    help="Model of the GPUs. Before H100, writes of an adapter may become visible late.",
)  # fmt: skip
SEED = option(
    "Memory", "--seed", type=IntegerType(0, (1 << 32) - 1), default=0, show_default=True,
    help="Seed of the times at which stores become visible.",
)  # fmt: skip
SEEDS = option(
    "Memory", "--seeds", type=IntegerType(1, _MAX_SEEDS), default=1, show_default=True,
    help="Try this many seeds, from --seed on, until one goes wrong.",
)  # fmt: skip


class _Report(Protocol):
    @property
    def is_right(self) -> bool: ...


R = TypeVar("R", bound=_Report)


def first_wrong(run: Callable[[int, str | None], R], seeds: range, path: str | None) -> R:
    """Return the first run that goes wrong, else the last one, and write its packets.

    ``run`` is called with a seed and the capture to write. Of several seeds, the one is run again
    with a capture.
    """
    if len(seeds) == 1:
        return run(seeds[0], path)
    for seed in seeds:
        report = run(seed, None)
        if not report.is_right:
            break
    return report if path is None else run(seed, path)


def timeline_lines(timeline: "Sequence[Happened]", most: int | None = None) -> Iterator[str]:
    """Yield the lines of a timeline: the first ``most`` ones, and how many more there are."""
    width = max((len(entry.who) for entry in timeline), default=0)
    for entry in timeline[:most]:
        yield f"{entry.time / 1000:9.3f} us  {entry.who.ljust(width)}  {entry.what}"
    if most is not None and len(timeline) > most:
        yield f"and {plural(len(timeline) - most, 'more step')}, which --json has"


def forgotten_lines(seed: int, forgotten: "Iterable[Forgotten]") -> Iterator[str]:
    """Yield how a wrong run is repeated, and what the forgotten steps are for."""
    yield f"seed {seed}: --seed {seed} repeats it"
    for step in sorted(forgotten, key=lambda one: one.value):
        yield f"without {step.value}, {step.meaning}"
