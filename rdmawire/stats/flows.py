"""Flows and their counts: a flow is the packets from one address to one queue pair of another.

Only UD packets name the sender's queue pair, so a flow is one direction of a connection, identified
by its destination queue pair. Its requests have PSNs of the sender; its responses have PSNs of the
reverse flow.

Two flows are paired as the directions of one connection by votes: a response votes for the flows
that had a request with its PSN before it. UD's source queue pair and CM messages pair flows, too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.stats.iwarp import AddressPair, CmQueuePair, FrameFacts
from rdmawire.stats.packets import (
    BEGINS,
    IS_CNP,
    IS_FULL,
    IS_REQUEST,
    IS_RESPONSE,
    IS_UD,
    OTHER,
    AddressNumbers,
    HashIndex,
    IntArray,
    Packets,
)
from rdmawire.wire.ib import Ack

FLOW_BITS = 16
FLOWS = 1 << FLOW_BITS
"""Flows that are counted separately, to bound memory; all later ones are counted as one."""
REST = FLOWS - 1
"""The number of the flow that counts all others."""

_SUMS = (
    *("frames", "bytes", "payload", "requests", "responses", "datagrams"),
    *("acks", "cnps", "marked"),
)
_ENDS = ("first_request", "last_request", "first_response", "last_response")
VALUE_BITS = 5
"""Bits of the value in a syndrome, after the type of acknowledge. IBA 9.7.5.2.1."""
_SOURCE_BITS = 24
_DESTINATION_BITS = 25
"""Bits of a QP number, and one that marks an EE context."""
_SYNDROME_BITS = 7
"""Bits of a syndrome without the reserved uppermost bit."""


class FlowKey(NamedTuple):
    """Key of a flow: its address pair, its destination QP and, of UD, its source QP."""

    pair: int
    destination: int
    source: int


class Grouped(NamedTuple):
    """Packets grouped by flow, in the order of the capture within each group.

    ``flow`` is the flow of each packet, ``rows`` its row in the block; ``starts`` is the first
    packet of each group, ``flows`` the flow of the group.
    """

    packets: Packets
    flow: IntArray
    starts: IntArray
    flows: IntArray
    rows: IntArray

    def of(self, which: NDArray[np.bool_]) -> "Grouped":
        """Return the packets of this mask."""
        return grouped(self.packets.at(which), self.flow[which], self.rows[which])


def grouped(packets: Packets, flow: IntArray, rows: IntArray) -> Grouped:
    """Group packets that are sorted by flow already."""
    starts = np.flatnonzero(np.diff(flow, prepend=-1))
    return Grouped(packets, flow, starts, flow[starts], rows)


class Flows:
    """All flows and their counts: arrays by flow number."""

    def __init__(self, addresses: AddressNumbers) -> None:
        self.keys: list[FlowKey] = []
        self.counts: dict[str, IntArray] = {name: np.zeros(FLOWS, np.int64) for name in _SUMS}
        self.psns: dict[str, IntArray] = {name: np.full(FLOWS, -1, np.int64) for name in _ENDS}
        self.first_ns = np.full(FLOWS, -1, np.int64)
        self.last_ns = np.full(FLOWS, -1, np.int64)
        self.largest = np.zeros(FLOWS, np.int64)
        self.path_mtu = np.zeros(FLOWS, np.int64)
        self.services = np.zeros(FLOWS, np.uint8)
        self.syndromes: Counter[tuple[int, int]] = Counter()
        self._addresses = addresses
        self._numbers: dict[FlowKey, int] = {}
        self._interned = HashIndex(self._number)

    def find(self, key: FlowKey) -> int:
        """Return the number of a flow; -1 if there is none."""
        return self._numbers.get(key, -1)

    def _number(self, packed: int) -> int:
        rest, source = divmod(packed, 1 << _SOURCE_BITS)
        key = FlowKey(*divmod(rest, 1 << _DESTINATION_BITS), source)
        if key.pair == OTHER or len(self.keys) == REST:
            return REST
        number = self._numbers[key] = len(self.keys)
        self.keys.append(key)
        return number

    def add(self, packets: Packets) -> Grouped:
        """Count packets; return them grouped by flow."""
        ends = packets.pair << _DESTINATION_BITS | packets.destination
        packed = ends << _SOURCE_BITS | packets.source
        flow = self._interned(packed.astype(np.uint64))
        # NumPy's stable sort of 16-bit numbers is a radix sort.
        rows = np.argsort(flow.astype(np.uint16), kind="stable")
        found = grouped(packets.at(rows), flow[rows], rows)
        self._count(found)
        return found

    def _count(self, found: Grouped) -> None:
        self._sum(found)
        own, starts, flows = found.packets, found.starts, found.flows
        ends = np.append(starts[1:], len(own)) - 1
        unseen = self.first_ns[flows] < 0
        self.first_ns[flows[unseen]] = own.times[starts[unseen]]
        self.last_ns[flows] = own.times[ends]
        self.services[flows] |= np.bitwise_or.reduceat(_SERVICE[own.opcode], starts)
        _raise(self.largest, flows, np.maximum.reduceat(own.payload, starts))
        full = np.where(IS_FULL[own.opcode], own.payload, 0)
        _raise(self.path_mtu, flows, np.maximum.reduceat(full, starts))
        self._mark_ends(found.of(IS_REQUEST[own.opcode] | IS_UD[own.opcode]), "request")
        self._mark_ends(found.of(IS_RESPONSE[own.opcode]), "response")
        self._count_syndromes(found)

    def _sum(self, found: Grouped) -> None:
        own = found.packets
        values = {
            "frames": np.ones(len(own), np.int64),
            "bytes": own.bytes,
            "payload": own.payload,
            "requests": IS_REQUEST[own.opcode],
            "responses": IS_RESPONSE[own.opcode],
            "datagrams": IS_UD[own.opcode],
            "acks": _has_syndrome(own) & (_acknowledge(own) == Ack.ACK),
            "cnps": IS_CNP[own.opcode],
            "marked": own.marked,
        }
        for name, each in values.items():
            sums = np.add.reduceat(each, found.starts, dtype=np.int64)
            self.counts[name][found.flows] += sums

    def _mark_ends(self, found: Grouped, of: str) -> None:
        if not len(found.packets):
            return
        first, last = self.psns[f"first_{of}"], self.psns[f"last_{of}"]
        psn, starts, flows = found.packets.psn, found.starts, found.flows
        unseen = first[flows] < 0
        first[flows[unseen]] = psn[starts[unseen]]
        last[flows] = psn[np.append(starts[1:], len(psn)) - 1]

    def _count_syndromes(self, found: Grouped) -> None:
        """Count NAKs and RNR NAKs by flow and syndrome."""
        own = found.packets
        refused = _has_syndrome(own) & (_acknowledge(own) != Ack.ACK)
        syndrome = own.syndrome[refused].astype(np.int64) % (1 << _SYNDROME_BITS)
        coded = found.flow[refused] << _SYNDROME_BITS | syndrome
        for code, count in zip(*np.unique(coded, return_counts=True), strict=True):
            self.syndromes[divmod(int(code), 1 << _SYNDROME_BITS)] += int(count)


def _has_syndrome(own: Packets) -> NDArray[np.bool_]:
    return own.syndrome >= 0


def _acknowledge(own: Packets) -> NDArray[np.int16]:
    """Return the type of acknowledge of each syndrome."""
    return own.syndrome >> VALUE_BITS & 3


_SERVICE = (1 << (np.arange(256) >> 5)).astype(np.uint8)


def _raise(most: IntArray, flows: IntArray, values: IntArray) -> None:
    most[flows] = np.maximum(most[flows], values)


_CANDIDATES = 8
"""The last requests with the PSN of a response that get its vote."""
_SETTLED = 64
"""Votes that settle a pairing if no other flow has a quarter as many."""
_VOTES = 1 << 18
"""Pairs of flows whose votes are counted, at most."""
_PSN_BITS = 24


class Pairing:
    """Counts the votes of responses, and pairs flows."""

    def __init__(self, addresses: AddressNumbers) -> None:
        self._addresses = addresses
        self._votes: dict[int, Counter[int]] = defaultdict(Counter)
        self._nearest: Counter[tuple[int, int]] = Counter()
        self._settled = np.zeros(FLOWS, np.bool_)
        self._settled[REST] = True
        self._cm_pairs: dict[FlowKey, FlowKey] = {}

    def pair_by_cm(self, one: FlowKey, other: FlowKey) -> None:
        """Record two flows that CM messages assign to one connection."""
        if len(self._cm_pairs) < FLOWS:
            self._cm_pairs[one] = other

    def add(self, found: Grouped) -> None:
        """Count the votes of the responses in a block."""
        opcode = found.packets.opcode
        asks = IS_REQUEST[opcode] & (found.flow != REST)
        answers = BEGINS[opcode] & ~self._settled[found.flow]
        request_pair = self._request_pairs(found, asks, answers)
        if request_pair is None:
            return
        which = np.flatnonzero((asks | answers) & (request_pair >= 0))
        key = request_pair[which] << _PSN_BITS | found.packets.psn[which]
        order = np.lexsort((found.rows[which], key))
        self._vote(found, which[order], key[order], answers)

    def _request_pairs(
        self, found: Grouped, asks: NDArray[np.bool_], answers: NDArray[np.bool_]
    ) -> IntArray | None:
        """Return for each packet the address pair of its request; -1 for none.

        Returns ``None`` if no response of the block has its request in it.
        """
        pair = found.packets.pair
        asked = {int(number) for number in np.unique(pair[asks])} - {OTHER}
        back = np.full(OTHER + 1, -1, np.int64)
        for number in np.unique(pair[answers]):
            turned = self._addresses.reverse(int(number))
            back[number] = turned if turned in asked else -1
        if not (back >= 0).any():
            return None
        wanted = np.zeros(OTHER + 1, np.bool_)
        wanted[back[back >= 0]] = True
        return np.where(answers, back[pair], np.where(wanted[pair], pair, -1))

    def _vote(
        self, found: Grouped, rows: IntArray, key: IntArray, answers: NDArray[np.bool_]
    ) -> None:
        flow, answering = found.flow[rows], answers[rows]
        distances = range(1, _CANDIDATES + 1)
        self._count([_cast(flow, key, answering, distance) for distance in distances])

    def _count(self, cast: list[IntArray]) -> None:
        for flow, other, votes in _counted(cast[0]):
            self._nearest[flow, other] += votes
        touched = set()
        for flow, other, votes in _counted(np.concatenate(cast)):
            if len(self._nearest) < _VOTES:
                self._votes[flow][other] += votes
                touched.add(flow)
        for flow in touched:
            (_, most), *others = self._votes[flow].most_common(2)
            self._settled[flow] = most >= _SETTLED and all(4 * n < most for _, n in others)

    def pairs(self, flows: Flows) -> dict[int, int]:
        """Return the reverse flow of each flow that has one."""
        found: dict[int, int] = {}
        for one, other in [*self._by_source(flows), *self._by_votes(), *self._by_cm(flows)]:
            if one not in found and other not in found:
                found[one], found[other] = other, one
        return found

    def _by_votes(self) -> Iterator[tuple[int, int]]:
        """Yield pairs by votes in both directions, most first; of equals, the earliest."""
        both: Counter[tuple[int, int]] = Counter()
        nearest: Counter[tuple[int, int]] = Counter()
        for flow, votes in self._votes.items():
            for other, count in votes.items():
                ends = min(flow, other), max(flow, other)
                both[ends] += count
                nearest[ends] += self._nearest[flow, other]
        yield from sorted(both, key=lambda ends: (-both[ends], -nearest[ends], ends))

    def _by_source(self, flows: Flows) -> Iterator[tuple[int, int]]:
        for flow, key in enumerate(flows.keys):
            if key.source:
                back = FlowKey(self._addresses.reverse(key.pair), key.source, key.destination)
                other = flows.find(back)
                if other >= 0:
                    yield flow, other

    def _by_cm(self, flows: Flows) -> Iterator[tuple[int, int]]:
        for one, other in self._cm_pairs.items():
            ends = flows.find(one), flows.find(other)
            if min(ends) >= 0:
                yield ends


def _cast(flow: IntArray, key: IntArray, answering: NDArray[np.bool_], distance: int) -> IntArray:
    """Return votes of responses for requests with their key, ``distance`` rows before them.

    A vote is two flow numbers in one: that of the response, then that of the request.
    """
    later, earlier = slice(distance, None), slice(None, -distance)
    hit = answering[later] & ~answering[earlier] & (key[later] == key[earlier])
    votes: IntArray = flow[later][hit] << FLOW_BITS | flow[earlier][hit]
    return votes


def _counted(cast: IntArray) -> Iterator[tuple[int, int, int]]:
    """Yield each pair of flows with its number of votes."""
    pairs, counts = np.unique(cast, return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        yield *divmod(pair, FLOWS), count


_MAX_PENDING = 4096
"""Pending REQs; of more, the oldest are dropped."""


class CmPairs:
    """Pairs flows by CM messages: the queue pairs of a REQ and of the REP that answers it."""

    def __init__(self, addresses: AddressNumbers, pairing: Pairing) -> None:
        self._addresses = addresses
        self._pairing = pairing
        self._pending: dict[tuple[AddressPair, int], int] = {}

    def add(self, facts: FrameFacts) -> None:
        """Process the facts of one frame."""
        if facts.cm_qp is None:
            return
        if facts.cm_qp.answers:
            self._answer(facts.pair, facts.cm_qp)
        else:
            self._ask(facts.pair, facts.cm_qp)

    def _ask(self, pair: AddressPair, cm_qp: CmQueuePair) -> None:
        self._pending[pair, cm_qp.comm_id] = cm_qp.qpn
        if len(self._pending) > _MAX_PENDING:
            del self._pending[next(iter(self._pending))]

    def _answer(self, pair: AddressPair, cm_qp: CmQueuePair) -> None:
        asked = AddressPair(pair.destination, pair.source)
        qpn = self._pending.pop((asked, cm_qp.comm_id), None)
        there, back = self._addresses.number(asked), self._addresses.number(pair)
        if qpn is not None and OTHER not in (there, back):
            self._pairing.pair_by_cm(FlowKey(there, cm_qp.qpn, 0), FlowKey(back, qpn, 0))
