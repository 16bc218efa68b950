"""Things with keys: rows of the schema, and how what stands in a file becomes a plan."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from rdmawire.screen import quoted
from rdmawire.traffic.scenario.document import (
    Node,
    NodeError,
    Pairs,
    ReportedError,
    Scalar,
    is_nothing,
    listed,
)
from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.kind import (
    Definitions,
    Json,
    Kind,
    Leaf,
    Many,
    Two,
    misfit,
    pairs_of,
    shown,
)
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.model import Mark

T = TypeVar("T")

NAME: Final = Leaf(
    said="a name: letters, digits and underscores", parse=units.name, samples=("client", "w1")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A row of the schema: a key of something, and where its value goes.

    ``into`` names the field of the plan, or the fields if the value is as many; the key itself, if
    it is left out. With ``within``, it goes into a mapping that is this field.
    """

    kind: Kind[Any]
    help: str
    into: tuple[str, ...] = ()
    within: str = ""
    needed: bool = False
    clause: str = ""

    def places(self, key: str) -> tuple[tuple[str, str], ...]:
        """Where its value goes: fields, each behind the mapping that it is in."""
        return tuple((self.within, name) for name in self.into or (key.replace(" ", "_"),))

    def put(self, key: str, value: Any, values: dict[str, Any]) -> None:
        """Put the value where it goes."""
        places = self.places(key)
        each = (value,) if len(places) == 1 else value
        for (within, name), one in zip(places, each, strict=True):
            into = values.setdefault(within, {}) if within else values
            into[name] = one


@dataclass(slots=True)
class Found:
    """The values of something, by field, and the nodes that they were read from, by key."""

    mark: Mark
    values: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    taken: dict[tuple[tuple[str, str], ...], str] = field(default_factory=dict)
    """By which key a place has its value."""

    def at(self, key: str) -> Mark:
        """Where the value of a key stands, or the whole where it has none."""
        return self.nodes[key].mark if key in self.nodes else self.mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Generic[T]):
    """Something with keys, of which ``plan`` makes a value.

    ``short`` is the key whose value may stand there alone. ``prefixes`` are beginnings of keys
    that end in a name, such as ``attributes of``: their values go into ``within`` by that name.
    ``finish`` has the last word on the value, or refuses it. ``usual`` is what keys have that are
    left out, where the plan does not say.
    """

    called: str
    plan: Callable[..., T]
    keys: Mapping[str, Key]
    short: str = ""
    prefixes: Mapping[str, Key] = field(default_factory=dict)
    finish: Callable[[T, Found, Reading], T] | None = None
    usual: Mapping[str, Any] = field(default_factory=dict)

    @property
    def said(self) -> str:
        keys = f"keys of {self.called}: {listed(self.keys)}" if self.keys else "no keys"
        return f"{self.keys[self.short].kind.said}; or {keys}" if self.short else keys

    @property
    def samples(self) -> tuple[str, ...]:
        if self.short:
            return self.keys[self.short].kind.samples
        return (f"{{{listed(f'{key}: {self.keys[key].kind.samples[0]}' for key in self.needed)}}}",)

    @property
    def needed(self) -> tuple[str, ...]:
        """The keys that may not be left out."""
        return tuple(key for key, row in self.keys.items() if row.needed)

    def read(self, node: Node, reading: Reading) -> T:
        return self.make(node, reading, node.mark)

    def make(self, node: Node, reading: Reading, mark: Mark, **given: Any) -> T:
        """The value, with fields that are given besides what stands there."""
        found, whole = self.find(node, reading)
        if not whole:
            raise ReportedError
        found.mark = mark
        value = self.plan(**given, **found.values, mark=mark)
        return value if self.finish is None else self.finish(value, found, reading)

    def find(self, node: Node, reading: Reading) -> tuple[Found, bool]:
        """The values that can be read, and whether nothing is amiss; what is amiss is told."""
        found = Found(node.mark)
        pairs = self._pairs(node)
        texts = {key.text for key, _ in pairs}
        missing = [key for key in self.needed if key not in texts]
        _, whole = reading.gather(
            [
                *(partial(self._miss, key, node) for key in missing),
                *(partial(self._read, *pair, found, reading) for pair in pairs),
            ]
        )
        return found, whole

    def _pairs(self, node: Node) -> list[tuple[Scalar, Node]]:
        """Keys and what stands behind them, in the order of the schema."""
        order = {key: place for place, key in enumerate(self.keys)}
        if isinstance(node, Pairs):
            return sorted(node.pairs, key=lambda pair: order.get(pair[0].text, len(order)))
        if is_nothing(node) and not self.short and not self.needed:
            return []
        if is_nothing(node) or not self.short:
            raise misfit(node, self.said)
        return [(Scalar(self.short, node.mark), node)]

    def _read(self, key: Scalar, node: Node, found: Found, reading: Reading) -> None:
        """Read what stands behind one key."""
        name, row = self._row(key, reading)
        rival = found.taken.setdefault(row.places(name), key.text)
        if rival != key.text:
            besides = f"{quoted(key.text)} besides {quoted(rival)}"
            raise NodeError(key.mark, besides, "one of the two")
        found.nodes[key.text] = node
        row.put(name, row.kind.read(node, reading), found.values)

    def _row(self, key: Scalar, reading: Reading) -> tuple[str, Key]:
        """The row of a key, and by what name its value goes."""
        text = key.text
        if text in self.keys:
            return text, self.keys[text]
        prefix = next((each for each in self.prefixes if text.startswith(f"{each} ")), None)
        if prefix is not None:
            return text.removeprefix(prefix).strip(), self.prefixes[prefix]
        homes = [home for home in reading.homes.get(text, ()) if home != self.called]
        of = f" of {homes[0]}" if homes else ""
        known = (*self.keys, *self.prefixes)
        expected = f"a key of {self.called}: {listed(known)}"
        raise NodeError(key.mark, f"key {quoted(text)}{of}", expected, word=text, known=known)

    def _miss(self, key: str, node: Node) -> None:
        found = f"{self.called} without {quoted(key)}"
        raise NodeError(node.mark, found, self.keys[key].kind.said)

    def default(self, key: str) -> Any:
        """What a key has that is left out; ``MISSING`` if nothing."""
        row = self.keys[key]
        if key in self.usual:
            return self.usual[key]
        if row.within or len(row.into) > 1 or not is_dataclass(self.plan):
            return MISSING
        ((_, name),) = row.places(key)
        return next((one.default for one in fields(self.plan) if one.name == name), MISSING)

    def left_out(self, key: str) -> str:
        """What a key has that is left out, as a file writes it; empty if there is nothing to say.

        What the keys of something else make of it, or the device, is said by the key's ``help``.
        """
        usual = self.default(key)
        if usual in (MISSING, None, "", ()) or not isinstance(usual, int | float | str | tuple):
            return ""
        return shown(self.keys[key].kind, usual)

    def json(self, known: Definitions) -> Json:
        name = self.called.replace(" ", "-")
        if name not in known:
            known[name] = {}
            known[name] = self._json(known)
        return {"$ref": f"#/$defs/{name}"}

    def _json(self, known: Definitions) -> Json:
        keys = {
            key: row.kind.json(known) | {"description": row.help} for key, row in self.keys.items()
        }
        patterns = {f"^{each} .+$": row.kind.json(known) for each, row in self.prefixes.items()}
        whole: Json = {"type": "object", "properties": keys, "additionalProperties": False}
        whole |= {"required": [*self.needed]} if self.needed else {}
        whole |= {"patternProperties": patterns} if patterns else {}
        short = [self.keys[self.short].kind.json(known)] if self.short else []
        if not self.short and not self.needed:
            short = [{"type": "null"}]
        return {"anyOf": [whole, *short]} if short else whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Generic[T]):
    """Things by their names. ``into`` is the field of each plan that the name goes to."""

    record: Record[T]
    called: str
    example: str
    key: Kind[Any] = NAME
    into: str = "name"

    @property
    def said(self) -> str:
        return f"{self.called}, such as {self.samples[0]}"

    @property
    def samples(self) -> tuple[str, ...]:
        return (f"{{{self.example}: {self.record.samples[0]}}}",)

    def read(self, node: Node, reading: Reading) -> tuple[T, ...]:
        """Those that can be read; what is amiss with the others is told."""
        reads = (partial(self._read, *pair, reading) for pair in pairs_of(node, self.said))
        return reading.gather(reads)[0]

    def _read(self, key: Scalar, node: Node, reading: Reading) -> T:
        name = self.key.read(key, reading)
        with reading.within(key.text):
            return self.record.make(node, reading, key.mark, **{self.into: name})

    def json(self, known: Definitions) -> Json:
        return {"type": "object", "additionalProperties": self.record.json(known)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Generic[T]):
    """One of several things, with its word as the one key. ``into`` is the field for the word."""

    records: Mapping[str, Record[T]]
    called: str
    into: str

    @property
    def said(self) -> str:
        return f"{self.called}: one key of {listed(self.records)}"

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(f"{{{word}: {record.samples[0]}}}" for word, record in self.records.items())

    def read(self, node: Node, reading: Reading) -> T:
        key, value = self._pair(node)
        if key.text not in self.records:
            found = quoted(key.text)
            raise NodeError(key.mark, found, self.said, word=key.text, known=self.records)
        return self.records[key.text].make(value, reading, key.mark, **{self.into: key.text})

    def _pair(self, node: Node) -> tuple[Scalar, Node]:
        """The word and what stands behind it; a word may stand alone."""
        if isinstance(node, Scalar) and not is_nothing(node):
            return node, Scalar("", node.mark)
        if not isinstance(node, Pairs):
            raise misfit(node, self.said)
        if len(node.pairs) != 1:
            raise NodeError(node.mark, f"{len(node.pairs)} keys", self.said)
        return node.pairs[0]

    def json(self, known: Definitions) -> Json:
        words = {word: record.json(known) for word, record in self.records.items()}
        one: Json = {"type": "object", "properties": words, "additionalProperties": False}
        one |= {"minProperties": 1, "maxProperties": 1}
        bare = [word for word, record in self.records.items() if not record.needed]
        return {"anyOf": [one, {"enum": bare}]} if bare else one


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed(Generic[T]):
    """Values by keys that are no new names.

    ``make`` makes one thing of a key, its value and the place, ``whole`` one of all of them.
    """

    key: Kind[Any]
    value: Kind[Any]
    make: Callable[..., T]
    called: str
    whole: Callable[[tuple[T, ...]], Any] = tuple

    @property
    def said(self) -> str:
        return self.called

    @property
    def samples(self) -> tuple[str, ...]:
        both = zip(self.key.samples, self.value.samples, strict=False)
        return tuple(f"{{{key}: {value}}}" for key, value in both)

    def read(self, node: Node, reading: Reading) -> Any:
        """Those that can be read; what is amiss with the others is told."""
        reads = (partial(self._read, *pair, reading) for pair in pairs_of(node, self.said))
        return self.whole(reading.gather(reads)[0])

    def _read(self, key: Scalar, node: Node, reading: Reading) -> T:
        both = reading.every(
            [partial(self.key.read, key, reading), partial(self.value.read, node, reading)]
        )
        return self.make(*both, key.mark)

    def json(self, known: Definitions) -> Json:
        return {"type": "object", "additionalProperties": self.value.json(known)}


def records_in(kind: Kind[Any]) -> Iterator[Record[Any]]:
    """All things with keys that a kind of value has in it, the outermost first, each once."""
    seen: dict[int, Record[Any]] = {}
    _collect(kind, seen)
    return iter(seen.values())


def _collect(kind: Kind[Any], seen: dict[int, Record[Any]]) -> None:
    if id(kind) in seen:
        return
    if isinstance(kind, Record):
        seen[id(kind)] = kind
    for part in parts(kind):
        _collect(part, seen)


def parts(kind: Kind[Any]) -> tuple[Kind[Any], ...]:
    """The kinds that a kind is made of."""
    match kind:
        case Record():
            return tuple(row.kind for row in (*kind.keys.values(), *kind.prefixes.values()))
        case Named():
            return (kind.record,)
        case Choice():
            return tuple(kind.records.values())
        case Many() | Two():
            return (kind.item,)
        case Keyed():
            return (kind.value,)
    return getattr(kind, "parts", ())
