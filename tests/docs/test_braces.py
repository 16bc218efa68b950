"""Cells of generated pages keep what stands in braces."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from tools.docs import rnic, scenarios, vectors
from tools.docs.braces import guarded

CAPTURES = Path(__file__).parents[2] / "captures"
PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "scenarios": scenarios.page,
    "rnic": rnic.page,
    "vectors": partial(vectors.page, CAPTURES),
}
EXTENSIONS = ["attr_list", "md_in_html", "tables"]
_ATTRIBUTES = re.compile(r"<t[dh] (?!style=)[^>]*>")


def rendered(text: str) -> str:
    """As the site's Markdown does it."""
    html: str = import_module("markdown").markdown(text, extensions=EXTENSIONS)
    return html


@pytest.mark.parametrize("page", PAGES)
def test_no_cell_has_attributes_in_place_of_text(page: str) -> None:
    html = rendered("\n".join(map(guarded, PAGES[page]())))
    assert "<td" in html
    assert _ATTRIBUTES.findall(html) == []


def test_braces_in_rows_become_code() -> None:
    assert guarded("| such as {a: 1} | `{b: 2}` |") == "| such as `{a: 1}` | `{b: 2}` |"
    assert guarded("Text {of: a paragraph}") == "Text {of: a paragraph}"
    row = "| a |\n|---|\n| such as {a: 1..2} |"
    assert _ATTRIBUTES.search(rendered(row))
    assert "<code>{a: 1..2}</code>" in rendered("\n".join(map(guarded, row.splitlines())))
