"""`rdmawire gen nvme`: NVMe over RDMA between a namespace and GPU memory, as packets."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.storage import MAX_BLOCK, report_values, spec_of
from rdmawire.cli.streams import complain
from rdmawire.cli.transfer import link_lines, network_options
from rdmawire.errors import RdmaError
from rdmawire.terminal import plural
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.gpudirect.storage import StorageReport, StorageSpec

_MAX_COMMANDS = 4096
_MAX_SIZE = 1 << 28
_FAILED, _USAGE = 1, 2


@click.command(
    "gen",
    cls=Command,
    examples=(
        "rdmawire gen nvme dgx-h200 -w nvme.pcap",
        "rdmawire gen nvme dgx-h200 --reads 4 --writes 0 --block-size 4k",
        "rdmawire gen nvme two-sockets --bounce --links",
        "rdmawire gen nvme dgx-h200 --fault revoke",
    ),
)
@click.argument("kind", metavar="nvme", type=click.Choice(["nvme"]))
@click.argument("host", default="dgx-h200")
@option(
    "Commands", "--reads", type=IntegerType(0, _MAX_COMMANDS), default=8, show_default=True,
    help="READs, from the namespace to the GPU.",
)  # fmt: skip
@option(
    "Commands", "--writes", type=IntegerType(0, _MAX_COMMANDS), default=8, show_default=True,
    help="WRITEs, from the GPU to the namespace.",
)  # fmt: skip
@option(
    "Commands", "--block-size", metavar="SIZE", callback=options.number_of_bytes(MAX_BLOCK),
    default="64k", show_default=True, help="Bytes of a command, a multiple of 512.",
)  # fmt: skip
@option(
    "Commands", "--queue-depth", type=IntegerType(1, 127), default=8, show_default=True,
    help="Commands in progress.",
)  # fmt: skip
@option(
    "Commands", "--size", metavar="SIZE", callback=options.number_of_bytes(_MAX_SIZE),
    default="16MiB", show_default=True, help="Bytes of the namespace.",
)  # fmt: skip
@option(
    "Commands", "--bounce", is_flag=True,
    help="Data goes through pinned memory of the host, and a copy engine copies it.",
)  # fmt: skip
@option(
    "Commands", "--invalidate", is_flag=True,
    help="Memory is registered for each command, and the response invalidates its key, as Linux's "
    "hosts do. Without it, memory is registered once.",
)  # fmt: skip
@option(
    "Commands", "--fault", type=click.Choice(["lba", "revoke"]),
    help="The last command addresses blocks that are not there (lba), or the memory of the GPU "
    "is freed after half of the commands (revoke).",
)  # fmt: skip
@options.seed("Commands", "Seed of the data, and of the order and the blocks of commands.")
@option("Devices", "--gpu", metavar="GPU", help="GPU of the host.  [default: the first]")
@option(
    "Devices", "--drive", metavar="NAME", default="",
    help="NVMe drive of the target.  [default: the one nearest to its adapter]",
)  # fmt: skip
@network_options
@option("Output", "--links", is_flag=True, help="Print the bytes on each link of both hosts.")
@options.run_output(
    "The capture of both adapters: FILE.pcap or .pcapng, also compressed.",
    "Print the summary and the commands as one JSON object.",
)
def command(
    kind: str,  # noqa: ARG001  the name of this traffic
    host: str,
    *,
    output: options.RunOutput,
    bounce: bool,
    links: bool,
    **settings: Any,
) -> int:
    """Read and write a namespace of another host by NVMe over RDMA, into memory of a GPU.

    HOST is whatever `rdmawire topo` reads, by default dgx-h200; the target is another such host,
    with an NVMe drive. The capture has the connections with their private data, Connect,
    properties, Identify, and the commands; tshark reads them. Data is real, and all of it is
    compared. Exit status: 0, 1 if a command fails, 2 for what cannot be done.
    """
    try:
        spec = spec_of(host, "fabric-bounce" if bounce else "fabric", **settings)
        report = _run(spec, output.path)
    except RdmaError as error:
        complain(str(error))
        return _USAGE
    output.show(_values(report), _lines(report, links=links))
    return 0 if report.is_right else _FAILED


def _run(spec: "StorageSpec", path: str | None) -> "StorageReport":
    from rdmawire.gpudirect.storage import StorageRun

    run = StorageRun(spec)
    with options.captured(run.network, path):
        return run.run()


def _values(report: "StorageReport") -> dict[str, Any]:
    commands = [one._asdict() for one in report.executed]
    return report_values(report) | {"commands": commands, "errors": report.errors}


def _lines(report: "StorageReport", *, links: bool) -> Iterator[str]:
    """Yield a line for each command, and the results of all of them."""
    for one in report.executed:
        times = f"{one.start / 1000:9.2f} us  {(one.end - one.start) / 1000:8.2f} us"
        yield f"{times}  {one.opcode.ljust(5)}  LBA {one.slba:<8d}  {one.status}"
    count = plural(len(report.executed), "command")
    size, time = byte_count(report.spec.block_size), f"{report.duration / 1000:.2f} us"
    where = "through host memory" if report.copies else "without a copy"
    yield f"{count} of {size} in {time}, {where}"
    yield f"{report.rate / 1e9:.3f} GB/s, {plural(report.frames, 'frame')}, drive {report.drive}"
    for error in report.errors:
        yield f"the target's {error}"
    compared = "all data" if report.is_right else "data of the other commands"
    failed = sum(one.status != "SUCCESS" for one in report.executed)
    if failed:
        yield f"{plural(failed, 'command')} failed"
    yield f"{compared} was right: namespace and GPU memory"
    if links:
        yield from link_lines(report.links, report.setup + report.duration)
