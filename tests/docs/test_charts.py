"""Charts of the pages: drawn from what is measured, where pages ask for them, and well-formed.

``RDMAWIRE_EFFORT=2`` measures everything anew, not only what takes little time.
"""

import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import EFFORT
from tools.docs.chart import Axis, Bar, Line, bars, lines, ticks
from tools.docs.charts import CHARTS, DATA, MARKER, with_charts
from tools.plots.__main__ import text_of
from tools.plots.curves import CURVES

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
QUICK = ("victim", "spread")
_PLACE = re.compile(r"[ML]([\d.]+) ([\d.]+)")

values = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50)


@pytest.mark.parametrize("name", CURVES)
def test_what_is_drawn_is_what_is_measured(name: str) -> None:
    """If this fails, and should: ``python -m tools.plots``."""
    if name not in QUICK and EFFORT <= 1:
        pytest.skip("takes long")
    assert (DATA / f"{name}.json").read_text() == text_of(CURVES[name]()) + "\n"


def test_pages_ask_for_charts_that_there_are_and_for_all_of_them() -> None:
    asked = [name for page in PAGES for name in MARKER.findall(page.read_text())]
    assert sorted(asked) == sorted(CHARTS)


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_well_formed_and_stands_in_place_of_its_marker(name: str) -> None:
    page = with_charts(f"before\n\n<!-- chart: {name} -->\n\nafter\n")
    drawn = page.split("\n\n")[1]
    figure = ET.fromstring(drawn)
    assert page == f"before\n\n{drawn}\n\nafter\n"
    assert figure[0].attrib["role"] == "img"
    assert figure.find(".//{http://www.w3.org/2000/svg}title") is not None
    assert drawn == CHARTS[name]()


@given(values, values)
def test_no_point_is_drawn_outside(xs: list[float], ys: list[float]) -> None:
    x, y = Axis("x", ticks(0, 10)), Axis("y", ticks(1, 10, 100), logarithmic=True)
    drawn = lines("<title> & more", x, y, [Line("a < b", "first", [*zip(xs, ys, strict=False)])])
    ET.fromstring(drawn)
    places = [(float(one), float(other)) for one, other in _PLACE.findall(drawn)]
    width, height = map(float, re.findall(r'viewBox="0 0 (\d+) (\d+)"', drawn)[0])
    assert all(0 <= one <= width and 0 <= other <= height for one, other in places)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_what_is_more_is_further_along(logarithmic: bool) -> None:
    axis = Axis("", ticks(1, 10, 100), logarithmic)
    places = [axis.place(value) for value in (1, 2, 10, 50, 100)]
    assert all(less < more for less, more in pairwise(places))
    assert (places[0], places[-1]) == (0, 1)
    assert places[2] == pytest.approx(0.5 if logarithmic else 1 / 11)


def test_bars_are_as_high_as_their_values() -> None:
    found = bars(
        "t",
        Axis("y", ticks(0, 10)),
        [Bar("a", "s", "second", 5), Bar("b", "s", "second", 10)],
        Line("level", "model", [(0, 5), (1, 5)]),
    )
    heights = [float(height) for height in re.findall(r'<rect[^>]* height="([\d.]+)"', found)]
    assert heights[1] == pytest.approx(2 * heights[0])


@given(st.dictionaries(st.text(), st.lists(st.integers()) | st.dictionaries(st.text(), st.text())))
def test_data_is_json(value: dict[str, object]) -> None:
    assert json.loads(text_of(value)) == value
