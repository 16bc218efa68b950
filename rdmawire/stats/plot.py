"""A report as a figure of Matplotlib: throughput, PSNs over time, opcodes."""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.figure import COLOURS, GREY, STYLE, Axes, Figure, MaxNLocator, mpl, plain, save
from rdmawire.stats.packets import IntArray
from rdmawire.stats.psn_sequence import REACH
from rdmawire.stats.report import FlowReport, Report, Throughput
from rdmawire.stats.throughput import PsnPoints
from rdmawire.units import RATE_UNITS, SECOND, Units, format_duration, unit_of
from rdmawire.wire.serial import MODULUS

_MARKERS = ("o", "^", "s")
_COLOURED = 20
"""Flows that have a colour, those with the most requests."""
_DRAWN = 40_000
"""Points that are drawn; of more, every n-th."""
_OPCODES = 14
"""Opcodes that have a bar of their own."""
_TIMES: Units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def draw(report: Report, points: PsnPoints, path: Path) -> None:
    """Draw into a file whose name ends in ``.svg`` or ``.png``.

    Raises :class:`~rdmawire.errors.CaptureError` if the file cannot be written.
    """
    with mpl.rc_context(STYLE):
        figure = _figure(report, points)
    save(figure, path)


def _figure(report: Report, points: PsnPoints) -> Figure:
    figure = Figure(figsize=(11, 10.5), layout="constrained")
    rates, psns, opcodes = figure.subplots(3, 1, height_ratios=[3, 4, 3])
    title = plain(", ".join(report.files))
    figure.suptitle(title if len(title) < 100 else f"{title[:99]}…", fontweight="bold")
    scale, unit = unit_of(report.seconds, _TIMES)
    _throughput(rates, report.throughput, scale)
    _psns(psns, report, points, scale)
    for axes in (rates, psns):
        axes.set_xlabel(f"time since the first frame ({unit})")
        axes.set_xlim(0, max(report.seconds, 1e-9) / scale)
    _opcodes(opcodes, report)
    return figure


def _throughput(axes: Axes, found: Throughput, scale: float) -> None:
    seconds = found.interval_ns / SECOND
    edges = np.arange(len(found.bytes) + 1) * seconds / scale
    lines = (
        ("RDMA, on the wire", found.bytes, COLOURS[0], "-"),
        ("RDMA, payload", found.payload, COLOURS[1], "-"),
        ("other, on the wire", found.other_bytes, GREY, "--"),
    )
    largest = max(max(sizes, default=0) for _, sizes, _, _ in lines) * 8 / seconds
    scale_bps, unit = unit_of(largest, RATE_UNITS)
    for label, sizes, colour, style in lines:
        if any(sizes):
            heights = np.array(sizes) * 8 / seconds / scale_bps
            axes.stairs(heights, edges, color=colour, label=label, linewidth=1.8, linestyle=style)
    axes.set_ylabel(f"throughput ({unit})")
    axes.set_ylim(bottom=0)
    axes.set_title(f"Throughput, in intervals of {format_duration(found.interval_ns)}", loc="left")
    _legend(axes)


def _psns(axes: Axes, report: Report, points: PsnPoints, scale: float) -> None:
    axes.set_title("PSNs of requests, from each queue pair's first", loc="left")
    axes.set_ylabel("PSN, from the first one")
    if not len(points.times):
        _say(axes, "no requests of RoCE or InfiniBand")
        return
    chosen = slice(None, None, -(-len(points.times) // _DRAWN))
    flows = points.flows[chosen]
    times = (points.times[chosen] - report.first_ns) / SECOND / scale
    heights = _heights(report, points.psns[chosen], flows)
    for own, look in _looks(report, flows):
        _scatter(axes, times[own], heights[own], look)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes)


class _Look(NamedTuple):
    colour: str
    marker: str
    label: str


def _looks(report: Report, flows: IntArray) -> Iterator[tuple[NDArray[np.bool_], _Look]]:
    """Yield groups of points and their look: grey ones first, then flow by flow."""
    ranked = _ranked(report, flows)
    rest = ~np.isin(flows, ranked)
    if rest.any():
        yield rest, _Look(GREY, ".", "other")
    for number, colour, marker in zip(ranked, cycle(COLOURS), cycle(_MARKERS), strict=False):
        yield flows == number, _Look(colour, marker, _name(report.flows[number]))


def _scatter(axes: Axes, times: NDArray[Any], heights: IntArray, look: _Look) -> None:
    axes.plot(
        times, heights, color=look.colour, marker=look.marker, label=look.label,
        linestyle="none", markersize=3.5, markeredgewidth=0, rasterized=len(times) > 2000,
    )  # fmt: skip


def _heights(report: Report, psns: IntArray, flows: IntArray) -> IntArray:
    """Return how far each PSN is from its flow's first."""
    first = np.zeros(int(flows.max()) + 1, np.int64)
    for number in np.unique(flows):
        if number < len(report.flows):
            first[number] = report.flows[number].requests.first_psn or 0
    ahead = (psns - first[flows]) % MODULUS
    # A PSN shortly before the first is that of a retransmit, whose first copy was not captured.
    return np.where(ahead > MODULUS - REACH, ahead - MODULUS, ahead)


def _ranked(report: Report, flows: IntArray) -> list[int]:
    """Return the flows with the most requests."""
    numbers = [n for n in np.unique(flows).tolist() if n < len(report.flows)]
    return sorted(numbers, key=lambda n: -report.flows[n].requests.frames)[:_COLOURED]


def _name(flow: FlowReport) -> str:
    number = flow.qp if flow.ee_context is None else flow.ee_context
    where = "?" if number is None else f"0x{number:x}"
    return f"{flow.source} → {flow.destination} QP {where}"


def _opcodes(axes: Axes, report: Report) -> None:
    axes.set_title("Opcodes", loc="left")
    axes.set_xlabel("packets (of iWARP: FPDUs)")
    counts = _opcode_counts(report)
    if not counts:
        _say(axes, "no RDMA")
        return
    names, frames = zip(*reversed(counts), strict=True)
    rows = range(len(names))
    bars = axes.barh(rows, frames, color=COLOURS[0], height=0.72)
    axes.set_yticks(rows, names, fontsize=9)
    total = sum(frames)
    axes.bar_label(bars, [f"{n:,} ({n / total:.1%})" for n in frames], padding=3, fontsize=9)
    axes.margins(x=0.14)
    axes.grid(visible=False, axis="y")


def _opcode_counts(report: Report) -> list[tuple[str, int]]:
    """Return the most frequent opcodes, and the others together."""
    counts = [(each.name, each.frames) for each in report.opcodes]
    counts += [(f"iWARP {each.name}", each.fpdus) for each in report.rdmap_opcodes]
    counts.sort(key=lambda count: -count[1])
    rest = sum(count for _, count in counts[_OPCODES:])
    return counts[:_OPCODES] + ([("other", rest)] if rest else [])


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False, fontsize=8)


def _say(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#555555")
    axes.set_yticks([])
