"""`rdmawire topo`: how near the devices of a host are, and which way their bytes take."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, option
from rdmawire.cli.streams import complain, complain_of_each, open_host
from rdmawire.dissect.output import dumped
from rdmawire.errors import RdmaError, TopologyError
from rdmawire.terminal import escape
from rdmawire.wire.show import byte_count

if TYPE_CHECKING:
    from rdmawire.topology import Calibration, Costs, Device, Machine
    from rdmawire.topology.advice import GpuAdvice
    from rdmawire.topology.route import Route

_USAGE = 2
_THIS = "/sys"
_MEMORY = "memory"
_MAX_SIZE = 1 << 50


@click.command(
    "topo",
    cls=Command,
    examples=(
        "rdmawire topo",
        "rdmawire topo dgx-h100",
        "nvidia-smi topo -m | rdmawire topo - --advice",
        "lspci -tv > tree.txt; rdmawire topo tree.txt",
        "rdmawire topo two-sockets -p2p r",
        "rdmawire topo two-sockets --path mlx5_0 GPU1",
        "rdmawire topo dgx-h200 --plot host.svg",
        "rdmawire topo two-sockets --path mlx5_0 memory1 --size 1MiB",
        "rdmawire topo dgx-h200 --advice --json | jq '.advice[].direct'",
        "rdmawire topo dgx-h200 --calibrate copies.csv -w costs.yaml",
        "rdmawire topo dgx-h200 --path GPU0 memory0 --size 1MiB --costs costs.yaml",
    ),
)
@click.argument("host", required=False, default=_THIS)
@option("Input", "--list", "as_list", is_flag=True, help="List the shipped hosts.")
@option(
    "Output", "-m", "--matrix", "with_matrix", is_flag=True,
    help="Print the matrix of nvidia-smi topo -m. This is the default.",
)  # fmt: skip
@option(
    "Output", "-p2p", "--p2p", "capability", type=click.Choice(["r", "w", "n", "a", "p"]),
    help="Print which GPUs may access one another: read, write, NVLink, atomics, PCIe.",
)  # fmt: skip
@option(
    "Output", "--advice", "with_advice", is_flag=True,
    help="Print the adapters nearest to each GPU, whether GPUDirect RDMA works, and remedies.",
)  # fmt: skip
@option(
    "Output", "--path", "ends", nargs=2, metavar="FROM TO",
    help="Print the way of bytes between two devices, or a device and the memory of a NUMA node: "
    "memory0, memory1, ...",
)  # fmt: skip
@option(
    "Output", "--size", metavar="SIZE", callback=options.number_of_bytes(_MAX_SIZE),
    help="With --path, print how long this many bytes take, such as 4096 or 1MiB.",
)  # fmt: skip
@options.COSTS
@option(
    "Calibration", "--calibrate", "measured", metavar="FILE",
    help="Fit constants of the model to times that were measured on this host: CSV or JSON with "
    "path, size and time_us; docs/howto/topology.md lists the paths.",
)  # fmt: skip
@option(
    "Calibration", "--constant", "constants", metavar="NAME", multiple=True,
    help="Fit this constant alone; may be repeated.  [default: all that have an effect]",
)  # fmt: skip
@options.written("fitted", "With --calibrate, write the constants for --costs to FILE (YAML).")
@options.picture("Draw the tree, with the ways of --path, to FILE.svg or FILE.png.")
@options.text_or_json("Print one JSON object.")
def command(
    host: str,
    *,
    as_list: bool,
    with_matrix: bool,
    capability: str | None,
    with_advice: bool,
    ends: tuple[str, str] | None,
    size: int | None,
    costs_file: str | None,
    measured: str | None,
    constants: tuple[str, ...],
    fitted: str | None,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Show how near the GPUs and adapters of a host are, and what that means for RDMA.

    HOST is a shipped host (--list), a file with the text of `nvidia-smi topo -m` or of `lspci -tv`
    or a YAML description, - for standard input, or a folder as /sys, which is the default: this
    machine. Exit status: 0, or 2 for a host that cannot be read.
    """
    from rdmawire.traffic.scenario.topology_file import shipped_hosts

    if size is not None and ends is None:
        raise click.UsageError("--size goes with --path, which names the two ends")
    if measured is None and (constants or fitted is not None):
        raise click.UsageError("--constant and -w go with --calibrate")
    if as_list:
        click.echo("\n".join(shipped_hosts()))
        return 0
    if measured is not None:
        return _calibrate(host, measured, costs_file, constants, fitted, as_json=as_json)
    options.check_drawing(picture)
    try:
        found = open_host(host)
        with_matrix = with_matrix or not (capability or with_advice or ends)
        costs = options.costs_of(costs_file)
        paths = _Paths(found.machine, ends, size, costs) if ends else None
        report = _Report(found.machine, capability, paths, matrix=with_matrix, advice=with_advice)
        text = f"{dumped(report.values(), indent=1)}\n" if as_json else report.text()
        if picture is not None:
            _draw(found.machine, ends, picture)
    except RdmaError as error:
        complain_of_each(error)
        return _USAGE
    click.echo(text, nl=False)
    for note in found.notes:
        complain(f"note: {note}")
    return 0


def _draw(machine: "Machine", ends: tuple[str, str] | None, picture: Path) -> None:
    from rdmawire.gpudirect.plot import draw_host

    draw_host(machine, picture, list(_routes(machine, *ends)) if ends else [])


class _Report:
    """What is printed of a host."""

    def __init__(
        self,
        machine: "Machine",
        capability: str | None,
        paths: "_Paths | None",
        *,
        matrix: bool,
        advice: bool,
    ) -> None:
        from rdmawire.topology.advice import gpu_advice

        self._machine = machine
        self._capability = capability
        self._matrix = matrix
        self._advice = [gpu_advice(machine, gpu) for gpu in machine.gpus] if advice else None
        self._paths = paths

    def text(self) -> str:
        """Return it as text."""
        from rdmawire.topology import Capability, peer_matrix, topology_matrix

        parts = [topology_matrix(self._machine)] if self._matrix else []
        if self._capability:
            parts.append(peer_matrix(self._machine, Capability(self._capability)))
        if self._advice is not None:
            lines = [line for each in self._advice for line in _advice_lines(each)]
            parts.append(_joined(lines or ["the host has no GPU"]))
        parts += [] if self._paths is None else self._paths.texts()
        return "\n".join(map(_escaped, parts))

    def values(self) -> dict[str, Any]:
        """Return it as an object."""
        from rdmawire.topology import Capability, peer_status, relation

        machine = self._machine
        devices = [*machine.gpus, *machine.adapters]
        values: dict[str, Any] = {"host": machine.name}
        if self._matrix:
            values["matrix"] = {
                one.name: {other.name: str(relation(machine, one, other)) for other in devices}
                for one in devices
            }
        if self._capability:
            asked = Capability(self._capability)
            values["p2p"] = {
                one.name: {
                    other.name: peer_status(machine, one, other, asked).value
                    for other in machine.gpus
                }
                for one in machine.gpus
            }
        if self._advice is not None:
            values["advice"] = [_advice_object(each) for each in self._advice]
        if self._paths is not None:
            values["paths"] = self._paths.values()
        return values


class _Paths:
    """The routes between two ends; with a size, how long that many bytes take."""

    def __init__(
        self, machine: "Machine", ends: tuple[str, str], size: int | None, costs: "Costs"
    ) -> None:
        self._machine = machine
        self._size = size
        self._costs = costs
        self._routes = list(_routes(machine, *ends))

    def texts(self) -> list[str]:
        """Return the text of each route."""
        return [_joined(self._lines(name, route)) for name, route in self._routes]

    def _lines(self, name: str, route: "Route") -> Iterator[str]:
        yield from _route_lines(name, route)
        if self._size is not None:
            time = self._time(route)
            if time is None:
                yield f"  {byte_count(self._size)}: the rate of a link is not known"
                return
            rate = f", {self._size / time:.2f} GB/s" if time and self._size else ""
            yield f"  {byte_count(self._size)}: {time / 1000:.2f} us{rate}"

    def _time(self, route: "Route") -> float | None:
        """Return the time in ns; ``None`` if the rate of a link is not known."""
        from rdmawire.topology.cost import route_rate, write_time

        if route_rate(route, self._costs) is None:
            return None
        return write_time(self._machine, route, self._size or 0, self._costs)

    def values(self) -> list[dict[str, Any]]:
        """Return the routes as objects."""
        return [
            {
                "name": name,
                **_route_object(route),
                **({} if self._size is None else {"size": self._size, "ns": self._time(route)}),
            }
            for name, route in self._routes
        ]


def _escaped(text: str) -> str:
    """Return text without control characters, which names from a file may have."""
    return "\n".join("\t".join(map(escape, line.split("\t"))) for line in text.split("\n"))


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _routes(machine: "Machine", source: str, target: str) -> Iterator[tuple[str, "Route"]]:
    """Yield the routes between two ends: over NVLink or UALink, PCIe, and through host memory."""
    from rdmawire.topology.advice import bounce_routes
    from rdmawire.topology.route import memory_route, nvlink_route, peer_route, ualink_route

    if (node := _memory_node(machine, source)) is not None:
        yield "host memory", memory_route(machine, _device(machine, target), node).reversed()
        return
    first = _device(machine, source)
    if (node := _memory_node(machine, target)) is not None:
        yield "host memory", memory_route(machine, first, node)
        return
    second = _device(machine, target)
    if first.name == second.name:
        raise TopologyError(f"{source} to itself is no path: name two devices")
    links = (("NVLink", nvlink_route), ("UALink", ualink_route))
    for name, route_by in links:
        if (direct := route_by(machine, first, second)).steps:
            yield name, direct
    yield f"peer-to-peer, {_status(machine, first, second)}", peer_route(machine, first, second)
    to_memory, to_target = bounce_routes(machine, first, second)
    yield "bounce, to host memory", to_memory
    yield f"bounce, to {second.name}", to_target


def _device(machine: "Machine", name: str) -> "Device":
    """Return a device by its name, or by its label in the matrix."""
    labels = {f"NIC{index}": one for index, one in enumerate(machine.adapters)}
    labels |= {f"GPU{index}": one for index, one in enumerate(machine.gpus)}
    known = {one.name for one in machine.devices}
    return labels[name] if name in labels and name not in known else machine.device(name)


def _memory_node(machine: "Machine", word: str) -> int | None:
    """Return the number of a NUMA node that a word such as ``memory1`` names."""
    number = word.removeprefix(_MEMORY)
    if not word.startswith(_MEMORY) or not number.isdecimal():
        return None
    known = [node.number for node in machine.nodes]
    if int(number) not in known:
        raise TopologyError(f"{word}: NUMA nodes are {', '.join(map(str, known))}")
    return int(number)


def _status(machine: "Machine", first: "Device", second: "Device") -> str:
    from rdmawire.topology import Capability, PeerStatus, peer_status

    status = peer_status(machine, first, second, Capability.PCIE)
    return "allowed" if status is PeerStatus.OK else f"not allowed ({status.meaning})"


def _route_lines(name: str, route: "Route") -> Iterator[str]:
    yield f"{name}:"
    yield from (f"  {step}" for step in route.steps)
    if (slowest := route.slowest) is not None and len(route.steps) > 1:
        yield f"  slowest: {slowest.link}, {(slowest.rate or 0) / 1e9:.1f} GB/s"
    yield from (f"  {remark}" for remark in route.remarks)


def _route_object(route: "Route") -> dict[str, Any]:
    return {"steps": [step._asdict() for step in route.steps], "remarks": route.remarks}


def _advice_lines(advice: "GpuAdvice") -> Iterator[str]:
    if advice.level is None or advice.status is None:
        yield f"{advice.gpu.name}: no adapter"
    else:
        names = ", ".join(adapter.name for adapter in advice.adapters)
        yield f"{advice.gpu.name}: {names} by {advice.level.value}, across {advice.level.meaning}"
        yield f"  {_verdict(advice)}"
        if advice.route is not None and (slowest := advice.route.slowest) is not None:
            yield f"  slowest link: {slowest.link}, {(slowest.rate or 0) / 1e9:.1f} GB/s"
        if port := advice.adapters[0].rate:
            yield f"  port of {advice.adapters[0].name}: {port / 8e9:.1f} GB/s"
    yield from (f"  better: {remedy}" for remedy in advice.remedies)


def _verdict(advice: "GpuAdvice") -> str:
    """Say whether GPUDirect RDMA is used, and why not."""
    from rdmawire.topology import PeerStatus
    from rdmawire.topology.advice import DIRECT_LEVEL

    if advice.is_direct:
        return "GPUDirect RDMA"
    if advice.status is PeerStatus.OK:
        return f"through host memory, as NCCL does by default beyond {DIRECT_LEVEL.value}"
    return f"through host memory: {'' if advice.status is None else advice.status.meaning}"


def _advice_object(advice: "GpuAdvice") -> dict[str, Any]:
    return {
        "gpu": advice.gpu.name,
        "adapters": [adapter.name for adapter in advice.adapters],
        "level": None if advice.level is None else advice.level.value,
        "direct": advice.is_direct,
        "status": None if advice.status is None else advice.status.value,
        "route": None if advice.route is None else _route_object(advice.route),
        "remedies": advice.remedies,
    }


# Calibration.


def _calibrate(
    host: str,
    measured: str,
    costs_file: str | None,
    names: tuple[str, ...],
    fitted: str | None,
    *,
    as_json: bool,
) -> int:
    """Fit constants to the measurements of a file, and print them; return the exit status."""
    from rdmawire.topology import calibrate, parse_measurements
    from rdmawire.traffic.scenario.topology_file import read_text

    try:
        machine, costs = open_host(host).machine, options.costs_of(costs_file)
        rows = parse_measurements(read_text(measured, "measurements, as CSV or JSON"), measured)
        found = calibrate(machine, rows, costs, names or None)
        if fitted is not None:
            _write_costs(found, fitted, machine.name, measured)
    except RdmaError as error:
        complain_of_each(error)
        return _USAGE
    lines = _calibration_lines(found)
    click.echo(dumped(_calibration_object(found), indent=1) if as_json else "\n".join(lines))
    return 0


def _write_costs(found: "Calibration", path: str, host: str, measured: str) -> None:
    from rdmawire.capture.io import output_file
    from rdmawire.traffic.scenario.topology_file import format_costs

    source = f"rdmawire topo --calibrate {Path(measured).name}"
    with output_file(path) as file:
        file.write(format_costs(found.costs, host, source).encode())


def _calibration_lines(found: "Calibration") -> Iterator[str]:
    """Yield the constants before and after, and how near the model is to each measurement."""
    from rdmawire.topology import SOURCES

    rows: list[tuple[str, ...]] = [("constant", "before", "after", "unit")]
    rows += [
        (one.name, f"{one.before:.6g}", f"{one.after:.6g}", SOURCES[one.name].unit)
        for one in found.fitted
    ]
    yield from _table(rows)
    yield ""
    rows = [("path", "bytes", "measured", "before", "after")]
    rows += [
        (one.path, str(one.size), f"{one.time / 1000:.1f} us", f"{before:.2f}", f"{after:.2f}")
        for one, before, after in found.ratios
    ]
    yield from _table(rows)
    yield ""
    for what, (before, after) in (("typically", found.spread), ("at most", found.worst)):
        yield f"{what} a factor of {before:.2f} before, {after:.2f} after"


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (
            text.ljust(width) if index == 0 else text.rjust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([escape(first), *others]).rstrip()


def _calibration_object(found: "Calibration") -> dict[str, Any]:
    return {
        "constants": [one._asdict() for one in found.fitted],
        "ratios": [
            {**one.measurement._asdict(), "before": one.before, "after": one.after}
            for one in found.ratios
        ],
        "spread": {"before": found.spread[0], "after": found.spread[1]},
        "worst": {"before": found.worst[0], "after": found.worst[1]},
    }
