"""Rules that map values: addresses, queue pairs, keys."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rdmawire.decode import FrameLayout
from rdmawire.traffic.edit.rules import (
    VAS,
    Cut,
    EditField,
    EditRule,
    Op,
    Owners,
    RuleEntry,
    Target,
    field,
    of_host,
    sites,
)
from rdmawire.wire.cm import REP, REQ
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH
from rdmawire.wire.opcode import SHAPES, Opcode


class NumberPrefix(NamedTuple):
    """All numbers of ``width`` bits that equal ``number`` except in their lowest ``free`` bits."""

    width: int
    number: int
    free: int = 0

    @property
    def upper(self) -> int:
        """The bits that are not free."""
        return self.number >> self.free


class Mapped(RuleEntry):
    """An entry of a map: a range of numbers is mapped to an equal range of new numbers.

    There may be several ranges, for fields with other notations of the same value.
    """

    __slots__ = ("ranges",)

    def __init__(
        self, text: str, ranges: Sequence[tuple[NumberPrefix, int]], host: bytes | None = None
    ) -> None:
        super().__init__(text, host)
        self.ranges = ranges

    @property
    def owned(self) -> int | None:
        return None if self.host is None else self.ranges[0][0].number


_Known = dict[int, tuple[Mapped, int]]
"""What the upper bits of a number are mapped to, and by which entry."""


class Merged(NamedTuple):
    """Two numbers mapped to the same one, at a host if they are valid at one host only."""

    host: bytes
    width: int
    numbers: tuple[int, int]
    new: int


_Merges = dict[tuple[bytes, int, int], Merged]
"""By host, width and the new number."""


class _NumberMap:
    """The known numbers of one width at one host.

    ``by_free`` has their mapping by free bits, in ascending order; ``targets`` the upper bits of
    possible new numbers. ``became`` has the first old number of each new one.
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
        """Record an unmapped number, as others may be mapped to it."""
        if any(number >> free in uppers for free, uppers in self.targets):
            self.note(number, number)

    def note(self, old: int, new: int) -> None:
        """Record the mapping of a number."""
        if len(self.became) >= MAX_NUMBERS:
            return
        first = self.became.setdefault(new, old)
        if first != old and len(self.merges) < MAX_MERGES:
            found = Merged(self.host, self.width, (first, old), new)
            self.merges.setdefault((self.host, self.width, new), found)


class MapRule(EditRule):
    """Maps the fields of a target. If two ranges contain a number, the smaller one is used.

    ``written`` formats a message about two distinct numbers mapped to the same one.
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
        self._known: dict[tuple[int, bytes], _NumberMap] = {}
        self._merges: _Merges = {}
        self._written = written
        self.owners = Owners(entry.owned for entry in entries)

    def ops(self, layout: FrameLayout) -> Iterator[Op]:
        for offset, (found, _, _), host in sites(layout, self._target):
            known, cut = self._of(found.width, host), found.at(offset)
            if known.by_free:
                yield Op(cut, _exact(cut, known) if _is_exact(known) else _ranged(cut, known))
            if self.owners:
                yield Op(cut, self.owners.noting(cut, host))

    def fields(self, table: type[Header]) -> Sequence[EditField]:
        widths = {old.width for entry in self.entries for old, _ in entry.ranges}
        return [site.field for site in self._target(table) if site.field.width in widths]

    def merged(self) -> Iterator[str]:
        written = self._written
        return iter(()) if written is None else map(written, self._merges.values())

    def _of(self, width: int, host: bytes) -> _NumberMap:
        """Return the known numbers of this width at a host."""
        found = self._known.get((width, host))
        if found is None:
            if len(self._known) >= MAX_HOSTS:
                self._known.clear()
            found = _NumberMap(width, host, self.entries, self._merges)
            self._known[width, host] = found
        return found


MAX_HOSTS = 1 << 16
"""Maximum hosts whose numbers are kept; beyond it all are discarded."""
MAX_NUMBERS = 1 << 16
"""Maximum mapped numbers kept of a host."""
MAX_MERGES = 64
"""Maximum merged numbers kept."""


def _is_exact(known: _NumberMap) -> bool:
    return len(known.by_free) == 1 and known.by_free[0][0] == 0


def _exact(cut: Cut, known: _NumberMap) -> Callable[[bytes, bytearray], None]:
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


def _ranged(cut: Cut, known: _NumberMap) -> Callable[[bytes, bytearray], None]:
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


class Added(RuleEntry):
    """An entry of an offset: added if the number is ``key``, or everywhere."""

    __slots__ = ("amount", "key")

    def __init__(
        self, text: str, amount: int, key: int | None = None, host: bytes | None = None
    ) -> None:
        super().__init__(text, host)
        self.amount = amount
        self.key = key

    @property
    def owned(self) -> int | None:
        return None if self.host is None else self.key


class _Amounts:
    """The offsets at one host: by the key, or else ``anyway``."""

    __slots__ = ("_by_key", "anyway")

    def __init__(self, entries: Sequence[Added], host: bytes) -> None:
        of_this = of_host(entries, host)
        self._by_key = {entry.key: entry for entry in of_this}
        self.anyway = self._by_key.get(None)

    def of(self, key: int) -> Added | None:
        return self._by_key.get(key, self.anyway)


class QpAddress(NamedTuple):
    """A queue pair, and the address of its host."""

    host: bytes
    number: int


_STARTING: Final[Mapping[type[Header], tuple[EditField, EditField]]] = {
    table: (field(table, "starting_psn"), field(table, "local_qpn")) for table in (REQ, REP)
}
"""PSNs that CM messages negotiate, with the queue pair that receives the requests.

IBA 12.7.31: the initial PSN of the peer.
"""
_PSN: Final = field(BTH, "psn")
_PSNS: Final[Mapping[type[Header], Sequence[EditField]]] = {
    BTH: (_PSN,),
    **{table: (psn,) for table, (psn, _) in _STARTING.items()},
}
"""All PSN fields."""


class PsnRule(EditRule):
    """Adds to PSNs. A flow is the requests to one queue pair, with the responses from it.

    Responses have the PSNs of their requests (IBA 9.7.1), but do not name the queue pair that sends
    them: ``peers`` maps their destination queue pair to it. ``unknown`` counts responses without a
    known sender. CNPs belong to no flow (IBA A17.9).
    """

    def __init__(self, entries: Sequence[Added]) -> None:
        self.entries = entries
        self.peers: Mapping[QpAddress, QpAddress] = {}
        self.unknown = 0
        self._entries = entries
        self.owners = Owners(entry.owned for entry in entries)

    @property
    def asks_for_peers(self) -> bool:
        """Whether the queue pair that sends a response matters."""
        return any(entry.key is not None or entry.host is not None for entry in self._entries)

    def ops(self, layout: FrameLayout) -> Iterator[Op]:
        for offset, header in layout.headers:
            if isinstance(header, BTH) and header.opcode != Opcode.CNP:
                yield from self._of_packet(_PSN.at(offset), layout, header)
            elif type(header) in _STARTING:
                psn, qpn = _STARTING[type(header)]
                number: int = getattr(header, qpn.row.name)
                flow = QpAddress(layout.hosts[0], number)
                yield from self._of_flow(psn.at(offset), flow)

    def fields(self, table: type[Header]) -> Sequence[EditField]:
        return _PSNS.get(table, ())

    def _of_packet(self, cut: Cut, layout: FrameLayout, bth: BTH) -> Iterator[Op]:
        shape = SHAPES.get(bth.opcode)
        flow: QpAddress | None = QpAddress(layout.hosts[1], bth.destqp)
        if shape is not None and shape.response and self.asks_for_peers:
            flow = self.peers.get(QpAddress(layout.hosts[1], bth.destqp))
        if flow is None:
            yield Op(cut, self._lose)
        else:
            yield from self._of_flow(cut, flow)

    def _of_flow(self, cut: Cut, flow: QpAddress) -> Iterator[Op]:
        self.owners.note(flow.number, flow.host)
        entry = _Amounts(self._entries, flow.host).of(flow.number)
        if entry is not None:
            yield Op(cut, _adding(cut, entry))

    def _lose(self, _: bytes, __: bytearray) -> None:
        self.unknown += 1


class AddressRule(EditRule):
    """Adds to addresses in remote memory, selected by the key next to them."""

    def __init__(self, entries: Sequence[Added]) -> None:
        self.entries = entries
        self._entries = entries
        self.owners = Owners(entry.owned for entry in entries)

    def ops(self, layout: FrameLayout) -> Iterator[Op]:
        for offset, (address, _, key), host in sites(layout, VAS):
            if key is not None:
                cut = key.at(offset)
                yield self._op(address.at(offset), cut, host)
                if self.owners:
                    yield Op(cut, self.owners.noting(cut, host))

    def fields(self, table: type[Header]) -> Sequence[EditField]:
        return [site.field for site in VAS(table)]

    def _op(self, cut: Cut, key: Cut, host: bytes) -> Op:
        amounts = _Amounts(self._entries, host)

        def run(old: bytes, new: bytearray) -> None:
            entry = amounts.of(key.read(old))
            if entry is not None:
                entry.used = True
                cut.write(new, cut.read(old) + entry.amount & cut.mask)

        return Op(cut, run)


def _adding(cut: Cut, entry: Added) -> Callable[[bytes, bytearray], None]:
    """Return a function that adds to a byte-aligned field. One function, for the speed of PSNs."""
    start, end, _, mask = cut
    size, amount = end - start, entry.amount

    def run(old: bytes, new: bytearray) -> None:
        entry.used = True
        number = int.from_bytes(old[start:end], "big") + amount & mask
        new[start:end] = number.to_bytes(size, "big")

    return run
