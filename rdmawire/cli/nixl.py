"""`rdmawire gen nixl`: the KV cache of a request between two GPUs, as NIXL reads it over UCX."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.streams import complain, open_host
from rdmawire.cli.transfer import ends_of, network_options
from rdmawire.cli.ucx import UCX_VARIABLES
from rdmawire.errors import RdmaError
from rdmawire.terminal import plural
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.gpudirect.nixl import KvReport, KvSpec

_USAGE = 2


@click.command(
    "gen",
    cls=Command,
    examples=(
        "rdmawire gen nixl",
        "rdmawire gen nixl --blocks 64 --layers 8 -w kv.pcap",
        "rdmawire gen nixl --blocks 16 --contiguous --steps",
        "rdmawire gen nixl --memory host --token-bytes 1k --mtu 1024",
    ),
)
@click.argument("kind", metavar="nixl", type=click.Choice(["nixl"]))
@click.argument("host", default="dgx-h200")
@option(
    "Cache", "--blocks", type=IntegerType(1, 4096), default=16, show_default=True,
    help="Blocks of the request.",
)  # fmt: skip
@option(
    "Cache", "--block-size", type=IntegerType(1, 4096), default=16, show_default=True,
    metavar="TOKENS", help="Tokens of a block.",
)  # fmt: skip
@option(
    "Cache", "--layers", type=IntegerType(1, 256), default=4, show_default=True,
    help="Layers, each with a tensor of keys and one of values.",
)  # fmt: skip
@option(
    "Cache", "--token-bytes", metavar="SIZE", callback=options.number_of_bytes(1 << 16),
    default="2k", show_default=True,
    help="Bytes of the keys of a token in a layer, and of its values: 8 heads of 128 numbers of "
    "2 bytes have 2k.",
)  # fmt: skip
@option(
    "Cache", "--pool", type=IntegerType(1, 1 << 16), metavar="BLOCKS",
    help="Blocks of each worker.  [default: four times those of the request]",
)  # fmt: skip
@option(
    "Cache", "--contiguous", is_flag=True,
    help="Blocks of the request are next to each other: descriptors are merged.",
)  # fmt: skip
@option("Cache", "--no-merge", is_flag=True, help="Read each block by a READ of its own.")
@option("Cache", "-m", "--memory", type=click.Choice(["cuda", "host"]), default="cuda",
        show_default=True, help="Memory of the caches.")  # fmt: skip
@option("Cache", "--from", "source", metavar="GPU", help="Prefill.  [default: the first GPU]")
@option(
    "Cache", "--to", "target", metavar="GPU",
    help="Decode, on another host of this kind.  [default: the second GPU, or the only one]",
)  # fmt: skip
@UCX_VARIABLES
@network_options
@options.seed("Cache", "Seed of the caches and of the blocks of the request.")
@option("Output", "--steps", is_flag=True, help="Print what both workers post.")
@options.run_output("The packets: FILE.pcap or .pcapng, also compressed.", "Print one JSON object.")
def command(
    kind: str,  # noqa: ARG001  the name of this traffic
    host: str,
    *,
    steps: bool,
    output: options.RunOutput,
    **settings: Any,
) -> int:
    """Read the KV cache of a request from a prefill worker, as a decode worker does with NIXL.

    The decode worker reads each block of each layer by an RDMA READ, and then notifies the prefill
    worker by an active message of UCX. All blocks of the decode worker are compared. HOST is
    whatever `rdmawire topo` reads, by default dgx-h200. Exit status: 0, or 2 if it cannot be done.
    """
    try:
        spec = _spec(host, settings)
        report = _run(spec, output.path)
    except RdmaError as error:
        complain(str(error))
        return _USAGE
    output.show(_values(report), _lines(spec, report, steps=steps))
    return 0


def _spec(host: str, settings: dict[str, Any]) -> "KvSpec":
    from rdmawire.gpudirect.nixl import KvSpec
    from rdmawire.gpudirect.ucx import MemoryType, read_config

    machine = open_host(host).machine
    source, target = ends_of(machine, settings.pop("source"), settings.pop("target"))
    config = read_config(settings.pop("variables"))
    settings["pool"] = settings["pool"] or 4 * settings["blocks"]
    settings["memory"] = MemoryType[settings["memory"].upper()]
    settings["merges"] = not settings.pop("no_merge")
    settings["rate"] = settings["rate"] or 0
    settings["mtu"] = int(settings["mtu"])
    return KvSpec(machine, source, target, config=config, **settings)


def _run(spec: "KvSpec", capture: str | None) -> "KvReport":
    from rdmawire.gpudirect.nixl import KvTransfer

    one = KvTransfer(spec)
    with options.captured(one.network, capture):
        return one.run()


def _values(report: "KvReport") -> dict[str, Any]:
    return {
        "bytes": report.size,
        "descriptors": report.descriptors,
        "reads": report.reads,
        "duration_ns": report.duration,
        "notified_ns": report.notified,
        "bytes_per_s": round(report.rate),
        "cpu_ns": round(report.cpu),
        "frames": report.frames,
        "wire_bytes": report.wire_bytes,
        "posted": [one._asdict() for one in report.posted],
    }


def _lines(spec: "KvSpec", report: "KvReport", *, steps: bool) -> Iterator[str]:
    for time, who, what, size in report.posted if steps else ():
        yield f"{time / 1000:9.3f} us  {who.ljust(7)}  {what} of {byte_count(size)}"
    blocks, layers = plural(spec.blocks, "block"), plural(spec.layers, "layer")
    yield f"{blocks} of {plural(spec.block_size, 'token')} in {layers}: {byte_count(report.size)}"
    descriptors, reads = plural(report.descriptors, "descriptor"), plural(report.reads, "READ")
    yield f"{descriptors}, {reads}, {plural(report.frames, 'frame')}"
    speed = f"{report.rate / 1e9:.3f} GB/s"
    yield f"decode has the blocks after {report.duration / 1000:.2f} us: {speed}"
    yield f"prefill is notified after {report.notified / 1000:.2f} us"
    yield "all blocks are right"
