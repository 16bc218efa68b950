"""What a dissection is made of: nodes in the order of their bytes, and the fields beside them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from rdmawire.terminal import escape
from rdmawire.wire.header import Header
from rdmawire.wire.show import Show, Value, writer

HeaderT = TypeVar("HeaderT", bound=Header)


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


class Node:
    """One header, or one run of bytes, of a dissected frame.

    ``offset`` counts bytes from the start of the frame; of what was put together from several
    frames, from the start of that (``reassembled`` is then true). ``header`` is ``None`` for
    plain bytes. ``reason`` is why the dissection ended here, in the last nodes; else empty.
    """

    __slots__ = ("data", "extras", "header", "name", "offset", "reason", "reassembled")

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


class Dissection:
    """Everything found in one frame.

    ``data`` are the captured bytes, ``length`` counts those on the wire, ``number`` counts
    frames from one. Times are nanoseconds; ``time_ns`` since the epoch. ``lead`` bytes of the
    data are a capturing card's own header, which is not part of the frame. ``checks`` are the
    checksums that were computed, ``unverified`` the names of those that could not be.
    """

    __slots__ = (
        *("checks", "comments", "data", "file", "first_ns", "interface", "interface_description"),
        *("interface_name", "lead", "length", "nodes", "number", "previous_ns", "time_ns"),
        "unverified",
    )

    def __init__(self, number: int, data: bytes, length: int, time_ns: int) -> None:
        self.number = number
        self.data = data
        self.length = length
        self.time_ns = self.previous_ns = self.first_ns = time_ns
        self.lead = 0
        self.interface: int | None = None
        self.interface_name = self.interface_description = ""
        self.comments: tuple[str, ...] = ()
        self.nodes: list[Node] = []
        self.checks: list[Check] = []
        self.unverified: list[str] = []
        self.file = ""

    def __str__(self) -> str:
        """The frame's line, as ``rdmawire dissect`` prints it."""
        from rdmawire.dissect.summary import summary

        return summary(self).line()

    @property
    def malformed(self) -> Node | None:
        """The first node that says why the frame does not parse to its end, if it does not."""
        if not self.nodes or not self.nodes[-1].reason:
            return None
        return next(node for node in self.nodes if node.reason)

    @property
    def bad_checks(self) -> list[Check]:
        """The checksums that do not hold."""
        return [check for check in self.checks if not check.good]

    def headers(self) -> Iterator[Header]:
        """The headers found, outermost first."""
        return (node.header for node in self.nodes if node.header is not None)

    def header(self, table: type[HeaderT]) -> HeaderT | None:
        """The outermost header of this table, if the frame has one."""
        return next((header for header in self.headers() if isinstance(header, table)), None)
