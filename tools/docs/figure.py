"""A header drawn from its table: boxes on rows of 32 bits, as SVG."""

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from rdmawire.wire.header import Header, Row

_BIT, _HEIGHT, _TOP = 20, 30, 18
_LONGEST = 64
"""Bytes of the longest header that is drawn; longer ones would be pages of boxes."""


def figure(table: type[Header]) -> str:
    """The header as SVG; nothing for headers too long to draw."""
    if table.SIZE > _LONGEST:
        return ""
    boxes = "".join(_boxes(table))
    height = _TOP + _HEIGHT * -(-table.SIZE // 4) + 2
    scale = "".join(
        f'<text x="{bit * _BIT + 10}" y="12" class="bit">{bit}</text>' for bit in (0, 8, 16, 24, 31)
    )
    return (
        f'<svg viewBox="0 0 {32 * _BIT + 2} {height}" role="img" class="header-figure" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(table.__name__)}</title>'
        f"{scale}{boxes}</svg>\n"
    )


def _boxes(table: type[Header]) -> Iterator[str]:
    for row in table.rows:
        for part, (start, end) in enumerate(_parts(row)):
            yield _box(row, start, end, labelled=part == _widest(row))


def _parts(row: Row) -> list[tuple[int, int]]:
    """The stretches of bits, one per line of the figure that the row touches."""
    start, end = row.bit, row.bit + row.width * row.times
    edges = [start, *range((start // 32 + 1) * 32, end, 32), end]
    return list(pairwise(edges))


def _widest(row: Row) -> int:
    widths = [end - start for start, end in _parts(row)]
    return widths.index(max(widths))


def _box(row: Row, start: int, end: int, *, labelled: bool) -> str:
    x, y = start % 32 * _BIT + 1, _TOP + start // 32 * _HEIGHT
    width = (end - start) * _BIT
    box = f'<rect x="{x}" y="{y}" width="{width}" height="{_HEIGHT}" class="box"/>'
    if not labelled:
        return box
    name = row.name if row.times == 1 else f"{row.name}[{row.times}]"
    fits = len(name) * 7 <= width
    shown = escape(name) if fits else escape(name[: max(width // 7, 1)])
    middle = f'x="{x + width / 2}" y="{y + _HEIGHT / 2 + 4}"'
    return f'{box}<text {middle} class="name"><title>{escape(name)}</title>{shown}</text>'
