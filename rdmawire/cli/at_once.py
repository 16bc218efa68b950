"""Fields of large captures, many frames at once: `dissect -T fields` by columns."""

import os
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from rdmawire.analysis.output import Fields

if TYPE_CHECKING:
    from rdmawire.analysis.filter import Filter

_LARGE = 8 << 20
"""Octets of a file that are worth the import of NumPy."""


def field_lines(
    path: str, output: Fields, wanted: "Filter | None", ports: Collection[int]
) -> Iterator[str] | None:
    """The lines of a capture; ``None`` if they are to be written frame by frame.

    That is small files and what is no pcap file, fields of no fixed place, and where there is no
    NumPy. Both ways give the same lines.
    """
    if not _is_large(path):
        return None
    try:
        from rdmawire.analysis.columns.choice import EVERY_FRAME, Choice
        from rdmawire.analysis.columns.text import FieldLines
    except ImportError:
        return None
    choice = EVERY_FRAME if wanted is None else Choice(where=wanted)
    how = output.separators
    fields = FieldLines(output.names, choice, output.line, how.separator, how.quote)
    return fields.lines(path, ports)


def _is_large(path: str) -> bool:
    try:
        return os.stat(path).st_size >= _LARGE
    except (OSError, ValueError):
        return False
