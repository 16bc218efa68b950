"""The text of a scenario as a tree of nodes, each with its place. Nothing in it means anything yet.

PyYAML parses; the tree is made here, so that what a hostile file can cost is bounded: its octets,
how deep it goes, and how many nodes there are when each alias is counted as what it stands for.
No tag is heeded, and no text is taken for anything but text: ``on`` is a word, ``0x10`` four
characters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from rdmawire.screen import quoted
from rdmawire.traffic.scenario.form.mistake import Misread, Mistakes
from rdmawire.traffic.scenario.model import Mark

if TYPE_CHECKING:
    from yaml import AliasEvent, CollectionStartEvent, Event, ScalarEvent

MOST_OCTETS: Final = 1 << 20
MOST_NODES: Final = 1 << 15
MOST_DEEP: Final = 16
_CHARACTERS_OF_A_NODE: Final = 64
"""Long texts count as more nodes than one."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text. ``plain``: it stands there without quotes."""

    text: str
    mark: Mark
    plain: bool = True


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: "tuple[Node, ...]"
    mark: Mark


@dataclass(frozen=True, slots=True)
class Pairs:
    """Keys with values, in the file's order; each key once."""

    pairs: "tuple[tuple[Scalar, Node], ...]"
    mark: Mark

    def get(self, key: str) -> "Node | None":
        """What stands behind a key."""
        return next((node for found, node in self.pairs if found.text == key), None)


Node: TypeAlias = Scalar | Items | Pairs


def described(node: Node) -> str:
    """What stands there, for a message."""
    if isinstance(node, Scalar):
        return quoted(node.text) if node.text or not node.plain else "nothing"
    return "a list" if isinstance(node, Items) else "keys with values"


def _is_merge(key: Scalar) -> bool:
    """Whether keys of something else come here."""
    return key.plain and key.text == "<<"


def is_nothing(node: Node) -> bool:
    """Whether nothing was written behind a key."""
    return isinstance(node, Scalar) and node.plain and node.text in ("", "~", "null")


def tree(octets: bytes | str, mistakes: Mistakes) -> Node:
    """The root of a file's tree; :class:`Misread` where there is none.

    What is amiss with keys is told, and they are left out.
    """
    return _Composer(decoded(octets), mistakes).document()


def decoded(octets: bytes | str) -> str:
    """Octets as text; :class:`Misread` for too many, and for what is no UTF-8."""
    if len(octets) > MOST_OCTETS:
        raise Misread(Mark(1, 1), f"more than {MOST_OCTETS} octets", "a file with fewer")
    if isinstance(octets, str):
        return octets
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError as error:
        before = octets[: error.start].decode("utf-8")
        found = f"octet {octets[error.start]:#04x}"
        raise Misread(_place(before), found, "text in UTF-8") from None


def _place(before: str) -> Mark:
    """Where the text behind so much text stands."""
    last = before.rpartition("\n")[2]
    return Mark(before.count("\n") + 1, len(last) + 1)


_NO_CHARACTER: Final = "an escape of no character"
_NO_VERSION: Final = "a version with too many digits"
_HINTS: Final = {
    "found character '\\t'": "spaces: YAML is indented with those alone",
    "could not find expected ':'": "a key and a colon, or quotes round a text of several lines",
    "mapping values are not allowed here": "one key in a line, or quotes round text with ': '",
    "found undefined alias": "a name that an '&' gave to something before it",
    "found unexpected end of stream": "the quotes that end a text",
    _NO_VERSION: "no line that begins with %YAML",
    _NO_CHARACTER: "escapes up to \\U0010FFFF",
}
"""What to do about what PyYAML says, by how that begins."""
_USUAL_HINT: Final = "YAML: quote text that has one of [ ] { } , & * ! | > % @ or ' #' in it"


class _Composer:
    """Makes the tree of one text, from PyYAML's events."""

    def __init__(self, text: str, mistakes: Mistakes) -> None:
        self._text = text
        self._mistakes = mistakes
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._weight = 0
        self._events = self._parsed()

    def document(self) -> Node:
        """The one document that there is."""
        from yaml import DocumentStartEvent, StreamEndEvent

        next(self._events)
        first = next(self._events)
        if not isinstance(first, DocumentStartEvent):
            raise Misread(Mark(1, 1), "nothing", "a scenario: name, hosts, connections, work")
        root = self._node(next(self._events), 0)
        next(self._events)
        if not isinstance(after := next(self._events), StreamEndEvent):
            raise Misread(_mark(after), "a second document", "one scenario in a file")
        return root

    def _parsed(self) -> "Iterator[Event]":
        """PyYAML's events. Its scanner meets some texts with errors that are not its own."""
        import yaml

        last = Mark(1, 1)
        try:
            for event in yaml.parse(self._text, Loader=yaml.SafeLoader):
                last = _mark(event)
                yield event
        except yaml.MarkedYAMLError as error:
            raise _no_yaml(error.problem, _place_of(error.problem_mark, last)) from None
        except yaml.reader.ReaderError as error:
            raise _no_yaml(error.reason, _place(self._text[: error.position])) from None
        except (ValueError, OverflowError) as error:
            directive = isinstance(error, ValueError) and "chr()" not in str(error)
            raise _no_yaml(_NO_VERSION if directive else _NO_CHARACTER, last) from None

    def _node(self, event: "Event", depth: int) -> Node:
        from yaml import AliasEvent, CollectionStartEvent, ScalarEvent

        if isinstance(event, AliasEvent):
            return self._alias(event)
        assert isinstance(event, ScalarEvent | CollectionStartEvent)
        mark, before = _mark(event), self._weight
        if event.tag is not None:
            raise Misread(mark, f"the tag {quoted(event.tag)}", "no tags: text, lists and keys")
        if depth > MOST_DEEP:
            raise Misread(mark, f"more than {MOST_DEEP} levels", "a file that is not so deep")
        node: Node
        if isinstance(event, ScalarEvent):
            node = self._scalar(event, mark)
        else:
            node = self._collection(event, depth, mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = node, self._weight - before
        return node

    def _scalar(self, event: "ScalarEvent", mark: Mark) -> Scalar:
        self._weigh(1 + len(event.value) // _CHARACTERS_OF_A_NODE, mark)
        return Scalar(event.value, mark, event.style is None)

    def _collection(self, event: "CollectionStartEvent", depth: int, mark: Mark) -> Items | Pairs:
        from yaml import SequenceStartEvent

        node: Items | Pairs
        if isinstance(event, SequenceStartEvent):
            node = Items(tuple(self._items(depth)), mark)
        else:
            node = Pairs(tuple(self._pairs(depth)), mark)
        self._weigh(1, mark)
        return node

    def _items(self, depth: int) -> Iterator[Node]:
        from yaml import SequenceEndEvent

        while not isinstance(event := next(self._events), SequenceEndEvent):
            yield self._node(event, depth + 1)

    def _pairs(self, depth: int) -> Iterator[tuple[Scalar, Node]]:
        from yaml import MappingEndEvent

        seen: dict[str, Mark] = {}
        merged: list[Node] = []
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._key(self._node(event, depth + 1), seen)
            value = self._node(next(self._events), depth + 1)
            if key is not None and _is_merge(key):
                merged.append(value)
            elif key is not None:
                yield key, value
        for value in merged:
            yield from self._merged(value, seen)

    def _merged(self, node: Node, seen: dict[str, Mark]) -> Iterator[tuple[Scalar, Node]]:
        """The keys behind a ``<<`` that are not there yet: those of one thing, or of several.

        https://yaml.org/type/merge.html: a key of its own goes before them, the first of several
        before the others. What an alias stands for was counted where it stands.
        """
        for each in node.items if isinstance(node, Items) else (node,):
            if not isinstance(each, Pairs):
                found = f"{described(each)} behind '<<'"
                expected = "keys with values, such as *name, or a list of such"
                self._mistakes.tell(Misread(each.mark, found, expected))
                continue
            for key, value in each.pairs:
                if key.text not in seen:
                    seen[key.text] = key.mark
                    yield key, value

    def _key(self, node: Node, seen: dict[str, Mark]) -> Scalar | None:
        """A key that is a text, and is there for the first time; else ``None``, and it is told."""
        if not isinstance(node, Scalar):
            self._mistakes.tell(Misread(node.mark, f"{described(node)} as a key", "a word"))
        elif node.text in seen:
            expected = f"each key once; the first is in line {seen[node.text].line}"
            self._mistakes.tell(Misread(node.mark, f"key {quoted(node.text)} again", expected))
        else:
            seen[node.text] = node.mark
            return node
        return None

    def _alias(self, event: "AliasEvent") -> Node:
        """What an alias stands for, which counts as if it were written again."""
        mark, name = _mark(event), event.anchor or ""
        if name not in self._anchors:
            expected = f"&{name} before it, and not round it"
            raise Misread(mark, f"alias {quoted('*' + name)}", expected)
        node, weight = self._anchors[name]
        self._weigh(weight, mark)
        return node

    def _weigh(self, weight: int, mark: Mark) -> None:
        self._weight += weight
        if self._weight > MOST_NODES:
            raise Misread(mark, f"more than {MOST_NODES} values", "a file with fewer")


def _no_yaml(problem: str | None, mark: Mark) -> Misread:
    said = " ".join((problem or "").split())
    hints = (hint for begins, hint in _HINTS.items() if said.startswith(begins))
    return Misread(mark, f"no YAML ({said})", next(hints, _USUAL_HINT))


def _mark(event: "Event") -> Mark:
    return _place_of(event.start_mark, Mark(1, 1))


class _Place(Protocol):
    """A mark of PyYAML's, which counts from 0 on."""

    line: int
    column: int


def _place_of(place: _Place | None, otherwise: Mark) -> Mark:
    return otherwise if place is None else Mark(place.line + 1, place.column + 1)
