"""Rules that map values: addresses, queue pairs, keys."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rdmawire.traffic.edit.cut import Cut, Field
from rdmawire.traffic.edit.owner import Owners
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

    @property
    def owned(self) -> int | None:
        return None if self.host is None else self.ranges[0][0].number


_Known = dict[int, tuple[Mapped, int]]
"""What the upper bits of a number are mapped to, and by which entry."""


class Merged(NamedTuple):
    """Two numbers that became one, at a host if they mean something at one only."""

    host: bytes
    width: int
    numbers: tuple[int, int]
    new: int


_Merges = dict[tuple[bytes, int, int], Merged]
"""By host, width and what the numbers became."""


class _Numbers:
    """What is known of the numbers of one width at one host.

    ``by_free`` has what they are mapped to, by free bits, the fewest first; ``targets`` the upper
    bits of what they may become. ``became`` says which number is the first to have become another.
    """

    __slots__ = ("became", "by_free", "host", "merges", "targets", "width")

    def __init__(self, width: int, host: bytes, entries: Sequence[Mapped], merges: _Merges) -> None:
        by_free: dict[int, _Known] = {}
        targets: dict[int, set[int]] = {}
        for entry in of_host(entries, host):
            for old, new in entry.ranges:
                if old.width == width:
                    by_free.setdefault(old.free, {})[old.upper] = entry, new
                    targets.setdefault(old.free, set()).add(new >> old.free)
        self.by_free = sorted(by_free.items())
        self.targets = sorted(targets.items())
        self.became: dict[int, int] = {}
        self.width = width
        self.host = host
        self.merges = merges

    def keep(self, number: int) -> None:
        """A number that is mapped to nothing stays; others may become the same."""
        if any(number >> free in uppers for free, uppers in self.targets):
            self.note(number, number)

    def note(self, old: int, new: int) -> None:
        """A number became another one."""
        if len(self.became) >= MOST_NUMBERS:
            return
        first = self.became.setdefault(new, old)
        if first != old and len(self.merges) < MOST_MERGES:
            found = Merged(self.host, self.width, (first, old), new)
            self.merges.setdefault((self.host, self.width, new), found)


class MapRule(Rule):
    """Maps the fields of a target. Of two ranges with the same number, the smaller one counts.

    ``written`` says how two numbers that became one are told of: those that were to be distinct.
    """

    entries: Sequence[Mapped]

    def __init__(
        self,
        target: Target,
        entries: Sequence[Mapped],
        written: Callable[[Merged], str] | None = None,
    ) -> None:
        self.entries = entries
        self._target = target
        self._known: dict[tuple[int, bytes], _Numbers] = {}
        self._merges: _Merges = {}
        self._written = written
        self.owners = Owners(entry.owned for entry in entries)

    def ops(self, layout: Layout) -> Iterator[Op]:
        for offset, (field, _, _), host in sites(layout, self._target):
            known, cut = self._of(field.width, host), field.at(offset)
            if known.by_free:
                yield Op(cut, _exact(cut, known) if _is_exact(known) else _ranged(cut, known))
            if self.owners:
                yield Op(cut, self.owners.noting(cut, host))

    def fields(self, table: type[Header]) -> Sequence[Field]:
        widths = {old.width for entry in self.entries for old, _ in entry.ranges}
        return [site.field for site in self._target(table) if site.field.width in widths]

    def merged(self) -> Iterator[str]:
        written = self._written
        return iter(()) if written is None else map(written, self._merges.values())

    def _of(self, width: int, host: bytes) -> _Numbers:
        """What is known of numbers of this width at a host."""
        found = self._known.get((width, host))
        if found is None:
            if len(self._known) >= MOST_HOSTS:
                self._known.clear()
            found = _Numbers(width, host, self.entries, self._merges)
            self._known[width, host] = found
        return found


MOST_HOSTS = 1 << 16
"""Hosts of which is kept what is known; then it is found out anew."""
MOST_NUMBERS = 1 << 16
"""Numbers of a host of which is kept what they became."""
MOST_MERGES = 64
"""Numbers of which is kept that two became one."""


def _is_exact(known: _Numbers) -> bool:
    return len(known.by_free) == 1 and known.by_free[0][0] == 0


def _exact(cut: Cut, known: _Numbers) -> Callable[[bytes, bytearray], None]:
    entries = known.by_free[0][1]

    def run(old: bytes, new: bytearray) -> None:
        value = cut.read(old)
        found = entries.get(value)
        if found is None:
            known.keep(value)
            return
        found[0].used = True
        known.note(value, found[1])
        cut.write(new, found[1])

    return run


def _ranged(cut: Cut, known: _Numbers) -> Callable[[bytes, bytearray], None]:
    def run(old: bytes, new: bytearray) -> None:
        value = cut.read(old)
        for free, entries in known.by_free:
            found = entries.get(value >> free)
            if found is not None:
                found[0].used = True
                became = found[1] | value & (1 << free) - 1
                known.note(value, became)
                cut.write(new, became)
                return
        known.keep(value)

    return run
