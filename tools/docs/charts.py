"""The charts of the pages by name, each drawn from what stands under ``docs/data``."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tools.docs.chart import Axis, Bar, Line, bars, lines, ticks

DATA: Final = Path(__file__).parents[2] / "docs" / "data"
MARKER: Final = re.compile(r"^<!-- chart: ([\w-]+) -->$", re.MULTILINE)

_STYLES: Final = ("first", "second", "third", "fourth")
_SCHEMES: Final = dict(zip(("nothing", "TIMELY", "DCQCN"), _STYLES, strict=False))


def with_charts(page: str) -> str:
    """The text of a page with a chart in place of each marker."""
    return MARKER.sub(lambda found: CHARTS[found[1]](), page)


def _data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return found


def _over_time(values: Sequence[float], every: float) -> list[tuple[float, float]]:
    """Each sample is of the step that ends with it."""
    return [(every * number, value) for number, value in enumerate(values, 1)]


def _incast_queue() -> str:
    data = _data("incast")
    schemes, every = data["schemes"], data["every"]["queue"]
    end = every * len(schemes["DCQCN"]["queue"])
    drawn = [
        Line(name, style, _over_time(schemes[name]["queue"], every))
        for name, style in _SCHEMES.items()
    ]
    model = Line("DCQCN at rest, by its model", "model", [(0, data["model"]), (end, data["model"])])
    y = Axis("queue, KB", ((1, "≤ 1"), *ticks(10, 100, 1000, 10000)), logarithmic=True)
    return lines("Eight hosts write to one: what waits in the switch", _ms(end), y, [*drawn, model])


def _incast_rates(name: str) -> str:
    data = _data("incast")
    rates, every = data["schemes"][name]["rates"], data["every"]["rates"]
    end = every * len(rates[0])
    flows = [
        Line(
            "" if number else "each of eight senders",
            f"{_SCHEMES[name]} thin",
            _over_time(rate, every),
        )
        for number, rate in enumerate(rates)
    ]
    fair = Line("fair share", "model", [(0, 5), (end, 5)])
    y = Axis("rate, Gb/s", ticks(0, 2, 4, 6, 8, 10))
    return lines(f"{name}: what each sender gets", _ms(end), y, [*flows, fair])


def _ms(end: float) -> Axis:
    return Axis("ms", ticks(*(end * part / 4 for part in range(5))))


def _victim(series: str, label: str, steps: tuple[float, ...], title: str) -> str:
    data = _data("victim")
    every, plans = data["every"], data["plans"]
    drawn = [
        Line(name, style, _over_time(plan[series], every))
        for (name, plan), style in zip(plans.items(), _STYLES, strict=True)
    ]
    end = every * len(next(iter(plans.values()))[series])
    return lines(title, _ms(end), Axis(label, ticks(*steps)), drawn)


def _victim_rate() -> str:
    title = "A flow whose own way is free, others begin after 1 ms"
    return _victim("victim", "rate, Gb/s", (0, 2, 4, 6, 8, 10, 12), title)


def _victim_rest() -> str:
    title = "How much of the time that flow's host is told to rest"
    return _victim("rested", "share of the time", (0, 0.25, 0.5, 0.75, 1), title)


def _spread() -> str:
    data = _data("spread")
    drawn = [
        Bar(spine, f"hash with {seed}", style, count)
        for (seed, counts), style in zip(data["spines"].items(), _STYLES[1:], strict=False)
        for spine, count in counts.items()
    ]
    even = data["flows"] / len(next(iter(data["spines"].values())))
    level = Line("all alike", "model", [(0, even), (1, even)])
    title = f"{data['flows']} flows between two leaves, by the spine that they take"
    return bars(title, Axis("flows", ticks(0, 25, 50, 75, 100, 125)), drawn, level)


def _scale() -> str:
    """The time that fabrics of several sizes take, by the frames that they carry."""
    runs = _data("scale")["runs"]
    points = [(run["frames"], run["seconds"]) for run in runs]
    frames, seconds = points[0]
    even = [(many, seconds * many / frames) for many, _ in points]
    x = Axis("frames on links", _powers(3, 6), logarithmic=True)
    y = Axis("seconds of the processor", ticks(0.01, 0.1, 1, 10, 100), logarithmic=True)
    title = f"{runs[0]['nics']} to {runs[-1]['nics']:,} adapters: time by frames"
    drawn = [Line("measured", "third", points), Line("in proportion to the first", "model", even)]
    return lines(title, x, y, drawn)


def _powers(low: int, high: int) -> tuple[tuple[float, str], ...]:
    """Ticks at powers of ten."""
    return tuple((10**power, f"{10**power:,}") for power in range(low, high + 1))


CHARTS: Final[dict[str, Callable[[], str]]] = {
    "incast-queue": _incast_queue,
    "incast-dcqcn": lambda: _incast_rates("DCQCN"),
    "incast-timely": lambda: _incast_rates("TIMELY"),
    "victim-rate": _victim_rate,
    "victim-rest": _victim_rest,
    "spread": _spread,
    "scale": _scale,
}
