"""Pictures of hosts, transfers and kernels: a tree of links, times by size, and a timeline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rdmawire.figure import COLOURS, GREY, STYLE, Axes, Figure, mpl, plain, save
from rdmawire.gpudirect.kernel import Happened
from rdmawire.gpudirect.transfer import TransferPath, TransferReport
from rdmawire.topology import Device, DeviceKind, Machine, Route, Switch
from rdmawire.units import SECOND

_FILLS: Final = {
    DeviceKind.GPU: "#CDE8D9",
    DeviceKind.ADAPTER: "#FBE3B5",
    DeviceKind.NVME: "#E8E8E8",
}
_LABEL: Final[dict[str, Any]] = {
    "fontsize": 7,
    "ha": "center",
    "va": "center",
    "zorder": 2,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5},
}
"""How a text on a line is drawn."""
_MEMORY: Final = 0.25
"""Height of the memory of a node above its roots."""
_SHORT: Final = 12
_MAX_WIDTH: Final = 60.0
"""Inches of the widest picture."""


def draw_host(machine: Machine, path: Path, routes: Sequence[Route] = ()) -> None:
    """Draw the tree of a host, with routes in colour; the name ends in ``.svg`` or ``.png``."""
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure = _host(machine, routes)
    save(figure, path)


class _Tree:
    """Places of the nodes of a host: children side by side below their parent."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.places: dict[str, tuple[float, float]] = {}
        self.parents: dict[str, tuple[str, str]] = {}
        self._next = 0.0
        below: dict[str, list[str]] = {}
        nodes: list[Switch | Device] = [*machine.switches, *machine.devices]
        for one in nodes:
            below.setdefault(one.parent, []).append(one.name)
            label = "" if one.link is None else str(one.link)
            coherent = isinstance(one, Device) and one.coherent
            self.parents[one.name] = one.parent, "NVLink-C2C" if coherent else label
        for bridge in sorted(machine.bridges, key=lambda one: one.node):
            self._put(bridge.name, 0, below)
        self.width = self._next
        self.depth = max(-y for _, y in self.places.values())

    def _put(self, name: str, depth: int, below: dict[str, list[str]]) -> None:
        children = below.get(name, [])
        for child in children:
            self._put(child, depth + 1, below)
        if children:
            first, last = (self.places[child][0] for child in (children[0], children[-1]))
            self.places[name] = (first + last) / 2, -depth
        else:
            self.places[name] = self._next, -depth
            self._next += 1

    def place(self, name: str) -> tuple[float, float]:
        """Return the place of a node, or of the memory of a NUMA node."""
        if name in self.places:
            return self.places[name]
        roots = [one for one in self.machine.bridges if name == f"memory of node {one.node}"]
        return sum(self.places[one.name][0] for one in roots) / len(roots), _MEMORY


def _host(machine: Machine, routes: Sequence[Route]) -> Figure:
    tree = _Tree(machine)
    width = min(max(6.0, 1.25 * tree.width), _MAX_WIDTH)
    figure = Figure(figsize=(width, 1.6 + 1.25 * tree.depth), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_title(plain(machine.name), loc="left", fontweight="bold")
    axes.set_xlim(-0.6, tree.width - 0.4)
    axes.set_ylim(-tree.depth - 0.5, 0.6)
    _draw_links(axes, tree)
    for number, route in enumerate(routes):
        _draw_route(axes, tree, route, COLOURS[number % len(COLOURS)])
    _draw_nodes(axes, tree)
    if routes:
        axes.legend(loc="lower right", frameon=False)
    return figure


def _draw_links(axes: Axes, tree: _Tree) -> None:
    for name, (parent, label) in tree.parents.items():
        (x, y), (up_x, up_y) = tree.places[name], tree.places[parent]
        axes.plot([x, up_x], [y, up_y], color=GREY, linewidth=1.2, zorder=1)
        middle = (x + up_x) / 2, (y + up_y) / 2
        axes.text(*middle, label, color="#555555", **_LABEL)
    nodes: dict[int, list[float]] = {}
    for bridge in tree.machine.bridges:
        nodes.setdefault(bridge.node, []).append(tree.places[bridge.name][0])
    for number, places in nodes.items():
        axes.text(sum(places) / len(places), 0.42, f"NUMA node {number}", ha="center", fontsize=8)
    if len(nodes) > 1:
        ends = [tree.places[bridge.name][0] for bridge in tree.machine.bridges]
        axes.plot([min(ends), max(ends)], [_MEMORY, _MEMORY], color=GREY, linestyle="--", zorder=1)
        between = (min(ends) + max(ends)) / 2
        axes.text(between, _MEMORY, plain(tree.machine.settings.socket_link), **_LABEL)


def _draw_route(axes: Axes, tree: _Tree, route: Route, colour: str) -> None:
    """Draw a route along the links that it takes; memory of a node is above its roots."""
    label = f"{route.steps[0].source} to {route.steps[-1].target}"
    for step in route.steps:
        (x, y), (other_x, other_y) = (tree.place(name) for name in (step.source, step.target))
        axes.plot([x, other_x], [y, other_y], color=colour, linewidth=3.5, alpha=0.6, zorder=1.5,
                  label=label, solid_capstyle="round")  # fmt: skip
        label = ""


def _draw_nodes(axes: Axes, tree: _Tree) -> None:
    devices = {device.name: device for device in tree.machine.devices}
    switches = {switch.name: switch for switch in tree.machine.switches}
    for name, (x, y) in tree.places.items():
        fill, text = "#D9E7F5", _shortened(name)
        if (device := devices.get(name)) is not None:
            fill = _FILLS.get(device.kind, "#FFFFFF")
            text += f"\n{_shortened(device.model)}" if device.model else ""
        elif name in switches and switches[name].acs:
            text += "\nACS"
        box = {"boxstyle": "round,pad=0.35", "facecolor": fill, "edgecolor": "#555555"}
        axes.text(x, y, plain(text), ha="center", va="center", fontsize=8, zorder=3, bbox=box)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def draw_transfers(reports: Sequence[TransferReport], path: Path, title: str) -> None:
    """Draw the times of transfers by their size, and the rates, with a line for each path."""
    lines = [
        Line(
            one.value,
            [(each.size, each.duration, each.rate) for each in reports if each.path is one],
            number,
        )
        for number, one in enumerate(TransferPath)
    ]
    draw_lines(lines, path, title, "bytes", "rate")


class Line(NamedTuple):
    """A line of :func:`draw_lines`: its label, its points, and the number of its style.

    A point is what is across, a time in ns, and bytes per second.
    """

    label: str
    points: Sequence[tuple[int, int, float]]
    style: int


_DASHES: Final = ("-", "--", ":", "-.")
_MARKERS: Final = ("o", "s", "^", "D")
MAX_LINES: Final = len(COLOURS) * len(_DASHES)
"""Lines that can be told from one another."""
_FEW_LINES: Final = 5
"""Lines whose legend has room within the axes."""


def draw_lines(lines: Sequence[Line], path: Path, title: str, across: str, speed: str) -> None:
    """Draw times, and rates, of up to :data:`MAX_LINES` lines; all axes are logarithmic.

    ``across`` and ``speed`` are what the axis across, and that of rates, are named by.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.6), layout="constrained")
        figure.suptitle(plain(title), fontweight="bold")
        times, rates = figure.subplots(1, 2)
        drawn = [line for line in lines if line.points]
        for line in drawn:
            points = sorted(line.points)
            places, style = [point[0] for point in points], _line_style(line)
            times.plot(places, [time / 1000 for _, time, _ in points], **style)
            rates.plot(places, [rate / 1e9 for *_, rate in points], **style)
        for axes, label in ((times, "time (µs)"), (rates, f"{speed} (GB/s)")):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xlabel(plain(across))
            axes.set_ylabel(label)
        if len(drawn) <= _FEW_LINES:
            if any(line.label for line in drawn):
                times.legend(frameon=False)
        else:
            handles, labels = times.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8)
    save(figure, path)


def _line_style(line: Line) -> dict[str, Any]:
    turn, colour = divmod(line.style, len(COLOURS))
    return {
        "color": COLOURS[colour],
        "linestyle": _DASHES[turn % len(_DASHES)],
        "marker": _MARKERS[turn % len(_MARKERS)],
        "markersize": 4,
        "label": plain(line.label),
    }


def draw_timeline(timeline: Sequence[Happened], path: Path, title: str) -> None:
    """Draw who does what and when, with a row for each agent."""
    with mpl.rc_context(STYLE):
        agents = list(dict.fromkeys(entry.who for entry in timeline))
        figure = Figure(figsize=(11, 1.6 + 1.1 * len(agents)), layout="constrained")
        axes = figure.subplots()
        axes.set_title(plain(title), loc="left", fontweight="bold")
        for number, who in enumerate(agents):
            mine = [entry for entry in timeline if entry.who == who]
            _row(axes, mine, len(agents) - 1 - number, COLOURS[number % len(COLOURS)])
        axes.set_yticks(range(len(agents)), list(map(plain, reversed(agents))))
        axes.set_ylim(-0.6, len(agents) - 0.1)
        axes.margins(x=0.12)
        axes.set_xlabel("time (µs)")
    save(figure, path)


_STAGGER: Final = (0.12, 0.36, 0.6)
"""Heights of texts above a row, in turn, so that neighbours do not cover one another."""


def _row(axes: Axes, entries: Sequence[Happened], level: int, colour: str) -> None:
    times = [entry.time * 1e6 / SECOND for entry in entries]
    axes.plot(times, [level] * len(times), "o-", color=colour, linewidth=1, markersize=5)
    for number, (time, entry) in enumerate(zip(times, entries, strict=True)):
        height = level + _STAGGER[number % len(_STAGGER)]
        axes.plot([time, time], [level, height], color=colour, linewidth=0.6)
        axes.text(time, height, plain(entry.what), fontsize=7, ha="left", va="bottom")
