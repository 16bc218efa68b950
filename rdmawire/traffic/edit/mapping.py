"""Rules that map values: addresses, queue pairs, keys."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rdmawire.traffic.edit.cut import Cut
from rdmawire.traffic.edit.place import Layout
from rdmawire.traffic.edit.rule import Entry, Op, Rule, of_host, sites
from rdmawire.traffic.edit.target import Target
from rdmawire.wire.header import Header


class Range(NamedTuple):
    """All numbers of ``width`` bits that are ``number`` but for their lowest ``free`` ones."""

    width: int
    number: int
    free: int = 0

    @property
    def upper(self) -> int:
        """The bits that are not free."""
        return self.number >> self.free


class Mapped(Entry):
    """An entry of a map: what is in a range becomes what has the same place from a number on.

    There may be several ranges, for fields that write the same in other ways.
    """

    __slots__ = ("ranges",)

    def __init__(
        self, text: str, ranges: Sequence[tuple[Range, int]], host: bytes | None = None
    ) -> None:
        super().__init__(text, host)
        self.ranges = ranges


_Known = dict[int, tuple[Mapped, int]]
"""What the upper bits of a number are mapped to, and by which entry."""


class MapRule(Rule):
    """Maps the fields of a target. Of two ranges with the same number, the smaller one counts."""

    def __init__(self, target: Target, entries: Sequence[Mapped]) -> None:
        self.entries = entries
        self._entries = entries
        self._target = target
        self._known: dict[tuple[int, bytes], list[tuple[int, _Known]]] = {}

    def ops(self, layout: Layout) -> Iterator[Op]:
        for offset, (field, _, _), host in sites(layout, self._target):
            if known := self._of(field.width, host):
                cut = field.at(offset)
                yield Op(cut, _exact(cut, known[0][1]) if _is_exact(known) else _ranged(cut, known))

    def concerns(self, table: type[Header]) -> bool:
        return bool(self._target(table))

    def _of(self, width: int, host: bytes) -> list[tuple[int, _Known]]:
        """What is known of numbers of this width at a host, by free bits, the fewest first."""
        found = self._known.get((width, host))
        if found is None:
            if len(self._known) >= MOST_HOSTS:
                self._known.clear()
            found = self._known[width, host] = self._sorted(width, host)
        return found

    def _sorted(self, width: int, host: bytes) -> list[tuple[int, _Known]]:
        by_free: dict[int, _Known] = {}
        for entry in of_host(self._entries, host):
            for old, new in entry.ranges:
                if old.width == width:
                    by_free.setdefault(old.free, {})[old.upper] = entry, new
        return sorted(by_free.items())


MOST_HOSTS = 1 << 16
"""Hosts of which is kept what is known; then it is found out anew."""


def _is_exact(known: list[tuple[int, _Known]]) -> bool:
    return len(known) == 1 and known[0][0] == 0


def _exact(cut: Cut, known: _Known) -> Callable[[bytes, bytearray], None]:
    def run(old: bytes, new: bytearray) -> None:
        found = known.get(cut.read(old))
        if found is not None:
            found[0].used = True
            cut.write(new, found[1])

    return run


def _ranged(cut: Cut, known: list[tuple[int, _Known]]) -> Callable[[bytes, bytearray], None]:
    def run(old: bytes, new: bytearray) -> None:
        value = cut.read(old)
        for free, entries in known:
            found = entries.get(value >> free)
            if found is not None:
                found[0].used = True
                cut.write(new, found[1] | value & (1 << free) - 1)
                return

    return run
