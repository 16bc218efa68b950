"""Types of values in a scenario file: annotations that define how a node is read.

With an annotation such as ``Annotated[int, Size(1, 1 << 40)]``, pydantic reads a node of the file
(:mod:`rdmawire.traffic.scenario.document`) as a value. Its ``description`` ends a message that
begins with "expected"; its ``examples`` are valid texts, for the reference and for tests. Numbers
are decimal, or hexadecimal after ``0x``; sizes become bytes, times ns, rates bits a second.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import (
    Items,
    Node,
    NodeError,
    Pairs,
    Scalar,
    TextError,
    described,
    is_nothing,
    listed,
)
from rdmawire.units import (
    MAX_TEXT,
    RATES,
    SIZES,
    TIMES,
    FactorOf,
    QuantityError,
    format_exactly,
    parse_quantity,
    rate_factor,
    size_factor,
)
from rdmawire.wire.inet import mac_bytes, of_group, of_one_host

T = TypeVar("T")

Json = dict[str, Any]
"""A JSON Schema."""

Definitions = dict[str, Json]
"""JSON Schemas that others refer to, by name."""

MAX_NUMBER: Final = (1 << 64) - 1
"""The maximum of all numbers in a scenario."""
MAX_NAME: Final = 64


class Span(NamedTuple):
    """Bytes of named memory: ``host.memory``, from ``offset`` on; without ``length`` to the end."""

    host: str
    memory: str
    offset: int = 0
    length: int | None = None


class End(NamedTuple):
    """One end of a connection: ``client/a``, or ``client/a#2`` for its second queue pair.

    ``number`` counts from 1; ``None`` means all queue pairs.
    """

    host: str
    connection: str
    number: int | None = None


class Range(NamedTuple):
    """The numbers from ``least`` to ``most``, both included; no upper limit without ``most``."""

    least: int
    most: int | None

    def holds(self, found: int) -> bool:
        return self.least <= found and (self.most is None or found <= self.most)


class Fill(Enum):
    """The initial content of memory."""

    ZEROS = "zeros"
    COUNT = "count"
    """00 01 02 ... ff 00 ..."""
    RANDOM = "random"
    """Derived from the scenario's seed and the memory's name."""
    TEXT = "text"
    HEX = "hex"
    UNCHANGED = "unchanged"
    """Its own at the beginning of the run: for expectations alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Bytes given in a file; ``text`` and ``hex`` are repeated until the memory is full."""

    fill: Fill = Fill.ZEROS
    data: bytes = b""


# Parsers: from a text to a value, or TextError.

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|-?[0-9]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPAN = re.compile(r"([^.\[\]]+)\.([^.\[\]]+)(?:\[([^:\[\]]*)(:?)([^:\[\]]*)\])?")
_END = re.compile(r"([^/#]+)/([^/#]+)(?:#(.+))?")


class TooLargeError(TextError):
    """The number is greater than :data:`MAX_NUMBER`."""


def parse_number(text: str) -> int:
    """Read ``7``, ``-1`` or ``0x1f``."""
    if len(text) > MAX_TEXT or not _NUMBER.fullmatch(text):
        raise TextError
    value = int(text, 16 if text[:2] in ("0x", "0X") else 10)
    if abs(value) > MAX_NUMBER:
        raise TooLargeError(f"a number up to {MAX_NUMBER}")
    return value


def parse_fraction(text: str) -> float:
    """Read ``0.25``; no sign and no exponent."""
    if len(text) > MAX_TEXT or not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text):
        raise TextError
    return float(text)


def _quantity(text: str, units: Mapping[str, int], factor_of: FactorOf) -> int:
    try:
        found = parse_quantity(text, factor_of)
    except QuantityError as error:
        raise TextError(word=error.unit, known=[name for name in units if name]) from None
    if found.value > MAX_NUMBER:
        raise TooLargeError(f"no more than {MAX_NUMBER // found.factor} {found.unit}".strip())
    if not found.exact:
        raise TextError
    return found.value


def parse_size(text: str) -> int:
    """Read ``64``, ``8 KiB``, ``8k`` or ``1.5 MiB`` in bytes."""
    return _quantity(text, SIZES, size_factor)


def parse_time(text: str) -> int:
    """Read ``10 us`` or ``1.5 ms`` in ns; 0 needs no unit."""
    return _quantity(text, TIMES, TIMES.get)


def parse_rate(text: str) -> int:
    """Read ``100 Gbit/s``, ``100G`` or ``100Gbps`` in bits a second; a unit is required."""
    return _quantity(text, RATES, lambda unit: rate_factor(unit) if unit else None)


_AMOUNTS: Final = SIZES | TIMES


def parse_amount(text: str) -> int:
    """Read a number, a size or a time; ``k`` is ambiguous and refused."""
    return _quantity(text, _AMOUNTS, _AMOUNTS.get)


def parse_range(text: str, parse: Callable[[str], int]) -> Range:
    """Read ``3``, ``3..5``, ``1..`` or ``..9``; the ends are included."""
    least, dots, most = (part.strip() for part in text.partition(".."))
    if not dots:
        only = parse(least)
        return Range(only, only)
    if not (least or most):
        raise TextError
    found = Range(parse(least) if least else 0, parse(most) if most else None)
    if found.most is not None and found.most < found.least:
        raise TextError("a range with the least value first")
    return found


def parse_name(text: str) -> str:
    """Read a name: letters, digits and underscores, not starting with a digit."""
    if len(text) > MAX_NAME or not _NAME.fullmatch(text):
        raise TextError
    return text


def parse_span(text: str) -> Span:
    """Read ``host.memory``, ``host.memory[16:32]``, ``host.memory[:8]``."""
    parts = _SPAN.fullmatch(text)
    if parts is None:
        raise TextError
    host, memory, start, colon, end = parts.groups()
    if start is None:
        return Span(parse_name(host), parse_name(memory))
    if not colon:
        raise TextError(f"from where to where: [{start}:end]")
    offset = parse_size(start.strip()) if start.strip() else 0
    if not end.strip():
        return Span(parse_name(host), parse_name(memory), offset)
    length = parse_size(end.strip()) - offset
    if length <= 0:
        raise TextError("a span that ends after its start")
    return Span(parse_name(host), parse_name(memory), offset, length)


def parse_end(text: str) -> End:
    """Read ``host/connection``, or ``host/connection#2`` for its second queue pair."""
    parts = _END.fullmatch(text)
    if parts is None:
        raise TextError
    host, connection, which = parts.groups()
    if which is None:
        return End(parse_name(host), parse_name(connection))
    if parse_number(which) < 1:
        raise TextError("queue pairs counted from 1 on")
    return End(parse_name(host), parse_name(connection), parse_number(which))


def converted(convert: Callable[[str], T], text: str) -> T:
    """Return what a function makes of a text; :class:`TextError` for its ``ValueError``."""
    try:
        return convert(text)
    except ValueError:
        raise TextError from None


def parse_hex(text: str) -> bytes:
    """Read ``00 ff``: two hexadecimal digits for each byte."""
    return converted(bytes.fromhex, text)


def parse_utf8(text: str) -> bytes:
    """Encode a text as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise TextError("text that can be encoded in UTF-8") from None


def parse_mac(text: str) -> str:
    """Read ``02:00:00:00:00:01``, a unicast address."""
    address = converted(mac_bytes, text)
    if of_group(address):
        raise TextError("the address of one station, not a group's")
    return address.hex(":")


def parse_address(text: str) -> str:
    """Read ``10.0.0.1`` or ``fd00::1``, and return its canonical form."""
    found = converted(ip_address, text)
    if not of_one_host(found):
        raise TextError("the address of one host")
    return str(found)


def parse_flag(text: str) -> bool:
    """Read ``true`` or ``false``."""
    if text not in ("true", "false"):
        raise TextError
    return text == "true"


def parse_text(text: str) -> str:
    """Return a text that is not blank."""
    if not text.strip():
        raise TextError
    return parse_utf8(text).decode()


# Nodes.


def invalid(node: Node, expected: str, error: TextError | None = None) -> NodeError:
    """Return the error for a node that is not as expected."""
    if error is None:
        return NodeError(node.mark, described(node), expected)
    expected = error.expected or expected
    return NodeError(node.mark, described(node), expected, word=error.word, known=error.known)


def pairs_of(node: Node, expected: str) -> tuple[tuple[Scalar, Node], ...]:
    """Return the keys of a mapping with their values."""
    if not isinstance(node, Pairs):
        raise invalid(node, expected)
    return node.pairs


def text_of(node: Node, expected: str) -> str:
    """Return the text of a scalar that is not empty."""
    if not isinstance(node, Scalar) or is_nothing(node):
        raise invalid(node, expected)
    return node.text


def parsed(node: Node, expected: str, parse: Callable[[str], T]) -> T:
    """Parse the text of a node."""
    text = text_of(node, expected)
    try:
        return parse(text)
    except TextError as error:
        raise invalid(node, expected, error) from None


# Types.


class ValueType:
    """How a node is read as a value, its description in messages, and its JSON Schema."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def description(self) -> str: ...

        @property
        def examples(self) -> tuple[str, ...]: ...

    @property
    def parts(self) -> tuple[Any, ...]:
        """Return the sections and types in it."""
        return ()

    @property
    def label(self) -> str:
        """Its description in listings."""
        return self.description

    def read(self, node: Node, context: ParseContext) -> Any:
        """Read a node; :class:`NodeError` if it is invalid."""
        raise NotImplementedError

    def format(self, value: Any) -> str:
        return str(value)

    def json(self, definitions: Definitions) -> Json:  # noqa: ARG002 - a type
        return {"type": "string", "description": self.description}

    def validate(self, value: Any, info: Any) -> Any:
        """Read a node; values given by a program are used unchanged."""
        return (
            self.read(value, info.context) if isinstance(value, Scalar | Items | Pairs) else value
        )

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self.validate)


@dataclass(frozen=True, slots=True)
class Custom(ValueType):
    """A type read by a function. ``schema`` is its JSON Schema, or a function that makes it."""

    description: str
    examples: tuple[str, ...]
    reader: Callable[[Node, ParseContext], Any]
    formatted: Callable[[Any], str] = str
    schema: Json | Callable[[Definitions], Json] | None = None
    parts: tuple[Any, ...] = ()

    def read(self, node: Node, context: ParseContext) -> Any:
        return self.reader(node, context)

    def format(self, value: Any) -> str:
        return self.formatted(value)

    def json(self, definitions: Definitions) -> Json:
        if callable(self.schema):
            return self.schema(definitions)
        return self.schema or ValueType.json(self, definitions)


def Parsed(  # noqa: N802 - a type
    description: str,
    parse: Callable[[str], Any],
    examples: tuple[str, ...],
    formatted: Callable[[Any], str] = str,
    *,
    types: tuple[str, ...] = ("string",),
) -> Custom:
    """A text that a parser accepts. ``types`` are the JSON types that an editor may assume."""
    schema = {"type": [*types] if len(types) > 1 else types[0], "description": description}

    def read(node: Node, _: ParseContext) -> Any:
        return parsed(node, description, parse)

    return Custom(description, examples, read, formatted, schema)


_NUMBERS: Final = ("integer", "string")


def _within(parse: Callable[[str], T], low: T, high: T, bounds: str = "") -> Callable[[str], T]:
    """Return a parser of values from ``low`` to ``high``; messages contain ``bounds``."""

    def parse_within(text: str) -> T:
        try:
            value = parse(text)
        except TooLargeError:
            raise TextError(bounds) from None
        if not low <= value <= high:  # type: ignore[operator]
            raise TextError(bounds)
        return value

    return parse_within


def Number(low: int, high: int, what: str = "a number") -> Custom:  # noqa: N802 - a type
    """An integer from ``low`` to ``high``."""
    within = _within(parse_number, low, high)
    return Parsed(f"{what} from {low} to {high}", within, (str(low), str(high)), types=_NUMBERS)


def Fraction(low: float, high: float) -> Custom:  # noqa: N802 - a type
    """A number from ``low`` to ``high`` that may have decimals."""
    description = f"a number from {low:g} to {high:g}, such as 0.5"
    within = _within(parse_fraction, low, high)
    types = ("number", "string")
    return Parsed(description, within, (f"{high:g}", "0.5"), "{:g}".format, types=types)


format_size: Final = partial(format_exactly, units=SIZES)
format_time: Final = partial(format_exactly, units=TIMES)
format_rate: Final = partial(format_exactly, units=RATES)


def Size(low: int, high: int) -> Custom:  # noqa: N802 - a type
    """A size in bytes."""
    usual, most = format_size(min(max(low, 8 << 10), high)), format_size(high)
    description = f"a size from {format_size(low)} to {most}, such as {usual}"
    examples = (usual, most, str(max(low, 64)))
    return Parsed(
        description, _within(parse_size, low, high), examples, format_size, types=_NUMBERS
    )


MAX_TIME: Final = 10**15
"""More than eleven days (ns)."""


def Time(low: int = 0, high: int = MAX_TIME) -> Custom:  # noqa: N802 - a type
    """A time in ns."""
    longest = f"a time up to {format_time(high)}"
    description = f"{longest}, such as 10 us" if high < MAX_TIME else "a time such as 10 us"
    within = _within(parse_time, low, high, longest)
    return Parsed(description, within, ("10 us", "1.5 ms"), format_time)


def Rate(low: int = 1, high: int = 10**15) -> Custom:  # noqa: N802 - a type
    """A rate in bits a second."""
    bounds = f"a rate from {format_rate(low)} to {format_rate(high)}"
    within = _within(parse_rate, low, high, bounds)
    examples = ("100 Gbit/s", "2.5 Gbit/s")
    return Parsed("a rate such as 100 Gbit/s", within, examples, format_rate)


def RangeOf(parse: Callable[[str], int], *examples: str) -> Custom:  # noqa: N802 - a type
    """A range of numbers, sizes or times."""
    description = f"a value or a range: {', '.join(examples)}"
    return Parsed(description, lambda text: parse_range(text, parse), examples, types=_NUMBERS)


FLAG: Final = Parsed(
    "true or false", parse_flag, ("true", "false"), lambda one: str(one).lower(), types=("boolean",)
)
TEXT: Final = Parsed("text", parse_text, ("One WRITE", '"A loss, and more"'))
NAME: Final = Parsed("a name: letters, digits and underscores", parse_name, ("client", "w1"))
MAC: Final = Parsed(
    "an Ethernet address such as 02:00:00:00:00:01",
    parse_mac,
    ("02:00:00:00:00:01", "0c:c4:7a:00:00:01"),
)
ADDRESS: Final = Parsed(
    "an address such as 10.0.0.1 or fd00::1", parse_address, ("10.0.0.1", "fd00::1")
)

Flag = Annotated[bool, FLAG]


def OneOf(  # noqa: N802 - a type
    values: Collection[int],
    parse: Callable[[str], int] = parse_number,
    formatted: Callable[[int], str] = str,
    types: tuple[str, ...] = ("integer",),
) -> Custom:
    """One of a few numbers or sizes."""
    names = tuple(map(formatted, values))

    def parse_one(text: str) -> int:
        if (found := parse(text)) not in values:
            raise TextError
        return found

    return Parsed(f"one of {listed(names)}", parse_one, names, formatted, types=types)


def Word(words: Iterable[str], called: str = "") -> Custom:  # noqa: N802 - a type
    """One of some words. ``called`` describes them if they are too many to list."""
    known = tuple(words)
    description = f"{called}: {listed(known)}" if called else f"one of {listed(known)}"

    def parse(text: str) -> str:
        if text not in known:
            raise TextError(word=text, known=known)
        return text

    return replace(Parsed(description, parse, known), schema={"enum": [*known]})


@dataclass(frozen=True, slots=True)
class Many(ValueType):
    """A list of values.

    ``alone``: one value is valid without a list. ``partly``: invalid items are left out, where
    otherwise the list is invalid. ``called`` is a shorter description.
    """

    item: ValueType
    alone: bool = False
    partly: bool = False
    called: str = ""

    @property
    def description(self) -> str:
        said = self.item.description
        return self.called or (f"{said}, or a list of them" if self.alone else f"a list: {said}")

    @property
    def examples(self) -> tuple[str, ...]:
        both = self.item.examples[:2]
        return (*(both[:1] if self.alone else ()), f"[{listed(both)}]")

    @property
    def label(self) -> str:
        return f"{self.item.label}, or a list of them" if self.alone else self.description

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self.item,)

    def read(self, node: Node, context: ParseContext) -> tuple[Any, ...]:
        if not (self.alone or isinstance(node, Items)):
            raise invalid(node, self.description)
        items = node.items if isinstance(node, Items) else (node,)
        reads = (partial(self.item.read, item, context) for item in items)
        return tuple(context.valid(reads)) if self.partly else context.every(reads)

    def format(self, value: Any) -> str:
        return f"[{listed(self.item.format(one) for one in value)}]"

    def json(self, definitions: Definitions) -> Json:
        item = self.item.json(definitions)
        items = {"type": "array", "items": item}
        return {"anyOf": [item, items]} if self.alone else items
