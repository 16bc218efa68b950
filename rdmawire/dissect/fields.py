"""Every field by name: the rows of the header tables, and what is derived beside them.

A row goes by its Wireshark name where Wireshark knows it, and by ``rdmawire.<header>.<row>``
where not.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.node import Derived
from rdmawire.units import SECOND, decimal_seconds
from rdmawire.wire.field_registry import shown_fields
from rdmawire.wire.header import Header, Row
from rdmawire.wire.show import DEC, TEXT, Kind, Show, Value
from rdmawire.wire.tables import tables


def calendar(time_ns: int) -> str:
    """A time since the epoch as Wireshark writes it, in the local time zone."""
    whole, rest = divmod(time_ns, SECOND)
    try:
        local = time.localtime(whole)
    except (OverflowError, ValueError, OSError):
        return f"{decimal_seconds(time_ns)} s since the epoch"
    day = f"{time.strftime('%b', local)} {local.tm_mday:2d}, {local.tm_year}"
    return f"{day} {time.strftime('%H:%M:%S', local)}.{rest:09d} {time.strftime('%Z', local)}"


class FrameField(NamedTuple):
    """A field of the complete frame, and how its values are found."""

    field: Derived
    values: Callable[[Dissection], list[Value]]


def _number(name: str, doc: str, value: Callable[[Dissection], Value]) -> FrameField:
    """A number that every frame has once."""
    return FrameField(Derived(name, DEC, doc, 32), lambda frame: [value(frame)])


def _time(name: str, doc: str, value: Callable[[Dissection], Value]) -> FrameField:
    """A time that every frame has once, as text."""
    return FrameField(Derived(name, TEXT, doc, 0), lambda frame: [value(frame)])


FRAME_FIELDS = (
    _number("frame.number", "frames counted from one", lambda frame: frame.number),
    _time("frame.time", "when it was captured, local time", lambda f: calendar(f.time_ns)),
    _time("frame.time_epoch", "seconds since the epoch", lambda f: decimal_seconds(f.time_ns)),
    _time(
        "frame.time_delta",
        "seconds since the frame before",
        lambda f: decimal_seconds(f.time_ns - f.previous_ns),
    ),
    _time(
        "frame.time_relative",
        "seconds since the first frame",
        lambda f: decimal_seconds(f.time_ns - f.first_ns),
    ),
    _number("frame.len", "bytes on the wire", lambda f: max(f.length - f.lead, 0)),
    _number("frame.cap_len", "bytes captured", lambda f: len(f.data) - f.lead),
    FrameField(
        Derived("frame.interface_id", DEC, "number of the interface, in pcapng"),
        lambda frame: [] if frame.interface is None else [frame.interface],
    ),
    FrameField(
        Derived("frame.interface_name", TEXT, "name of the interface, in pcapng", 0),
        lambda frame: [frame.interface_name] if frame.interface_name else [],
    ),
    FrameField(
        Derived("frame.interface_description", TEXT, "what the interface is, in pcapng", 0),
        lambda frame: [frame.interface_description] if frame.interface_description else [],
    ),
    FrameField(
        Derived("rdmawire.file", TEXT, "the file that the frame is from", 0),
        lambda frame: [frame.file] if frame.file else [],
    ),
    FrameField(
        Derived("frame.comment", TEXT, "comments on the frame, in pcapng", 0),
        lambda frame: list(frame.comments),
    ),
)

_FRAME_NAMES = {"frame.length": "frame.len"}
"""Other names of fields of the frame, and those that they are listed by."""

_TYPES = {
    Kind.BOOL: "FT_BOOLEAN",
    Kind.MAC: "FT_ETHER",
    Kind.IPV4: "FT_IPv4",
    Kind.IPV6: "FT_IPv6",
    Kind.BYTES: "FT_BYTES",
    Kind.DIGITS: "FT_BYTES",
    Kind.TEXT: "FT_STRING",
    Kind.PRESENCE: "FT_NONE",
}
_INTEGERS = (8, 16, 24, 32, 40, 48, 56, 64, 128)


class FieldInfo(NamedTuple):
    """What is known of a field. ``width`` is in bits; zero where it varies."""

    name: str
    show: Show
    width: int
    header: str
    row: str
    doc: str
    clause: str

    @property
    def own_name(self) -> str:
        """The name by the tables, such as ``bth.psn``; empty where no row holds the field."""
        return f"{self.header}.{self.row}" if self.row else ""

    @property
    def type(self) -> str:
        """The type in Wireshark's words: ``FT_UINT24``, ``FT_BOOLEAN``, ``FT_IPv6``, ..."""
        return type_name(self.show, self.width)


def type_name(show: Show, width: int) -> str:
    """The type, in Wireshark's words, of a field of ``width`` bits in this notation."""
    if show.kind in _TYPES:
        return _TYPES[show.kind]
    return f"FT_UINT{next(bits for bits in _INTEGERS if bits >= max(width, show.digits * 4))}"


def _infos(table: type[Header]) -> Iterator[FieldInfo]:
    doc, clause = first_line(table), table.clause
    if table.wireshark:
        yield FieldInfo(table.wireshark, table.show, table.SIZE * 8, table.label, "", doc, clause)
    for name, field in shown_fields(table):
        row = field.row
        clause = (row.clause if isinstance(row, Row) else "") or table.clause
        said = f"{row.name}: {doc}"
        yield FieldInfo(name, field.show, row.width, table.label, row.name, said, clause)


def first_line(table: type[Header]) -> str:
    """What a header is, in one sentence."""
    return (table.__doc__ or "").split("\n")[0].replace("``", "")


def derived_fields(name: str | None = None) -> list[Derived]:
    """The fields that no row holds; with a name, those that have it."""
    every = [field for field in vars(generated).values() if isinstance(field, Derived)]
    return [field for field in every if name in (None, field.name)]


def frame_fields(name: str) -> list[FrameField]:
    """The field of the frame with this name, if there is one."""
    usual = _FRAME_NAMES.get(name, name)
    return [field for field in FRAME_FIELDS if field.field.name == usual]


def fields() -> list[FieldInfo]:
    """Every field, each once, sorted by name."""
    found: dict[str, FieldInfo] = {}
    for table in tables():
        for info in _infos(table):
            found.setdefault(info.name, info)
    for field in [*(frame.field for frame in FRAME_FIELDS), *derived_fields()]:
        found[field.name] = FieldInfo(
            field.name, field.show, field.width, "", "", field.doc, field.clause
        )
    return [found[name] for name in sorted(found)]
