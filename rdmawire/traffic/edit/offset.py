"""Rules that add to numbers: PSNs, each flow's own, and addresses, each key's own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rdmawire.traffic.edit.cut import Cut, Field, field
from rdmawire.traffic.edit.owner import Owners
from rdmawire.traffic.edit.place import Layout
from rdmawire.traffic.edit.rule import Entry, Op, Rule, of_host, sites
from rdmawire.traffic.edit.target import VAS
from rdmawire.wire.cm import REP
from rdmawire.wire.cm_request import REQ
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH
from rdmawire.wire.opcode import SHAPES, Opcode


class Added(Entry):
    """An entry of an offset: what is added where the number is ``key``, or everywhere."""

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
    """What is added at one host: by the key, and where there is nothing for that, ``anyway``."""

    __slots__ = ("_by_key", "anyway")

    def __init__(self, entries: Sequence[Added], host: bytes) -> None:
        of_this = of_host(entries, host)
        self._by_key = {entry.key: entry for entry in of_this}
        self.anyway = self._by_key.get(None)

    def of(self, key: int) -> Added | None:
        return self._by_key.get(key, self.anyway)


class QueuePair(NamedTuple):
    """A queue pair, and the address of its host."""

    host: bytes
    number: int


_STARTING: Final[Mapping[type[Header], tuple[Field, Field]]] = {
    table: (field(table, "starting_psn"), field(table, "local_qpn")) for table in (REQ, REP)
}
"""PSNs that CM messages agree upon, with the queue pair that requests with them go to.

IBA 12.7.31: the peer begins with it.
"""
_PSN: Final = field(BTH, "psn")
_PSNS: Final[Mapping[type[Header], Sequence[Field]]] = {
    BTH: (_PSN,),
    **{table: (psn,) for table, (psn, _) in _STARTING.items()},
}
"""All PSNs that there are."""


class PsnRule(Rule):
    """Adds to PSNs. A flow is the requests to one queue pair, with the responses from it.

    These have the PSNs of what they answer (IBA 9.7.1). Which queue pair they come from, no
    response says: ``peers`` has, for a queue pair that responses go to, the one that they come
    from. ``unknown`` counts responses of which that is not known. CNPs are of no flow (IBA A17.9).
    """

    def __init__(self, entries: Sequence[Added]) -> None:
        self.entries = entries
        self.peers: Mapping[QueuePair, QueuePair] = {}
        self.unknown = 0
        self._entries = entries
        self.owners = Owners(entry.owned for entry in entries)

    @property
    def asks_for_peers(self) -> bool:
        """Whether it is of importance which queue pair a response comes from."""
        return any(entry.key is not None or entry.host is not None for entry in self._entries)

    def ops(self, layout: Layout) -> Iterator[Op]:
        for offset, header in layout.places:
            if isinstance(header, BTH) and header.opcode != Opcode.CNP:
                yield from self._of_packet(_PSN.at(offset), layout, header)
            elif type(header) in _STARTING:
                psn, qpn = _STARTING[type(header)]
                number: int = getattr(header, qpn.row.name)
                flow = QueuePair(layout.hosts[0], number)
                yield from self._of_flow(psn.at(offset), flow)

    def fields(self, table: type[Header]) -> Sequence[Field]:
        return _PSNS.get(table, ())

    def _of_packet(self, cut: Cut, layout: Layout, bth: BTH) -> Iterator[Op]:
        shape = SHAPES.get(bth.opcode)
        flow: QueuePair | None = QueuePair(layout.hosts[1], bth.destqp)
        if shape is not None and shape.response and self.asks_for_peers:
            flow = self.peers.get(QueuePair(layout.hosts[1], bth.destqp))
        if flow is None:
            yield Op(cut, self._lose)
        else:
            yield from self._of_flow(cut, flow)

    def _of_flow(self, cut: Cut, flow: QueuePair) -> Iterator[Op]:
        self.owners.note(flow.number, flow.host)
        entry = _Amounts(self._entries, flow.host).of(flow.number)
        if entry is not None:
            yield Op(cut, _adding(cut, entry))

    def _lose(self, _: bytes, __: bytearray) -> None:
        self.unknown += 1


class AddressRule(Rule):
    """Adds to addresses in remote memory, by the key that stands beside them."""

    def __init__(self, entries: Sequence[Added]) -> None:
        self.entries = entries
        self._entries = entries
        self.owners = Owners(entry.owned for entry in entries)

    def ops(self, layout: Layout) -> Iterator[Op]:
        for offset, (address, _, key), host in sites(layout, VAS):
            if key is not None:
                cut = key.at(offset)
                yield self._op(address.at(offset), cut, host)
                if self.owners:
                    yield Op(cut, self.owners.noting(cut, host))

    def fields(self, table: type[Header]) -> Sequence[Field]:
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
    """What adds to a field that is whole octets; this is done to every PSN, so it is one piece."""
    start, end, _, mask = cut
    size, amount = end - start, entry.amount

    def run(old: bytes, new: bytearray) -> None:
        entry.used = True
        number = int.from_bytes(old[start:end], "big") + amount & mask
        new[start:end] = number.to_bytes(size, "big")

    return run
