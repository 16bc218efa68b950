"""Reports of GPU kernels on the command line, and the search for a seed that goes wrong."""

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from rdmawire.cli import options
from rdmawire.cli.command import F, IntegerType, option
from rdmawire.errors import KernelError
from rdmawire.terminal import plural

if TYPE_CHECKING:
    from rdmawire.fabric import Network
    from rdmawire.gpudirect.kernel import ForgottenStep, Happened

_MAX_SEEDS = 10_000
_SHOWN = 20
WRONG = 1
"""Exit status if data was wrong or missing."""


def gpu_model(group: str, remark: str = "") -> Callable[[F], F]:
    """Return the option --gpu; its help ends with ``remark``. The command gets ``model``."""
    return option(
        group, "--gpu", "model", type=click.Choice(["A100", "H200"]), default="H200",
        show_default=True, help=f"Model of the GPUs.{remark}",
    )  # fmt: skip


LATE_MODEL = gpu_model("Memory", " Before H100, writes of an adapter may become visible late.")


def timeline_output(hosts: str, *, drawn: bool = True) -> Callable[[F], F]:
    """Return the options of a run with a timeline: see :func:`options.run_output`.

    ``hosts`` names those whose packets the capture has; ``drawn`` timelines have --plot.
    """
    return options.run_output(
        f"The capture of {hosts}: FILE.pcap or .pcapng, also compressed.",
        "Print the summary and the timeline as one JSON object.",
        "Draw the timeline to FILE.svg or FILE.png." if drawn else "",
    )


class _Spec(Protocol):
    @property
    def forgotten(self) -> "frozenset[ForgottenStep]": ...

    @property
    def seed(self) -> int: ...


class SeedReport(Protocol):
    """Whether a run with a seed went well."""

    @property
    def spec(self) -> _Spec: ...

    @property
    def is_right(self) -> bool: ...


class KernelReport(SeedReport, Protocol):
    """The result of a run, as the reports of :mod:`rdmawire.gpudirect.kernel` have it."""

    @property
    def stuck(self) -> str: ...

    @property
    def wrong(self) -> list[Any]: ...

    @property
    def duration(self) -> int: ...

    @property
    def frames(self) -> int: ...

    @property
    def timeline(self) -> "list[Happened]": ...


R_co = TypeVar("R_co", bound=SeedReport, covariant=True)
R = TypeVar("R", bound=SeedReport)


class KernelRun(Protocol[R_co]):
    """A run: the network that carries its packets, and :meth:`run`."""

    @property
    def network(self) -> "Network": ...

    def run(self) -> R_co: ...


def forgotten_and_seeds(steps: tuple[str, ...]) -> Callable[[F], F]:
    """Return the options --forget, --seed and --seeds of a command.

    ``steps`` are the fences and flushes that may be left out. The command gets the names of those
    that are as ``forgotten``, and the range of seeds to try as ``seeds``.
    """
    forget = option(
        "Memory", "--forget", "forgotten", type=click.Choice(steps), multiple=True,
        help="Leave out a fence or a flush; may be repeated.",
    )  # fmt: skip
    seed = options.seed("Memory", "Seed of the times at which stores become visible.")
    seeds = option(
        "Memory", "--seeds", type=IntegerType(1, _MAX_SEEDS), default=1, show_default=True,
        help="Try this many seeds, from --seed on, until one goes wrong.",
    )  # fmt: skip

    def decorate(command: F) -> F:
        @wraps(command)
        def ranged(*args: Any, seed: int, seeds: int, **kwargs: Any) -> Any:
            return command(*args, seeds=range(seed, seed + seeds), **kwargs)

        return forget(seed(seeds(ranged)))  # type: ignore[return-value]

    return decorate


def search(make: Callable[[int], KernelRun[R]], seeds: range, path: str | None) -> R:
    """Return the first run that goes wrong, else the last one, and write its packets.

    ``make`` returns the run of a seed. Of several seeds, the one is run again with a capture.
    Raises ``click.UsageError`` for a run that cannot be done.
    """
    try:
        return _searched(make, seeds, path)
    except KernelError as error:
        raise click.UsageError(str(error)) from None


def _searched(make: Callable[[int], KernelRun[R]], seeds: range, path: str | None) -> R:
    if len(seeds) == 1:
        return _run(make(seeds[0]), path)
    for seed in seeds:
        report = _run(make(seed), None)
        if not report.is_right:
            break
    return report if path is None else _run(make(report.spec.seed), path)


def _run(run: KernelRun[R], path: str | None) -> R:
    with options.captured(run.network, path):
        return run.run()


def outcome_values(report: KernelReport) -> dict[str, Any]:
    """Return the result of a run as JSON has it."""
    return {
        "forgotten": sorted(step.value for step in report.spec.forgotten),
        "seed": report.spec.seed,
        "wrong": report.wrong,
        "stuck": report.stuck or None,
        "duration_ns": report.duration,
        "frames": report.frames,
        "timeline": [entry._asdict() for entry in report.timeline],
    }


def draw(timeline: "Sequence[Happened]", picture: Path | None, title: str) -> None:
    """Draw a timeline, if a picture is wanted."""
    if picture is not None:
        from rdmawire.gpudirect.plot import draw_timeline

        draw_timeline(timeline, picture, title)


def without_adapters(timeline: "Sequence[Happened]") -> "list[Happened]":
    """Return the entries of a timeline that are not of adapters."""
    return [entry for entry in timeline if not entry.who.endswith(".adapter")]


def timeline_lines(timeline: "Sequence[Happened]", most: int | None = None) -> Iterator[str]:
    """Yield a line for each of the first ``most`` entries, and how many more there are."""
    width = max((len(entry.who) for entry in timeline), default=0)
    for entry in timeline[:most]:
        yield f"{entry.time / 1000:9.3f} us  {entry.who.ljust(width)}  {entry.what}"
    if most is not None and len(timeline) > most:
        yield f"and {plural(len(timeline) - most, 'more step')}, which --json has"


def outcome_lines(report: KernelReport, seeds: range, unit: str) -> Iterator[str]:
    """Yield the result of a search among ``seeds``; ``unit`` names what may have wrong data."""
    if report.stuck:
        yield f"never ended: {report.stuck}"
    if report.wrong:
        yield f"wrong data in {plural(len(report.wrong), unit)}: {_few(report.wrong)}"
    if report.is_right:
        yield f"all data was right{tried(seeds)}"
        return
    yield from repeat_lines(report.spec)


def tried(seeds: range) -> str:
    """Return the end of a sentence: the number of seeds, if there were several."""
    return f", with each of {len(seeds)} seeds" if len(seeds) > 1 else ""


def repeat_lines(spec: _Spec) -> Iterator[str]:
    """Yield how a wrong run is repeated, and what the forgotten steps are for."""
    yield f"seed {spec.seed}: --seed {spec.seed} repeats it"
    for step in sorted(spec.forgotten, key=lambda one: one.value):
        yield f"without {step.value}, {step.meaning}"


def _few(names: list[Any]) -> str:
    text = ", ".join(map(str, names[:_SHOWN]))
    return f"{text}, ..." if len(names) > _SHOWN else text
