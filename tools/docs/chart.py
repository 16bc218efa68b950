"""Charts as SVG: lines over an axis, and bars. Colours are the style sheet's, light and dark.

What is drawn is the same wherever it is drawn: nothing is measured, nothing is left to chance.
"""

from collections.abc import Iterator, Sequence
from html import escape
from math import log10
from typing import Final, NamedTuple

_WIDTH, _HEIGHT = 640, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 34, 30, 44
_LEGEND = 26
_LETTER: Final = 6.6
"""How wide a letter of the legend is, in pixels, about."""


class Axis(NamedTuple):
    """What is along a side: ``ticks`` are values with their names, from one end to the other."""

    label: str
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where a value is, 0.0 to 1.0; what is beyond an end is at it."""
        low, high = self._scaled(self.ticks[0][0]), self._scaled(self.ticks[-1][0])
        return min(max((self._scaled(value) - low) / (high - low), 0.0), 1.0)

    def _scaled(self, value: float) -> float:
        if not self.logarithmic:
            return value
        return log10(max(value, self.ticks[0][0]))


class Line(NamedTuple):
    """Points, and how they are drawn: ``style`` is a class of the style sheet.

    A line without a label is not in the legend.
    """

    label: str
    style: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    """One bar: what is under it, which others it belongs to, and how high it is."""

    label: str
    series: str
    style: str
    value: float


def ticks(*values: float) -> tuple[tuple[float, str], ...]:
    """Values with themselves as names."""
    return tuple((value, f"{value:g}") for value in values)


def lines(title: str, x: Axis, y: Axis, drawn: Sequence[Line]) -> str:
    """A chart of lines."""
    paths = [f'<path class="{one.style}" d="{_path(one.points, x, y)}"/>' for one in drawn]
    named = {one.label: one.style for one in drawn if one.label}
    return _figure(title, [*_grid(x, y), *paths, *_legend(named)])


def bars(title: str, y: Axis, drawn: Sequence[Bar], level: Line) -> str:
    """A chart of bars, side by side, and a level to compare them with, from 0 to 1."""
    whole, step = Axis("", ((0, ""), (1, ""))), 1 / len(drawn)
    boxes = [_box(number * step, step, y.place(one.value), one) for number, one in enumerate(drawn)]
    named = {one.series: one.style for one in drawn} | {level.label: level.style}
    path = f'<path class="{level.style}" d="{_path(level.points, whole, y)}"/>'
    return _figure(title, [*_grid(whole, y), *boxes, path, *_legend(named)])


def _figure(title: str, parts: Sequence[str]) -> str:
    height = _TOP + _HEIGHT + _BOTTOM + _LEGEND
    width = _LEFT + _WIDTH + _RIGHT
    return (
        f'<figure class="chart"><svg viewBox="0 0 {width} {height}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
        f'<text class="title" x="{_LEFT}" y="18">{escape(title)}</text>'
        f"{''.join(parts)}</svg></figure>"
    )


def _across(part: float) -> str:
    return f"{_LEFT + part * _WIDTH:.1f}"


def _down(part: float) -> str:
    return f"{_TOP + (1 - part) * _HEIGHT:.1f}"


def _path(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    places = [f"{_across(x.place(one))} {_down(y.place(other))}" for one, other in points]
    return "M" + "L".join(places)


def _grid(x: Axis, y: Axis) -> Iterator[str]:
    for value, name in y.ticks:
        level = _down(y.place(value))
        yield f'<path class="grid" d="M{_across(0)} {level}H{_across(1)}"/>'
        yield f'<text class="end" x="{_LEFT - 6}" y="{float(level) + 4:.1f}">{escape(name)}</text>'
    for value, name in x.ticks:
        yield _under(x.place(value), name)
    middle = _TOP + _HEIGHT / 2
    yield _text(_across(0.5), _TOP + _HEIGHT + 36, x.label)
    yield (
        f'<text class="middle" transform="translate(14 {middle:.0f}) rotate(-90)">'
        f"{escape(y.label)}</text>"
    )


def _under(part: float, name: str) -> str:
    return _text(_across(part), _TOP + _HEIGHT + 17, name)


def _text(across: str, down: float, text: str) -> str:
    return f'<text class="middle" x="{across}" y="{down:.0f}">{escape(text)}</text>'


def _box(left: float, width: float, height: float, bar: Bar) -> str:
    """A bar with its number in it and its name under it."""
    middle, top = left + width / 2, float(_down(height))
    return (
        f'<rect class="{bar.style}" x="{_across(left + width * 0.15)}" y="{top:.1f}" '
        f'width="{width * 0.7 * _WIDTH:.1f}" height="{height * _HEIGHT:.1f}"/>'
        f'<text class="inside" x="{_across(middle)}" y="{top + 40:.1f}">{bar.value:g}</text>'
        f"{_under(middle, bar.label)}"
    )


def _legend(named: dict[str, str]) -> Iterator[str]:
    across, down = float(_LEFT), _TOP + _HEIGHT + _BOTTOM + 12
    for label, style in named.items():
        yield f'<path class="{style}" d="M{across:.1f} {down}h22"/>'
        yield f'<text x="{across + 27:.1f}" y="{down + 4}">{escape(label)}</text>'
        across += 27 + len(label) * _LETTER + 18
