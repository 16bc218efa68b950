"""A picture of the states of a queue pair, drawn from the table of transitions."""

from collections.abc import Iterable, Iterator

from rdmawire.verbs import QPState, QPType

_WIDTH, _HEIGHT = 96, 36
_PLACES = {
    QPState.RESET: (10, 90),
    QPState.INIT: (170, 90),
    QPState.RTR: (330, 90),
    QPState.RTS: (490, 90),
    QPState.SQD: (490, 10),
    QPState.SQE: (490, 170),
    QPState.ERR: (650, 90),
}
"""Where each state stands: the upper left corner of its box, in pixels."""


_OPENING = """\
<svg class="states" viewBox="0 0 760 216" role="img" aria-label="States of a queue pair">
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"
orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>"""


def picture(transitions: Iterable[tuple[QPType, QPState, QPState]]) -> str:
    """An SVG of the ways from state to state; those to RESET and ERR go without saying."""
    ways = {(start, end) for _, start, end in transitions if _is_drawn(start, end)}
    arrows = (_arrow(start, end) for start, end in sorted(ways))
    return "\n".join((_OPENING, *arrows, *_boxes(), *map(_from_any, _FROM_ANY), "</svg>"))


_FROM_ANY = (QPState.RESET, QPState.ERR)


def _from_any(state: QPState) -> str:
    x, y = _PLACES[state]
    return f'<text x="{x + _WIDTH // 2}" y="{y + 56}" text-anchor="middle">from any</text>'


def _is_drawn(start: QPState, end: QPState) -> bool:
    return start != end and end not in _FROM_ANY


def _arrow(start: QPState, end: QPState) -> str:
    """A line between the sides that face each other; two ways stand side by side."""
    (x1, y1), (x2, y2) = _PLACES[start], _PLACES[end]
    if y1 == y2:
        return _line(x1 + _WIDTH, y1 + _HEIGHT // 2, x2, y2 + _HEIGHT // 2)
    aside = 12 if y1 < y2 else -12
    middle = x1 + _WIDTH // 2 + aside
    return _line(middle, y1 + (_HEIGHT if y1 < y2 else 0), middle, y2 + (0 if y1 < y2 else _HEIGHT))


def _line(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" marker-end="url(#head)"/>'


def _boxes() -> Iterator[str]:
    for state, (x, y) in _PLACES.items():
        yield f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        yield (
            f'<text x="{x + _WIDTH // 2}" y="{y + _HEIGHT // 2}" text-anchor="middle" '
            f'dominant-baseline="central">{state.name}</text>'
        )
