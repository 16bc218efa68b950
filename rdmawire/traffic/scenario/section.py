"""Sections of a scenario file: pydantic models whose fields are the keys that a file may have.

A field with a :func:`key` is a key of the file: its annotation defines how the value is read
(:mod:`rdmawire.traffic.scenario.types`), its default the value if left out, and the key's help its
meaning. The reader, the reference, ``rdmawire run --keys`` and the JSON Schema use these. Fields
without a key are set from the context of a section, such as its name.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import (
    Mark,
    Node,
    NodeError,
    Pairs,
    ReportedError,
    Scalar,
    is_nothing,
    listed,
)
from rdmawire.traffic.scenario.types import Definitions, Json, ValueType, invalid, pairs_of

T = TypeVar("T")

NOTHING: Final[Mapping[str, Any]] = {}
"""An empty mapping."""

Given: TypeAlias = Annotated[T, SkipValidation]
"""A field that is not a key of the file."""


class Clause(NamedTuple):
    """The clause of a standard that defines a key."""

    text: str


def key(help_: str, name: str = "") -> Any:
    """Declare a key of the file, with its help, and its name if it differs from the field's."""
    return Field(description=help_, validation_alias=name or None)


class Key(NamedTuple):
    """A key of a section, as its field declares it. ``default`` is ``None`` without a default."""

    field: str
    type: ValueType
    help: str
    needed: bool
    default: Any
    clause: str

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for a key that several sections share."""
        return self.field, self.help, id(self.type), self.left_out

    @property
    def left_out(self) -> str:
        """The default as a file writes it; empty without a default."""
        if self.default in (None, "", ()) or not isinstance(
            self.default, int | float | str | tuple
        ):
            return ""
        return self.type.format(self.default)


def _key_of(name: str, info: FieldInfo) -> Key:
    (type_,) = (one for one in info.metadata if isinstance(one, ValueType))
    clause = "".join(one.text for one in info.metadata if isinstance(one, Clause))
    needed = info.is_required()
    default = None if needed else info.default
    return Key(name, type_, info.description or "", needed, default, clause)


class Entry(NamedTuple):
    """A key with its value, for a section whose name is a key."""

    key: Scalar
    value: Node


@dataclass(slots=True)
class Found:
    """The nodes from which a section was read, by key, and its position."""

    mark: Mark
    nodes: dict[str, Node] = field(default_factory=dict)

    def at(self, name: str) -> Mark:
        """Return the position of a key's value, or of the section if the key is left out."""
        return self.nodes[name].mark if name in self.nodes else self.mark


class Section(BaseModel):
    """A part of the file with keys.

    ``called`` is its name in messages. ``short`` is the key whose value may be written in place of
    the section; ``named`` is the field for the section's name, if a key gives it. Of the keys in
    one of ``alternatives``, a section has at most one. ``prefixes`` maps the first words of keys
    that end in a name to fields. ``former`` maps earlier names of keys to the current ones; the
    earlier ones are still accepted.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        arbitrary_types_allowed=True,
        defer_build=True,
    )

    called: ClassVar[str]
    short: ClassVar[str] = ""
    named: ClassVar[str] = "name"
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()
    prefixes: ClassVar[Mapping[str, str]] = {}
    former: ClassVar[Mapping[str, str]] = {}

    mark: Given[Mark]

    @classmethod
    @cache
    def keys(cls) -> dict[str, Key]:
        """Return the keys of a file, in the order in which messages list them."""
        return {
            str(info.validation_alias or name): _key_of(name, info)
            for name, info in cls.model_fields.items()
            if info.description and name not in cls.prefixes.values()
        }

    @classmethod
    def prefixed(cls) -> Mapping[str, Key]:
        """Return the keys that end in a name, by their first words."""
        return {word: _key_of(name, cls.model_fields[name]) for word, name in cls.prefixes.items()}

    @classmethod
    def needed(cls) -> tuple[str, ...]:
        return tuple(name for name, row in cls.keys().items() if row.needed)

    @classmethod
    def description(cls) -> str:
        names = cls.keys()
        keys = f"keys of {cls.called}: {listed(names)}" if names else "no keys"
        return f"{names[cls.short].type.description}; or {keys}" if cls.short else keys

    @classmethod
    def examples(cls) -> tuple[str, ...]:
        keys = cls.keys()
        if cls.short:
            return keys[cls.short].type.examples
        return (f"{{{listed(f'{name}: {keys[name].type.examples[0]}' for name in cls.needed())}}}",)

    @classmethod
    def _pairs(cls, node: Node) -> Iterable[tuple[Scalar, Node]]:
        """Return keys and their values, in the order of :meth:`keys`."""
        if isinstance(node, Pairs):
            order = {name: place for place, name in enumerate(cls.keys())}
            return sorted(node.pairs, key=lambda pair: order.get(pair[0].text, len(order)))
        if is_nothing(node) and not cls.short and not cls.needed():
            return ()
        if is_nothing(node) or not cls.short:
            raise invalid(node, cls.description())
        return ((Scalar(cls.short, node.mark), node),)

    @classmethod
    def _take(
        cls, name: Scalar, node: Node, values: dict[str, Any], found: Found, context: ParseContext
    ) -> None:
        """Store the value of a key for its field."""
        text = cls.former.get(name.text, name.text)
        prefix = next((one for one in cls.prefixes if text.startswith(f"{one} ")), None)
        row = cls.keys().get(text)
        if prefix is not None:
            own = text.removeprefix(prefix).strip()
            text = f"{prefix} {own}"
        rivals = next((keys for keys in cls.alternatives if text in keys), (text,))
        for rival in rivals:
            if rival in found.nodes:
                what = f"{quote(name.text)} besides {quote(rival)}"
                raise NodeError(name.mark, what, "one of the two")
        if prefix is not None:
            into = values.setdefault(cls.prefixes[prefix], {})
            into[own] = cls.prefixed()[prefix].type.read(node, context)
        elif row is not None:
            values[row.field] = node
        else:
            raise cls._unknown(name, context)
        found.nodes[text] = node

    @classmethod
    def _unknown(cls, name: Scalar, context: ParseContext) -> NodeError:
        homes = [home for home in context.homes().get(name.text, ()) if home != cls.called]
        of = f" of {homes[0]}" if homes else ""
        known = (*cls.keys(), *cls.prefixes)
        what, expected = f"key {quote(name.text)}{of}", f"a key of {cls.called}: {listed(known)}"
        return NodeError(name.mark, what, expected, word=name.text, known=known)

    @classmethod
    def _cause(cls, line: ErrorDetails, node: Node) -> ReportedError:
        """Return the cause of an error that pydantic collected; raise it if it is a bug."""
        if line["type"] == "missing":
            name = str(line["loc"][0])
            what = f"{cls.called} without {quote(name)}"
            return NodeError(node.mark, what, cls.keys()[name].type.description)
        cause = line["ctx"]["error"]
        if not isinstance(cause, ReportedError):
            raise cause
        return cause

    def finish(self, found: Found, context: ParseContext) -> Any:  # noqa: ARG002
        """Return the section after all its keys are read; :class:`NodeError` if it is invalid."""
        return self

    @classmethod
    def json_schema(cls, definitions: Definitions) -> Json:
        """Return a reference to its JSON Schema, which is added to ``definitions``."""
        name = cls.called.replace(" ", "-")
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = cls._own_json_schema(definitions)
        return {"$ref": f"#/$defs/{name}"}

    @classmethod
    def _own_json_schema(cls, definitions: Definitions) -> Json:
        """Return its JSON Schema; ``short``, or no required keys, allow other types."""
        whole: Json = {"type": "object", "properties": {}, "additionalProperties": False}
        for name, row in cls.keys().items():
            own = row.type.json(definitions) | {"description": row.help}
            whole["properties"][name] = own | ({"default": row.left_out} if row.left_out else {})
        if cls.needed():
            whole["required"] = [*cls.needed()]
        for word, row in cls.prefixed().items():
            patterns = whole.setdefault("patternProperties", {})
            patterns[f"^{word} .+$"] = row.type.json(definitions)
        if cls.short:
            return {"anyOf": [whole, cls.keys()[cls.short].type.json(definitions)]}
        return whole if cls.needed() else {"anyOf": [whole, {"type": "null"}]}


S = TypeVar("S", bound=Section)


def made_section(base: type[S], called: str, fields: Mapping[str, tuple[Any, Any]]) -> type[S]:
    """Return a section with these fields: annotation and default, ``...`` for required keys."""
    given: dict[str, Any] = {**fields}
    section = create_model(called, __base__=base, **given)
    section.called = called
    return section


def read_section(section: type[Section], node: Node | Entry, context: ParseContext) -> Any:
    """Read a section; raise :class:`ReportedError` if it has errors."""
    if not isinstance(node, Entry):
        return _read(section, node, Found(node.mark), {}, context)
    context.scope.append(node.key.text)
    try:
        given = {section.named: node.key}
        return _read(section, node.value, Found(node.key.mark), given, context)
    finally:
        context.scope.pop()


def _read(
    section: type[Section],
    node: Node,
    found: Found,
    given: Mapping[str, Any],
    context: ParseContext,
) -> Any:
    values: dict[str, Any] = {"mark": found.mark, **given}
    complete = True
    for name, value in section._pairs(node):
        try:
            section._take(name, value, values, found, context)
        except NodeError as error:
            context.diagnostics.report(error)
            complete = False
    try:
        read = section.model_validate(values, context=context)
    except ValidationError as errors:
        for line in errors.errors(include_url=False, include_input=False):
            context.diagnostics.report(section._cause(line, node))
        complete = False
    if not complete:
        raise ReportedError
    return read.finish(found, context)


# Types of values that are sections, or have sections in them.


@dataclass(frozen=True, slots=True)
class OneSection(ValueType):
    """One section."""

    section: type[Section]

    @property
    def description(self) -> str:
        return self.section.description()

    @property
    def examples(self) -> tuple[str, ...]:
        return self.section.examples()

    @property
    def label(self) -> str:
        return self.section.called

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self.section,)

    def read(self, node: Node, context: ParseContext) -> Any:
        return read_section(self.section, node, context)

    def json(self, definitions: Definitions) -> Json:
        return self.section.json_schema(definitions)


@dataclass(frozen=True, slots=True)
class Named(ValueType):
    """Sections by their names; invalid ones are left out."""

    section: type[Section]
    called: str
    example: str

    @property
    def description(self) -> str:
        return f"{self.called}, such as {self.examples[0]}"

    @property
    def examples(self) -> tuple[str, ...]:
        return (f"{{{self.example}: {self.section.examples()[0]}}}",)

    @property
    def label(self) -> str:
        return f"{self.section.called} for each name"

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self.section,)

    def read(self, node: Node, context: ParseContext) -> tuple[Any, ...]:
        entries = (Entry(*pair) for pair in pairs_of(node, self.description))
        reads = (partial(read_section, self.section, entry, context) for entry in entries)
        return tuple(context.valid(reads))

    def json(self, definitions: Definitions) -> Json:
        return {"type": "object", "additionalProperties": self.section.json_schema(definitions)}


@dataclass(frozen=True, slots=True)
class OneKey(ValueType):
    """One of several sections, by a word that is its only key; a word alone is valid.

    ``section_of`` returns the section of a word. It is not called before it is needed, to save
    time.
    """

    words: Collection[str]
    section_of: Callable[[str], type[Section]]
    called: str

    @property
    def description(self) -> str:
        return f"{self.called}: one key of {listed(self.words)}"

    @property
    def examples(self) -> tuple[str, ...]:
        return tuple(f"{{{word}: {self.section_of(word).examples()[0]}}}" for word in self.words)

    @property
    def label(self) -> str:
        return self.called

    @property
    def parts(self) -> tuple[Any, ...]:
        return tuple(map(self.section_of, self.words))

    def read(self, node: Node, context: ParseContext) -> Any:
        entry = self._entry(node)
        mark, word = entry.key.mark, entry.key.text
        if word not in self.words:
            raise NodeError(mark, quote(word), self.description, word=word, known=self.words)
        return read_section(self.section_of(word), entry, context)

    def _entry(self, node: Node) -> Entry:
        if isinstance(node, Scalar) and not is_nothing(node):
            return Entry(node, Scalar("", node.mark))
        if not isinstance(node, Pairs):
            raise invalid(node, self.description)
        if len(node.pairs) != 1:
            raise NodeError(node.mark, f"{len(node.pairs)} keys", self.description)
        return Entry(*node.pairs[0])

    def json(self, definitions: Definitions) -> Json:
        sections = {word: self.section_of(word) for word in self.words}
        words = {word: section.json_schema(definitions) for word, section in sections.items()}
        one: Json = {"type": "object", "properties": words, "additionalProperties": False}
        one |= {"minProperties": 1, "maxProperties": 1}
        bare = [word for word, section in sections.items() if not section.needed()]
        return {"anyOf": [one, {"enum": bare}]} if bare else one


@dataclass(frozen=True, slots=True)
class Keyed(ValueType):
    """Values by keys that are not new names; ``make`` combines key, value and position.

    Invalid ones are left out.
    """

    key: ValueType
    value: ValueType
    make: Callable[..., Any]
    description: str

    @property
    def examples(self) -> tuple[str, ...]:
        both = zip(self.key.examples, self.value.examples, strict=False)
        return tuple(f"{{{key}: {value}}}" for key, value in both)

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self.value,)

    def read(self, node: Node, context: ParseContext) -> tuple[Any, ...]:
        pairs = pairs_of(node, self.description)
        return tuple(context.valid(partial(self._one, *pair, context) for pair in pairs))

    def _one(self, name: Scalar, node: Node, context: ParseContext) -> Any:
        reads = (partial(self.key.read, name, context), partial(self.value.read, node, context))
        return self.make(*context.every(reads), name.mark)

    def json(self, definitions: Definitions) -> Json:
        return {"type": "object", "additionalProperties": self.value.json(definitions)}


def sections_in(part: Any) -> Iterator[type[Section]]:
    """Yield all sections in a section or a type of values, the outermost first, each once."""
    seen: dict[int, Any] = {}

    def collect(part: Any) -> None:
        if id(part) not in seen:
            seen[id(part)] = part
            for inner in parts_of(part):
                collect(inner)

    collect(part)
    return (one for one in seen.values() if isinstance(one, type))


def parts_of(part: Any) -> tuple[Any, ...]:
    """Return the types of a section's keys, or the sections and types in a type."""
    if isinstance(part, type) and issubclass(part, Section):
        return tuple(row.type for row in (*part.keys().values(), *part.prefixed().values()))
    inner: tuple[Any, ...] = part.parts
    return inner
