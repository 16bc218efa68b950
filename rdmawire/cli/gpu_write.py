"""`rdmawire gen gpu-write`: WRITEs that a GPU kernel, a proxy or a stream starts, step by step."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.kernel_report import (
    LATE_MODEL,
    WRONG,
    draw,
    forgotten_and_seeds,
    outcome_lines,
    outcome_values,
    search,
    timeline_lines,
    timeline_output,
)
from rdmawire.terminal import plural
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.gpudirect.kernel import GpuWriteReport, GpuWriteSpec

_MAX_SIZE = 1 << 20
_STEPS = ("data-fence", "wqe-fence", "record-fence", "reader-fence", "flush")


@click.command(
    "gen",
    cls=Command,
    examples=(
        "rdmawire gen gpu-write",
        "rdmawire gen gpu-write --messages 1 -w doorbell.pcap",
        "rdmawire gen gpu-write --messages 1 --plot timeline.svg",
        "rdmawire gen gpu-write --mode proxy --queues host",
        "rdmawire gen gpu-write --forget record-fence",
        "rdmawire gen gpu-write --gpu A100 --notify cqe --forget flush --seeds 100",
    ),
)
@click.argument("kind", metavar="gpu-write", type=click.Choice(["gpu-write"]))
@option(
    "Work", "--mode", type=click.Choice(["kernel", "proxy", "stream"]), default="kernel",
    show_default=True,
    help="What posts the work: a kernel of the GPU (as IBGDA), a thread of the host that a kernel "
    "asks, or operations of a stream.",
)  # fmt: skip
@option(
    "Work", "--size", metavar="SIZE", callback=options.number_of_bytes(_MAX_SIZE), default="4k",
    show_default=True, help="Bytes of a message.",
)  # fmt: skip
@option(
    "Work", "--messages", type=IntegerType(1, 4096), default=8, show_default=True,
    help="Number of messages.",
)  # fmt: skip
@option(
    "Work", "--depth", type=IntegerType(1, 16), default=4, show_default=True,
    help="Messages that may be on their way.",
)  # fmt: skip
@option(
    "Work", "--queues", type=click.Choice(["gpu", "host"]), default="gpu", show_default=True,
    help="Memory with the queues of the sender.",
)  # fmt: skip
@option(
    "Work", "--notify", type=click.Choice(["flag", "cqe"]), default="flag", show_default=True,
    help="What the target waits for: a flag in GPU memory that is written behind the data, or a "
    "completion in host memory.",
)  # fmt: skip
@LATE_MODEL
@forgotten_and_seeds(_STEPS)
@timeline_output("both adapters")
def command(
    kind: str,  # noqa: ARG001  the name of this traffic
    *,
    output: options.RunOutput,
    seeds: range,
    **settings: Any,
) -> int:
    """Send data from GPU to GPU, and show each step: stores, fences, doorbells, completions.

    Stores become visible late and in any order that the memory model of the GPU and of PCI Express
    allows. The target compares the data, so that a forgotten fence is seen. Exit status: 0, or 1 if
    data was wrong or the work never arrived.
    """
    report = _search(_spec(settings), seeds, output.path)
    draw(report.timeline, output.picture, f"WRITEs that a {report.spec.mode.value} starts")
    output.show(_values(report), _lines(report, seeds))
    return 0 if report.is_right else WRONG


def _spec(settings: dict[str, Any]) -> "GpuWriteSpec":
    from rdmawire.gpudirect.kernel import ForgottenStep, GpuWriteSpec, Mode

    return GpuWriteSpec(
        Mode(settings["mode"]),
        settings["size"],
        settings["messages"],
        settings["depth"],
        settings["model"],
        settings["queues"] == "gpu",
        settings["notify"] == "cqe",
        frozenset(map(ForgottenStep, settings["forgotten"])),
    )


def _search(spec: "GpuWriteSpec", seeds: range, path: str | None) -> "GpuWriteReport":
    from rdmawire.gpudirect.kernel import GpuWrite

    return search(lambda seed: GpuWrite(spec._replace(seed=seed)), seeds, path)


def _values(report: "GpuWriteReport") -> dict[str, Any]:
    spec = report.spec
    return {
        "mode": spec.mode.value,
        "bytes": spec.size,
        "messages": spec.messages,
        "gpu": spec.model,
        **outcome_values(report),
    }


def _lines(report: "GpuWriteReport", seeds: range) -> Iterator[str]:
    """Yield the timeline and the result."""
    yield from timeline_lines(report.timeline)
    frames = plural(report.frames, "frame")
    spec = report.spec
    yield f"{plural(spec.messages, 'message')} of {byte_count(spec.size)} in {frames}"
    yield from outcome_lines(report, seeds, "message")
