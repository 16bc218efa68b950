"""`rdmawire gen allreduce` and other collectives: the packets of NCCL as a capture."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.gen import COLLECTIVES, LOSS
from rdmawire.cli.streams import complain, open_host
from rdmawire.errors import CollectiveError, FabricError, TopologyError
from rdmawire.traffic.generate.spec import SpecError, rate
from rdmawire.units import us

if TYPE_CHECKING:
    from rdmawire.fabric import Cable
    from rdmawire.gpudirect import CollectiveRun, CollectiveSpec, HostLayout

MAX_SIZE = 1 << 34
_FAILED = 1
MAX_HOSTS = 512
ROOT = option(
    "Operation", "--root", type=IntegerType(0, 4095), default=0, show_default=True,
    help="Rank that has the values of broadcast, or gets the sum of reduce.",
)  # fmt: skip
DTYPE = option(
    "Operation", "--dtype", type=click.Choice(["int32", "float32"]), default="int32",
    show_default=True, help="Type of values.",
)  # fmt: skip


@click.command(
    "gen",
    cls=Command,
    examples=(
        "rdmawire gen allreduce",
        "rdmawire gen allreduce -w allreduce.pcapng",
        "rdmawire gen allreduce --hosts 8 --gpus 8 --size 64M -w ring.pcap",
        "rdmawire gen allgather --hosts 4 --protocol simple --loss 0.1% -w lossy.pcap",
        "rdmawire gen allreduce --hosts 8 --algo tree --protocol ll128 -w tree.pcap",
        "rdmawire gen allreduce --topology dgx-h200 --algo collnet -w sharp.pcap",
        "rdmawire gen sendrecv --qps 4 --split --ar-threshold 8k -w qps.pcap",
        "rdmawire gen allreduce --hosts 128 --gpus 8 --size 1G --flows",
        "rdmawire gen allreduce --hosts 2 --size 1k -q -w - | rdmawire dissect -",
    ),
)
@click.argument("collective", metavar="COLLECTIVE", type=click.Choice(COLLECTIVES))
@option(
    "Operation", "--size", metavar="SIZE", callback=options.number_of_bytes(MAX_SIZE),
    default="1M", show_default=True,
    help="Bytes of values of each GPU; of allgather, bytes of the result.",
)  # fmt: skip
@option(
    "Operation", "--hosts", type=IntegerType(1, MAX_HOSTS), default=2, show_default=True,
    help="Number of hosts.",
)  # fmt: skip
@option(
    "Operation", "--gpus", type=IntegerType(1, 16),
    help="GPUs of each host.  [default: 1, or those of --topology]",
)  # fmt: skip
@option(
    "Operation", "--topology", metavar="HOST",
    help="What each host is, as `rdmawire topo` reads it: dgx-h200 or a file. It gives each "
    "GPU's adapter and the path between GPUs.  [default: an adapter for each GPU, and NVLink]",
)  # fmt: skip
@option(
    "Operation", "--algo", type=click.Choice(["ring", "tree", "collnet", "nvls", "nvls-tree"]),
    default="ring", show_default=True,
    help="NCCL's algorithm. All but ring are for allreduce; in collnet and nvls the switch of the "
    "network adds (SHARP), in nvls and nvls-tree the NVSwitches do.",
)  # fmt: skip
@option(
    "Operation", "--protocol", type=click.Choice(["ll", "ll128", "simple"]),
    help="NCCL's protocol.  [default: ll up to 1 MiB, else simple]",
)  # fmt: skip
@ROOT
@option(
    "Operation", "--channels", type=IntegerType(1, 32),
    help="Rings or trees that share the work.  [default: 1 to 8, by the size]",
)  # fmt: skip
@DTYPE
@options.seed("Operation", "Seed of values and losses: the same seed gives the same bytes.")
@option(
    "Network", "--rate", metavar="RATE", callback=options.reads(rate, SpecError), default="400G",
    show_default=True, help="Rate of each adapter's link.",
)  # fmt: skip
@LOSS
@option(
    "Connections", "--qps", type=IntegerType(1, 16), default=1, show_default=True,
    help="Queue pairs of a connection (NCCL_IB_QPS_PER_CONNECTION).",
)  # fmt: skip
@option(
    "Connections", "--split", is_flag=True,
    help="Split each message over all queue pairs (NCCL_IB_SPLIT_DATA_ON_QPS).",
)  # fmt: skip
@option(
    "Connections", "--ar-threshold", metavar="SIZE", callback=options.number_of_bytes(MAX_SIZE),
    help="With adaptive routing, messages of more bytes are a WRITE and an empty one with the "
    "immediate (NCCL_IB_AR_THRESHOLD, 8k).  [default: no adaptive routing]",
)  # fmt: skip
@option(
    "Connections", "--gdr-flush", "flush", is_flag=True,
    help="Flush what was written to GPUs by a READ (NCCL_NET_FORCE_FLUSH).",
)  # fmt: skip
@option(
    "Network", "--spines", type=IntegerType(0, 64), default=0, show_default=True,
    help="Spine switches between two leaves, which have the adapters in turn; 0 is one switch.",
)  # fmt: skip
@option(
    "Network", "--balancing", type=click.Choice(["flow", "packet", "adaptive"]), default="flow",
    show_default=True,
    help="What chooses the spine: a hash of the flow; for each packet, each in turn (packet "
    "spray) or the one with the shortest queue (adaptive routing).",
)  # fmt: skip
@option(
    "Operation", "--flows", is_flag=True,
    help="Compute times and bytes message by message, without packets and values: for 1,024 GPUs "
    "and more.",
)  # fmt: skip
@options.run_output(
    "The capture of what all adapters send: FILE.pcap or .pcapng, also compressed.",
    "Print the summary as one JSON object.",
)
def command(*, output: options.RunOutput, flows: bool, **settings: Any) -> int:
    """Generate the traffic of a collective operation of GPUs, as NCCL sends it.

    Real values go over rings and trees of emulated adapters, by RDMA WRITEs with immediates and the
    clear-to-send entries of receivers, and every result is compared with the sum by NumPy. In an
    alltoall each pair of GPUs has a connection; a sendrecv sends to the next GPU. Both have neither
    --protocol nor --channels. Exit status: 0, 1 if a connection fails, 2 for what cannot be.
    """
    if flows:
        return _flows(output, settings)
    try:
        run = _operation(settings)
    except (CollectiveError, TopologyError) as error:
        raise click.UsageError(str(error)) from None
    try:
        summary = _run(run, output.path, settings)
    except (CollectiveError, FabricError) as error:
        complain(f"the operation failed after {run.now / 1000:.1f} us: {error}")
        return _FAILED
    output.show(summary, _lines(summary))
    return 0


def _flows(output: options.RunOutput, settings: dict[str, Any]) -> int:
    """Compute an operation as flows, and print what it takes."""
    from rdmawire.gpudirect import flow_run

    if output.path is not None:
        raise click.UsageError("--flows makes no packets: leave -w out")
    if settings["loss"]:
        raise click.UsageError("--flows knows no losses: leave --loss out")
    start = time.perf_counter()
    try:
        spec, cable = wanted_collective(settings, layout_of(settings["topology"]))
        report = flow_run(spec, cable)
    except (CollectiveError, TopologyError) as error:
        raise click.UsageError(str(error)) from None
    summary = {
        "collective": spec.collective.value,
        "protocol": spec.chosen_protocol.name,
        "ranks": spec.ranks,
        "channels": spec.chosen_channels,
        "bytes": spec.size,
        "adapter_bytes": report.adapter_bytes,
        "nvlink_bytes": report.nvlink_bytes,
        "duration_ns": report.duration,
        "wall_s": round(time.perf_counter() - start, 3),
    }
    output.show(summary, _flow_lines(summary, _sent(spec)))
    return 0


def _flow_lines(summary: dict[str, Any], sent: int) -> Iterator[str]:
    """Yield the lines of the summary of flows; each rank sends ``sent`` bytes of values."""
    yield _FLOW_TEXT.format_map(summary)
    time_us, speed = summary["duration_ns"] / 1000, summary["bytes"] / summary["duration_ns"]
    yield (
        f"{time_us:.1f} us of virtual time, {speed:.2f} GB/s, "
        f"bus bandwidth {sent / summary['duration_ns']:.2f} GB/s; made in {summary['wall_s']:.1f} s"
    )


_FLOW_TEXT = (
    "{collective} of {bytes} bytes by {ranks} GPUs, as flows\n"
    "{protocol} in {channels} channels: the busiest adapter sends {adapter_bytes} bytes, "
    "{nvlink_bytes} bytes go over NVLink"
)


def _sent(spec: "CollectiveSpec") -> int:
    """Return the bytes of values that each rank sends, from which bus bandwidth is computed."""
    from rdmawire.gpudirect import bytes_sent

    return bytes_sent(spec.collective, spec.size, spec.ranks)


def layout_of(topology: str | None) -> "HostLayout | None":
    """Return the layout of a host that `rdmawire topo` reads."""
    from rdmawire.gpudirect import HostLayout

    return None if topology is None else HostLayout.of(open_host(topology).machine)


def wanted_collective(
    settings: dict[str, Any], layout: "HostLayout | None"
) -> "tuple[CollectiveSpec, Cable]":
    """Return an operation, and its cables, by the options of the command."""
    from rdmawire.fabric import Cable
    from rdmawire.gpudirect import Algorithm, Collective, CollectiveSpec, NetSettings

    wanted = {name: settings[name] for name in CollectiveSpec._fields if name in settings}
    wanted["collective"] = Collective(settings["collective"])
    wanted["algorithm"] = Algorithm(settings["algo"])
    wanted["protocol"] = settings["protocol"] or ""
    wanted["channels"] = settings["channels"] or 0
    wanted["net"] = NetSettings(
        **{name: settings[name] for name in NetSettings._fields if name in settings}
    )
    wanted["layout"] = layout
    if settings["gpus"] is None:
        wanted["gpus"] = layout.gpus if layout is not None else 1
    return CollectiveSpec(**wanted), Cable(latency=us(1), rate=settings["rate"])


def _operation(settings: dict[str, Any]) -> "CollectiveRun":
    """Return the operation; :class:`CollectiveError` for what cannot be."""
    from rdmawire.gpudirect import CollectiveRun

    return CollectiveRun(*wanted_collective(settings, layout_of(settings["topology"])))


def _run(run: "CollectiveRun", path: str | None, settings: dict[str, Any]) -> dict[str, Any]:
    """Do the operation, write the capture if one is wanted, and return the summary."""
    spec, start = run.spec, time.perf_counter()
    with options.captured(run.network, path):
        run.lose(settings["loss"])
        duration = run.run()
    sent = [run.sent[rank] * spec.itemsize for rank in range(spec.ranks)]
    return {
        "collective": spec.collective.value,
        "algorithm": spec.algorithm.value,
        "protocol": spec.chosen_protocol.name,
        "ranks": spec.ranks,
        "channels": spec.chosen_channels,
        "bytes": spec.size,
        "bytes_per_rank": max(sent),
        "is_even": min(sent) == max(sent),
        "messages": sum(connection.messages for connection in run.connections),
        "nvlink_bytes": sum(edge.bytes for edge in run.local_edges),
        "paths": sorted({edge.path.name for edge in run.local_edges}),
        "retries": sum(one.host.nic.counters.completer_retry_err for one in run.adapters),
        "flushes": sum(connection.flushes for connection in run.connections),
        "duration_ns": duration,
        "wall_s": round(time.perf_counter() - start, 3),
    }


_PATHS = {
    "NVL": "over NVLink",
    "P2P": "by peer-to-peer over PCIe",
    "SHM": "through host memory",
    "TCP": "over TCP",
}
"""What is said of the paths within a host."""


def _within(paths: list[str]) -> str:
    return " and ".join(_PATHS[path] for path in paths)


def _lines(summary: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the summary."""
    time_us, speed = summary["duration_ns"] / 1000, summary["bytes"] / summary["duration_ns"]
    within = f", {summary['nvlink_bytes']} bytes {_within(summary['paths'])}"
    yield (
        "{collective} of {bytes} bytes by {ranks} GPUs: every result is right\n"
        "{algorithm}, {protocol}, channels: {channels}, messages between hosts: {messages}"
        f"{within if summary['paths'] else ''}\n"
        "{sender} sent {bytes_per_rank} bytes of values, and adapters retransmitted {retries} times"
    ).format(sender="each rank" if summary["is_even"] else "the busiest rank", **summary)
    yield f"{time_us:.1f} us of virtual time, {speed:.2f} GB/s; made in {summary['wall_s']:.1f} s"
