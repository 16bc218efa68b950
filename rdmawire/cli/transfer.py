"""`rdmawire transfer`: how long data takes from one GPU to another, by each path, as packets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rdmawire.capture.io import STREAM
from rdmawire.cli import options
from rdmawire.cli.command import Command, F, IntegerType, option
from rdmawire.cli.streams import complain, open_host
from rdmawire.cli.table import aligned
from rdmawire.dissect.output import dumped
from rdmawire.errors import RdmaError, TransferError
from rdmawire.terminal import escape, plural
from rdmawire.traffic.generate.spec import SpecError, rate
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.gpudirect.transfer import TransferReport, TransferSpec
    from rdmawire.topology import LinkUse, Machine

_BETWEEN_HOSTS = ("direct", "bounce", "pageable", "tcp")
_WITHIN_HOST = ("nvlink", "ualink")
PATHS = (*_BETWEEN_HOSTS, *_WITHIN_HOST, "host")
LINK_LAYERS = ("ethernet", "infiniband")
COMMON_PATHS = (*_BETWEEN_HOSTS, "nvlink")
"""The paths of hosts whose GPUs have NVLinks, or nothing, between them."""
_SIZES = ("8", "4KiB", "64KiB", "1MiB", "16MiB")
MAX_SIZE = 1 << 30
_MAX_REPEAT = 10_000
_KINDS = {"peermem": "PEERMEM", "dmabuf": "DMABUF"}
_USAGE = 2

_RATE_AND_MTU = (
    option(
        "Network", "--rate", metavar="RATE", callback=options.reads(rate, SpecError),
        help="Rate of the links between hosts.  [default: that of the adapter's port]",
    ),
    option(
        "Network", "--mtu", type=click.Choice([str(mtu) for mtu in PATH_MTUS]),
        default="4096", show_default=True, help="Path MTU of RDMA.",
    ),
)  # fmt: skip
_NETWORK = (
    *_RATE_AND_MTU,
    option(
        "Network", "--latency", type=IntegerType(0, 1_000_000), default=300, show_default=True,
        metavar="NS", help="Latency of each of the two cables, in ns.",
    ),
)  # fmt: skip
_LINK = (
    option(
        "Network", "--link-layer", "layer", type=click.Choice(LINK_LAYERS), default="ethernet",
        show_default=True, help="What joins the hosts: Ethernet with RoCEv2, or InfiniBand, "
        "of which four lanes have 10G, 20G, 40G, 56G, 100G, 200G, 400G or 800G.",
    ),
    *_RATE_AND_MTU,
    option(
        "Network", "--latency", type=IntegerType(0, 1_000_000), metavar="NS",
        help="Latency of each of the two cables, in ns.  [default: 300, with half of a switch; "
        "25 with InfiniBand, whose switch is one of --costs]",
    ),
)  # fmt: skip


def network_options(command: F) -> F:
    """Add the options of the network between two hosts: rate, mtu and latency."""
    return _with(_NETWORK, command)


def _link_options(command: F) -> F:
    """Add the options of the network, which may be InfiniBand."""
    return _with(_LINK, command)


def _with(added: Sequence[Callable[[F], F]], command: F) -> F:
    for add in reversed(added):
        command = add(command)
    return command


@click.command(
    "transfer",
    cls=Command,
    examples=(
        "rdmawire transfer dgx-h200",
        "rdmawire transfer dgx-h200 --path direct --path bounce --size 1MiB",
        "rdmawire transfer two-sockets --from GPU1 --path bounce --size 1MiB --links",
        "rdmawire transfer dgx-h200 --path direct --size 64k -w direct.pcap",
        "rdmawire transfer dgx-h200 --path bounce --size 16MiB --chunk 0",
        "rdmawire transfer dgx-h200 --link-layer infiniband --path host --path direct --size 8",
        "rdmawire transfer dgx-h200 --path direct --registration cache --repeat 8 --buffers 2",
        "rdmawire transfer dgx-h200 --plot times.svg",
        "rdmawire transfer dgx-h200 --path bounce --size 1MiB --plot-links links.svg",
    ),
)
@click.argument("host")
@option(
    "Transfer", "--path", "paths", type=click.Choice(PATHS), multiple=True,
    help="Path of the data; may be repeated. host is from pinned memory of a host to that of "
    "another; the GPUs then only choose the adapters.  [default: all that the GPUs have links for]",
)  # fmt: skip
@option(
    "Transfer", "--size", "sizes", metavar="SIZE", multiple=True, default=_SIZES,
    callback=options.numbers_of_bytes(MAX_SIZE),
    help="Bytes, such as 4096 or 1MiB; may be repeated.  [default: 8 to 16MiB]",
)  # fmt: skip
@option("Transfer", "--from", "source", metavar="GPU", help="Source.  [default: the first GPU]")
@option(
    "Transfer", "--to", "target", metavar="GPU",
    help="Target, on another host of this kind except with --path nvlink or ualink.  "
    "[default: the second GPU, or the only one]",
)  # fmt: skip
@option(
    "Transfer", "--chunk", metavar="SIZE", callback=options.number_of_bytes(MAX_SIZE),
    default="512k", show_default=True, help="Chunks of bounce and tcp; 0 for no pipeline.",
)  # fmt: skip
@option(
    "Transfer", "--slots", type=IntegerType(1, 256), default=4, show_default=True,
    help="Chunks that may be on their way.",
)  # fmt: skip
@option(
    "Registration", "--registration", "mode", type=click.Choice(["none", "each", "cache"]),
    default="none", show_default=True,
    help="When memory is registered for --path direct or host: before all, with no time; for "
    "each transfer; by a cache.",
)  # fmt: skip
@option(
    "Registration", "--via", type=click.Choice(list(_KINDS)), default="peermem",
    show_default=True, help="How: by nvidia-peermem, or as a dma-buf.",
)  # fmt: skip
@option(
    "Registration", "--cache-regions", metavar="N", type=IntegerType(1, 1 << 20),
    help="Regions that the cache keeps.  [default: no limit]",
)  # fmt: skip
@option(
    "Registration", "--cache-bytes", metavar="SIZE", callback=options.number_of_bytes(1 << 50),
    help="Bytes that the cache keeps.  [default: no limit]",
)  # fmt: skip
@option(
    "Transfer", "--repeat", metavar="N", type=IntegerType(1, _MAX_REPEAT), default=1,
    show_default=True, help="Do each transfer N times, one after the other.",
)  # fmt: skip
@option(
    "Transfer", "--buffers", metavar="N", type=IntegerType(1, 256), default=1, show_default=True,
    help="Buffers of each GPU that the repetitions use in turn.",
)  # fmt: skip
@option(
    "Host", "--iommu", type=click.Choice(["off", "passthrough", "translated"]),
    help="What the IOMMU of the hosts does.  [default: as the host has it]",
)  # fmt: skip
@option(
    "Host", "--iommu-page", metavar="SIZE", callback=options.number_of_bytes(1 << 30),
    help="Page size of the IOMMU, such as 4KiB or 2MiB.  [default: as the host has it]",
)  # fmt: skip
@option(
    "Host", "--relaxed-ordering", "relaxed", type=click.Choice(["on", "off"]),
    help="Whether the root may reorder writes of the adapters.  [default: as the host has it]",
)  # fmt: skip
@options.COSTS
@option(
    "Host", "--ats", is_flag=True,
    help="Let the adapters keep translations (Address Translation Services).",
)  # fmt: skip
@_link_options
@option("Output", "--links", is_flag=True, help="Print the bytes on each link of the hosts.")
@options.written(
    "capture", "The packets of one path and size: FILE.pcap or .pcapng, also compressed."
)  # fmt: skip
@options.picture("Draw times and rates by size to FILE.svg or FILE.png.")
@options.picture(
    "Draw the hosts with the bytes on their links, for one path and size.",
    "--plot-links", "links_picture",
)  # fmt: skip
@options.text_or_json("Print one JSON object.")
def command(
    host: str,
    *,
    paths: tuple[str, ...],
    sizes: list[int],
    links: bool,
    capture: str | None,
    picture: Path | None,
    links_picture: Path | None,
    as_json: bool,
    **settings: Any,
) -> int:
    """Send data from a GPU to another one by each path, and show what it costs.

    HOST is whatever `rdmawire topo` reads: a shipped host, such as dgx-h200, or a file. The two
    GPUs are on two such hosts, joined by a switch, and real packets and copies move the data:
    GPUDirect RDMA (direct), through pinned memory (bounce) or pageable memory of the hosts over
    RDMA, over TCP, or over NVLink or UALink within one host. RDMA is RoCEv2, or native InfiniBand.
    Times are virtual; docs/howto/transfers.md explains the model. Exit status: 0, or 2 if the host
    has no such path.
    """
    is_one = len(paths) == len(sizes) == 1
    if links_picture is not None and not is_one:
        raise click.UsageError("--plot-links needs one --path and one --size, which it draws")
    if capture is not None:
        if not is_one:
            raise click.UsageError("-w needs one --path and one --size, whose packets it writes")
        if paths[0] in _WITHIN_HOST:
            raise click.UsageError(f"-w: {paths[0]} has no packets that a capture could hold")
        capture = options.capture_path(capture)
    options.check_drawing(picture)
    options.check_drawing(links_picture)
    try:
        specs = list(_specs(host, paths, sizes, settings))
        results = [_Result(spec, *_outcome(spec, capture)) for spec in specs]
    except RdmaError as error:
        complain(str(error))
        return _USAGE
    _draw(results, host, picture, links_picture)
    is_known = any(result.report for result in results)
    lines = _lines(results, links=links)
    text = dumped([one.values() for one in results], indent=1) if as_json else "\n".join(lines)
    click.echo(text, err=capture == STREAM)
    return 0 if is_known else _USAGE


def _draw(
    results: "list[_Result]", host: str, picture: Path | None, links_picture: Path | None
) -> None:
    """Draw what is wanted of the transfers that were done."""
    done = [(one.spec, one.report) for one in results if one.report]
    if not done or (picture is None and links_picture is None):
        return
    from rdmawire.gpudirect.plot import draw_links, draw_transfers

    if picture is not None:
        draw_transfers([report for _, report in done], picture, f"From GPU to GPU, {host}")
    if links_picture is not None:
        [(spec, report)] = done
        title = f"{byte_count(report.size)} by {report.path.value}, {host}"
        draw_links(spec.machine, report, links_picture, title)


def _specs(
    host: str, paths: Sequence[str], sizes: list[int], settings: dict[str, Any]
) -> Iterator["TransferSpec"]:
    """Yield what is to be done: each size by each path."""
    from rdmawire.gpudirect.transfer import LinkLayer, Registering, TransferPath, TransferSpec
    from rdmawire.topology import RegisteredKind, RegistrationMode

    machine = _machine(host, settings)
    source, target = ends_of(machine, settings.pop("source"), settings.pop("target"))
    within = "ualink" if any(machine.ualinks.values()) else "nvlink"
    paths = paths or (*_BETWEEN_HOSTS, within)
    settings["rate"] = settings["rate"] or 0
    settings["mtu"] = int(settings["mtu"])
    settings["layer"] = LinkLayer(settings["layer"])
    settings["costs"] = options.costs_of(settings.pop("costs_file"))
    settings["registering"] = Registering(
        RegistrationMode(settings.pop("mode")),
        RegisteredKind[_KINDS[settings.pop("via")]],
        settings.pop("cache_regions"),
        settings.pop("cache_bytes"),
    )
    for size in sizes:
        for path in paths:
            yield TransferSpec(machine, source, target, TransferPath(path), size, **settings)


def _machine(host: str, settings: dict[str, Any]) -> "Machine":
    """Return a host, with the IOMMU and the order of writes that the options want."""
    from dataclasses import replace

    from rdmawire.topology import DeviceKind, Iommu

    machine = open_host(host).machine
    mode, page, ats = (settings.pop(name) for name in ("iommu", "iommu_page", "ats"))
    iommu = machine.settings.iommu if mode is None else Iommu(mode)
    page = machine.settings.iommu_page if page is None else page
    devices = tuple(
        replace(one, ats=one.ats or (ats and one.kind is DeviceKind.ADAPTER))
        for one in machine.devices
    )
    relaxed = settings.pop("relaxed")
    ordering = machine.settings.relaxed_ordering if relaxed is None else relaxed == "on"
    own = replace(machine.settings, iommu=iommu, iommu_page=page, relaxed_ordering=ordering)
    return replace(machine, devices=devices, settings=own)


def ends_of(machine: "Machine", source: str | None, target: str | None) -> tuple[str, str]:
    """Return the names of the two GPUs, by default the first ones."""
    names = [gpu.name for gpu in machine.gpus]
    if not names:
        raise TransferError("the host has no GPU, which also says what the nearest adapter is")
    source = source or names[0]
    return source, target or next((name for name in names if name != source), source)


class _Result(NamedTuple):
    """A transfer: what was wanted, and what it took, or why it cannot be done."""

    spec: "TransferSpec"
    report: "TransferReport | None"
    reason: str

    def values(self) -> dict[str, Any]:
        """Return the result as JSON has it."""
        spec = self.spec
        found: dict[str, Any] = {"path": spec.path.value, "bytes": spec.size}
        if spec.path.value not in _WITHIN_HOST:
            found["link_layer"] = spec.layer.value
        if (report := self.report) is None:
            return found | {"reason": self.reason}
        return found | {
            **report.totals(),
            "durations_ns": report.durations,
            "registrations": report.registrations._asdict(),
            "translations": report.translations._asdict(),
            "links": link_values(report.links),
        }


def _outcome(spec: "TransferSpec", capture: str | None) -> "tuple[TransferReport | None, str]":
    """Do a transfer; return its report, or the reason why there is none."""
    from rdmawire.gpudirect.transfer import Transfer

    try:
        one = Transfer(spec)
        with options.captured(one.network, capture):
            return one.run(), ""
    except TransferError as error:
        return None, str(error)


_COLUMNS = ("bytes", "path", "time", "rate", "copies", "CPU time", "frames")
_REPEATED = ("bytes", "path", "first", "later", "rate", "copies", "CPU time", "frames")


def _lines(results: list[_Result], *, links: bool) -> Iterator[str]:
    """Yield the lines of the table, and those of links."""
    repeated = any(one.spec.repeat > 1 for one in results)
    columns = _REPEATED if repeated else _COLUMNS
    rows = [columns, *(_cells(one, repeated=repeated) for one in results if one.report)]
    if len(rows) > 1:
        yield from aligned(rows, frozenset({1}))
    for path, reason in {(one.spec.path.value, one.reason): None for one in results if one.reason}:
        yield f"{path}: {escape(reason)}"
    for result in results:
        yield from _registration_lines(result)
        yield from _translation_lines(result)
    for result in results if links else []:
        if (report := result.report) is not None:
            yield f"{byte_count(result.spec.size)} by {result.spec.path.value}:"
            yield from link_lines(report.links, report.elapsed)


def _cells(result: _Result, *, repeated: bool) -> tuple[str, ...]:
    report = result.report
    assert report is not None
    times = (report.duration, report.later) if repeated else (report.duration,)
    return (
        str(report.size),
        report.path.value,
        *(f"{time / 1000:.2f} us" for time in times),
        f"{report.rate / 1e9:.3f} GB/s",
        str(report.copies),
        f"{report.cpu / 1000:.1f} us",
        str(report.frames),
    )


def _registration_lines(result: _Result) -> Iterator[str]:
    """Yield what was registered, if anything was."""
    if result.report is None or not (found := result.report.registrations).time:
        return
    regions = f"{plural(found.registered, 'region')} registered, {found.deregistered} deregistered"
    cache = f"{plural(found.hits, 'hit')}, {plural(found.evictions, 'eviction')}"
    what = f"{byte_count(result.spec.size)} by {result.spec.path.value}"
    yield f"{what}: {regions}, {cache}, {found.time / 1000:.1f} us"


def _translation_lines(result: _Result) -> Iterator[str]:
    """Yield what the IOMMUs translated, if they did."""
    if result.report is None or not any(found := result.report.translations):
        return
    by_ats = f"ATS: {plural(found.ats_hits, 'hit')}, {found.ats_misses} missed; "
    what = f"{byte_count(result.spec.size)} by {result.spec.path.value}"
    counts = f"IO-TLB: {plural(found.hits, 'hit')}, {found.misses} missed"
    waited = f"accesses waited {found.waited / 1000:.1f} us in all"
    yield f"{what}: {by_ats if found.ats_hits + found.ats_misses else ''}{counts}; {waited}"


LinkUses = Mapping[tuple[str, str, str], "LinkUse"]
"""The use of links, by host, source and target."""


def link_values(links: LinkUses) -> list[dict[str, Any]]:
    """Return the use of links as JSON has it."""
    return [
        {
            "host": host,
            "from": source,
            "to": target,
            "bytes": use.bytes,
            "transactions": use.transactions,
            "busy_ns": round(use.busy_ns),
        }
        for (host, source, target), use in links.items()
    ]


def link_lines(links: LinkUses, elapsed: float) -> Iterator[str]:
    """Yield a line for each link that data took in ``elapsed`` ns."""
    for (host, source, target), use in links.items():
        share = use.busy_ns / elapsed
        counted = f"{byte_count(use.bytes)} in {plural(use.transactions, 'transaction')}"
        yield f"  {host}: {escape(source)} -> {escape(target)}: {counted}, busy {share:.0%}"
