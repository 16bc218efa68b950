"""Pictures of hosts, transfers and kernels: trees of links, times by size, and timelines."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rdmawire.figure import COLOURS, GREY, STYLE, Axes, Figure, mpl, plain, save
from rdmawire.gpudirect.kernel import Happened
from rdmawire.gpudirect.transfer import TransferPath, TransferReport
from rdmawire.terminal import plural
from rdmawire.topology import Device, DeviceKind, LinkUse, Machine, Route, Step, Switch
from rdmawire.units import SECOND, SIZES

# Trees.

_FILLS: Final = {
    DeviceKind.GPU: "#CDE8D9",
    DeviceKind.ADAPTER: "#FBE3B5",
    DeviceKind.NVME: "#E8E8E8",
}
_DARK: Final = "#555555"
_LABEL: Final[dict[str, Any]] = {
    "fontsize": 7,
    "ha": "center",
    "va": "center",
    "zorder": 2,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5},
}
"""How a text on a line is drawn."""
_MEMORY: Final = 0.55
"""Height of the memory of a node above its roots."""
_DIP: Final = 0.55
"""How far a link between two GPUs hangs down below them."""
_SHORT: Final = 12
_MAX_WIDTH: Final = 60.0
"""Inches of the widest picture."""
_ENDS: Final = 2
_TREE_STYLE: Final = {**STYLE, "axes.grid": False}


def draw_host(machine: Machine, path: Path, routes: Sequence[tuple[str, Route]] = ()) -> None:
    """Draw the tree of a host; the name of the file ends in ``.svg`` or ``.png``.

    Each of ``routes`` has a colour and its name in the legend. With routes, only the roots that
    they pass are drawn, and what is below them.
    """
    with mpl.rc_context(_TREE_STYLE):
        figure = _host(machine, routes)
    save(figure, path)


def draw_links(machine: Machine, report: TransferReport, path: Path, title: str) -> None:
    """Draw the bytes of a transfer on the links of its hosts, which are alike: a tree for each."""
    names = list(dict.fromkeys(host for host, _, _ in report.links))
    with mpl.rc_context(_TREE_STYLE):
        figure = _used_links(machine, report, names)
        figure.suptitle(plain(title), fontweight="bold")
    save(figure, path)


class _HostTree:
    """Places of the nodes of a host: children side by side below their parent.

    Only the roots that ``used`` names, or that are above what it names, have places; all of them
    if it is empty. ``memories`` are the NUMA nodes whose memory it names.
    """

    def __init__(self, machine: Machine, used: frozenset[str] = frozenset()) -> None:
        self.machine = machine
        self.places: dict[str, tuple[float, float]] = {}
        self.parents: dict[str, tuple[str, str]] = {}
        self.memories = [one.number for one in machine.nodes if _memory(one.number) in used]
        self._next = 0.0
        below: dict[str, list[str]] = {}
        nodes: list[Switch | Device] = [*machine.switches, *machine.devices]
        for one in nodes:
            below.setdefault(one.parent, []).append(one.name)
            label = "" if one.link is None else str(one.link)
            coherent = isinstance(one, Device) and one.coherent
            self.parents[one.name] = one.parent, "NVLink-C2C" if coherent else label
        shown = {self._root(name) for name in used if not name.startswith(_memory(""))}
        self.bridges = [one for one in machine.bridges if one.name in shown or not used]
        nodes_shown = {one.node for one in self.bridges}
        for number in set(self.memories) - nodes_shown:
            self.bridges.append(next(one for one in machine.bridges if one.node == number))
        self.bridges.sort(key=lambda one: one.node)
        for bridge in self.bridges:
            self._put(bridge.name, 0, below)
        self.width = self._next
        self.depth = max(-y for _, y in self.places.values())

    def _root(self, name: str) -> str:
        while name in self.parents:
            name = self.parents[name][0]
        return name

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
        roots = [one for one in self.bridges if name == _memory(one.node)]
        return sum(self.places[one.name][0] for one in roots) / len(roots), _MEMORY

    def curve(self, step: tuple[str, str]) -> tuple[list[float], list[float]]:
        """Return the points of a link: a line, or a curve below two GPUs that it joins."""
        (x, y), (other_x, other_y) = (self.place(name) for name in step)
        devices = {one.name for one in self.machine.devices}
        if not devices.issuperset(step):
            return [x, other_x], [y, other_y]
        parts = [number / 20 for number in range(21)]
        dips = [4 * part * (1 - part) * _DIP for part in parts]
        return (
            [x + (other_x - x) * part for part in parts],
            [y + (other_y - y) * part - dip for part, dip in zip(parts, dips, strict=True)],
        )


def _memory(node: int | str) -> str:
    return f"memory of node {node}"


def _host(machine: Machine, routes: Sequence[tuple[str, Route]]) -> Figure:
    steps: list[Step] = [step for _, route in routes for step in route.steps]
    tree = _HostTree(
        machine, frozenset(end for step in steps for end in (step.source, step.target))
    )
    figure = Figure(figsize=_inches(tree), layout="constrained")
    axes = figure.subplots()
    _draw_tree(axes, tree, f"{machine.name}{_note(tree)}")
    for number, (name, route) in enumerate(routes):
        _draw_route(axes, tree, name, route, COLOURS[number % len(COLOURS)])
    if routes:
        axes.legend(loc="upper left", bbox_to_anchor=(0, 0), frameon=False, fontsize=9)
    return figure


def _inches(tree: _HostTree, each: float = 1.25) -> tuple[float, float]:
    """Return width and height of a tree in inches; ``each`` is the width of a device."""
    return min(max(6.0, each * tree.width), _MAX_WIDTH), 1.9 + 1.25 * tree.depth


def _draw_tree(axes: Axes, tree: _HostTree, title: str) -> None:
    axes.set_axis_off()
    axes.set_title(plain(title), loc="left", fontsize=10)
    axes.set_xlim(-0.6, max(tree.width, 3) - 0.4)
    axes.set_ylim(-tree.depth - _DIP - 0.1, _MEMORY + 0.4)
    _draw_links(axes, tree)
    _draw_nodes(axes, tree)


def _note(tree: _HostTree) -> str:
    """Say what the tree does not show: roots that are left out, and links between GPUs."""
    machine = tree.machine
    left_out = len(machine.bridges) - len(tree.bridges)
    notes = [f"{plural(left_out, 'other root')} not drawn"] if left_out else []
    for name, links in (("NVLinks", machine.nvlinks), ("UALinks", machine.ualinks)):
        counts = sorted({count for count in links.values() if count})
        pairs = sum(1 for count in links.values() if count)
        if counts:
            number = " or ".join(map(str, counts))
            notes.append(f"{number} {name} join each of {plural(pairs, 'pair')} of GPUs")
    return f"\n{'; '.join(notes)}" if notes else ""


def _draw_links(axes: Axes, tree: _HostTree) -> None:
    for name, (parent, label) in tree.parents.items():
        if name not in tree.places:
            continue
        (x, y), (up_x, up_y) = tree.places[name], tree.places[parent]
        axes.plot([x, up_x], [y, up_y], color=GREY, linewidth=1.2, zorder=1)
        axes.text((x + up_x) / 2, (y + up_y) / 2, label, color=_DARK, **_LABEL)
    nodes: dict[int, list[float]] = {}
    for bridge in tree.bridges:
        nodes.setdefault(bridge.node, []).append(tree.places[bridge.name][0])
    for number, places in nodes.items():
        middle = sum(places) / len(places)
        name = f"NUMA node {number}" if number not in tree.memories else _memory(number)
        box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": _DARK}
        axes.text(middle, _MEMORY + 0.1, name, ha="center", fontsize=8, zorder=3,
                  **({"bbox": box} if number in tree.memories else {}))  # fmt: skip
    if len(nodes) > 1:
        ends = [tree.places[bridge.name][0] for bridge in tree.bridges]
        axes.plot([min(ends), max(ends)], [_MEMORY, _MEMORY], color=GREY, linestyle="--", zorder=1)
        between = (min(ends) + max(ends)) / 2
        axes.text(between, _MEMORY, plain(tree.machine.settings.socket_link), **_LABEL)


def _draw_route(axes: Axes, tree: _HostTree, name: str, route: Route, colour: str) -> None:
    label = f"{name}: {route.steps[0].source} to {route.steps[-1].target}"
    for step in route.steps:
        xs, ys = tree.curve((step.source, step.target))
        axes.plot(xs, ys, color=colour, linewidth=3.5, alpha=0.6, zorder=1.5,
                  label=plain(label), solid_capstyle="round")  # fmt: skip
        label = ""


def _draw_nodes(axes: Axes, tree: _HostTree) -> None:
    devices = {device.name: device for device in tree.machine.devices}
    switches = {switch.name: switch for switch in tree.machine.switches}
    for name, (x, y) in tree.places.items():
        fill, text = "#D9E7F5", _shortened(name)
        if (device := devices.get(name)) is not None:
            fill = _FILLS.get(device.kind, "#FFFFFF")
            text += f"\n{_shortened(device.model)}" if device.model else ""
        elif name in switches and switches[name].acs:
            text += "\nACS"
        box = {"boxstyle": "round,pad=0.35", "facecolor": fill, "edgecolor": _DARK}
        axes.text(x, y, plain(text), ha="center", va="center", fontsize=8, zorder=3, bbox=box)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def _used_links(machine: Machine, report: TransferReport, names: Sequence[str]) -> Figure:
    """Return a tree for each host, with the bytes on its links."""
    uses: list[Mapping[tuple[str, str], LinkUse]] = [
        {(one, other): use for (host, one, other), use in report.links.items() if host == name}
        for name in names
    ]
    trees = [_HostTree(machine, frozenset(end for ends in use for end in ends)) for use in uses]
    inches = [_inches(tree, 1.9) for tree in trees]
    width = min(sum(width for width, _ in inches), _MAX_WIDTH)
    height = max(height for _, height in inches) + 0.4
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(
        1, len(names), width_ratios=[width for width, _ in inches], squeeze=False
    )
    for axes, name, tree, use in zip(grid[0], names, trees, uses, strict=True):
        _draw_tree(axes, tree, name)
        _draw_uses(axes, tree, use, report.elapsed)
    return figure


def _draw_uses(
    axes: Axes, tree: _HostTree, uses: Mapping[tuple[str, str], LinkUse], elapsed: float
) -> None:
    """Draw how much each link carried: the busier, the wider."""
    for ends, use in uses.items():
        share, (xs, ys) = use.busy_ns / elapsed, tree.curve(ends)
        axes.plot(xs, ys, color=COLOURS[0], linewidth=2 + 6 * share, alpha=0.5, zorder=1.5,
                  solid_capstyle="round")  # fmt: skip
        back = ends[1], ends[0]
        if back in uses and ends > back:
            continue
        both = [(ys, use)] + ([(ys[::-1], uses[back])] if back in uses else [])
        lines = [_use_text(one, carried, elapsed) for one, carried in both]
        at = (xs[0] + xs[-1]) / 2, (min(ys) if len(ys) > _ENDS else sum(ys) / _ENDS)
        axes.text(*at, "\n".join(lines), **{**_LABEL, "zorder": 2.5})


def _use_text(ys: Sequence[float], use: LinkUse, elapsed: float) -> str:
    arrow = "↑ " if ys[-1] > ys[0] else "↓ " if ys[-1] < ys[0] else ""
    busy = f", busy {use.busy_ns / elapsed:.0%}" if use.rate else ""
    return f"{arrow}{_amount(use.bytes)}{busy}"


def _amount(size: int) -> str:
    """Write a number of bytes in few digits."""
    name, unit = next(
        (name, unit) for name, unit in reversed([*SIZES.items()]) if size >= unit or unit == 1
    )
    return f"{size / unit:.3g} {name or 'bytes'}"


# Times by size.


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
"""Lines that can be distinguished by colour and dashes."""
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


# Timelines.

_WIDTH: Final = 9.0
"""Inches of the axis of time."""
_LETTER: Final = 0.058
"""Inches of a letter of a text, at most as wide as most are."""
_LINE: Final = 0.16
"""Inches from one line of texts to the next."""
_FIRST: Final = 0.12
_GAP: Final = 0.3
_MAX_LANES: Final = 24
"""Lines of texts above a row; more texts are left out."""


class _Text(NamedTuple):
    """A text of a timeline: when, how high in lines above its row, and whether it has room."""

    time: float
    lane: int
    what: str


def draw_timeline(timeline: Sequence[Happened], path: Path, title: str) -> None:
    """Draw what each agent does and when, with a row for each.

    Texts that would cover others are moved up; those for which there is no room are left out, and
    the title says how many.
    """
    with mpl.rc_context(STYLE):
        figure = _timeline(timeline, title)
    save(figure, path)


def _timeline(timeline: Sequence[Happened], title: str) -> Figure:
    span = _span(timeline)
    agents = list(dict.fromkeys(entry.who for entry in timeline))
    rows = [list(_lanes([one for one in timeline if one.who == who], span)) for who in agents]
    levels, top = _levels(rows)
    figure = Figure(figsize=(_WIDTH + 1.8, top + 1.2), layout="constrained")
    axes = figure.subplots()
    for number, (row, level) in enumerate(zip(rows, levels, strict=True)):
        _draw_row(axes, row, level, COLOURS[number % len(COLOURS)])
    left_out = sum(1 for row in rows for text in row if text.lane >= _MAX_LANES)
    note = f" ({plural(left_out, 'text')} left out)" if left_out else ""
    axes.set_title(plain(f"{title}{note}"), loc="left", fontweight="bold")
    axes.set_yticks(levels, list(map(plain, agents)))
    axes.set_ylim(-_GAP, top)
    start = min((entry.time for entry in timeline), default=0) * 1e6 / SECOND
    axes.set_xlim(start - 0.02 * span, start + span)
    axes.set_xlabel("time (µs)")
    return figure


def _span(timeline: Sequence[Happened]) -> float:
    """Return the microseconds that the axis needs so that no text ends beyond it."""
    start = min((entry.time for entry in timeline), default=0)
    needed = [1e-3]
    for entry in timeline:
        share = min(len(entry.what) * _LETTER / _WIDTH, 0.7)
        needed.append((entry.time - start) * 1e6 / SECOND / (1 - share))
    return max(needed) * 1.02


def _lanes(entries: Sequence[Happened], span: float) -> Iterator[_Text]:
    """Yield the entries of a row: each text in the lowest line where it covers no other."""
    ends: list[float] = []
    for entry in entries:
        time = entry.time * 1e6 / SECOND
        end = time + len(entry.what) * _LETTER / _WIDTH * span
        lane = next((one for one, taken in enumerate(ends) if taken <= time), len(ends))
        if lane < _MAX_LANES:
            ends[lane:] = [end, *ends[lane + 1 :]]
        yield _Text(time, lane, entry.what)


def _levels(rows: Sequence[Sequence[_Text]]) -> tuple[list[float], float]:
    """Return the heights of the rows, in inches from the lowest one, and of the whole."""
    levels, height = [0.0] * len(rows), 0.0
    for number in reversed(range(len(rows))):
        levels[number] = height
        lanes = min(1 + max(text.lane for text in rows[number]), _MAX_LANES)
        height += _FIRST + lanes * _LINE + _GAP
    return levels, max(height, 0.5)


def _draw_row(axes: Axes, row: Sequence[_Text], level: float, colour: str) -> None:
    times = [text.time for text in row]
    axes.plot(times, [level] * len(times), "o-", color=colour, linewidth=1, markersize=5)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}
    for time, lane, what in row:
        if lane < _MAX_LANES:
            height = level + _FIRST + lane * _LINE
            axes.plot([time, time], [level, height], color=colour, linewidth=0.6, zorder=1)
            axes.text(time, height, plain(what), fontsize=7, ha="left", va="bottom", bbox=box)
