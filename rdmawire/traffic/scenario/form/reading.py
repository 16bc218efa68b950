"""What is known while a file is read: its mistakes, the names in it, what was read before."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from rdmawire.traffic.scenario.document import (
    Diagnostics,
    Items,
    Node,
    NodeError,
    Pairs,
    ReportedError,
    Scalar,
)
from rdmawire.traffic.scenario.model import (
    ConnectionPlan,
    HostPlan,
    LinkPlan,
    MemoryPlan,
    SwitchPlan,
    link_called,
)

T = TypeVar("T")

MOST_LISTED: Final = 1 << 18
"""Values for which all ranges of a file that are lists may stand."""


class Names:
    """Every name that a file gives to something, also where the rest of it cannot be read.

    So nothing is said to be missing that is there, but has a mistake in it. ``steps`` has where
    each name of a step comes first. ``links`` are those of the file, or the one that two hosts
    have without any.
    """

    def __init__(self, root: Node) -> None:
        hosts = _pairs(_at(root, "hosts"))
        self.hosts = dict.fromkeys(hosts)
        self.switches = dict.fromkeys(_pairs(_at(root, "switches")))
        self.nodes = self.hosts | self.switches
        self.links = dict.fromkeys(_pairs(_at(root, "links")))
        self.implied = not (self.links or self.switches) and len(hosts) == _TWO
        if self.implied:
            self.links["-".join(hosts)] = None
        self.connections = dict.fromkeys(_pairs(_at(root, "connections")))
        self.steps: dict[str, int] = {}
        for place, name in enumerate(_steps(_at(root, "work"))):
            self.steps.setdefault(name, place)
        self._in_hosts = {
            (host, section): dict.fromkeys(_words(_at(node, section)))
            for host, node in hosts.items()
            for section in ("memory", "windows", "gpus", "shared receives")
        }
        for host in hosts:
            both = self.of(host, "memory") | self.of(host, "windows")
            self._in_hosts[host, "memory or windows"] = both

    def link(self, word: str) -> str:
        """How the file calls a link that a word names by its ends in either order; else the word.

        A link may be named from either end.
        """
        return link_called(word, self.links)

    def of(self, host: str, section: str) -> dict[str, None]:
        """What a host has in one of its sections; spans may name ``memory or windows``."""
        return self._in_hosts.get((host, section), {})


_TWO: Final = 2


def _at(node: Node, key: str) -> Node | None:
    return node.get(key) if isinstance(node, Pairs) else None


def _pairs(node: Node | None) -> dict[str, Node]:
    return {key.text: value for key, value in node.pairs} if isinstance(node, Pairs) else {}


def _words(node: Node | None) -> Iterator[str]:
    """The keys of a mapping, or the texts of a list."""
    yield from _pairs(node)
    if isinstance(node, Items):
        yield from (item.text for item in node.items if isinstance(item, Scalar))


def _steps(node: Node | None) -> Iterator[str]:
    """The name of each step; empty where it has none."""
    for step in node.items if isinstance(node, Items) else ():
        values = next(iter(_pairs(step).values()), None)
        named = None if values is None else _at(values, "name")
        yield named.text if isinstance(named, Scalar) else ""


class Reading:
    """One file, while it is read. ``homes`` says of which things a key is one.

    ``scope`` are the names of the things round what is being read, the outermost first; ``step``
    counts steps. ``hosts``, ``memory`` (by host and name), ``switches``, ``links`` (by their ends)
    and ``connections`` are those without mistakes, once they are read; ``linked`` has a link.
    """

    def __init__(
        self, root: Node, mistakes: Diagnostics, homes: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.names = Names(root)
        self.mistakes = mistakes
        self.homes = homes
        self.scope: list[str] = []
        self._listed = 0
        self._made: dict[Callable[[Reading], Any], Any] = {}
        self.step = 0
        self.hosts: dict[str, HostPlan] = {}
        self.memory: dict[tuple[str, str], MemoryPlan] = {}
        self.switches: dict[str, SwitchPlan] = {}
        self.links: dict[frozenset[str], LinkPlan] = {}
        self.linked: set[str] = set()
        self.connections: dict[str, ConnectionPlan] = {}

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """While something of this name is read."""
        self.scope.append(name)
        try:
            yield
        finally:
            self.scope.pop()

    def once(self, make: "Callable[[Reading], T]") -> T:
        """What is made of the file's names, and is the same each time."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    def spend(self, values: int, node: Node) -> None:
        """Count values of lists; :class:`NodeError` for more than a file may have."""
        self._listed += values
        if self._listed > MOST_LISTED:
            raise NodeError(node.mark, f"{values} values in a list", f"{MOST_LISTED} in a file")

    def tell(self, complaints: Iterable[NodeError]) -> bool:
        """Diagnostics in something that is read nevertheless; whether there are any."""
        some = False
        for complaint in complaints:
            self.mistakes.report(complaint)
            some = True
        return some

    def gather(self, reads: Iterable[Callable[[], T]]) -> tuple[tuple[T, ...], bool]:
        """What can be read, and whether that is all; what cannot is told."""
        found, whole = [], True
        for read in reads:
            try:
                found.append(read())
            except ReportedError as error:
                self.mistakes.report(error)
                whole = False
        return tuple(found), whole

    def every(self, reads: Iterable[Callable[[], T]]) -> tuple[T, ...]:
        """All that is read; :class:`ReportedError`, after all are reported, if some are invalid."""
        found, whole = self.gather(reads)
        if not whole:
            raise ReportedError
        return found
