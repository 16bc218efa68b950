"""`rdmawire gen trace`: GOAL schedules, MSCCL algorithms and Chakra traces as packets or flows."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, PathType, option
from rdmawire.cli.gen import LOSS
from rdmawire.cli.streams import complain, open_host
from rdmawire.errors import FabricError, RdmaError, WorkloadError
from rdmawire.terminal import escape, plural
from rdmawire.traffic.generate.spec import SpecError, rate
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.gpudirect.workload import Workload, WorkloadReport, WorkloadRun

_MAX_SIZE = 1 << 34
_MAX_GROUPS = 1 << 20
_MAX_TIME = 1_000_000_000
_MAX_SHOWN = 16
"""Ranks of which all times are shown."""
_FAILED = 1


@click.command(
    "gen",
    cls=Command,
    examples=(
        "rdmawire gen trace ring.goal -w ring.pcap",
        "rdmawire gen trace allreduce.xml --size 1MiB --links",
        "rdmawire gen trace step.0.json step.1.json --gpus-per-host 1",
        "rdmawire gen trace mpi.goal --overhead 8000 --latency 1310 --rate 45.3G --buffered",
        "rdmawire gen trace big.goal --flows --host dgx-h200 --json",
    ),
)
@click.argument("kind", metavar="trace", type=click.Choice(["trace"]))
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PathType())
@option(
    "Workload", "--size", metavar="SIZE", callback=options.number_of_bytes(_MAX_SIZE),
    help="Bytes of the operation of an MSCCL algorithm.  [default: 64 KiB for each chunk]",
)  # fmt: skip
@option(
    "Workload", "--groups", type=PathType(path_type=Path), metavar="FILE",
    help="Process groups of Chakra's traces: JSON with the ranks of each name.",
)  # fmt: skip
@option(
    "Workload", "--eager", metavar="SIZE", callback=options.number_of_bytes(_MAX_SIZE),
    default="8k", show_default=True,
    help="Messages up to this size are sent before their receive is posted.",
)  # fmt: skip
@option(
    "Workload", "--buffered", is_flag=True,
    help="Let a send of up to --eager bytes end when the adapter has it, not when it is "
    "acknowledged.",
)  # fmt: skip
@option(
    "Workload", "--overhead", type=IntegerType(0, _MAX_TIME), default=0, show_default=True,
    metavar="NS", help="Time of the processor for each send and receive (LogGP's o), in ns.",
)  # fmt: skip
@option(
    "Workload", "--flows", is_flag=True,
    help="Share the rates of links among messages, without packets: for 1,024 ranks.",
)  # fmt: skip
@option(
    "Hosts", "--host",
    help="What all hosts are: a host of rdmawire topo, such as dgx-h200, or a file.  "
    "[default: GPUs with NVLinks and an adapter each]",
)  # fmt: skip
@option(
    "Hosts", "--gpus-per-host", "gpus", type=IntegerType(1, 64),
    help="Ranks of a host, one on each GPU.  [default: the GPUs of --host, or 1]",
)  # fmt: skip
@option(
    "Network", "--rate", metavar="RATE", callback=options.reads(rate, SpecError),
    help="Rate of each adapter's link.  [default: that of the adapter's port, or 400G]",
)  # fmt: skip
@option(
    "Network", "--latency", type=IntegerType(0, 1_000_000), default=300, show_default=True,
    metavar="NS", help="Latency of each of the two cables, in ns.",
)  # fmt: skip
@option(
    "Network", "--gap", type=IntegerType(0, _MAX_TIME), default=0, show_default=True,
    metavar="NS", help="Time of an adapter after each message (LogGP's g), in ns.",
)  # fmt: skip
@LOSS
@options.seed("Network", "Seed of data and losses: the same seed gives the same bytes.")
@option("Output", "--links", is_flag=True, help="Print the bytes of messages on each link.")
@options.run_output(
    "The capture of what all adapters send: FILE.pcap or .pcapng, also compressed.",
    "Print the summary, with all ranks and links, as one JSON object.",
)
def command(
    kind: str,  # noqa: ARG001  the name of this traffic
    files: tuple[str, ...],
    *,
    output: options.RunOutput,
    flows: bool,
    links: bool,
    size: int | None,
    groups: Path | None,
    **settings: Any,
) -> int:
    """Run a workload of another tool, and show when each rank ends.

    FILE is a GOAL schedule of LogGOPSim or ATLAHS (text or binary), an XML algorithm of MSCCL, or
    Chakra's execution traces: a file for each rank, step.0.et or step.0.json. Messages between
    hosts are RDMA WRITEs with immediate of emulated adapters. Data that arrives and the results of
    collectives are checked. Exit status: 0, 1 if the workload does not end or a result is wrong,
    2 for a trace that cannot be run.
    """
    path = output.path
    if flows and (path is not None or settings["loss"]):
        raise click.UsageError("--flows makes no packets: leave -w and --loss out")
    if size == 0:
        raise click.UsageError("--size 0: an operation has one byte or more")
    try:
        workload = _workload(files, size, groups)
        run = _run(workload, flows=flows, **settings)
    except RdmaError as error:
        raise click.UsageError(str(error)) from None
    try:
        with nullcontext() if path is None or run.network is None else run.network.captured(path):
            report = run.run()
    except (WorkloadError, FabricError) as error:
        complain(f"after {run.now / 1000:.1f} us: {error}")
        return _FAILED
    summary = _summary(workload, report, flows=flows)
    summary["places"] = [place._asdict() for place in run.places]
    output.show(summary, _lines(workload, report, flows=flows, links=links))
    return 0


def _workload(files: tuple[str, ...], size: int | None, groups: Path | None) -> "Workload":
    from rdmawire.gpudirect.workload import parse_groups, read_trace

    found = None
    if groups is not None:
        try:
            with groups.open("rb") as file:
                data = file.read(_MAX_GROUPS + 1)
        except (OSError, ValueError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise WorkloadError(f"--groups: {escape(str(groups))}: {reason}") from None
        if len(data) > _MAX_GROUPS:
            raise WorkloadError(f"--groups: {escape(str(groups))}: more than {_MAX_GROUPS} bytes")
        found = parse_groups(data, str(groups))
    return read_trace(files, size=size or 0, groups=found)


def _run(
    workload: "Workload", *, host: str | None, gpus: int | None, rate: int | None, **settings: Any
) -> "WorkloadRun":
    from rdmawire.gpudirect.workload import WorkloadRun, WorkloadSpec

    machine = open_host(host).machine if host is not None else None
    spec = WorkloadSpec(machine=machine, gpus=gpus or 0, rate=rate or 0, **settings)
    return WorkloadRun(workload, spec)


def _summary(workload: "Workload", report: "WorkloadReport", *, flows: bool) -> dict[str, Any]:
    return {
        "form": workload.form,
        "mode": "flows" if flows else "packets",
        "ranks": len(workload.ranks),
        "operations": workload.operations,
        "messages": report.messages,
        "message_bytes": report.message_bytes,
        "frames": report.frames,
        "wire_bytes": report.wire_bytes,
        "duration_ns": report.duration,
        "rank_ns": report.ranks,
        "links": [{"link": str(link), "bytes": count} for link, count in report.links.items()],
    }


def _lines(
    workload: "Workload", report: "WorkloadReport", *, flows: bool, links: bool
) -> Iterator[str]:
    ranks = plural(len(workload.ranks), "rank")
    mode = "flows" if flows else plural(report.frames, "frame")
    yield f"{workload.form}: {ranks} with {plural(workload.operations, 'operation')}, as {mode}"
    yield f"{plural(report.messages, 'message')} with {byte_count(report.message_bytes)}"
    yield f"{report.duration / 1000:.2f} us of virtual time"
    times = [f"  rank {rank}: {time / 1000:.2f} us" for rank, time in enumerate(report.ranks)]
    if len(times) > _MAX_SHOWN:
        order = sorted(range(len(times)), key=report.ranks.__getitem__)
        times = [f"{times[order[0]]}, the first", f"{times[order[-1]]}, the last"]
    yield from times
    for link, count in report.links.items() if links else ():
        yield f"  {escape(str(link))}: {byte_count(count)}"
