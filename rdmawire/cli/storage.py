"""`rdmawire storage`: how long data takes between a drive and a GPU, by each path."""

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.streams import complain, open_host
from rdmawire.cli.table import aligned
from rdmawire.cli.transfer import link_lines, link_values, network_options
from rdmawire.dissect.output import dumped
from rdmawire.errors import RdmaError, TransferError
from rdmawire.terminal import escape
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.gpudirect.storage import CapturedCommand, StorageReport, StorageSpec

MAX_BLOCK = 1 << 20
"""Most bytes of a command."""
_PATHS = ("drive", "drive-bounce", "fabric", "fabric-bounce")
_OPERATIONS = ("read", "write")
_SIZES = ("4KiB", "64KiB", "1MiB")
_BLOCK = 512
_MIN_NAMESPACE = 1 << 20
_USAGE = 2


def spec_of(host: str, path: str, **settings: Any) -> "StorageSpec":
    """Return what is to be done on a host; the settings are the values of options."""
    from rdmawire.gpudirect.storage import StorageFault, StoragePath, StorageSpec

    machine = open_host(host).machine
    gpu = settings.pop("gpu") or next((one.name for one in machine.gpus), None)
    if gpu is None:
        raise TransferError("the host has no GPU")
    settings["rate"] = settings["rate"] or 0
    settings["mtu"] = int(settings["mtu"])
    if fault := settings.pop("fault", None):
        settings["fault"] = StorageFault(fault)
    return StorageSpec(machine, gpu, StoragePath(path), **settings)


@click.command(
    "storage",
    cls=Command,
    examples=(
        "rdmawire storage dgx-h200",
        "rdmawire storage dgx-h200 --path drive --path drive-bounce --block-size 1MiB --links",
        "rdmawire storage two-sockets --gpu GPU1 --operation read",
        "rdmawire storage dgx-h200 --queue-depth 1 --commands 1",
        "rdmawire storage --read nvme.pcap",
    ),
)
@click.argument("host", required=False)
@option(
    "Commands", "--path", "paths", type=click.Choice(_PATHS), multiple=True,
    help="Path of the data; may be repeated.  [default: all]",
)  # fmt: skip
@option(
    "Commands", "--operation", "operations", type=click.Choice(_OPERATIONS), multiple=True,
    help="What the commands do; may be repeated.  [default: both]",
)  # fmt: skip
@option(
    "Commands", "--block-size", "sizes", metavar="SIZE", multiple=True, default=_SIZES,
    callback=options.numbers_of_bytes(MAX_BLOCK),
    help="Bytes of a command, a multiple of 512; may be repeated.  [default: 4KiB, 64KiB, 1MiB]",
)  # fmt: skip
@option(
    "Commands", "--commands", "count", type=IntegerType(1, 256), default=8, show_default=True,
    help="Number of commands.",
)  # fmt: skip
@option(
    "Commands", "--queue-depth", type=IntegerType(1, 127), default=4, show_default=True,
    help="Commands in progress.",
)  # fmt: skip
@options.seed("Commands", "Seed of the data and of the blocks.")
@option("Devices", "--gpu", metavar="GPU", help="GPU of the host.  [default: the first]")
@option(
    "Devices", "--drive", metavar="NAME", default="",
    help="NVMe drive.  [default: the one nearest to the GPU, or to the adapter of the target]",
)  # fmt: skip
@network_options
@option(
    "Input", "--read", "capture", metavar="FILE",
    help="List the commands of NVMe over RDMA in a capture, instead of HOST.",
)  # fmt: skip
@option("Output", "--links", is_flag=True, help="Print the bytes on each link of the hosts.")
@options.text_or_json("Print one JSON array.")
def command(
    host: str | None,
    *,
    capture: str | None,
    paths: tuple[str, ...],
    operations: tuple[str, ...],
    sizes: list[int],
    count: int,
    links: bool,
    as_json: bool,
    **settings: Any,
) -> int:
    """Read and write between a drive and a GPU by each path, and show what it costs.

    HOST is whatever `rdmawire topo` reads: a shipped host, such as dgx-h200, or a file. The data
    takes GPUDirect Storage (drive: by DMA of a drive of the host; fabric: by NVMe over RDMA of
    another host), or pinned memory of the host and a copy (with -bounce). Times are virtual;
    docs/howto/gpudirect-storage.md explains the model. With --read, the commands of a capture are
    listed, with their responses. Exit status: 0, or 2 if the host has no such path.
    """
    if (host is None) == (capture is None):
        raise click.UsageError("give a HOST, or --read and a capture")
    if capture is not None:
        return _list(capture, as_json=as_json)
    assert host is not None
    for size in sizes:
        if not size or size % _BLOCK:
            raise click.UsageError(f"--block-size {size}: take a multiple of {_BLOCK} bytes")
    wanted = product(sizes, operations or _OPERATIONS, paths or _PATHS)
    try:
        results = [_result(host, one, count, settings) for one in wanted]
    except RdmaError as error:
        complain(str(error))
        return _USAGE
    is_known = any(result.report for result in results)
    reasons = {result.reason for result in results}
    if not is_known and len(reasons) == 1 and not as_json:
        complain(reasons.pop())
        return _USAGE
    lines = _lines(results, links=links)
    click.echo(dumped([one.values() for one in results], indent=1) if as_json else "\n".join(lines))
    return 0 if is_known else _USAGE


def _list(capture: str, *, as_json: bool) -> int:
    """List the commands of a capture."""
    from rdmawire.gpudirect.storage import read_capsules

    rows = [_command_values(one) for one in read_capsules(capture)]
    if not rows:
        complain(f"note: {escape(capture)} has no connection of NVMe over RDMA (port 4420)")
    if as_json:
        click.echo(dumped(rows, indent=1))
    for row in rows if not as_json else ():
        click.echo(_command_line(row))
    return 0


def _command_values(one: "CapturedCommand") -> dict[str, Any]:
    from rdmawire.gpudirect.storage import IOCommand, command_name, status_name

    command, completion = one.command, one.completion
    values: dict[str, Any] = {
        "frame": one.frame,
        "queue": one.qid,
        "cid": command.cid,
        "command": command_name(command),
    }
    if isinstance(command, IOCommand):
        blocks = {"nsid": command.nsid, "slba": command.slba, "blocks": command.nlb + 1}
        values |= blocks | {"key": command.key}
    if completion is not None:
        values["status"] = status_name(completion.status)
        values["latency_ns"] = one.end_ns - one.time_ns
    return values


def _command_line(values: dict[str, Any]) -> str:
    place = f"LBA {values['slba']} + {values['blocks']}" if "slba" in values else ""
    status = values.get("status", "no response")
    time = f"{values['latency_ns'] / 1000:.2f} us" if "latency_ns" in values else ""
    head = f"{values['frame']:>6}  queue {values['queue']}  cid {values['cid']:<3}"
    return f"{head}  {values['command']:<12}  {place:<18}  {time:>10}  {status}"


class _StorageResult(NamedTuple):
    """A run: what was wanted, and what it took, or why it cannot be done."""

    spec: "StorageSpec"
    operation: str
    report: "StorageReport | None"
    reason: str

    def values(self) -> dict[str, Any]:
        """Return the result as JSON has it."""
        if self.report is None:
            found = {"path": self.spec.path.value, "block_size": self.spec.block_size}
            return found | {"operation": self.operation, "reason": self.reason}
        return report_values(self.report)


def _result(
    host: str, wanted: tuple[int, str, str], count: int, settings: dict[str, Any]
) -> _StorageResult:
    """Do one run: ``wanted`` is the size of its commands, what they do, and the path."""
    size, operation, path = wanted
    counts = {"reads": 0, "writes": 0} | {f"{operation}s": count}
    space = max(count * size, _MIN_NAMESPACE)
    spec = spec_of(host, path, block_size=size, size=space, **counts, **settings)
    return _StorageResult(spec, operation, *_outcome(spec))


def _outcome(spec: "StorageSpec") -> "tuple[StorageReport | None, str]":
    from rdmawire.gpudirect.storage import storage

    try:
        return storage(spec), ""
    except TransferError as error:
        return None, str(error)


def report_values(report: "StorageReport") -> dict[str, Any]:
    """Return a report as JSON has it."""
    spec = report.spec
    return {
        "path": spec.path.value,
        "gpu": spec.gpu,
        "drive": report.drive,
        "reads": spec.reads,
        "writes": spec.writes,
        "block_size": spec.block_size,
        "queue_depth": spec.queue_depth,
        "bytes": report.size,
        "setup_ns": report.setup,
        "duration_ns": report.duration,
        "mean_latency_ns": round(report.mean_latency),
        "bytes_per_s": round(report.rate),
        "copies": report.copies,
        "cpu_ns": round(report.cpu),
        "frames": report.frames,
        "wire_bytes": report.wire_bytes,
        "links": link_values(report.links),
    }


_COLUMNS = ("bytes", "operation", "path", "latency", "rate", "copies", "CPU time", "frames")
_LEFT = frozenset({1, 2})


def _lines(results: list[_StorageResult], *, links: bool) -> Iterator[str]:
    """Yield the lines of the table, and those of links."""
    rows = [_COLUMNS, *(_cells(one) for one in results if one.report)]
    if len(rows) > 1:
        yield from aligned(rows, _LEFT)
    for path, reason in {(one.spec.path.value, one.reason): None for one in results if one.reason}:
        yield f"{path}: {escape(reason)}"
    for result in results if links else []:
        if (report := result.report) is not None:
            spec = result.spec
            yield f"{byte_count(spec.block_size)}, {result.operation}, {spec.path.value}:"
            yield from link_lines(report.links, report.setup + report.duration)


def _cells(result: _StorageResult) -> tuple[str, ...]:
    report = result.report
    assert report is not None
    return (
        str(report.spec.block_size),
        result.operation,
        report.spec.path.value,
        f"{report.mean_latency / 1000:.2f} us",
        f"{report.rate / 1e9:.3f} GB/s",
        str(report.copies),
        f"{report.cpu / 1000:.1f} us",
        str(report.frames),
    )
