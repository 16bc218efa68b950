"""`rdmawire gen ucx`: messages of CUDA-aware MPI between two GPUs, as UCX sends them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.streams import complain, open_host
from rdmawire.cli.table import aligned
from rdmawire.cli.transfer import ends_of, network_options
from rdmawire.errors import RdmaError, TransferError
from rdmawire.terminal import escape

if TYPE_CHECKING:
    from rdmawire.gpudirect.ucx import TagReport, TagSpec

_SIZES = ("8", "4KiB", "64KiB", "1MiB", "16MiB")
_MAX_SIZE = 1 << 26
_MAX_TAG = (1 << 23) - 1
_MAX_RANK = (1 << 20) - 1
_USAGE = 2

UCX_VARIABLES = option(
    "UCX", "-x", "variables", metavar="NAME=VALUE", multiple=True,
    help="Variable of UCX, such as UCX_TLS=rc_verbs; may be repeated.",
)  # fmt: skip


@click.command(
    "gen",
    cls=Command,
    examples=(
        "rdmawire gen ucx",
        "rdmawire gen ucx --size 64k -x UCX_RNDV_THRESH=8k --steps -w message.pcap",
        "rdmawire gen ucx --memory host --size 8 --size 20k --size 1M",
        "rdmawire gen ucx two-sockets --from GPU1 --to GPU1 --size 4M",
        "rdmawire gen ucx --size 1M -x UCX_RNDV_SCHEME=put_zcopy -x UCX_TLS=rc_verbs",
    ),
)
@click.argument("kind", metavar="ucx", type=click.Choice(["ucx"]))
@click.argument("host", default="dgx-h200")
@option(
    "Message", "--size", "sizes", metavar="SIZE", multiple=True, default=_SIZES,
    callback=options.numbers_of_bytes(_MAX_SIZE),
    help="Bytes, such as 4096 or 1MiB; may be repeated.  [default: 8 to 16MiB]",
)  # fmt: skip
@option(
    "Message", "-m", "--memory", metavar="SEND[,RECEIVE]", default="cuda", show_default=True,
    help="Memory of sender and receiver, cuda or host; one word is for both.",
)  # fmt: skip
@option("Message", "--from", "source", metavar="GPU", help="Sender.  [default: the first GPU]")
@option(
    "Message", "--to", "target", metavar="GPU",
    help="Receiver, on another host of this kind.  [default: the second GPU, or the only one]",
)  # fmt: skip
@option(
    "Message", "--tag", type=IntegerType(0, _MAX_TAG), default=0, show_default=True,
    help="Tag of MPI.",
)  # fmt: skip
@option(
    "Message", "--rank", type=IntegerType(0, _MAX_RANK), default=0, show_default=True,
    help="Rank of the sender.",
)  # fmt: skip
@UCX_VARIABLES
@network_options
@options.seed("Message", "Seed of the data and of ids.")
@option("Output", "--steps", is_flag=True, help="Print what sender and receiver post.")
@options.run_output(
    "The packets of one size: FILE.pcap or .pcapng, also compressed.", "Print one JSON object."
)
def command(
    kind: str,  # noqa: ARG001  the name of this traffic
    host: str,
    *,
    sizes: list[int],
    steps: bool,
    output: options.RunOutput,
    **settings: Any,
) -> int:
    """Send a message from a GPU to one of another host, as CUDA-aware MPI does with UCX.

    UCX chooses the protocol by size, memory and its variables: short, bcopy and zcopy (eager), or
    a rendezvous by RDMA READ or WRITE, directly or through fragments in pinned memory. HOST is
    whatever `rdmawire topo` reads, by default dgx-h200. The received bytes are compared. Exit
    status: 0, or 2 if a message cannot be sent.
    """
    if output.path is not None and len(sizes) != 1:
        raise click.UsageError("-w needs one --size, whose packets it writes")
    try:
        reports = [_sent(spec, output.path) for spec in _specs(host, sizes, settings)]
    except RdmaError as error:
        complain(str(error))
        return _USAGE
    output.show([_values(one) for one in reports], _lines(reports, steps=steps))
    return 0


def _specs(host: str, sizes: list[int], settings: dict[str, Any]) -> "list[TagSpec]":
    from rdmawire.gpudirect.ucx import TagSpec, mpi_tag, read_config

    machine = open_host(host).machine
    source, target = ends_of(machine, settings["source"], settings["target"])
    send_memory, recv_memory = _memories(settings["memory"])
    first = TagSpec(
        machine,
        source,
        target,
        send_memory=send_memory,
        recv_memory=recv_memory,
        tag=mpi_tag(settings["tag"], settings["rank"]),
        config=read_config(settings["variables"]),
        rate=settings["rate"] or 0,
        mtu=int(settings["mtu"]),
        latency=settings["latency"],
        seed=settings["seed"],
    )
    return [first._replace(size=size) for size in sizes]


def _memories(text: str) -> list[Any]:
    from rdmawire.gpudirect.ucx import MemoryType

    words = text.split(",")
    try:
        found = [MemoryType[word.strip().upper()] for word in words]
    except KeyError:
        found = []
    if len(found) not in (1, 2):
        raise TransferError(f"--memory {escape(text)}: cuda, host, or two of them are expected")
    return found * 2 if len(found) == 1 else found


def _sent(spec: "TagSpec", capture: str | None) -> "TagReport":
    from rdmawire.gpudirect.ucx import TagSend

    run = TagSend(spec)
    with options.captured(run.network, capture):
        return run.run()


def _values(report: "TagReport") -> dict[str, Any]:
    return {
        "bytes": report.size,
        "protocol": report.protocol.value,
        "duration_ns": report.duration,
        "send_duration_ns": report.send_duration,
        "bytes_per_s": round(report.rate),
        "copies": report.copies,
        "cpu_ns": round(report.cpu),
        "frames": report.frames,
        "wire_bytes": report.wire_bytes,
        "posted": [one._asdict() for one in report.posted],
        "reasons": list(report.reasons),
    }


_COLUMNS = ("bytes", "protocol", "time", "rate", "copies", "CPU time", "posted", "frames")


def _lines(reports: "list[TagReport]", *, steps: bool) -> Iterator[str]:
    rows = [_COLUMNS, *map(_cells, reports)]
    yield from aligned(rows, frozenset({1}))
    for reason in dict.fromkeys(reason for one in reports for reason in one.reasons):
        yield f"not registered: {escape(reason)}"
    for report in reports if steps else []:
        yield f"{report.size} bytes by {report.protocol.value}:"
        for time, who, what, size in report.posted:
            yield f"  {time / 1000:9.3f} us  {who.ljust(8)}  {what} of {size} bytes"


def _cells(report: "TagReport") -> tuple[str, ...]:
    return (
        str(report.size),
        report.protocol.value,
        f"{report.duration / 1000:.2f} us",
        f"{report.rate / 1e9:.3f} GB/s",
        str(report.copies),
        f"{report.cpu / 1000:.1f} us",
        str(len(report.posted)),
        str(report.frames),
    )
