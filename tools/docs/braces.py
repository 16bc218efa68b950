"""Braces in cells of tables: what is not code in them is taken for attributes of the cell."""

import re
from typing import Final

_CODE_OR_BRACES: Final = re.compile(r"`[^`]*`|\{[^{}`]*\}")


def guarded(line: str) -> str:
    """A line of a page; what stands in braces in a table's row is code."""
    return _CODE_OR_BRACES.sub(_as_code, line) if line.startswith("|") else line


def _as_code(found: re.Match[str]) -> str:
    text = found[0]
    return text if text.startswith("`") else f"`{text}`"
