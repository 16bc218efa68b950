"""`rdmawire gen gpu-echo`: packets in GPU memory that kernels answer, step by step."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from rdmawire.capture import LinkType, open_capture
from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.kernel_report import (
    LATE_MODEL,
    WRONG,
    draw,
    forgotten_and_seeds,
    repeat_lines,
    search,
    timeline_lines,
    timeline_output,
    tried,
    without_adapters,
)
from rdmawire.terminal import plural, quote
from rdmawire.units import (
    QuantityError,
    format_duration,
    parse_duration,
    parse_quantity,
    parse_share,
    rate_factor,
)
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.gpudirect.kernel import GpuEchoReport, GpuEchoSpec

_MAX_PACKETS = 4096
_MAX_DATA = 8972
_STEPS = ("wqe-fence", "record-fence", "reader-fence", "semaphore-fence", "flush")
_SHOWN = 24
"""Steps that are printed."""


def _rate(text: str) -> int:
    try:
        return parse_quantity(text.strip(), rate_factor).value
    except QuantityError:
        raise ValueError(f"{quote(text)} is no number of requests, such as 100k or 2M") from None


def _duration(text: str) -> int:
    try:
        return parse_duration(text.strip())
    except ValueError:
        raise ValueError(f"{quote(text)} is not a duration such as 5us or 300ns") from None


def _share(text: str) -> float:
    try:
        found = parse_share(text)
    except ValueError:
        found = 2
    if found > 1:
        raise ValueError(f"{quote(text)} is no share such as 1% or 0.01")
    return found


@click.command(
    "gen",
    cls=Command,
    examples=(
        "rdmawire gen gpu-echo",
        "rdmawire gen gpu-echo --protocol udp --flows 64 --warps 4 -w echo.pcap",
        "rdmawire gen gpu-echo --packets 500 --burst 100 --work 20us",
        "rdmawire gen gpu-echo --kernels two --forget semaphore-fence",
        "rdmawire gen gpu-echo --gpu A100 --queues host --forget flush --seeds 100",
        "rdmawire gen gpu-echo -r pings.pcap -w answers.pcap",
    ),
)
@click.argument("kind", metavar="gpu-echo", type=click.Choice(["gpu-echo"]))
@option(
    "Requests", "--protocol", type=click.Choice(["icmp", "udp"]), default="icmp",
    show_default=True, help="What the GPU takes: ICMP echo, or datagrams to a UDP port.",
)  # fmt: skip
@option(
    "Requests", "--port", type=IntegerType(1, 65535), default=7, show_default=True,
    help="UDP port of --protocol udp.",
)  # fmt: skip
@option(
    "Requests", "--packets", type=IntegerType(1, _MAX_PACKETS), default=16, show_default=True,
    help="Number of requests.",
)  # fmt: skip
@option(
    "Requests", "--size", metavar="SIZE", callback=options.number_of_bytes(_MAX_DATA),
    default="56", show_default=True, help="Bytes of data in a request.",
)  # fmt: skip
@option(
    "Requests", "--rate", metavar="RATE", callback=options.reads(_rate, ValueError), default="1M",
    show_default=True, help="Requests in a second: 100k, 1M.",
)  # fmt: skip
@option(
    "Requests", "--burst", type=IntegerType(1, _MAX_PACKETS), default=1, show_default=True,
    help="Requests that are sent back to back.",
)  # fmt: skip
@option(
    "Requests", "--flows", type=IntegerType(1, 256), default=4, show_default=True,
    help="Flows in turn, each with an address (ICMP) or a source port (UDP) of its own.",
)  # fmt: skip
@option(
    "Requests", "--loss", metavar="SHARE", callback=options.reads(_share, ValueError), default="0",
    show_default=True, help="Share of IP packets that the client's link loses: 1% or 0.01.",
)  # fmt: skip
@option(
    "Requests", "-r", "--read", "source", metavar="FILE",
    help="Send the frames of a capture instead, to the Ethernet address of the server. What the "
    "GPU does not take goes to the operating system.",
)  # fmt: skip
@option(
    "Kernels", "--kernels", type=click.Choice(["one", "two"]), default="one", show_default=True,
    help="One kernel receives and answers, or passes packets to a second one by a semaphore.",
)  # fmt: skip
@option(
    "Kernels", "--warps", type=IntegerType(1, 16), default=1, show_default=True,
    help="Receive queues, each with a warp; RSS spreads the flows.",
)  # fmt: skip
@option(
    "Kernels", "--buffers", type=IntegerType(1, 64), default=64, show_default=True,
    help="Packet buffers of a receive queue. Frames that find none are discarded.",
)  # fmt: skip
@option(
    "Kernels", "--batch", type=IntegerType(1, 64), default=32, show_default=True,
    help="Packets that a warp waits for.",
)  # fmt: skip
@option(
    "Kernels", "--timeout", metavar="DURATION", callback=options.reads(_duration, ValueError),
    default="5us", show_default=True, help="Time after which it takes what has come.",
)  # fmt: skip
@option(
    "Kernels", "--work", metavar="DURATION", callback=options.reads(_duration, ValueError),
    default="300ns", show_default=True, help="Time that a warp spends on each 32 packets.",
)  # fmt: skip
@option(
    "Memory", "--queues", type=click.Choice(["gpu", "host"]), default="gpu", show_default=True,
    help="Memory with WQEs and CQEs. Packets are in GPU memory in any case.",
)  # fmt: skip
@LATE_MODEL
@forgotten_and_seeds(_STEPS)
@timeline_output("both hosts")
def command(
    kind: str,  # noqa: ARG001  the name of this traffic
    *,
    output: options.RunOutput,
    seeds: range,
    **settings: Any,
) -> int:
    """Receive packets straight into GPU memory, and let a kernel answer them.

    As NVIDIA's DOCA GPUNetIO does: flow rules and RSS lead echo requests to receive queues of the
    GPU, a warp polls each and makes the replies in place. The operating system of the host gets
    all other frames, and answers ARP. Each reply is compared. Exit status: 0, or 1 if replies were
    wrong, or missing without a loss.
    """
    report = _search(_spec(settings), seeds, output.path)
    draw(report.timeline, output.picture, f"{report.spec.protocol.name} echo of a GPU")
    output.show(_values(report), _lines(report, seeds))
    return 0 if report.is_right else WRONG


def _spec(settings: dict[str, Any]) -> "GpuEchoSpec":
    from rdmawire.gpudirect.kernel import EchoProtocol, ForgottenStep, GpuEchoSpec, Pipeline

    source = settings.pop("source")
    return GpuEchoSpec(
        protocol=EchoProtocol(settings.pop("protocol")),
        kernels=Pipeline(settings.pop("kernels")),
        queues_on_gpu=settings.pop("queues") == "gpu",
        forgotten=frozenset(map(ForgottenStep, settings.pop("forgotten"))),
        requests=() if source is None else _frames(source),
        **settings,
    )


def _frames(source: str) -> tuple[bytes, ...]:
    """Read the frames to send: one more than are allowed at most."""
    with open_capture(source) as capture:
        records = list(islice(capture, _MAX_PACKETS + 1))
    if not records:
        raise click.UsageError(f"{source}: there is no frame to send")
    for number, record in enumerate(records, 1):
        if record.link_type != LinkType.ETHERNET or len(record.data) < _MIN_HEADER:
            raise click.UsageError(f"{source}: frame {number} is no Ethernet frame")
    return tuple(record.data for record in records)


_MIN_HEADER = 14
"""Bytes of an Ethernet header."""


def _search(spec: "GpuEchoSpec", seeds: range, path: str | None) -> "GpuEchoReport":
    from rdmawire.gpudirect.kernel import GpuEcho

    return search(lambda seed: GpuEcho(spec._replace(seed=seed)), seeds, path)


def _values(report: "GpuEchoReport") -> dict[str, Any]:
    spec = report.spec
    return {
        "protocol": spec.protocol.value,
        "bytes": spec.size,
        "kernels": spec.kernels.value,
        "gpu": spec.model,
        "forgotten": sorted(step.value for step in spec.forgotten),
        "seed": spec.seed,
        "sent": report.sent,
        "expected": report.expected,
        "answered": report.answered,
        "wrong": report.wrong,
        "missing": report.missing,
        "lost": report.lost,
        "discarded": report.discarded,
        "by_os": report.by_os,
        "queues": [queue._asdict() for queue in report.queues],
        "times_ns": report.times,
        "stuck": report.stuck or None,
        "duration_ns": report.duration,
        "frames": report.frames,
        "timeline": [entry._asdict() for entry in report.timeline],
    }


def _lines(report: "GpuEchoReport", seeds: range) -> Iterator[str]:
    """Yield the timeline and the result."""
    spec = report.spec
    yield from timeline_lines(without_adapters(report.timeline), _SHOWN)
    for number, queue in enumerate(report.queues):
        counts = (f"{count} {name}" for name, count in queue._asdict().items())
        yield f"queue {number}: {', '.join(counts)}"
    what = "frame of a capture" if spec.requests else f"request with {byte_count(spec.size)}"
    noun = "frames of a capture" if spec.requests else f"requests with {byte_count(spec.size)}"
    yield (
        f"{report.sent} {what if report.sent == 1 else noun}: {report.answered} answered"
        f"{_times(report.times)}; {plural(report.by_os, 'frame')} answered by the operating system"
    )
    if report.stuck:
        yield f"never ended: {report.stuck}"
    yield from _outcome_lines(report, seeds)


def _outcome_lines(report: "GpuEchoReport", seeds: range) -> Iterator[str]:
    """Yield the packets that were lost or discarded, and whether the replies were right."""
    for count, text in (
        (report.lost, "lost on the client's link"),
        (report.discarded, "discarded: no buffer was free"),
    ):
        if count:
            yield f"{plural(count, 'packet')} {text}"
    if report.is_right:
        yield f"all replies that came were right{tried(seeds)}"
        return
    yield f"{report.wrong} wrong, {report.missing} missing"
    yield from repeat_lines(report.spec)


def _times(times: list[int]) -> str:
    """Return the least, the mean and the longest time, as ping does."""
    if not times:
        return ""
    found = (min(times), sum(times) // len(times), max(times))
    return f" in {', '.join(map(format_duration, found))} (least, mean, longest)"
