"""Blocks of pages that are run: ``console`` and ``python``."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of a page, and the line that it begins at."""

    page: Path
    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[2])
        for found in _BLOCK.finditer(text)
    ]
