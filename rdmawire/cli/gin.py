"""`rdmawire gen gin-put` and `gin-alltoall`: kernels on NCCL's GPU-initiated networking."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.gen import LOSS
from rdmawire.cli.kernel_report import (
    WRONG,
    forgotten_and_seeds,
    gpu_model,
    outcome_lines,
    outcome_values,
    search,
    timeline_lines,
    timeline_output,
)
from rdmawire.terminal import plural
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.gpudirect.kernel import GinReport, GinRun, GinSpec

_MAX_SIZE = 1 << 20
_STEPS = ("data-fence", "wqe-fence", "record-fence", "reader-fence", "source-flush")
_PUT = "gin-put"


@click.command(
    "gen",
    cls=Command,
    examples=(
        "rdmawire gen gin-put",
        "rdmawire gen gin-put --backend proxy --puts 3 -w puts.pcap",
        "rdmawire gen gin-put --signal add --contexts 2 --loss 1%",
        "rdmawire gen gin-put --forget source-flush --seeds 100",
        "rdmawire gen gin-alltoall --hosts 4 --size 64k -w alltoall.pcap",
    ),
)
@click.argument("kind", metavar="gin-put|gin-alltoall", type=click.Choice([_PUT, "gin-alltoall"]))
@option(
    "Job", "--hosts", type=IntegerType(1, 32), default=2, show_default=True,
    help="Number of hosts.",
)  # fmt: skip
@option(
    "Job", "--gpus", type=IntegerType(1, 16), default=1, show_default=True,
    help="GPUs of each host, each a rank with an adapter; all puts go through the adapters.",
)  # fmt: skip
@option(
    "Job", "--backend", type=click.Choice(["gdaki", "proxy"]), default="gdaki", show_default=True,
    help="What posts the work: the kernel itself (GDAKI), or a thread of the host that takes "
    "descriptors from a queue (PROXY).",
)  # fmt: skip
@option(
    "Job", "--contexts", type=IntegerType(1, 4), default=1, show_default=True,
    help="Contexts, each with a queue pair to each rank; puts take turns on them.",
)  # fmt: skip
@option(
    "Job", "--size", metavar="SIZE", callback=options.number_of_bytes(_MAX_SIZE), default="4k",
    show_default=True, help="Bytes of a put; of gin-alltoall, of the block for each rank.",
)  # fmt: skip
@option(
    "Job", "--puts", type=IntegerType(1, 1000),
    help="Puts of each rank, each to the next rank.  [default: 8]",
)  # fmt: skip
@option(
    "Job", "--signal", type=click.Choice(["inc", "add", "separate"]),
    help="What a put does to a signal of its target: add 1, add a number, or nothing, and a signal "
    "of its own follows.  [default: inc]",
)  # fmt: skip
@gpu_model("Memory")
@forgotten_and_seeds(_STEPS)
@LOSS
@timeline_output("all adapters", drawn=False)
def command(
    kind: str,
    *,
    output: options.RunOutput,
    seeds: range,
    **settings: Any,
) -> int:
    """Put data from GPU to GPU by the device API of NCCL (ncclGin), and show each step.

    gin-put: each rank puts to the next one, with a signal that the target waits for, and flushes
    before it reuses a source. gin-alltoall: as in NCCL's example, each rank puts a block with a
    signal to each rank. The data is compared with what was put. Exit status: 0, 1 if data was
    wrong or a wait did not end, 2 for what cannot be done.
    """
    _check(kind, settings)
    report = search(partial(_made, kind, settings), seeds, output.path)
    values = _values(kind, settings, report)
    output.show(values, _lines(values, report, seeds))
    return 0 if report.is_right else WRONG


def _check(kind: str, settings: dict[str, Any]) -> None:
    """Set what is not given; raise ``UsageError`` for options of the other kind."""
    for name, default in (("puts", 8), ("signal", "inc")):
        if kind != _PUT and settings[name] is not None:
            raise click.UsageError(f"--{name} is of gin-put: {kind} has one put for each rank")
        settings[name] = settings[name] or default
    if not settings["size"]:
        raise click.UsageError("--size: a put has 1 byte or more")


def _made(kind: str, settings: dict[str, Any], seed: int) -> "GinRun":
    """Return the run of a seed; :class:`KernelError` for what cannot be."""
    from rdmawire.gpudirect.kernel import GinAllToAll, GinPut, PutSignal

    spec, size, loss = _spec(settings, seed), settings["size"], settings["loss"]
    if kind == _PUT:
        return GinPut(spec, size, settings["puts"], PutSignal(settings["signal"]), loss)
    return GinAllToAll(spec, size, loss)


def _spec(settings: dict[str, Any], seed: int) -> "GinSpec":
    from rdmawire.gpudirect.kernel import Backend, ForgottenStep, GinSpec

    return GinSpec(
        settings["hosts"],
        settings["gpus"],
        Backend(settings["backend"]),
        settings["contexts"],
        model=settings["model"],
        seed=seed,
        forgotten=frozenset(map(ForgottenStep, settings["forgotten"])),
    )


def _values(kind: str, settings: dict[str, Any], report: "GinReport") -> dict[str, Any]:
    spec = report.spec
    return {
        "kind": kind,
        "ranks": spec.ranks,
        "backend": spec.backend.value,
        "contexts": spec.contexts,
        "bytes": settings["size"],
        "puts": spec.ranks * (settings["puts"] if kind == _PUT else spec.ranks),
        "signal": settings["signal"],
        **outcome_values(report),
    }


def _lines(values: dict[str, Any], report: "GinReport", seeds: range) -> Iterator[str]:
    """Yield the timeline and the result."""
    yield from timeline_lines(report.timeline)
    puts, frames = plural(values["puts"], "put"), plural(values["frames"], "frame")
    yield f"{puts} of {byte_count(values['bytes'])} in {frames}"
    yield from outcome_lines(report, seeds, "put" if values["kind"] == _PUT else "block")
