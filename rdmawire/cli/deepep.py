"""`rdmawire gen deepep`: tokens of a mixture of experts, as DeepEP's kernels send them."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.kernel_report import (
    draw,
    gpu_model,
    timeline_lines,
    timeline_output,
    without_adapters,
)
from rdmawire.cli.streams import complain
from rdmawire.errors import KernelError
from rdmawire.terminal import plural
from rdmawire.traffic.generate.spec import SpecError, share
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.gpudirect.deepep import DeepEp, DeepEpReport

_MAX_LOSS = 0.1
_FAILED = 1


@click.command(
    "gen",
    cls=Command,
    examples=(
        "rdmawire gen deepep",
        "rdmawire gen deepep --hosts 2 --gpus 4 --experts 16 --topk 4 -w moe.pcap",
        "rdmawire gen deepep --tokens 4 --experts 4 --hidden 7168",
        "rdmawire gen deepep --loss 5% --unordered --seed 1",
    ),
)
@click.argument("kind", metavar="deepep", type=click.Choice(["deepep"]))
@option(
    "Job", "--hosts", type=IntegerType(1, 64), default=2, show_default=True,
    help="Number of hosts.",
)  # fmt: skip
@option(
    "Job", "--gpus", type=IntegerType(1, 16), default=1, show_default=True,
    help="GPUs of each host, each a rank with an adapter; NVLink joins them.",
)  # fmt: skip
@option(
    "Job", "--tokens", type=IntegerType(1, 1024), default=8, show_default=True,
    help="Tokens of each rank.",
)  # fmt: skip
@option(
    "Job", "--experts", type=IntegerType(1, 1024), default=8, show_default=True,
    help="Experts; each rank has the same number.",
)  # fmt: skip
@option(
    "Job", "--topk", type=IntegerType(1, 11), default=2, show_default=True,
    help="Experts of a token.",
)  # fmt: skip
@option(
    "Job", "--hidden", type=IntegerType(128, 1 << 14), default=256, show_default=True,
    help="Values of a token, of two bytes (bfloat16): a multiple of 128.",
)  # fmt: skip
@gpu_model("Job")
@option(
    "Job", "--unordered", is_flag=True,
    help="Send counts and flags by another queue pair than the data before them.",
)  # fmt: skip
@option(
    "Job", "--loss", metavar="SHARE", default="0",
    callback=options.reads(partial(share, most=_MAX_LOSS), SpecError),
    help="Share of frames that are lost on the links: 1% or 0.01.",
)  # fmt: skip
@options.seed(
    "Job", "Seed of tokens, experts, weights, losses, and times at which stores become visible."
)
@timeline_output("all adapters")
def command(
    kind: str,  # noqa: ARG001  the name of this traffic
    *,
    output: options.RunOutput,
    unordered: bool,
    **settings: Any,
) -> int:
    """Dispatch tokens to experts and combine the results, as DeepEP's low-latency kernels do.

    Each rank puts each token to the ranks of its experts (RDMA WRITE, or a store over NVLink), and
    then adds a count. The experts put results back, and each rank adds them with its weights.
    Tokens are compared at the experts, and sums with those of NumPy. Exit status: 0, 1 if data is
    wrong or an operation fails, 2 for what cannot be.
    """
    try:
        run = _job(settings, ordered=not unordered)
    except KernelError as error:
        raise click.UsageError(str(error)) from None
    try:
        with options.captured(run.network, output.path):
            report = run.run()
    except KernelError as error:
        complain(str(error))
        return _FAILED
    draw(
        without_adapters(report.timeline),
        output.picture,
        f"Tokens of {plural(run.spec.ranks, 'rank')}",
    )
    output.show(_values(run, report), _lines(run, report))
    return 0


def _job(settings: dict[str, Any], *, ordered: bool) -> "DeepEp":
    from rdmawire.gpudirect.deepep import DeepEp, DeepEpSpec

    return DeepEp(DeepEpSpec(ordered=ordered, **settings))


def _values(run: "DeepEp", report: "DeepEpReport") -> dict[str, Any]:
    return {
        "ranks": run.spec.ranks,
        "tokens": run.spec.tokens,
        "dispatched_ns": report.dispatched,
        "duration_ns": report.duration,
        "puts": report.puts,
        "stores": report.stores,
        "flags": report.flags,
        "frames": report.frames,
        "wire_bytes": report.wire_bytes,
        "timeline": [entry._asdict() for entry in report.timeline],
    }


def _lines(run: "DeepEp", report: "DeepEpReport") -> Iterator[str]:
    yield from timeline_lines(without_adapters(report.timeline))
    spec = run.spec
    tokens = f"{plural(spec.tokens, 'token')} of {byte_count(spec.message)}"
    yield f"{plural(spec.ranks, 'rank')} with {tokens}, each to {plural(spec.topk, 'expert')}"
    puts, flags = plural(report.puts, "put"), plural(report.flags, "atomic")
    stores = plural(report.stores, "store")
    yield f"{puts} and {flags} in {plural(report.frames, 'frame')}, {stores}"
    yield "all tokens and all sums are right"
