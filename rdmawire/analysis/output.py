"""Dissections as text: lines, trees, tables of fields, JSON. One class per format."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from rdmawire.analysis.mood import Mood
from rdmawire.analysis.node import Dissection
from rdmawire.analysis.objects import as_object, dumped
from rdmawire.analysis.selection import Selection
from rdmawire.analysis.summary import summary
from rdmawire.analysis.tree import hex_dump, tree


class Output(Protocol):
    """What turns frames into text: ``head`` comes before them, ``tail`` behind."""

    def head(self) -> str: ...

    def heading(self, name: str) -> str:
        """What comes before the frames of one file of several."""

    def frame(self, frame: Dissection) -> Iterator[str]:
        """The pieces of text for one frame, line ends included."""

    def tail(self) -> str: ...


def plain(mood: Mood, text: str) -> str:  # noqa: ARG001 - a painter with one colour
    """No colour."""
    return text


class Lines:
    """A line per frame, or its tree; below it, if wanted, its octets."""

    def __init__(
        self,
        *,
        trees: bool = False,
        octets: bool = False,
        paint: Callable[[Mood, str], str] = plain,
    ) -> None:
        self._trees = trees
        self._octets = octets
        self._paint = paint
        self._between = ""

    def head(self) -> str:
        return ""

    def frame(self, frame: Dissection) -> Iterator[str]:
        if self._trees:
            for mood, line in tree(frame):
                yield f"{self._paint(mood, line)}\n"
        else:
            found = summary(frame)
            yield f"{self._paint(found.mood, found.line())}\n"
        if self._octets:
            for line in hex_dump(frame.data):
                yield f"{line}\n"

    def heading(self, name: str) -> str:
        between, self._between = self._between, "\n"
        return f"{between}==> {name} <==\n"

    def tail(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Separators:
    """The choices that ``tshark -E`` offers for tables of fields."""

    header: bool = False
    separator: str = "\t"
    aggregator: str = ","
    occurrence: str = "a"
    quote: str = ""


class Fields:
    """A line per frame with the values of chosen fields, as ``tshark -T fields`` prints it."""

    def __init__(self, selection: Selection, separators: Separators) -> None:
        self._selection = selection
        self.names = selection.names
        self.separators = separators

    def head(self) -> str:
        if not self.separators.header:
            return ""
        return self.separators.separator.join(self.names) + "\n"

    def frame(self, frame: Dissection) -> Iterator[str]:
        yield self.line(frame)

    def line(self, frame: Dissection) -> str:
        """The line of a frame, with its end."""
        cells = map(self._cell, self._selection.values(frame))
        return self.separators.separator.join(cells) + "\n"

    def heading(self, name: str) -> str:  # noqa: ARG002 - the field rdmawire.file says it
        return ""

    def _cell(self, values: list[str]) -> str:
        chosen = {"a": values, "f": values[:1], "l": values[-1:]}[self.separators.occurrence]
        quote = self.separators.quote if chosen else ""
        return f"{quote}{self.separators.aggregator.join(chosen)}{quote}"

    def tail(self) -> str:
        return ""


class Objects:
    """JSON: an array of objects, or an object per line, with their octets if wanted."""

    def __init__(self, selection: Selection | None, *, array: bool, octets: bool = False) -> None:
        self._selection = selection
        self._array = array
        self._octets = octets
        self._between = ""

    def head(self) -> str:
        return "[\n" if self._array else ""

    def heading(self, name: str) -> str:  # noqa: ARG002 - each object says it
        return ""

    def frame(self, frame: Dissection) -> Iterator[str]:
        yield self._between + dumped(self._object(frame))
        if self._array:
            self._between = ",\n"
        else:
            yield "\n"

    def _object(self, frame: Dissection) -> dict[str, object]:
        octets = {"octets": frame.data.hex()} if self._octets else {}
        if self._selection is None:
            return {**as_object(frame), **octets}
        values = zip(self._selection.names, self._selection.values(frame), strict=True)
        return {**{name: found for name, found in values if found}, **octets}

    def tail(self) -> str:
        return "\n]\n" if self._array else ""
