"""The names that a filter may use: every field, and the protocols as Wireshark calls them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from rdmawire.dissect import generated
from rdmawire.dissect.fields import FRAME_FIELDS, FieldInfo, derived_fields, fields, named_rows
from rdmawire.dissect.node import Derived, Dissection, Node
from rdmawire.dissect.select import Reading, Source, sources
from rdmawire.filter.ast import BY_NOTATION, SIZES, Field, Kind
from rdmawire.filter.lexer import shown
from rdmawire.nearest import OFFERED, nearest, offer
from rdmawire.wire.header import Header, Meaning
from rdmawire.wire.show import Kind as Notation
from rdmawire.wire.show import Show, writer
from rdmawire.wire.tables import MODULES, tables_of

OfFrame = Callable[[Dissection], list[Any]]
"""The values of a field in a frame."""


class Name(NamedTuple):
    """A field or protocol that a filter may name, and where its values come from.

    ``width`` is in bits, as wide as Wireshark keeps it; ``single`` says that a frame has it once
    at most, apart from tunnels. A protocol begins with a node of ``starts`` and goes as far as
    those of ``belongs``. ``layers`` are the nodes that begin a layer with this field; no such
    nodes is one layer for all.
    """

    name: str
    kind: Kind
    width: int
    single: bool = False
    tables: Mapping[type[Header], Reading] = MappingProxyType({})
    derived: tuple[Derived, ...] = ()
    frame: OfFrame | None = None
    starts: frozenset[str] = frozenset()
    belongs: frozenset[str] = frozenset()
    layers: frozenset[str] = frozenset()


_TIMES: dict[str, tuple[Kind, OfFrame]] = {
    "frame.time": (Kind.TIME, lambda frame: [frame.time_ns]),
    "frame.time_epoch": (Kind.DURATION, lambda frame: [frame.time_ns]),
    "frame.time_delta": (Kind.DURATION, lambda frame: [frame.time_ns - frame.previous_ns]),
    "frame.time_relative": (Kind.DURATION, lambda frame: [frame.time_ns - frame.first_ns]),
}

_TRANSPORT = {"payload", "pad", "vendor", "octets", "icrc", "vcrc"}
_INFINIBAND = frozenset(
    table.label
    for module in MODULES
    if module not in ("inet", "erf", "mpa", "ddp", "rdmap", "terminate")
    for table in tables_of(module)
) - {"flowcontrol"}
_MPA = frozenset(table.label for table in tables_of("mpa"))
_DDP = frozenset(
    table.label for module in ("ddp", "rdmap", "terminate") for table in tables_of(module)
)

PROTOCOLS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "eth": (frozenset({"eth", "eth8023"}), frozenset()),
    "vlan": (frozenset({"vlan"}), frozenset()),
    "ieee8021ad": (frozenset({"svlan"}), frozenset()),
    "sll": (frozenset({"sll", "sll2"}), frozenset()),
    "null": (frozenset({"loopback"}), frozenset()),
    "erf": (frozenset({"erf"}), frozenset()),
    "macc": (frozenset({"macc"}), frozenset({"pause", "pfc"})),
    "arp": (frozenset({"arp"}), frozenset()),
    "ip": (frozenset({"ip"}), frozenset({"ip options"})),
    "ipv6": (frozenset({"ipv6"}), frozenset()),
    "udp": (frozenset({"udp"}), frozenset()),
    "tcp": (frozenset({"tcp"}), frozenset()),
    "vxlan": (frozenset({"vxlan"}), frozenset()),
    "infiniband": (frozenset({"lrh", "grh", "bth"}), _INFINIBAND | _TRANSPORT),
    "infiniband_link": (frozenset({"flowcontrol"}), frozenset()),
    "iwarp_mpa": (
        frozenset({"mpa_request", "mpa_reply", "mpa_fpdu"}),
        _MPA | _DDP | {"private data", "payload", "pad"},
    ),
    "iwarp_ddp_rdmap": (frozenset({"ddp"}), _DDP - {"ddp"}),
}
"""Protocols: the nodes that one begins with, and those that follow and still belong to it."""

_HEADERS = {"iwarp_ddp": "ddp", "iwarp_rdma": "rdmap"}
"""Headers that Wireshark has a name for and that no table's name stands for."""
_LAYERS = (
    (_INFINIBAND, frozenset({"bth"})),
    (_MPA, frozenset[str]()),
    (_DDP, frozenset({"ddp"})),
)
_SINGLE = frozenset(tables_of("inet") + tables_of("ib"))


@cache
def find(name: str) -> Name | None:
    """What goes by this name."""
    for search in (_protocol, _header, _of_frame, _of_tables):
        if found := search(name):
            return found
    return None


def field_named(field: Field) -> Name:
    """The catalogue's entry for a field of a tree."""
    name = find(field.name)
    assert name is not None, field
    return name


def _protocol(name: str) -> Name | None:
    if name == "frame":
        return Name(name, Kind.PROTOCOL, 0, frame=lambda frame: [frame.data[frame.lead :]])
    if name == "data":
        return Name(name, Kind.PROTOCOL, 0, derived=(generated.DATA,))
    if name not in PROTOCOLS:
        return None
    starts, belongs = PROTOCOLS[name]
    return Name(name, Kind.PROTOCOL, 0, starts=starts, belongs=belongs)


def _header(name: str) -> Name | None:
    if name not in _HEADERS:
        return None
    label = _HEADERS[name]
    found = {table: _whole for table in _labelled("ddp", "rdmap") if table.label.startswith(label)}
    return Name(name, Kind.PRESENCE, 0, tables=found, layers=frozenset({"ddp"}))


def _labelled(*modules: str) -> Iterator[type[Header]]:
    for module in modules:
        yield from tables_of(module)


def _whole(node: Node) -> list[Any]:
    return [node.octets]


def _of_frame(name: str) -> Name | None:
    if name in _TIMES:
        kind, values = _TIMES[name]
        return Name(name, kind, 64, single=True, frame=values)
    for field in FRAME_FIELDS:
        if field.field.name == name:
            kind = BY_NOTATION[field.field.show.kind]
            single = kind is Kind.NUMBER
            return Name(name, kind, 32, single=single, frame=field.values)
    return None


def _of_tables(name: str) -> Name | None:
    info = _infos().get(name)
    if info is None:
        return None
    found = sources(name)
    beside = tuple(field for field in derived_fields() if field.name == name)
    reads: dict[type[Header], Reading] = {}
    for table, source in found:
        reads[table] = _both(reads.get(table), _reading(name, source))
    single = not beside and len(reads) == len(found) and reads.keys() <= _SINGLE
    kind = _kind(name, info.show)
    return Name(name, kind, _width(info), single, reads, beside, layers=_layers(reads))


def _layers(tables: Iterable[type[Header]]) -> frozenset[str]:
    """The nodes that begin a layer of the protocol that these headers are of."""
    labels = frozenset(table.label for table in tables)
    for group, begin in _LAYERS:
        if labels & group:
            return begin
    return labels


def _kind(name: str, show: Show) -> Kind:
    """The kind of a field; what Wireshark resolves to a host's name, it keeps as text."""
    return Kind.TEXT if name.endswith("host") else BY_NOTATION[show.kind]


def _width(info: FieldInfo) -> int:
    digits = info.type.removeprefix("FT_UINT")
    return int(digits) if digits.isdecimal() else info.width


@cache
def _infos() -> dict[str, FieldInfo]:
    return {info.name: info for info in fields()}


def _both(one: Reading | None, other: Reading) -> Reading:
    if one is None:
        return other
    return lambda node: one(node) + other(node)


def _reading(name: str, source: Source) -> Reading:
    """What reads a node's values in the form that filters compare."""
    read, show, width = source
    kind = _kind(name, show)
    if kind is Kind.TEXT:
        write = writer(show, width)
        return lambda node: [write(value) for value in read(node)]
    if kind is Kind.NUMBER and show.scale != 1:
        return lambda node: [value * show.scale for value in read(node)]
    if show.kind is Notation.DIGITS or kind in SIZES:
        size = width // 8
        return lambda node: [_octets(value, size) for value in read(node)]
    return read


def _octets(value: Any, size: int) -> bytes:
    return value.to_bytes(size, "big") if isinstance(value, int) else bytes(value)


_ABBREVIATED = re.compile(r"[A-Za-z ]+\(([A-Za-z]+)\)")
_NO_WORD = re.compile(r"[^a-z0-9]")
_MOST_WORDS = 1 << 10


def folded(word: str) -> str:
    """A word for a number as it is compared: neither case, spaces nor marks count.

    ``Reliable Connection (RC) - SEND Only`` is ``RC_SEND_ONLY``.
    """
    return _NO_WORD.sub("", _ABBREVIATED.sub(r"\1", word).lower())


@cache
def words(name: str) -> dict[str, int]:
    """The words that stand for numbers of a field, folded."""
    found = {folded(word): number for word, number in spelled(name)}
    found.pop("", None)
    return found


def words_like(name: str, word: str) -> list[str]:
    """Words for numbers of a field that somebody may have meant by another."""
    known = {folded(each): each for each, _ in spelled(name) if each}
    wanted = folded(word)
    near = [each for each in known if wanted and wanted in each] or nearest(wanted, known)
    return [known[each] for each in near[:OFFERED]]


def states(name: str) -> tuple[str, ...]:
    """The only words that a field of text ever has; none if it may say anything."""
    found = [field.words for field in derived_fields() if field.name == name]
    return found[0] if found and _infos()[name].show.kind is Notation.TEXT else ()


def spelled(name: str) -> Iterator[tuple[str, int]]:
    """The words that stand for numbers of a field, as the standard spells them."""
    for table, _ in sources(name):
        for other, row, meaning in named_rows(table):
            if other == name:
                yield from _words_of(meaning, row.width)
    for field in derived_fields():
        if field.name == name:
            yield from ((word, value) for value, word in enumerate(field.words))


def _words_of(meaning: Meaning, width: int) -> Iterator[tuple[str, int]]:
    if meaning.enum is not None:
        yield from ((member.name, member.value) for member in meaning.enum)
    elif meaning.words is not None:
        for number in range(min(1 << width, _MOST_WORDS)):
            yield meaning.words(number), number


def unknown(name: str) -> str:
    """What to say of a name that nothing goes by."""
    known = [*_infos(), *PROTOCOLS, *_HEADERS, "frame", "data"]
    minus = "; a minus needs a space before it" if "-" in name else ""
    return f"no field is named '{shown(name)}'{offer(name, known)}{minus}"
