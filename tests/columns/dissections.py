"""Frames of captures that are dissected one by one: what all other ways must agree with."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rdmawire.capture import open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector


def dissections(path: Path) -> Iterator[Dissection]:
    """The frames of a capture."""
    with open_capture(path) as reader:
        yield from Dissector().capture(reader)


@cache
def frames_of(path: Path) -> list[Dissection]:
    """The frames of a capture of the repository, dissected once for all tests."""
    return list(dissections(path))
