"""The document of a scenario file: nodes with their line and column, and the errors in it.

PyYAML parses. The nodes are created here, to limit the memory that a hostile file takes: its bytes,
its depth, and its nodes, with each alias counted as its target. Tags are refused, and scalars are
always text: ``on`` is a word, ``0x10`` four characters.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from rdmawire.errors import Copyable, RdmaError
from rdmawire.terminal import closest_names, escape, quote

SUFFIX: Final = ".yaml"


def shipped_files(folder: str) -> Mapping[str, Traversable]:
    """Return the YAML files in a folder of the package, by name in alphabetical order."""
    found = {
        file.name.removesuffix(SUFFIX): file
        for file in (files("rdmawire.traffic") / folder).iterdir()
        if file.name.endswith(SUFFIX)
    }
    return dict(sorted(found.items()))


class Mark(NamedTuple):
    """A position in the file: line and column, from 1 on."""

    line: int
    column: int


# Errors.

MAX_MISTAKES: Final = 20
"""Maximum errors of one file that are listed; the others are counted."""
_MAX_LISTED: Final = 25
"""Maximum words that a message lists."""
_MAX_COMPARED: Final = 400
"""Maximum known words that an unknown one is compared with."""


class Mistake(NamedTuple):
    """An error: its position, what was found and expected, and the closest known word.

    ``mark`` is ``None`` for an error of the file as a whole.
    """

    source: str
    mark: Mark | None
    found: str
    expected: str
    meant: str = ""

    def __str__(self) -> str:
        place = "" if self.mark is None else f":{self.mark.line}:{self.mark.column}"
        meant = f"; did you mean {self.meant!r}?" if self.meant else ""
        return escape(f"{self.source}{place}: found {self.found}; expected {self.expected}{meant}")


class Hint(NamedTuple):
    """A hint, and its position in the file."""

    mark: Mark
    said: str

    def text(self, source: str) -> str:
        """Write one line that begins with the position in the file."""
        return f"{source}:{self.mark.line}:{self.mark.column}: {self.said}"


class Failure(NamedTuple):
    """An expectation that does not hold.

    - ``what``: its subject; ``expected`` and ``found`` say what differs.
    - ``frame``: number of the frame that shows it, in the capture or, if that does not have it, at
      ``point``; ``None`` if no single frame shows it.
    - ``nearest``: a frame that has all expected fields but one.
    """

    mark: Mark
    what: str
    expected: str
    found: str
    frame: int | None = None
    point: str = ""
    nearest: str = ""

    def text(self, source: str) -> str:
        """Write one line that begins with the position in the file."""
        line, column = self.mark
        said = f"{self.what}: expected {self.expected}, found {self.found}"
        near = f"; nearest: {self.nearest}" if self.nearest else ""
        return f"{source}:{line}:{column}: {said}{self._place()}{near}"

    def _place(self) -> str:
        if self.frame is None:
            return ""
        return f" (frame {self.frame}{f' of {self.point}' if self.point else ''})"


class ScenarioError(RdmaError):
    """Raised for a scenario with errors, which cannot be run.

    ``mistakes`` are the first errors in file order, ``more`` counts the others; ``lines`` are the
    text, one line for each error.
    """

    def __init__(self, mistakes: Iterable[Mistake], more: int = 0) -> None:
        self.mistakes = tuple(mistakes)
        self.more = more
        self.lines = (*map(str, self.mistakes), *((f"and {more} more",) if more else ()))
        super().__init__("\n".join(self.lines))


class ReportedError(Copyable, ValueError):
    """Raised after an error in a node was already reported."""


class NodeError(ReportedError):
    """Raised for an invalid node: ``found`` describes it, ``expected`` a valid one.

    The message suggests the word of ``known`` that is closest to ``word``.
    """

    def __init__(
        self, mark: Mark, found: str, expected: str, *, word: str = "", known: Collection[str] = ()
    ) -> None:
        super().__init__(found, expected)
        self.mark = mark
        self.found = found
        self.expected = expected
        self.word = word
        self.known = tuple(known)


class TextError(Copyable, ValueError):
    """Raised for a text that is not a value of its type.

    ``expected`` replaces the description of the type in the message; ``word`` and ``known`` are as
    for :class:`NodeError`.
    """

    def __init__(self, expected: str = "", *, word: str = "", known: Collection[str] = ()) -> None:
        super().__init__(expected)
        self.expected = expected
        self.word = word
        self.known = tuple(known)


class Diagnostics:
    """The errors of one file, collected while it is read. ``source`` is its name in messages."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._kept: list[Mistake] = []
        self._more = 0

    def __bool__(self) -> bool:
        return bool(self._kept)

    def report(self, error: ReportedError) -> None:
        """Keep an error; one in a YAML anchor is kept once, not at each alias."""
        if not isinstance(error, NodeError):
            return
        meant = meant_by(error.word, error.known)
        mistake = Mistake(self.source, error.mark, error.found, error.expected, meant)
        if len(self._kept) < MAX_MISTAKES and mistake not in self._kept:
            self._kept.append(mistake)
        elif mistake not in self._kept:
            self._more += 1

    def error(self) -> ScenarioError:
        return ScenarioError(sorted(self._kept, key=lambda one: one.mark or ()), self._more)


def meant_by(word: str, known: Collection[str]) -> str:
    """Return the known word closest to ``word``; empty if none is close."""
    if not word:
        return ""
    same = (each for each in known if each.casefold() == word.casefold())
    return next(same, "") or next(iter(closest_names(word, islice(known, _MAX_COMPARED))), "")


def listed(words: Iterable[str]) -> str:
    """Join words with commas; of many, the first ones."""
    every = words if isinstance(words, Collection) else tuple(words)
    first = ", ".join(islice(every, _MAX_LISTED))
    return f"{first} and {len(every) - _MAX_LISTED} more" if len(every) > _MAX_LISTED else first


# Nodes.

MAX_BYTES: Final = 1 << 20
MAX_NODES: Final = 1 << 15
MAX_DEPTH: Final = 16
_CHARACTERS_PER_NODE: Final = 64
"""Long texts count as several nodes."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text. ``plain``: written without quotes."""

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
    """Keys with values, in the file's order, without duplicate keys."""

    pairs: "tuple[tuple[Scalar, Node], ...]"
    mark: Mark

    def get(self, key: str) -> "Node | None":
        return next((node for found, node in self.pairs if found.text == key), None)


Node: TypeAlias = Scalar | Items | Pairs


def described(node: Node) -> str:
    """Describe a node for a message."""
    if isinstance(node, Scalar):
        return quote(node.text) if node.text or not node.plain else "nothing"
    return "a list" if isinstance(node, Items) else "keys with values"


def is_nothing(node: Node) -> bool:
    """Whether a key has no value."""
    return isinstance(node, Scalar) and node.plain and node.text in ("", "~", "null")


def parse_document(data: bytes | str, diagnostics: Diagnostics) -> Node:
    """Parse a file and return its root node. Invalid keys are reported and left out.

    Raises :class:`NodeError` for a text that is not one YAML document.
    """
    return _Composer(decode(data), diagnostics).document()


def decode(data: bytes | str) -> str:
    """Decode a file as UTF-8; :class:`NodeError` for too many bytes or invalid ones."""
    if len(data) > MAX_BYTES:
        raise NodeError(Mark(1, 1), f"more than {MAX_BYTES} bytes", "a smaller file")
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        found = f"byte {data[error.start]:#04x}"
        raise NodeError(_end_of(before), found, "text in UTF-8") from None


def _end_of(before: str) -> Mark:
    """Return the position of the end of a text."""
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
"""Advice for an error of PyYAML, by the beginning of its text."""
_USUAL_HINT: Final = "YAML: quote text that has one of [ ] { } , & * ! | > % @ or ' #' in it"


class _Composer:
    """Creates the nodes of one text from PyYAML's events."""

    def __init__(self, text: str, diagnostics: Diagnostics) -> None:
        import yaml  # not needed before a file is read

        self._yaml: Any = yaml
        self._text = text
        self._diagnostics = diagnostics
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._weight = 0
        self._events = self._parsed()

    def document(self) -> Node:
        """Return the only document of the text."""
        next(self._events)
        if not isinstance(next(self._events), self._yaml.DocumentStartEvent):
            raise NodeError(Mark(1, 1), "nothing", "a scenario: name, hosts, connections, work")
        root = self._node(next(self._events), 0)
        next(self._events)
        if not isinstance(after := next(self._events), self._yaml.StreamEndEvent):
            raise NodeError(_mark(after.start_mark), "a second document", "one scenario in a file")
        return root

    def _parsed(self) -> Iterator[Any]:
        """Yield PyYAML's events. For some texts its scanner raises errors of other types."""
        yaml, last = self._yaml, Mark(1, 1)
        try:
            for event in yaml.parse(self._text, Loader=yaml.SafeLoader):
                last = _mark(event.start_mark)
                yield event
        except yaml.MarkedYAMLError as error:
            mark = last if error.problem_mark is None else _mark(error.problem_mark)
            raise _invalid_yaml(error.problem, mark) from None
        except yaml.reader.ReaderError as error:
            raise _invalid_yaml(error.reason, _end_of(self._text[: error.position])) from None
        except (ValueError, OverflowError) as error:
            directive = isinstance(error, ValueError) and "chr()" not in str(error)
            raise _invalid_yaml(_NO_VERSION if directive else _NO_CHARACTER, last) from None

    def _node(self, event: Any, depth: int) -> Node:
        mark, before = _mark(event.start_mark), self._weight
        if isinstance(event, self._yaml.AliasEvent):
            return self._alias(event.anchor, mark)
        if event.tag is not None:
            raise NodeError(mark, f"the tag {quote(event.tag)}", "no tags: text, lists and keys")
        if depth > MAX_DEPTH:
            raise NodeError(mark, f"more than {MAX_DEPTH} levels", "a file that is not so deep")
        node = self._own_node(event, depth, mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = node, self._weight - before
        return node

    def _own_node(self, event: Any, depth: int, mark: Mark) -> Node:
        if isinstance(event, self._yaml.ScalarEvent):
            self._weigh(1 + len(event.value) // _CHARACTERS_PER_NODE, mark)
            return Scalar(event.value, mark, event.style is None)
        node: Node
        if isinstance(event, self._yaml.SequenceStartEvent):
            node = Items(tuple(self._items(depth)), mark)
        else:
            node = Pairs(tuple(self._pairs(depth)), mark)
        self._weigh(1, mark)
        return node

    def _items(self, depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            yield self._node(event, depth + 1)

    def _pairs(self, depth: int) -> Iterator[tuple[Scalar, Node]]:
        seen: dict[str, Mark] = {}
        merged: list[Node] = []
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            key = self._key(self._node(event, depth + 1), seen)
            value = self._node(next(self._events), depth + 1)
            if key is not None and key.plain and key.text == "<<":
                merged.append(value)
            elif key is not None:
                yield key, value
        for value in merged:
            yield from self._merged(value, seen)

    def _merged(self, node: Node, seen: dict[str, Mark]) -> Iterator[tuple[Scalar, Node]]:
        """Yield the new keys of a ``<<`` value: of one mapping, or of a list of them.

        https://yaml.org/type/merge.html: a mapping's own key overrides them, the first mapping
        overrides the others. The nodes of an alias were counted at the alias.
        """
        for each in node.items if isinstance(node, Items) else (node,):
            if not isinstance(each, Pairs):
                found = f"{described(each)} after '<<'"
                expected = "keys with values, such as *name, or a list of such"
                self._diagnostics.report(NodeError(each.mark, found, expected))
                continue
            for key, value in each.pairs:
                if key.text not in seen:
                    seen[key.text] = key.mark
                    yield key, value

    def _key(self, node: Node, seen: dict[str, Mark]) -> Scalar | None:
        """Return a key that is a text and not a duplicate; else report it and return ``None``."""
        if not isinstance(node, Scalar):
            self._diagnostics.report(NodeError(node.mark, f"{described(node)} as a key", "a word"))
        elif node.text in seen:
            expected = f"each key once; the first is in line {seen[node.text].line}"
            self._diagnostics.report(
                NodeError(node.mark, f"key {quote(node.text)} again", expected)
            )
        else:
            seen[node.text] = node.mark
            return node
        return None

    def _alias(self, name: str, mark: Mark) -> Node:
        """Return the target of an alias, and count its nodes again."""
        if name not in self._anchors:
            expected = f"&{name} before it, and not round it"
            raise NodeError(mark, f"alias {quote('*' + name)}", expected)
        node, weight = self._anchors[name]
        self._weigh(weight, mark)
        return node

    def _weigh(self, weight: int, mark: Mark) -> None:
        self._weight += weight
        if self._weight > MAX_NODES:
            raise NodeError(mark, f"more than {MAX_NODES} values", "a file with fewer")


def _invalid_yaml(problem: str | None, mark: Mark) -> NodeError:
    said = " ".join((problem or "").split())
    hints = (hint for begins, hint in _HINTS.items() if said.startswith(begins))
    return NodeError(mark, f"no YAML ({said})", next(hints, _USUAL_HINT))


def _mark(place: Any) -> Mark:
    """Return a position of PyYAML, which counts from 0."""
    return Mark(place.line + 1, place.column + 1)
