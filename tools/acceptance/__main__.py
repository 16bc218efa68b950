"""Run unmodified programs: ``python -m tools.acceptance [--only TEXT] [--write]``."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click

from tools.acceptance import page, robustness
from tools.acceptance.case import Case, Package, Result, Verdict
from tools.acceptance.cases import all_cases, chosen
from tools.acceptance.frameworks import NCCL
from tools.acceptance.packages import (
    checkout_version,
    missing,
    missing_pypi,
    nccl_driver,
    nccl_version,
    unpacked_tests,
    version,
)
from tools.acceptance.runner import ProgramPaths, run
from tools.acceptance.trial import Plan, Size, Trial
from tools.bench.machine import machine

_BAD = 1
_TERMINATED = 128 + signal.SIGTERM


@click.command()
@click.option("--only", multiple=True, metavar="TEXT", help="Run the rows that have this text.")
@click.option("--list", "names", is_flag=True, help="List the rows, and run nothing.")
@click.option(
    "--robustness/--no-robustness", "with_trials", default=True,
    help="Also run the trials: many processes, kills, endurance.",
)  # fmt: skip
@click.option("--processes", default=64, show_default=True, help="Processes at once.")
@click.option("--queue-pairs", default=1000, show_default=True, help="Queue pairs of one process.")
@click.option("--kills", default=300, show_default=True, help="Programs that are killed.")
@click.option("--minutes", default=2.0, show_default=True, help="Duration of endurance.")
@click.option(
    "--nccl", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A libnccl.so.2, as of the package nvidia-nccl-cu12 of PyPI.",
)  # fmt: skip
@click.option(
    "--sources", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with checkouts: rust-ibverbs, sideway (with cargo), rdma4py, rdma-core, gloo.",
)  # fmt: skip
@click.option(
    "--python", type=click.Path(exists=True, dir_okay=False), default=sys.executable,
    help="The Python of a virtual environment that has packages of PyPI.",
)  # fmt: skip
@click.option("--write", is_flag=True, help="Write docs/reference/acceptance.md and its JSON.")
def acceptance(
    only: tuple[str, ...],
    *,
    names: bool,
    with_trials: bool,
    processes: int,
    queue_pairs: int,
    kills: int,
    minutes: float,
    nccl: Path | None,
    sources: Path | None,
    python: str,
    write: bool,
) -> None:
    """Run unmodified programs on devices of `rdmawire verbs`; exit status 1 if one fails."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))  # ends what was started
    cases = chosen(only)
    size = Size(processes, queue_pairs, kills, minutes)
    plans = robustness.chosen(size, only) if with_trials else []
    if names:
        _list(cases, plans)
        return
    if packages := missing(cases):
        click.echo(f"not all can run: sudo apt-get install {' '.join(packages)}", err=True)
    python = str(Path(python).absolute())
    if packages := missing_pypi(cases, python):
        click.echo(f"not all can run: {python} -m pip install {' '.join(packages)}", err=True)
    results: list[Result] = []
    tried: list[Trial] = []
    files = _Files(nccl, sources and sources.absolute(), python)
    for _ in chain(
        map(results.append, _results(cases, files)), map(tried.append, _trials(plans, size))
    ):
        if write:  # after each, so that a run that is ended leaves its results
            rows = _rows(results, files)
            page.write(rows, tried, all_cases(), robustness.plans(size), machine())
    failed = sum(result.verdict is Verdict.FAILED for result in results)
    failed += sum(not trial.passed for trial in tried)
    click.echo(f"{len(results) + len(tried)} runs, {failed} failed")
    raise SystemExit(_BAD if failed else 0)


class _Files(NamedTuple):
    """What the options name."""

    nccl: Path | None
    sources: Path | None
    python: str


def _rows(results: list[Result], files: _Files) -> list[page.Row]:
    return [page.plain(result, _version(result.case.package, files)) for result in results]


def _version(package: Package, files: _Files) -> str:
    if files.nccl and package == NCCL:
        return nccl_version(files.nccl)
    if files.sources and package.checkout and not package.pypi:
        return checkout_version(files.sources / package.checkout)
    return version(package, files.python)


def _list(cases: list[Case], plans: list[Plan]) -> None:
    for case in cases:
        click.echo(f"{case.package.title}: {case.options} {case.transport} {case.where}")
    for plan in plans:
        click.echo(f"trial: {plan.name}")


def _results(cases: list[Case], files: _Files) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="rdmawire-acceptance-") as folder:
        driver = nccl_driver(Path(folder), files.nccl)
        paths = ProgramPaths(unpacked_tests(Path(folder)), driver, files.sources, files.python)
        for case in cases:
            result = run(case, paths)
            failed = result.verdict is Verdict.FAILED
            said = result.reason if failed else result.figure or result.reason
            frames = f"{result.frames.count:,} frames" if result.frames.count else ""
            click.echo(
                f"{result.verdict:8} {case.options:<40} {case.transport:<14} {case.where:<22}"
                f" {result.seconds:5.1f} s  {frames} {said}"
            )
            yield result


def _trials(plans: list[Plan], size: Size) -> Iterator[Trial]:
    for trial in robustness.trials(plans, size):
        click.echo(f"{'passed' if trial.passed else 'failed':8} {trial.name}: {trial.what}")
        yield trial


if __name__ == "__main__":
    acceptance()
