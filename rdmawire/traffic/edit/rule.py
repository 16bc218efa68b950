"""Rules: what an edit does to the fields of a frame."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from rdmawire.traffic.edit.cut import Cut, Field
from rdmawire.traffic.edit.owner import Owners
from rdmawire.traffic.edit.place import Layout
from rdmawire.traffic.edit.target import Site, Target, Whose
from rdmawire.wire.header import Header


class Op(NamedTuple):
    """What is done to one field of a frame.

    ``run`` reads the frame as it was and writes into what it becomes.
    """

    cut: Cut
    run: Callable[[bytes, bytearray], None]


class Unused(NamedTuple):
    """What was asked for in ``text`` and no frame had, and who has the number instead, if any."""

    text: str
    owners: tuple[bytes, ...] = ()


class Entry:
    """A part of a rule, as it was asked for in ``text``. ``used`` once a frame had what it names.

    ``host`` is whose numbers it is about; ``None`` for everybody's.
    """

    __slots__ = ("host", "text", "used")

    def __init__(self, text: str, host: bytes | None = None) -> None:
        self.text = text
        self.host = host
        self.used = False

    @property
    def owned(self) -> int | None:
        """The number that it is about, if it is about that of one host."""
        return None


class Rule(ABC):
    """One kind of change, with all that is asked for of it."""

    entries: Sequence[Entry]
    owners: Owners = Owners()
    """Who has the numbers of entries that are about one host."""

    @abstractmethod
    def ops(self, layout: Layout) -> Iterator[Op]:
        """What is to be done to frames of this layout."""

    @abstractmethod
    def fields(self, table: type[Header]) -> Sequence[Field]:
        """The fields of a header that it may change."""

    def concerns(self, table: type[Header]) -> bool:
        """Whether it has anything to do with a header."""
        return bool(self.fields(table))

    def overrides(self) -> Mapping[type[Header], int]:
        """Checksums that are to be certain numbers."""
        return {}

    def merged(self) -> Iterator[str]:
        """Numbers that were two before, and are one now: hardly what was meant."""
        return iter(())

    def unused(self) -> Iterator[Unused]:
        """What was asked for, and no frame had."""
        unused = (each for each in self.entries if not each.used)
        return (Unused(each.text, self.owners.of(each.owned)) for each in unused)


def sites(layout: Layout, target: Target) -> Iterator[tuple[int, Site, bytes]]:
    """The fields of a frame that a rule is about: where their header begins, and their host."""
    source, destination = layout.hosts
    hosts = {Whose.ANYONE: b"", Whose.SOURCE: source, Whose.DESTINATION: destination}
    for offset, header in layout.places:
        for site in target(type(header)):
            yield offset, site, hosts[site.whose]


_E = TypeVar("_E", bound=Entry)


def of_host(entries: Iterable[_E], host: bytes) -> list[_E]:
    """The entries that hold at a host: those about it alone come last, so that they count."""
    return sorted(
        (entry for entry in entries if entry.host in (None, host)),
        key=lambda entry: entry.host is not None,
    )
