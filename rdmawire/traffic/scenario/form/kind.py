"""Kinds of values: how a node is read as one, what a message says of it, and its JSON Schema.

Every row of the schema has one. ``said`` ends a sentence that begins with "expected"; ``samples``
are texts that are such a value, for pages and tests.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from rdmawire.screen import quoted
from rdmawire.traffic.scenario.document import (
    Items,
    Node,
    NodeError,
    Pairs,
    ReportedError,
    Scalar,
    TextError,
    described,
    is_nothing,
    listed,
)
from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.model import Mark, Range
from rdmawire.units import RATES, SIZES, TIMES, format_exactly

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Json = dict[str, Any]
"""A JSON Schema."""

Definitions = dict[str, Json]
"""Those that others refer to, by name."""


class Kind(Protocol[T_co]):
    """What values are. Kinds whose values are shown to people have ``show``, too."""

    @property
    def said(self) -> str: ...

    @property
    def samples(self) -> tuple[str, ...]: ...

    def read(self, node: Node, reading: Reading) -> T_co:
        """The value; :class:`ReportedError` for what is none."""

    def json(self, known: Definitions) -> Json:
        """Its JSON Schema; what that refers to is put into ``known``."""


def shown(kind: Kind[Any], value: Any) -> str:
    """A value as a file writes it, of a kind that has a way to."""
    show: Callable[[Any], str] = getattr(kind, "show", str)
    return show(value)


def misfit(node: Node, expected: str, error: TextError | None = None) -> NodeError:
    """That something else stands there than was expected."""
    if error is None:
        return NodeError(node.mark, described(node), expected)
    expected = error.expected or expected
    return NodeError(node.mark, described(node), expected, word=error.word, known=error.known)


def pairs_of(node: Node, expected: str) -> tuple[tuple[Scalar, Node], ...]:
    """The keys of what stands in braces, with their values."""
    if not isinstance(node, Pairs):
        raise misfit(node, expected)
    return node.pairs


def text_of(node: Node, expected: str) -> str:
    """The text of a node that has one."""
    if not isinstance(node, Scalar) or is_nothing(node):
        raise misfit(node, expected)
    return node.text


def parsed(node: Node, expected: str, parse: Callable[[str], T]) -> T:
    """What a parser makes of the text of a node."""
    text = text_of(node, expected)
    try:
        return parse(text)
    except TextError as error:
        raise misfit(node, expected, error) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf(Generic[T]):
    """A text that a parser takes."""

    said: str
    parse: Callable[[str], T]
    samples: tuple[str, ...]
    shown: Callable[[T], str] = str
    types: tuple[str, ...] = ("string",)
    """Those of JSON that an editor takes it for."""

    def read(self, node: Node, reading: Reading) -> T:  # noqa: ARG002 - a kind
        return parsed(node, self.said, self.parse)

    def show(self, value: T) -> str:
        return self.shown(value)

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        types = [*self.types] if len(self.types) > 1 else self.types[0]
        return {"type": types, "description": self.said}


def within(parse: Callable[[str], T], low: T, high: T, bounds: str = "") -> Callable[[str], T]:
    """A parser of values from ``low`` to ``high``.

    ``bounds`` says so of other values, where what is always said does not.
    """

    def parsed(text: str) -> T:
        try:
            value = parse(text)
        except units.Beyond:
            raise TextError(bounds) from None
        if not low <= value <= high:  # type: ignore[operator]
            raise TextError(bounds)
        return value

    return parsed


def number(low: int, high: int, what: str = "a number") -> Leaf[int]:
    """A whole number."""
    return Leaf(
        said=f"{what} from {low} to {high}",
        parse=within(units.number, low, high),
        samples=(str(low), str(high)),
        types=("integer", "string"),
    )


def fraction(low: float, high: float) -> Leaf[float]:
    """A number that need not be whole."""
    return Leaf(
        said=f"a number from {low:g} to {high:g}, such as 0.5",
        parse=within(units.fraction, low, high),
        samples=(f"{high:g}", "0.5"),
        shown=lambda value: f"{value:g}",
        types=("number", "string"),
    )


def size(low: int, high: int) -> Leaf[int]:
    """Octets."""
    least, most = (format_exactly(value, SIZES) for value in (low, high))
    usual = format_exactly(min(max(low, 8 << 10), high), SIZES)
    return Leaf(
        said=f"a size from {least} to {most}, such as {usual}",
        parse=within(units.size, low, high),
        samples=(usual, most, str(max(low, 64))),
        shown=partial(format_exactly, units=SIZES),
        types=("integer", "string"),
    )


LONGEST_TIME = 10**15
"""More than eleven days (ns)."""


def time(low: int = 0, high: int = LONGEST_TIME) -> Leaf[int]:
    """Nanoseconds."""
    longest = f"a time up to {format_exactly(high, TIMES)}"
    return Leaf(
        said=f"{longest}, such as 10 us" if high < LONGEST_TIME else "a time such as 10 us",
        parse=within(units.time, low, high, longest),
        samples=("10 us", "1.5 ms"),
        shown=partial(format_exactly, units=TIMES),
    )


def ranged(parse: Callable[[str], int], samples: tuple[str, ...]) -> Leaf[Range]:
    """From a least to a most."""
    return Leaf(
        said=f"a value or a range: {', '.join(samples)}",
        parse=lambda text: units.between(text, parse),
        samples=samples,
        types=("integer", "string"),
    )


def rate(low: int = 1, high: int = 10**15) -> Leaf[int]:
    """Bits a second."""
    least, most = (format_exactly(value, RATES) for value in (low, high))
    return Leaf(
        said="a rate such as 100 Gbit/s",
        parse=within(units.rate, low, high, f"a rate from {least} to {most}"),
        samples=("100 Gbit/s", "2.5 Gbit/s"),
        shown=partial(format_exactly, units=RATES),
    )


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers: one, a range, or a list of both; each once."""

    low: int
    high: int

    @property
    def said(self) -> str:
        return f"a number from {self.low} to {self.high}, a range such as 2..4, or a list of them"

    @property
    def samples(self) -> tuple[str, ...]:
        low = self.low
        return (str(low), f"{low}..{low + 3}", f"[{low}, {low + 2}..{low + 3}]")

    def read(self, node: Node, reading: Reading) -> tuple[int, ...]:
        items = node.items if isinstance(node, Items) else (node,)
        found: dict[int, None] = {}
        for item in items:
            numbers = parsed(item, self.said, self._range)
            reading.spend(len(numbers), item)
            found.update(dict.fromkeys(numbers))
        return tuple(found)

    def _range(self, text: str) -> range:
        least, most = units.between(text, units.number)
        last = self.high if most is None else most
        if least < self.low or last > self.high:
            raise TextError
        return range(least, last + 1)

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        one = ["integer", "string"]
        items = {"type": "array", "items": {"type": one}}
        return {"anyOf": [{"type": one}, items], "description": self.said}


TRUTH = Leaf(
    said="true or false",
    parse=units.truth,
    samples=("true", "false"),
    shown=lambda value: str(value).lower(),
    types=("boolean",),
)


@dataclass(frozen=True, slots=True)
class Word:
    """One of some words. ``called`` says what they are where they are too many to list."""

    words: Collection[str]
    called: str = ""

    @property
    def said(self) -> str:
        if not self.called:
            return f"one of {listed(self.words)}"
        return f"{self.called}: {listed(self.words)}"

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(self.words)

    def read(self, node: Node, reading: Reading) -> str:  # noqa: ARG002 - a kind
        text = text_of(node, self.said)
        if text not in self.words:
            raise NodeError(node.mark, quoted(text), self.said, word=text, known=self.words)
        return text

    def show(self, value: str) -> str:
        return value

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"enum": [*self.words]}


@dataclass(frozen=True, slots=True)
class Many(Generic[T]):
    """A list. ``alone``: one value may stand there without being a list.

    ``lenient`` leaves out what cannot be read, so that the others are known.
    """

    item: Kind[T]
    alone: bool = False
    lenient: bool = False

    @property
    def said(self) -> str:
        return f"{self.item.said}, or a list of them" if self.alone else f"a list: {self.item.said}"

    @property
    def samples(self) -> tuple[str, ...]:
        both = listed(self.item.samples[:2])
        return (*(self.item.samples[:1] if self.alone else ()), f"[{both}]")

    def read(self, node: Node, reading: Reading) -> tuple[T, ...]:
        found, whole = reading.gather(
            partial(self.item.read, item, reading) for item in self._items(node)
        )
        if not (whole or self.lenient):
            raise ReportedError
        return found

    def _items(self, node: Node) -> tuple[Node, ...]:
        if isinstance(node, Items):
            return node.items
        if not self.alone:
            raise misfit(node, self.said)
        return (node,)

    def show(self, value: Iterable[T]) -> str:
        return f"[{listed(shown(self.item, one) for one in value)}]"

    def json(self, known: Definitions) -> Json:
        item = self.item.json(known)
        items = {"type": "array", "items": item}
        return {"anyOf": [item, items]} if self.alone else items


@dataclass(frozen=True, slots=True)
class Two(Generic[T]):
    """Two values: ``a, b`` or ``[a, b]``. ``same``: one alone stands for both."""

    item: Kind[T]
    said: str
    samples: tuple[str, ...]
    same: bool = False

    def read(self, node: Node, reading: Reading) -> tuple[T, T]:
        parts = tuple(_parts(node))
        if len(parts) != 2 and not (len(parts) == 1 and self.same):
            raise misfit(node, self.said)
        found = reading.every(partial(self.item.read, part, reading) for part in parts)
        return found[0], found[-1]

    def show(self, value: tuple[T, T]) -> str:
        return listed(shown(self.item, one) for one in value)

    def json(self, known: Definitions) -> Json:
        item = self.item.json(known)
        pair = {"type": "array", "items": item, "minItems": 2, "maxItems": 2}
        return {"anyOf": [{"type": ["string", "integer"]}, pair], "description": self.said}


def _parts(node: Node) -> Iterator[Node]:
    """The items of a list, or of a text with commas."""
    if isinstance(node, Items):
        yield from node.items
    elif isinstance(node, Scalar) and node.text:
        column = node.mark.column
        for part in node.text.split(","):
            before = len(part) - len(part.lstrip())
            yield Scalar(part.strip(), Mark(node.mark.line, column + before), node.plain)
            column += len(part) + 1
