"""What is known while a file is read: its mistakes, the names in it, what was read before."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from rdmawire.traffic.scenario.form.mistake import Misread, Mistakes, Unread
from rdmawire.traffic.scenario.form.source import Items, Node, Pairs, Scalar
from rdmawire.traffic.scenario.model import ConnectionPlan, HostPlan, LinkPlan, SwitchPlan

T = TypeVar("T")


class Names:
    """Every name that a file gives to something, also where the rest of it cannot be read.

    So nothing is said to be missing that is there, but has a mistake in it.
    """

    def __init__(self, root: Node) -> None:
        hosts = _pairs(_at(root, "hosts"))
        self.hosts = tuple(hosts)
        self.switches = tuple(_pairs(_at(root, "switches")))
        self.links = tuple(_pairs(_at(root, "links")))
        self.connections = tuple(_pairs(_at(root, "connections")))
        self.steps = tuple(_steps(_at(root, "work")))
        self._in_hosts = {
            (host, section): tuple(_words(_at(node, section)))
            for host, node in hosts.items()
            for section in ("memory", "windows", "gpus", "shared receives")
        }

    def of(self, host: str, section: str) -> tuple[str, ...]:
        """What a host has in one of its sections."""
        return self._in_hosts.get((host, section), ())

    def memory(self, host: str) -> tuple[str, ...]:
        """What spans may name of a host."""
        return self.of(host, "memory") + self.of(host, "windows")


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
    counts steps. ``hosts``, ``switches``, ``links`` and ``connections`` are those without mistakes,
    once they are read.
    """

    def __init__(
        self, root: Node, mistakes: Mistakes, homes: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.names = Names(root)
        self.mistakes = mistakes
        self.homes = homes
        self.scope: list[str] = []
        self.step = 0
        self.hosts: dict[str, HostPlan] = {}
        self.switches: dict[str, SwitchPlan] = {}
        self.links: list[LinkPlan] = []
        self.connections: dict[str, ConnectionPlan] = {}

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """While something of this name is read."""
        self.scope.append(name)
        try:
            yield
        finally:
            self.scope.pop()

    def tell(self, complaints: Iterable[Misread]) -> bool:
        """Mistakes in something that is read nevertheless; whether there are any."""
        some = False
        for complaint in complaints:
            self.mistakes.tell(complaint)
            some = True
        return some

    def gather(self, reads: Iterable[Callable[[], T]]) -> tuple[tuple[T, ...], bool]:
        """What can be read, and whether that is all; what cannot is told."""
        found, whole = [], True
        for read in reads:
            try:
                found.append(read())
            except Unread as error:
                self.mistakes.tell(error)
                whole = False
        return tuple(found), whole
