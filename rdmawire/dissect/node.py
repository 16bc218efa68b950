"""The parts of a dissection: nodes in the order of their bytes, and the fields beside them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rdmawire.terminal import escape
from rdmawire.wire.header import Header
from rdmawire.wire.show import Show, Value, writer


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """A field that no row of a table holds: it follows from elsewhere in the capture.

    ``width`` is its size in bits where it is a number. Trees leave out ``hidden`` fields: what
    they say is in the tree already.
    """

    name: str
    show: Show
    doc: str
    width: int = 32
    clause: str = ""
    words: tuple[str, ...] = ()
    hidden: bool = False

    def text(self, value: Value) -> str:
        """The value as Wireshark would write it."""
        return escape(value) if isinstance(value, str) else writer(self.show, self.width)(value)

    def word(self, value: Value) -> str:
        """The word for a number that has one."""
        known = isinstance(value, int) and value < len(self.words)
        return self.words[value] if known else ""  # type: ignore[index]


class Extra(NamedTuple):
    """A derived field with its value in one node."""

    field: Derived
    value: Value


_new = tuple.__new__
_NO_WORDS: Final[Mapping[str, str]] = {}


class Node:
    """One header, or one run of bytes, of a dissected frame.

    ``offset`` counts bytes from the start of the frame; of what was put together from several
    frames, from the start of that (``reassembled`` is then true). ``header`` is ``None`` for
    plain bytes. ``reason`` is why the dissection ended here, in the last nodes; else empty.
    ``words`` are words for values of the header, by row, that differ from those of its table.
    """

    __slots__ = ("data", "extras", "header", "name", "offset", "reason", "reassembled", "words")

    def __init__(
        self,
        name: str,
        offset: int,
        data: bytes,
        header: Header | None = None,
        extras: tuple[Extra, ...] = (),
        *,
        reason: str = "",
        reassembled: bool = False,
    ) -> None:
        self.name = name
        self.offset = offset
        self.data = data
        self.header = header
        self.extras = extras
        self.reason = reason
        self.reassembled = reassembled
        self.words = _NO_WORDS

    def __repr__(self) -> str:
        what = self.header or self.reason or self.data
        return f"<{self.name} at {self.offset}: {what!r}>"

    def add(self, field: Derived, value: Value) -> None:
        """Put a derived field beside the node."""
        self.extras += (_new(Extra, (field, value)),)

    def extra(self, field: Derived) -> Value | None:
        """The value of a derived field in this node."""
        return next((extra.value for extra in self.extras if extra.field is field), None)


class Check(NamedTuple):
    """A checksum that was computed: what stood there and what should have."""

    name: str
    found: int
    expected: int
    digits: int

    @property
    def good(self) -> bool:
        """Whether it holds."""
        return self.found == self.expected

    def __str__(self) -> str:
        if self.good:
            return f"{self.name} good"
        found, expected = (f"0x{n:0{self.digits}x}" for n in (self.found, self.expected))
        return f"{self.name} bad: found {found}, expected {expected}"
