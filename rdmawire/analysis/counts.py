"""What captures amount to, as text: a line for each, or JSON. One class per format."""

from typing import Protocol

from rdmawire.analysis.objects import dumped
from rdmawire.analysis.tally import Tally, counted


class Counts(Protocol):
    """What turns tallies into text: ``head`` before those of all files, ``tail`` behind."""

    def head(self) -> str: ...

    def of(self, name: str, tally: Tally, damage: str) -> str:
        """One capture. ``damage`` is why it could not be read to its end; empty if it could."""

    def total(self, files: int, tally: Tally) -> str:
        """All captures together."""

    def tail(self) -> str: ...


class CountLines:
    """A line per capture, and one for all of several."""

    def head(self) -> str:
        return ""

    def of(self, name: str, tally: Tally, damage: str) -> str:
        nothing = damage and not tally.frames
        return "" if nothing else f"{name}: {tally}\n"

    def total(self, files: int, tally: Tally) -> str:
        return f"{counted(files, 'file')}: {tally}\n" if files > 1 else ""

    def tail(self) -> str:
        return ""


class CountObjects:
    """JSON: an array of objects, or an object per line."""

    def __init__(self, *, array: bool) -> None:
        self._array = array
        self._between = ""

    def head(self) -> str:
        return "[\n" if self._array else ""

    def of(self, name: str, tally: Tally, damage: str) -> str:
        counts = {"file": name, **tally.as_object(), "damaged": damage or None}
        between, self._between = self._between, ",\n" if self._array else ""
        return between + dumped(counts) + ("" if self._array else "\n")

    def total(self, files: int, tally: Tally) -> str:  # noqa: ARG002 - readers of JSON can add
        return ""

    def tail(self) -> str:
        return "\n]\n" if self._array else ""
