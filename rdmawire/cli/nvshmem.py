"""`rdmawire gen nvshmem-put`: puts with signals between GPUs, as NVSHMEM does them."""

from collections.abc import Iterator
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
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.gpudirect.kernel import Happened, Nvshmem

_MAX_SIZE = 1 << 20
_FAILED = 1


@click.command(
    "gen",
    cls=Command,
    examples=(
        "rdmawire gen nvshmem-put",
        "rdmawire gen nvshmem-put --hosts 2 --gpus 2 --size 64k -w puts.pcap",
        "rdmawire gen nvshmem-put --transport proxy --messages 3",
    ),
)
@click.argument("kind", metavar="nvshmem-put", type=click.Choice(["nvshmem-put"]))
@option(
    "Job", "--hosts", type=IntegerType(1, 64), default=2, show_default=True,
    help="Number of hosts.",
)  # fmt: skip
@option(
    "Job", "--gpus", type=IntegerType(1, 16), default=1, show_default=True,
    help="GPUs of each host, each a PE with an adapter; NVLink joins them.",
)  # fmt: skip
@option(
    "Job", "--size", metavar="SIZE", callback=options.number_of_bytes(_MAX_SIZE), default="4k",
    show_default=True, help="Bytes of a put.",
)  # fmt: skip
@option(
    "Job", "--messages", type=IntegerType(1, 1000), default=1, show_default=True,
    help="Puts of each PE, each to the next PE.",
)  # fmt: skip
@option(
    "Job", "--transport", type=click.Choice(["ibgda", "proxy"]), default="ibgda",
    show_default=True,
    help="What posts the work: the kernel itself (IBGDA), or a proxy thread of the host.",
)  # fmt: skip
@gpu_model("Job")
@options.seed("Job", "Seed of the times at which stores become visible.")
@timeline_output("all adapters")
def command(
    kind: str,  # noqa: ARG001  the name of this traffic
    *,
    output: options.RunOutput,
    messages: int,
    size: int,
    **settings: Any,
) -> int:
    """Put data with a signal to the next GPU of a ring, and show each step of the kernels.

    Each PE puts to the next one (nvshmem_putmem_signal), waits for its own signal, compares the
    data and takes part in a barrier. Between hosts this is RDMA, within one loads and stores.
    Exit status: 0, 1 if an operation fails, 2 for what cannot be done.
    """
    if not size:
        raise click.UsageError("--size: a put has 1 byte or more")
    try:
        job = _job(settings, size)
    except KernelError as error:
        raise click.UsageError(str(error)) from None
    try:
        duration = _run(job, output.path, size=size, messages=messages)
    except KernelError as error:
        complain(str(error))
        return _FAILED
    steps = without_adapters(job.system.timeline)
    draw(steps, output.picture, f"Puts of {plural(job.spec.pes, 'PE')}")
    summary = {
        "pes": job.spec.pes,
        "transport": job.spec.transport.value,
        "bytes": size,
        "messages": messages,
        "duration_ns": duration,
        "frames": job.frames,
        "timeline": [entry._asdict() for entry in job.system.timeline],
    }
    output.show(summary, _lines(summary, steps))
    return 0


def _job(settings: dict[str, Any], size: int) -> "Nvshmem":
    from rdmawire.gpudirect.kernel import Nvshmem, NvshmemSpec, Transport

    transport = Transport(settings.pop("transport"))
    return Nvshmem(NvshmemSpec(heap=2 * size + 64, transport=transport, **settings))


def _run(job: "Nvshmem", path: str | None, *, size: int, messages: int) -> int:
    """Run the job, and write what its adapters send."""
    from rdmawire.gpudirect.kernel import ring_put

    kernel = ring_put(job, size, messages)
    for pe in range(job.spec.pes):
        job.launch(pe, kernel)
    with options.captured(job.network, path):
        return job.run()


def _lines(summary: dict[str, Any], timeline: "list[Happened]") -> Iterator[str]:
    yield from timeline_lines(timeline)
    puts = plural(summary["pes"] * summary["messages"], "put")
    frames = plural(summary["frames"], "frame")
    yield f"{puts} of {byte_count(summary['bytes'])} in {frames}: all right"
