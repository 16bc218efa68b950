"""Names in display filters: every field, and the protocols by their Wireshark names."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.fields import derived_fields, fields, frame_fields, type_name
from rdmawire.dissect.node import Derived, Node
from rdmawire.dissect.select import Reading, ValueSource, sources
from rdmawire.filter.ast import ADDRESS_SIZES, TYPES_BY_NOTATION, FieldReference, ValueType
from rdmawire.terminal import MAX_SUGGESTIONS, closest_names
from rdmawire.wire import field_registry
from rdmawire.wire.header import Header, Meaning
from rdmawire.wire.show import Kind as Notation
from rdmawire.wire.show import Show, writer
from rdmawire.wire.tables import MANAGEMENT, cached_by_tables, tables_of

FrameReader = Callable[[Dissection], list[Any]]
"""A function that returns the values of a field in a frame."""
HeaderReaders = Mapping[type[Header], Reading]
"""For each header, a function that returns the values of a field in a node."""


class FilterField(NamedTuple):
    """A field or protocol, and where its values come from.

    ``width`` is in bits, as Wireshark stores it. ``single`` means that a frame has it at most once,
    except in tunnels. The values come from headers (``tables``), from generated fields of nodes
    (``generated``), from the frame itself (``frame``) or, for a protocol, from the bytes of a node
    named in ``starts`` and of the following nodes named in ``continues``. A node named in
    ``layers`` begins a new layer for ``#``; if there are none, all values are in layer 1.
    """

    name: str
    type: ValueType
    width: int
    single: bool = False
    tables: HeaderReaders = MappingProxyType({})
    generated: tuple[Derived, ...] = ()
    frame: FrameReader | None = None
    starts: frozenset[str] = frozenset()
    continues: frozenset[str] = frozenset()
    layers: frozenset[str] = frozenset()


_TIMES: dict[str, tuple[ValueType, FrameReader]] = {
    "frame.time": (ValueType.TIME, lambda frame: [frame.time_ns]),
    "frame.time_epoch": (ValueType.DURATION, lambda frame: [frame.time_ns]),
    "frame.time_delta": (ValueType.DURATION, lambda frame: [frame.time_ns - frame.previous_ns]),
    "frame.time_relative": (ValueType.DURATION, lambda frame: [frame.time_ns - frame.first_ns]),
}

_TRANSPORT = {"payload", "pad", "vendor", "bytes", "icrc", "vcrc"}
_INFINIBAND = frozenset(t.label for t in tables_of("ib", *MANAGEMENT)) - {"flowcontrol"}
_MPA = frozenset(table.label for table in tables_of("mpa"))
_DDP = frozenset(table.label for table in tables_of("rdmap", "terminate"))

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
"""For each protocol, the names of nodes that begin it, and of those that continue it."""

_HEADERS = {"iwarp_ddp": "ddp", "iwarp_rdma": "rdmap"}
"""Wireshark's names of headers that have no table of that name, and the tables' labels."""
_LAYERS = (
    (_INFINIBAND, frozenset({"bth"})),
    (_MPA, frozenset[str]()),
    (_DDP, frozenset({"ddp"})),
)
_SINGLE = frozenset(tables_of("inet") + tables_of("ib"))


@cached_by_tables
def find_field(name: str) -> FilterField | None:
    """Return the field or protocol of this name; ``None`` if there is none."""
    for search in (_protocol, _header, _of_frame, _of_tables):
        if found := search(name):
            return found
    return None


def lookup(field: FieldReference) -> FilterField:
    """Return the entry of a field in a syntax tree."""
    found = find_field(field.name)
    assert found is not None, field
    return found


def _protocol(name: str) -> FilterField | None:
    if name == "frame":
        return FilterField(
            name, ValueType.PROTOCOL, 0, frame=lambda frame: [frame.data[frame.lead :]]
        )
    if name == "data":
        return FilterField(name, ValueType.PROTOCOL, 0, generated=(generated.DATA,))
    if name not in PROTOCOLS:
        return None
    starts, continues = PROTOCOLS[name]
    return FilterField(name, ValueType.PROTOCOL, 0, starts=starts, continues=continues)


def _header(name: str) -> FilterField | None:
    if name not in _HEADERS:
        return None
    label = _HEADERS[name]
    found = {table: _node_bytes for table in tables_of("rdmap") if table.label.startswith(label)}
    return FilterField(name, ValueType.PRESENCE, 0, tables=found, layers=frozenset({"ddp"}))


def _node_bytes(node: Node) -> list[Any]:
    return [node.data]


def _of_frame(name: str) -> FilterField | None:
    if name in _TIMES:
        value_type, values = _TIMES[name]
        return FilterField(name, value_type, 64, single=True, frame=values)
    for field in frame_fields(name):
        value_type = TYPES_BY_NOTATION[field.field.show.kind]
        single = value_type is ValueType.NUMBER
        return FilterField(name, value_type, 32, single=single, frame=field.values)
    return None


def _of_tables(name: str) -> FilterField | None:
    found = sources(name)
    beside = tuple(derived_fields(name))
    notations = [(source.show, source.width) for _, source in found]
    notations += [(field.show, field.width) for field in beside]
    if not notations:
        return None
    reads: dict[type[Header], Reading] = {}
    for table, source in found:
        reads[table] = _chained(reads.get(table), _reading(name, source))
    single = not beside and len(reads) == len(found) and reads.keys() <= _SINGLE
    show, width = notations[0]
    stored = type_name(show, width).removeprefix("FT_UINT")
    width = int(stored) if stored.isdecimal() else width
    return FilterField(name, _type(name, show), width, single, reads, beside, layers=_layers(reads))


def _layers(tables: Iterable[type[Header]]) -> frozenset[str]:
    """Return the names of the nodes that begin a layer of the protocol of these headers."""
    labels = frozenset(table.label for table in tables)
    for group, begin in _LAYERS:
        if labels & group:
            return begin
    return labels


def _type(name: str, show: Show) -> ValueType:
    """Return the type of a field; fields that Wireshark resolves to a host name are text."""
    return ValueType.TEXT if name.endswith("host") else TYPES_BY_NOTATION[show.kind]


def _chained(one: Reading | None, other: Reading) -> Reading:
    if one is None:
        return other
    return lambda node: one(node) + other(node)


def _reading(name: str, source: ValueSource) -> Reading:
    """Return a function that reads the values of a node as filters compare them."""
    read, show, width, _ = source
    value_type = _type(name, show)
    if value_type is ValueType.TEXT:
        write = writer(show, width)
        return lambda node: [write(value) for value in read(node)]
    if value_type is ValueType.NUMBER and show.scale != 1:
        return lambda node: [value * show.scale for value in read(node)]
    if show.kind is Notation.DIGITS or value_type in ADDRESS_SIZES:
        size = width // 8
        return lambda node: [_to_bytes(value, size) for value in read(node)]
    return read


def _to_bytes(value: Any, size: int) -> bytes:
    return value.to_bytes(size, "big") if isinstance(value, int) else bytes(value)


_ABBREVIATED = re.compile(r"[A-Za-z ]+\(([A-Za-z]+)\)")
_NO_WORD = re.compile(r"[^a-z0-9]")
_MAX_WORDS = 1 << 10


def normalized(word: str) -> str:
    """Return a word without case, spaces and punctuation, as words for numbers are compared.

    ``Reliable Connection (RC) - SEND Only`` and ``RC_SEND_ONLY`` give the same.
    """
    return _NO_WORD.sub("", _ABBREVIATED.sub(r"\1", word).lower())


@cached_by_tables
def value_words(name: str) -> dict[str, int]:
    """Return the normalized words for values of a field, with the values."""
    found = {normalized(word): number for word, number in spelled_words(name)}
    found.pop("", None)
    return found


def similar_words(name: str, word: str) -> list[str]:
    """Return words for values of a field that are similar to a misspelt one."""
    known = {normalized(each): each for each, _ in spelled_words(name) if each}
    wanted = normalized(word)
    near = [each for each in known if wanted and wanted in each] or closest_names(wanted, known)
    return [known[each] for each in near[:MAX_SUGGESTIONS]]


def allowed_texts(name: str) -> tuple[str, ...]:
    """Return the only values that a text field has; none if it may have any."""
    found = [field.words for field in derived_fields(name) if field.show.kind is Notation.TEXT]
    return found[0] if found else ()


def spelled_words(name: str) -> Iterator[tuple[str, int]]:
    """Yield the words for values of a field as the standard spells them, with the values."""
    for _, source in sources(name):
        if source.field is not None:
            for meaning in source.field.meanings():
                yield from _words_of(meaning, source.width)
    for field in derived_fields(name):
        yield from ((word, value) for value, word in enumerate(field.words))


def _words_of(meaning: Meaning, width: int) -> Iterator[tuple[str, int]]:
    if meaning.enum is not None:
        yield from ((member.name, member.value) for member in meaning.enum)
    elif meaning.words is not None:
        for number in range(min(1 << width, _MAX_WORDS)):
            yield meaning.words(number), number


def unknown_field(name: str) -> str:
    """Return the message for an unknown name, with the nearest known names."""
    known = [*(info.name for info in fields()), *PROTOCOLS, *_HEADERS, "frame", "data"]
    minus = "; a minus needs a space before it" if "-" in name else ""
    return field_registry.unknown(name, known) + minus
