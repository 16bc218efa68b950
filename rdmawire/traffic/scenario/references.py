"""References to names in the file, and fields of frames with their expected values.

Names of hosts, memory, ends, steps, links and counters are looked up in the complete file. Fields
have the names of the tables of :mod:`rdmawire.wire`, or those of filters.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from rdmawire.errors import FabricError
from rdmawire.fabric.field import named, names, usual_name
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import Names, ParseContext
from rdmawire.traffic.scenario.document import (
    Items,
    Node,
    NodeError,
    Scalar,
    TextError,
    described,
    listed,
)
from rdmawire.traffic.scenario.types import (
    Custom,
    Definitions,
    End,
    Json,
    Span,
    converted,
    pairs_of,
    parse_end,
    parse_number,
    parse_range,
    parse_span,
    parsed,
    text_of,
)
from rdmawire.verbs.ah import mapped
from rdmawire.wire.field_registry import HeaderField, find, nearest_names
from rdmawire.wire.header import Row
from rdmawire.wire.inet import mac_bytes
from rdmawire.wire.show import Kind as Notation

# Names.


def check_known(node: Node, word: str, what: str, known: Collection[str]) -> None:
    """:class:`NodeError` if ``word`` of a node is not a known name."""
    if word not in known:
        raise unknown(node, word, what, known)


def unknown(node: Node, word: str, what: str, known: Collection[str]) -> NodeError:
    """Return the error for a word that is not a known name."""
    expected = f"{what}: {listed(known) if known else 'there is none'}"
    return NodeError(node.mark, described(node), expected, word=word, known=known)


def check_host(node: Node, host: str, names: Names) -> None:
    """:class:`NodeError` for an unknown host, unless the file has no hosts."""
    if names.hosts_known:
        check_known(node, host, HOST.description, names.hosts)


Known = Callable[[ParseContext], Collection[str]]


def Reference(  # noqa: N802 - a type
    what: str,
    known: Known,
    examples: tuple[str, ...],
    usual: Callable[[ParseContext, str], str] = lambda _, word: word,
    *,
    of_hosts: bool = False,
) -> Custom:
    """The name of a ``what``, of which ``known`` returns all.

    ``usual`` returns the name that the file has for a word. With ``of_hosts``, a name is not
    checked if the file has no hosts.
    """
    description = f"the name of {what}"

    def read(node: Node, context: ParseContext) -> str:
        text = usual(context, text_of(node, description))
        if context.names.hosts_known or not of_hosts:
            check_known(node, text, description, known(context))
        return text

    return Custom(description, examples, read)


HOST: Final = Reference("a host", lambda context: context.names.hosts, ("client",), of_hosts=True)
NODE: Final = Reference(
    "a host or a switch", lambda context: context.names.nodes, ("client", "leaf"), of_hosts=True
)
GPU: Final = Reference(
    "a GPU of this host", lambda context: context.names.of(context.scope[0], "gpus"), ("gpu0",)
)
MEMORY: Final = Reference(
    "memory of this host",
    lambda context: context.names.of(context.scope[0], "memory"),
    ("source",),
)
LINK: Final = Reference(
    "a link",
    lambda context: context.names.links,
    ("client-leaf",),
    lambda context, word: context.names.link(word),
    of_hosts=True,
)


def _read_step(node: Node, context: ParseContext) -> str:
    text, steps = text_of(node, STEP.description), context.names.steps
    if steps.get(text, context.step) >= context.step or not text:
        before = [name for name, index in steps.items() if name and index < context.step]
        raise unknown(node, text, STEP.description, before)
    return text


STEP: Final = Custom("the name of a step before this one", ("w1",), _read_step)


def Spans(*, windows: bool = False, fits: bool = True) -> Custom:  # noqa: N802 - a type
    """Bytes of named memory: ``host.memory[0:8]``.

    ``windows``: memory windows are valid. ``fits``: the bytes must be inside the memory.
    """
    either = " or a memory window" if windows else ""
    description = f"memory{either} such as client.source or client.source[0:64]"

    def read(node: Node, context: ParseContext) -> Span:
        span, names = parsed(node, description, parse_span), context.names
        check_host(node, span.host, names)
        if names.hosts_known:
            what = f"memory or a window of {span.host}" if windows else f"memory of {span.host}"
            known = names.of(span.host, "memory or windows" if windows else "memory")
            check_known(node, span.memory, what, known)
            if fits:
                check_fit(node, span, context)
        return span

    return Custom(description, ("client.source", "'client.source[0:4 KiB]'"), read)


SPAN: Final = Spans()


def length_of(span: Span, context: ParseContext) -> int | None:
    """Return the length of a span (bytes), if it is known."""
    memory = context.memory.get((span.host, span.memory))
    if span.length is not None or memory is None:
        return span.length
    size: int = memory.size
    return size - span.offset


def check_fit(node: Node, span: Span, context: ParseContext) -> None:
    """:class:`NodeError` for bytes outside the memory."""
    plan = context.memory.get((span.host, span.memory))
    if plan is not None and span.offset + (span.length or 1) > plan.size:
        expected = f"a span within its {plan.size} bytes"
        raise NodeError(node.mark, described(node), expected)


def _read_end(node: Node, context: ParseContext) -> End:
    end = parsed(node, END.description, parse_end)
    names = context.names
    check_host(node, end.host, names)
    check_known(node, end.connection, "the name of a connection", names.connections)
    plan = context.connections.get(end.connection)
    if plan is not None:
        check_known(node, end.host, f"an end of {plan.name}", plan.ends)
        check_count(node, end, plan.count)
    return end


END: Final = Custom(
    "an end of a connection such as client/a or client/a#2", ("client/a", "client/a#2"), _read_end
)


def check_count(node: Node, end: End, count: int) -> None:
    """:class:`NodeError` for a queue pair number greater than ``count``."""
    if end.number is not None and end.number > count:
        raise NodeError(node.mark, described(node), which_of(count))


def which_of(count: int) -> str:
    """Describe the valid queue pair numbers of an end."""
    return f"one of its {count} queue pairs, from #1 on" if count > 1 else "its only queue pair, #1"


# Fields of frames.

_BITS_OF_FRAME: Final = 64
"""Width of ``frame.number`` and ``frame.length``."""

Value = int | bytes
Wanted = Value | range | tuple[Value, ...]


def _field_schema(definitions: Definitions) -> Json:
    definitions["field"] = {"enum": [*names()]}
    return {"$ref": "#/$defs/field"}


def _read_field(node: Node, _: ParseContext) -> str:
    return parsed(node, FIELD.description, _name)


FIELD: Final = Custom(
    "a field such as bth.psn or infiniband.bth.psn",
    ("bth.psn", "aeth.value", "frame.number", "infiniband.bth.psn"),
    _read_field,
    schema=_field_schema,
)


def _name(text: str) -> str:
    try:
        return usual_name(text)
    except FabricError as error:
        if find(text):
            raise TextError(f"{FIELD.description} ({error})", word=text) from None
        near = nearest_names(text)
        shorter = (one.name for name in near for one in find(name))
        raise TextError(word=text, known=[*near, *shorter]) from None


def _read_where(node: Node, context: ParseContext) -> Mapping[str, Wanted]:
    seen: dict[str, str] = {}
    pairs = pairs_of(node, WHERE.description)
    return dict(context.every(partial(_read_wanted, *pair, seen, context) for pair in pairs))


def _read_wanted(
    key: Scalar, node: Node, seen: dict[str, str], context: ParseContext
) -> tuple[str, Wanted]:
    name = FIELD.read(key, context)
    rival = seen.setdefault(name, key.text)
    if rival != key.text:
        besides = f"{quote(key.text)} besides {quote(rival)}"
        raise NodeError(key.mark, besides, "a field by one of its names")
    return name, wanted(name, node, context)


WHERE: Final = Custom(
    "fields with values, such as {bth.psn: 100..200}",
    (
        "{bth.psn: 100..200, bth.opcode: [RC_ACKNOWLEDGE, CNP]}",
        "{ip.src: 10.0.0.1, frame.number: 1..}",
    ),
    _read_where,
    schema=lambda definitions: {"type": "object", "propertyNames": FIELD.json(definitions)},
)
"""Fields with their expected values: a number, a word of its table, a range, or a list of them."""


def wanted(field: str, node: Node, context: ParseContext) -> Wanted:
    """Return the expected value or values of a field."""
    if not isinstance(node, Items):
        return _one(field, node)
    values: list[Value] = []
    for item in node.items:
        value = _one(field, item)
        some = value if isinstance(value, range) else range(1)
        context.spend(some.stop - some.start, item)
        values += value if isinstance(value, range) else [value]
    return tuple(values)


def _one(field: str, node: Node) -> Value | range:
    found = named(field)
    if found and isinstance(found[0].row, Row) and found[0].row.is_bytes:
        return bytes_of(field, found[0].row, node)
    scale = found[0].scale if found else 1
    width = found[0].row.width + scale.bit_length() - 1 if found else _BITS_OF_FRAME
    words = _words(found)
    listing = f", or one of {listed(list(words)[:4])}{' ...' if len(words) > 4 else ''}"
    said = f"a value or a range of {width} bits for {field}{listing if words else ''}"
    return parsed(node, said, partial(_number, width=width, words=words, scale=scale))


def _number(text: str, width: int, words: Mapping[str, int], scale: int) -> int | range:
    if text in words:
        return words[text]
    try:
        least, most = parse_range(text, parse_number)
    except TextError as error:
        raise TextError(error.expected, word=text, known=list(words)) from None
    if least < 0 or max(least, most or 0) >> width:
        raise TextError
    if most is not None and least == most:
        if least % scale:
            raise TextError(f"a multiple of {scale}")
        return least
    return range(least, (1 << width) if most is None else most + 1)


def _words(found: Sequence[HeaderField]) -> dict[str, int]:
    """Return the words for a field's numbers, in all meanings of its name."""
    enums = (meaning.enum for one in found for meaning in one.meanings() if meaning.enum)
    words = {str(word.name): int(word.value) for enum in enums for word in enum}
    truths = {"false": 0, "true": 1} if found and found[0].row.width == 1 else {}
    return words or truths


def _gid(text: str) -> bytes:
    """Parse an IPv6 address, or an IPv4 address as an IPv4-mapped GID."""
    return IPv6Address(text).packed if ":" in text else mapped(IPv4Address(text).packed)


_NOTATIONS: Final[dict[Notation, tuple[str, Callable[[str], bytes]]]] = {
    Notation.MAC: ("an Ethernet address", mac_bytes),
    Notation.IPV4: ("an IPv4 address", lambda text: IPv4Address(text).packed),
    Notation.IPV6: ("an IPv6 address", _gid),
}
"""Description and parser of byte fields that are not written as digits."""
_DIGITS: Final[tuple[str, Callable[[str], bytes]]] = "hexadecimal digits", bytes.fromhex


def bytes_of(field: str, row: Row, node: Node) -> bytes:
    """Parse bytes in the field's notation, or as hexadecimal digits."""
    called, parse = _NOTATIONS.get(row.meaning.show.kind, _DIGITS)
    length = row.width // 8
    said = f"{called} of {length} bytes for {field}"

    def data(text: str) -> bytes:
        found = converted(parse, text)
        if len(found) != length:
            raise TextError
        return found

    return parsed(node, said, data)


def value_of(field: str, node: Node) -> Value:
    """Return the single value given for a field."""
    value = _one(field, node)
    if isinstance(value, range):
        raise NodeError(node.mark, described(node), f"one value for {field}")
    return value
