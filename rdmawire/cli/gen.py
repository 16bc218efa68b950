"""`rdmawire gen`: test traffic as a capture, with every checksum and every response."""

import re
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rdmawire.capture import LinkType, create_capture
from rdmawire.capture.io import STREAM
from rdmawire.cli import options
from rdmawire.cli.command import CommandWithOthers, IntegerType, load, option
from rdmawire.cli.progress import late_bar
from rdmawire.cli.table import write_summary
from rdmawire.terminal import quote
from rdmawire.traffic.generate.spec import (
    CNP_DSCP,
    LAST_SEED,
    LAST_TIMEOUT,
    MAX_HOSTS,
    MAX_LOSS,
    MAX_MESSAGES,
    MAX_QPS,
    Address,
    CapturePoint,
    Sizes,
    SpecError,
    TrafficSpec,
    Verb,
    VlanTag,
    rate,
    share,
)
from rdmawire.units import parse_duration
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.serial import MAX_IN_FLIGHT, MODULUS

if TYPE_CHECKING:
    from rdmawire.traffic.summary import TrafficSummary

COLLECTIVES = (
    *("allreduce", "allgather", "reducescatter", "broadcast", "reduce"),
    *("alltoall", "sendrecv"),
)
"""Operations of `rdmawire.cli.collective`."""
_OTHERS = {
    **dict.fromkeys(COLLECTIVES, "rdmawire.cli.collective"),
    "gpu-echo": "rdmawire.cli.gpu_echo",
    "gin-alltoall": "rdmawire.cli.gin",
    "gin-put": "rdmawire.cli.gin",
    "gpu-write": "rdmawire.cli.gpu_write",
    "nvme": "rdmawire.cli.nvme",
    "nvshmem-put": "rdmawire.cli.nvshmem",
    "ucx": "rdmawire.cli.ucx",
    "nixl": "rdmawire.cli.nixl",
    "deepep": "rdmawire.cli.deepep",
    "trace": "rdmawire.cli.trace",
}
"""Traffic with other options, and the module of its command."""
_GAP = re.compile(r"(?<=[0-9])\s+(?=[a-z]+$)")
"""The space between a number and its unit, which scenarios allow."""


_read = partial(options.reads, error=SpecError)


def _latency(text: str) -> int:
    try:
        return parse_duration(_GAP.sub("", text.strip()))
    except ValueError:
        raise SpecError(f"{quote(text)} is not a duration such as 1us or 500 ns") from None


def _psn(text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < MODULUS:
        raise SpecError(f"{quote(text)} is not a PSN from 0 to 0xffffff")
    return number


LOSS = option(
    "Network", "--loss", metavar="SHARE", default="0",
    callback=_read(partial(share, most=MAX_LOSS)),
    help="Share of frames that are lost on the links: 0.1% or 0.001.",
)  # fmt: skip
"""The losses of traffic between GPUs."""


def kinds() -> dict[str, click.Command]:
    """Return the commands of traffic with other options, by name; of collectives the first."""
    names = [name for name in _OTHERS if name not in COLLECTIVES[1:]]
    return {name: load(_OTHERS[name]) for name in names}


@click.command(
    "gen",
    cls=CommandWithOthers,
    others=_OTHERS,
    keeps_word=True,
    examples=(
        "rdmawire gen write --frames 10000 --loss 1% -w lossy.pcap",
        "rdmawire gen write --clients 8 --flows 1000 -w incast.pcap",
        "rdmawire gen mix --qps 64 --ipv6 --seed 7 -w mix.pcapng.zst",
        "rdmawire gen send --size 64 --count 1000000 --psn 0xfffff0 -w small.pcap",
        "rdmawire gen allreduce --hosts 8 --gpus 8 --size 64M -w ring.pcap",
        "rdmawire gen gpu-write --mode kernel -w doorbell.pcap",
        "rdmawire gen gpu-echo --protocol udp -w echo.pcap",
        "rdmawire gen nvshmem-put --hosts 2 --gpus 2 -w puts.pcap",
        "rdmawire gen ucx --size 64k -x UCX_RNDV_THRESH=8k -w message.pcap",
        "rdmawire gen nixl --blocks 64 --layers 8 -w kv.pcap",
        "rdmawire gen deepep --hosts 2 --gpus 4 --experts 16 --topk 4 -w moe.pcap",
        "rdmawire gen nvme dgx-h200 -w nvme.pcap",
        "rdmawire gen trace ring.goal -w ring.pcap",
        "rdmawire gen gin-put --backend proxy -w gin.pcap",
        "rdmawire gen ud --size 64-1k --vlan 100:3 -q -w - | tcpreplay -i eth1 -",
    ),
)
@click.argument("verb", metavar="VERB", type=click.Choice([verb.value for verb in Verb]))
@option(
    "Messages", "--size", "sizes", metavar="SIZE", callback=_read(Sizes.parse),
    help="Message size in bytes: 64, 4k or 4 KiB, 1M; a range, 64-4k; a choice, 64,1k.  "
    "[default: 4k; 1k for ud; several for mix]",
)  # fmt: skip
@option(
    "Messages", "--mtu", type=click.Choice([str(mtu) for mtu in PATH_MTUS]), default="1024",
    show_default=True,
    help="Path MTU: maximum payload of a packet in bytes. Ethernet links with an MTU of 1500 carry "
    "1024; 4096 takes jumbo frames.",
)  # fmt: skip
@option(
    "Messages", "--count", type=IntegerType(1, MAX_MESSAGES),
    help="Number of messages; connections for cm, CNPs for cnp.  [default: 1000]",
)  # fmt: skip
@option(
    "Messages", "--frames", type=IntegerType(1, MAX_MESSAGES),
    help="Exact number of frames, instead of --count.",
)  # fmt: skip
@option(
    "Messages", "--psn", metavar="PSN", callback=_read(_psn),
    help="Starting PSN of all queue pairs: 0xfffff0 soon wraps.  [default: one for each]",
)  # fmt: skip
@option("Messages", "--gpu", is_flag=True, help="From GPU memory to GPU memory, by GPUDirect.")
@option(
    "Messages", "--seed", type=IntegerType(0, LAST_SEED), default=0, show_default=True,
    help="Seed of everything random: the same seed gives the same bytes.",
)  # fmt: skip
@option(
    "Hosts and queue pairs", "--clients", type=IntegerType(1, MAX_HOSTS - 1), default=1,
    show_default=True,
    help="Requester hosts. A switch joins more than two hosts; --rate and --latency are then those "
    "of each host's link.",
)  # fmt: skip
@option(
    "Hosts and queue pairs", "--servers", type=IntegerType(1, MAX_HOSTS - 1), default=1,
    show_default=True,
    help="Responder hosts. Many clients and one server are an incast; several of both are paired "
    "round robin.",
)  # fmt: skip
@option(
    "Hosts and queue pairs", "--qps", type=IntegerType(1, MAX_QPS),
    help="Queue pairs of each client and server, used in turn. Their UDP source ports are a hash "
    "of their numbers, so some of hundreds share a port.  [default: 1]",
)  # fmt: skip
@option(
    "Hosts and queue pairs", "--flows", type=IntegerType(1, MAX_QPS),
    help="Queue pairs of all hosts together, instead of --qps.",
)  # fmt: skip
@option(
    "Hosts and queue pairs", "--client", metavar="ADDRESS[/MAC]", callback=_read(Address.parse),
    help="IP and Ethernet address of the requester; further clients count up from it.  "
    "[default: 10.0.0.1 or fd00::1, 02:00:00:00:00:01]",
)  # fmt: skip
@option(
    "Hosts and queue pairs", "--server", metavar="ADDRESS[/MAC]", callback=_read(Address.parse),
    help="IP and Ethernet address of the responder; further servers count up from it.  "
    "[default: the addresses after the clients]",
)  # fmt: skip
@option("Headers", "--ipv6", is_flag=True, help="Use IPv6 instead of IPv4.")
@option(
    "Headers", "--vlan", "tag", metavar="VID[:PCP]", callback=_read(VlanTag.parse),
    help="VLAN tag: id and priority.  [default priority: by DSCP, 3 for 26 and 1 for 10]",
)  # fmt: skip
@option(
    "Headers",
    "--dscp",
    type=IntegerType(0, 63),
    default=0,
    show_default=True,
    help="DSCP of frames.",
)
@option(
    "Headers", "--cnp-dscp", type=IntegerType(0, 63), default=CNP_DSCP, show_default=True,
    help="DSCP of CNPs.",
)  # fmt: skip
@option(
    "Network", "--loss", metavar="SHARE", default="0",
    callback=_read(lambda text: share(text, MAX_LOSS)),
    help="Share of frames to lose: 1% or 0.01. Lost packets are retransmitted; a pcapng marks lost "
    "frames with a comment.",
)  # fmt: skip
@option(
    "Network", "--ecn", "marks", metavar="[SHARE]", is_flag=False, flag_value="1%",
    callback=_read(lambda text: share(text, 1.0)),
    help="Send ECN-capable data and mark a SHARE of it (1% if not given): CNPs come back, and "
    "senders slow down. --tap arrived shows the marks.",
)  # fmt: skip
@option(
    "Network", "--rate", metavar="RATE", default="100G", show_default=True, callback=_read(rate),
    help="Link rate in bits per second; it sets the times of frames.",
)  # fmt: skip
@option(
    "Network", "--latency", metavar="DURATION", default="1us", show_default=True,
    callback=_read(_latency), help="One-way latency of the link.",
)  # fmt: skip
@option(
    "Network", "--timeout", metavar="EXPONENT", type=IntegerType(1, LAST_TIMEOUT),
    help="Local ACK timeout: 4.096 us * 2^EXPONENT.  [default: long enough without losses]",
)  # fmt: skip
@option(
    "Network", "--window", metavar="PACKETS", type=IntegerType(1, MAX_IN_FLIGHT),
    help="Maximum unacknowledged request packets of a queue pair; soft-RoCE has 129.  "
    "[default: no limit]",
)  # fmt: skip
@options.written(
    "path",
    "The capture: FILE.pcap or .pcapng, also compressed as .gz, .xz, .zst or .lz4; - is standard "
    "output.",
    required=True,
)
@option(
    "Output", "--tap", type=click.Choice([tap.value for tap in CapturePoint]),
    default=CapturePoint.SENT.value, show_default=True,
    help="Capture what was sent, lost frames included, or what arrived, with ECN marks.",
)  # fmt: skip
@options.text_or_json("Print the summary as one JSON object.")
@options.QUIET
@options.PROGRESS
def command(
    path: str, *, as_json: bool, quiet: bool, progress: bool | None, **settings: Any
) -> int:
    """Generate test traffic of VERB as a capture, and print a summary.

    \b
    write, send, read, atomic   reliable connections with their responses
    ud                          datagrams
    cm                          connections, established and disconnected
    cnp                         congestion notification packets
    mix                         a mix of all message types
    allreduce, allgather, reducescatter, broadcast, reduce, alltoall, sendrecv
                                collectives of GPUs, with options of their own:
                                see rdmawire gen allreduce --help
    gpu-write, gpu-echo, nvshmem-put, gin-put, gin-alltoall
                                work that kernels of GPUs start
    ucx, nixl, deepep           messages of MPI, KV caches, tokens of experts
    nvme                        commands of GPUDirect Storage
    trace                       a workload of another tool: rdmawire gen trace --help

    Emulated adapters send and receive every frame, so ICRCs, PSNs, ACKs, NAKs, retransmissions and
    source ports are those of real adapters.
    """  # noqa: D301 - click keeps the lines after a backspace
    options.check_summary(as_json=as_json, quiet=quiet)
    spec = _spec(**settings)
    path = options.capture_path(path)
    wanted = progress if progress is not None else sys.stderr.isatty()
    summary = _written(spec, path, progress=wanted)
    if not quiet:
        to = sys.stderr if path == STREAM else None
        write_summary(summary, as_json=as_json, to=to, parties=_parties(spec, as_json=as_json))
    return 0


def _spec(verb: str, mtu: str, tap: str, tag: VlanTag | None, **settings: Any) -> TrafficSpec:
    """Return what to generate; raise ``UsageError`` for options that contradict each other."""
    if tag is not None:
        settings |= tag._asdict()
    try:
        return TrafficSpec(verb=Verb(verb), mtu=int(mtu), tap=CapturePoint(tap), **settings)
    except SpecError as error:
        raise click.UsageError(str(error)) from None


def _parties(spec: TrafficSpec, *, as_json: bool) -> dict[str, int]:
    """Return the numbers of hosts and flows; a table has them only with more than two hosts.

    A flow is a queue pair of a client and its peer at a server.
    """
    found = {"clients": spec.clients, "servers": spec.servers, "flows": spec.lanes}
    return found if as_json or spec.switched else {}


def _written(spec: TrafficSpec, path: str, *, progress: bool) -> "TrafficSummary":
    """Write the capture and return its summary."""
    from rdmawire.traffic.generate.generator import generate

    start = time.perf_counter()
    with (
        late_bar(f"gen {spec.verb}", wanted=progress) as on_progress,
        create_capture(path, link_type=LinkType.ETHERNET) as writer,
    ):
        summary = generate(spec, writer, on_progress)
    return summary._replace(wall_s=time.perf_counter() - start)
