"""The context of reading a scenario file: its settings, its names, and the parts already read."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from rdmawire.traffic.scenario.document import (
    Diagnostics,
    Items,
    Mark,
    Node,
    NodeError,
    Pairs,
    ReportedError,
    Scalar,
)

T = TypeVar("T")

MAX_LISTED: Final = 1 << 18
"""Maximum values of all ranges in lists of a file."""

_SECTIONS_OF_HOSTS: Final = ("memory", "windows", "gpus", "shared receives")
_TWO: Final = 2


def link_called(word: str, links: Collection[str]) -> str:
    """Return the link that a word names by its ends, in either order; else the word."""
    turned = "-".join(reversed(word.split("-")))
    return turned if word not in links and turned in links else word


class Names:
    """All names in a file, including those of invalid parts.

    So a reference to an invalid part is not reported as unknown. ``steps`` has the position of the
    first step of each name. ``links`` are those of the file, or the implied one of two hosts.
    ``hosts_known`` is false if the file has no mapping of hosts: then references to hosts and their
    parts are not checked, as only the missing hosts are an error.
    """

    def __init__(self, root: Node) -> None:
        hosts = _pairs(_at(root, "hosts"))
        self.hosts_known = isinstance(_at(root, "hosts"), Pairs)
        self.hosts = dict.fromkeys(hosts)
        self.switches = dict.fromkeys(_pairs(_at(root, "switches")))
        self.nodes = self.hosts | self.switches
        self.links = dict.fromkeys(_pairs(_at(root, "links")))
        self.implied = not (self.links or self.switches) and len(hosts) == _TWO
        if self.implied:
            self.links["-".join(hosts)] = None
        self.connections = dict.fromkeys(_pairs(_at(root, "connections")))
        self.steps: dict[str, int] = {}
        for index, name in enumerate(_steps(_at(root, "work"))):
            self.steps.setdefault(name, index)
        self._in_hosts = {
            (host, section): dict.fromkeys(_words(_at(node, section)))
            for host, node in hosts.items()
            for section in _SECTIONS_OF_HOSTS
        }
        for host in hosts:
            both = self.of(host, "memory") | self.of(host, "windows")
            self._in_hosts[host, "memory or windows"] = both

    def link(self, word: str) -> str:
        """Return the name of a link in the file, for a word that may name it from either end."""
        return link_called(word, self.links)

    def of(self, host: str, section: str) -> dict[str, None]:
        """Return the names in a section of a host; spans may name ``memory or windows``."""
        return self._in_hosts.get((host, section), {})


def _at(node: Node, key: str) -> Node | None:
    return node.get(key) if isinstance(node, Pairs) else None


def _pairs(node: Node | None) -> dict[str, Node]:
    return {key.text: value for key, value in node.pairs} if isinstance(node, Pairs) else {}


def _words(node: Node | None) -> Iterator[str]:
    """Return the keys of a mapping, or the texts of a list."""
    if isinstance(node, Items):
        return (item.text for item in node.items if isinstance(item, Scalar))
    return iter(_pairs(node))


def _steps(node: Node | None) -> Iterator[str]:
    """Yield the name of each step; empty for a step without a name."""
    for step in node.items if isinstance(node, Items) else ():
        values = next(iter(_pairs(step).values()), None)
        named = None if values is None else _at(values, "name")
        yield named.text if isinstance(named, Scalar) else ""


class ParseContext:
    """The state of reading one file.

    ``homes`` returns the sections that have a key of some name; ``rules`` check a section, by its
    class. ``scope`` are the names of the surrounding sections, the outermost first; ``step`` is the
    index of the step being read. ``hosts``, ``memory`` (by host and name), ``switches``, ``links``
    (by their ends), ``connections``, ``steps`` and ``expectations`` are the valid ones read so far;
    ``linked`` are the hosts and switches on a link.
    """

    def __init__(
        self,
        root: Node,
        diagnostics: Diagnostics,
        homes: Callable[[], Mapping[str, tuple[str, ...]]],
        rules: Mapping[type, Callable[..., Any]],
    ) -> None:
        self.root = root
        self.names = Names(root)
        self.diagnostics = diagnostics
        self.homes = homes
        self.rules = rules
        self.scope: list[str] = []
        self.step = -1
        self.hosts: dict[str, Any] = {}
        self.memory: dict[tuple[str, str], Any] = {}
        self.switches: dict[str, Any] = {}
        self.links: dict[frozenset[str], Any] = {}
        self.linked: set[str] = set()
        self.connections: dict[str, Any] = {}
        self.steps: list[Any] = []
        self.expectations: tuple[Any, ...] = ()
        self._listed = 0
        self._made: dict[Callable[[ParseContext], Any], Any] = {}

    def at(self, key: str) -> Mark:
        """Return the position of the value of a top-level key."""
        node = _at(self.root, key)
        return self.root.mark if node is None else node.mark

    def once(self, make: "Callable[[ParseContext], T]") -> T:
        """Return the result of ``make`` for this file, calling it only once."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    def spend(self, values: int, node: Node) -> None:
        """Count values of lists; :class:`NodeError` for more than a file may have."""
        self._listed += values
        if self._listed > MAX_LISTED:
            raise NodeError(node.mark, f"{values} values in a list", f"{MAX_LISTED} in a file")

    def report(self, errors: Iterable[NodeError]) -> bool:
        """Report errors in a part that is kept; return whether there are any."""
        every = tuple(errors)
        for error in every:
            self.diagnostics.report(error)
        return bool(every)

    def valid(self, reads: Iterable[Callable[[], T]]) -> Iterator[T]:
        """Yield the valid results; report the errors of the others."""
        for read in reads:
            try:
                yield read()
            except ReportedError as error:
                self.diagnostics.report(error)

    def every(self, reads: Iterable[Callable[[], T]]) -> tuple[T, ...]:
        """Return all results; if some are invalid, :class:`ReportedError` after reporting them."""
        each = tuple(reads)
        found = tuple(self.valid(each))
        if len(found) < len(each):
            raise ReportedError
        return found
