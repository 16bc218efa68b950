"""Dissections as text: lines, trees, tables of fields, JSON. One class per format."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from rdmawire.dissect.dissection import Dissection, Severity, summary
from rdmawire.dissect.node import Node
from rdmawire.dissect.select import Selection
from rdmawire.dissect.tree import Item, hex_dump, items, tree
from rdmawire.units import decimal_seconds
from rdmawire.wire.show import BOOL, BYTES


class Output(Protocol):
    """Converts frames into text, preceded by ``head`` and followed by ``tail``."""

    def head(self) -> str: ...

    def heading(self, name: str) -> str:
        """The text before the frames of one of several files."""

    def frame(self, frame: Dissection) -> Iterator[str]:
        """The parts of the text for one frame, line ends included."""

    def tail(self) -> str: ...


NAMES_AT = 48
"""Minimum width of a tree's line, without the gap and the name of a field."""


def plain(severity: Severity, text: str) -> str:  # noqa: ARG001 - a painter with one colour
    """Return ``text`` without colour."""
    return text


def named_line(line: str, name: str) -> str:
    """A line of a tree without colour, followed by the field name used in filters, if any."""
    return f"{line:<{NAMES_AT}}  [{name}]\n" if name else f"{line}\n"


class Lines:
    """One line or one tree per frame, optionally followed by its bytes."""

    def __init__(
        self,
        *,
        trees: bool = False,
        with_bytes: bool = False,
        paint: Callable[[Severity, str], str] = plain,
    ) -> None:
        self._trees = trees
        self._bytes = with_bytes
        self._paint = paint
        self._between = ""

    @property
    def are_plain(self) -> bool:
        """Whether the lines or trees have neither colour nor the bytes of frames."""
        return self._paint is plain and not self._bytes

    @property
    def are_trees(self) -> bool:
        """Whether each frame is a tree."""
        return self._trees

    def head(self) -> str:
        return ""

    def frame(self, frame: Dissection) -> Iterator[str]:
        if self._trees:
            yield "".join(map(self._line, *zip(*tree(frame), strict=True)))
        else:
            found = summary(frame)
            yield f"{self._paint(found.severity, found.line())}\n"
        if self._bytes:
            for line in hex_dump(frame.data):
                yield f"{line}\n"

    def _line(self, severity: Severity, line: str, name: str) -> str:
        """A line of a tree, followed by the field name used in filters."""
        if self._paint is plain:  # a tenth faster than calling it for each line
            return named_line(line, name)
        if not name:
            return f"{self._paint(severity, line)}\n"
        label = self._paint(Severity.COMMENT, f"[{name}]")
        return f"{self._paint(severity, f'{line:<{NAMES_AT}}')}  {label}\n"

    def heading(self, name: str) -> str:
        between, self._between = self._between, "\n"
        return f"{between}==> {name} <==\n"

    def tail(self) -> str:
        return ""


class Separators(NamedTuple):
    """The options of ``tshark -E`` for tables of fields."""

    header: bool = False
    separator: str = "\t"
    aggregator: str = ","
    occurrence: str = "a"
    quote: str = ""


class Fields:
    """A line per frame with the values of selected fields, as ``tshark -T fields`` prints it."""

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
        """The line of a frame, including its line end."""
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
    """JSON: an array of objects, or an object per line, optionally with their bytes."""

    def __init__(
        self, selection: Selection | None, *, array: bool, with_bytes: bool = False
    ) -> None:
        self._selection = selection
        self._array = array
        self._bytes = with_bytes
        self._between = ""

    @property
    def have_all_layers(self) -> bool:
        """Whether the objects have all layers, and not the bytes of frames."""
        return self._selection is None and not self._bytes

    @property
    def around(self) -> tuple[str, str]:
        """What is before an object that is not the first one, and behind each."""
        return (",\n", "") if self._array else ("", "\n")

    def following(self, texts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the encoded texts of many objects; the first one has nothing before it.

        While they are made, :meth:`frame` makes objects that are not the first.
        """
        before, self._between = self._between, self.around[0]
        skipped = len(self._between) - len(before)
        for text in texts:
            yield text[skipped:]
            skipped = 0 if text else skipped
        if skipped:
            self._between = before

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
        data = {"bytes": frame.data.hex()} if self._bytes else {}
        if self._selection is None:
            return {**as_object(frame), **data}
        values = zip(self._selection.names, self._selection.values(frame), strict=True)
        return {**{name: found for name, found in values if found}, **data}

    def tail(self) -> str:
        return "\n]\n" if self._array else ""


class FrameCounts:
    """Counts over the frames of a capture."""

    def __init__(self) -> None:
        self.frames = 0
        self.malformed = 0
        self.good: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.unverified: Counter[str] = Counter()
        self._first_bad: dict[str, tuple[int, str]] = {}
        self._first_malformed = ""

    def add(self, frame: Dissection) -> None:
        """Count one frame."""
        self.frames += 1
        self.unverified.update(frame.unverified)
        for check in frame.checks:
            (self.good if check.good else self.bad)[check.name] += 1
            if not check.good:
                self._first_bad.setdefault(check.name, (frame.number, str(check)))
        if frame.malformed:
            self.malformed += 1
            said = f"frame {frame.number}: {frame.malformed.reason}"
            self._first_malformed = self._first_malformed or said

    def include(self, other: "FrameCounts") -> None:
        """Add the counts of ``other``; the first errors stay those of each capture."""
        self.frames += other.frames
        self.malformed += other.malformed
        self.good += other.good
        self.bad += other.bad
        self.unverified += other.unverified

    def __str__(self) -> str:
        checks = [f"{name} {self._states(name)}" for name in self._names()]
        malformed = f"{self.malformed} malformed" if self.malformed else "none malformed"
        return "; ".join([counted(self.frames, "frame"), *checks, malformed])

    def as_object(self) -> dict[str, Any]:
        """The counts for JSON: of frames, and by checksum."""
        checks = {
            name: {
                "good": self.good[name],
                "bad": self.bad[name],
                "not_verified": self.unverified[name],
            }
            for name in self._names()
        }
        return {"frames": self.frames, "malformed": self.malformed, "checksums": checks}

    def objections(self, checksums: Collection[str], *, malformed: bool) -> Iterator[str]:
        """Errors and their first frames: bad checksums of these names, and malformed frames."""
        firsts = [self._first_bad[name] for name in checksums if name in self._first_bad]
        if firsts:
            number, said = min(firsts)
            bad = counted(sum(self.bad[name] for name in checksums), "bad checksum")
            yield f"{bad}, the first in frame {number}: {said}"
        if malformed and self.malformed:
            yield f"{counted(self.malformed, 'malformed frame')}, first {self._first_malformed}"

    def _names(self) -> list[str]:
        return sorted({*self.good, *self.bad, *self.unverified})

    def _states(self, name: str) -> str:
        states = (self.good, "good"), (self.bad, "BAD"), (self.unverified, "not verified")
        counts = [(found[name], word) for found, word in states]
        return ", ".join(f"{count} {word}" for count, word in counts if count)


def counted(number: int, noun: str) -> str:
    """``1 frame``, ``2 frames``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Counts(Protocol):
    """Converts tallies into text, preceded by ``head`` and followed by ``tail``."""

    def head(self) -> str: ...

    def of(self, name: str, tally: FrameCounts, damage: str) -> str:
        """One capture. ``damage`` is the read error; empty if there was none."""

    def total(self, files: int, tally: FrameCounts) -> str:
        """The sum of all captures."""

    def tail(self) -> str: ...


class CountLines:
    """A line per capture, and a total line if there are several."""

    def head(self) -> str:
        return ""

    def of(self, name: str, tally: FrameCounts, damage: str) -> str:
        nothing = damage and not tally.frames
        return "" if nothing else f"{name}: {tally}\n"

    def total(self, files: int, tally: FrameCounts) -> str:
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

    def of(self, name: str, tally: FrameCounts, damage: str) -> str:
        counts = {"file": name, **tally.as_object(), "damaged": damage or None}
        between, self._between = self._between, ",\n" if self._array else ""
        return between + dumped(counts) + ("" if self._array else "\n")

    def total(self, files: int, tally: FrameCounts) -> str:  # noqa: ARG002 - readers of JSON can add
        return ""

    def tail(self) -> str:
        return "\n]\n" if self._array else ""


# JSON: keys are the names of `rdmawire fields`, values those of `-T fields`, columns and
# filters. Integers are numbers, those of more than 53 bits hexadecimal text; flags are `true`
# or `false`, addresses and bytes are text. A repeated field of a layer is a list.


def dumped(value: object, indent: int | None = None) -> str:
    """JSON in ASCII only, safe for every locale and terminal."""
    import json

    # JSON does not escape DEL, the only control character above the printable ones.
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def as_object(frame: Dissection) -> dict[str, Any]:
    """The frame as an object: its layers, the states of its checksums, and its errors."""
    malformed = frame.malformed
    return {
        "file": frame.file,
        "number": frame.number,
        "time": decimal_seconds(frame.time_ns),
        "length": frame.length,
        "captured": len(frame.data),
        "comments": list(frame.comments),
        "layers": [layer_object(node) for node in frame.nodes],
        "bad_checksums": [str(check) for check in frame.bad_checks],
        "malformed": malformed.reason if malformed else None,
    }


def layer_object(node: Node) -> dict[str, Any]:
    """Return a layer as an object: its fields, and the words for their values."""
    found = list(items(node))
    layer = {
        "name": node.name,
        "offset": node.offset,
        "length": len(node.data),
        "fields": gathered((item.name, json_value(item)) for item in found),
        "words": gathered(words_of(found)),
    }
    if node.reassembled:
        layer["reassembled"] = True
    return layer


def gathered(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values by name; a repeated name has a list of them."""
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


MAX_NUMBER_BITS: Final = 53
"""Bits of a number in JSON at most: those of a double, in which many readers keep numbers."""


def json_value(item: Item) -> Any:
    """Return the value of a field for JSON."""
    value, show = item.value, item.show
    if isinstance(value, tuple):
        return list(value)
    if show is BOOL:
        return bool(value)
    if isinstance(value, bytes):
        return value.hex() if show is BYTES else item.text
    if isinstance(value, str):
        return item.text
    return (
        value * show.scale
        if item.width <= MAX_NUMBER_BITS
        else f"0x{value:0{-(-item.width // 4)}x}"
    )


def words_of(found: list[Item]) -> Iterator[tuple[str, str]]:
    """The names of values that have one, and the text of bytes that are text."""
    for item in found:
        if item.word:
            yield item.name, item.word
        elif item.show is BYTES and item.text != json_value(item):
            yield item.name, item.text
