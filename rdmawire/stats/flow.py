"""Flows: the packets from one address to one queue pair at another, and what is counted of each.

The sender's queue pair is in no packet but UD's, so a flow is one direction of a connection, seen
from the queue pair it leads to. Requests in it count in the sender's PSNs; responses in it count
in the PSNs of the flow that runs back.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.stats.address import OTHER, Addresses
from rdmawire.stats.circle import Numbers
from rdmawire.stats.interned import Interned
from rdmawire.stats.opcodes import IS_CNP, IS_FULL, IS_REQUEST, IS_RESPONSE, IS_UD
from rdmawire.stats.packets import Packets
from rdmawire.wire.ib import Ack

FLOW_BITS = 16
FLOWS = 1 << FLOW_BITS
"""Flows that are told apart, in bounded memory; what comes later is counted as one flow."""
REST = FLOWS - 1
"""The number of the flow that holds what is not told apart."""

_SUMS = (
    *("frames", "octets", "payload", "requests", "responses", "datagrams"),
    *("acks", "cnps", "marked"),
)
_ENDS = ("first_request", "last_request", "first_response", "last_response")
VALUE_BITS = 5
"""Bits of a syndrome behind its kind of acknowledge. IBA 9.7.5.2.1."""
_SOURCE_BITS = 24
_DESTINATION_BITS = 25
"""Those of a QP, and one more that tells an EE context from it."""
_SYNDROME_BITS = 7
"""Those that mean something: the uppermost is reserved."""


class Key(NamedTuple):
    """What a flow is told by: a pair of addresses, the QP that it leads to, and UD's source QP."""

    pair: int
    destination: int
    source: int


class Grouped(NamedTuple):
    """Packets sorted by flow, in the order of the capture within each.

    ``flow`` is each packet's, ``starts`` where each group begins, ``flows`` which flow it is;
    ``rows`` is each packet's place in the block.
    """

    packets: Packets
    flow: Numbers
    starts: Numbers
    flows: Numbers
    rows: Numbers

    def of(self, which: NDArray[np.bool_]) -> "Grouped":
        """Some of the packets."""
        return grouped(self.packets.at(which), self.flow[which], self.rows[which])


def grouped(packets: Packets, flow: Numbers, rows: Numbers) -> Grouped:
    """Packets that are sorted by flow."""
    starts = np.flatnonzero(np.diff(flow, prepend=-1))
    return Grouped(packets, flow, starts, flow[starts], rows)


class Flows:
    """All flows and their counts: arrays by the number of the flow."""

    def __init__(self, addresses: Addresses) -> None:
        self.keys: list[Key] = []
        self.counts: dict[str, Numbers] = {name: np.zeros(FLOWS, np.int64) for name in _SUMS}
        self.psns: dict[str, Numbers] = {name: np.full(FLOWS, -1, np.int64) for name in _ENDS}
        self.first_ns = np.full(FLOWS, -1, np.int64)
        self.last_ns = np.full(FLOWS, -1, np.int64)
        self.largest = np.zeros(FLOWS, np.int64)
        self.path_mtu = np.zeros(FLOWS, np.int64)
        self.services = np.zeros(FLOWS, np.uint8)
        self.syndromes: Counter[tuple[int, int]] = Counter()
        self._addresses = addresses
        self._numbers: dict[Key, int] = {}
        self._interned = Interned(self._number)

    def find(self, key: Key) -> int:
        """The number of a flow; -1 if there is none."""
        return self._numbers.get(key, -1)

    def _number(self, packed: int) -> int:
        rest, source = divmod(packed, 1 << _SOURCE_BITS)
        key = Key(*divmod(rest, 1 << _DESTINATION_BITS), source)
        if key.pair == OTHER or len(self.keys) == REST:
            return REST
        number = self._numbers[key] = len(self.keys)
        self.keys.append(key)
        return number

    def add(self, packets: Packets) -> Grouped:
        """Count packets; the same, sorted by flow."""
        ends = packets.pair << _DESTINATION_BITS | packets.destination
        packed = ends << _SOURCE_BITS | packets.source
        flow = self._interned(packed.astype(np.uint64))
        # Of 16 bits, NumPy's stable sort is a radix sort.
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
            "octets": own.octets,
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
        """Count what is no ACK, by flow and syndrome."""
        own = found.packets
        refused = _has_syndrome(own) & (_acknowledge(own) != Ack.ACK)
        syndrome = own.syndrome[refused].astype(np.int64) % (1 << _SYNDROME_BITS)
        coded = found.flow[refused] << _SYNDROME_BITS | syndrome
        for code, count in zip(*np.unique(coded, return_counts=True), strict=True):
            self.syndromes[divmod(int(code), 1 << _SYNDROME_BITS)] += int(count)


def _has_syndrome(own: Packets) -> NDArray[np.bool_]:
    return own.syndrome >= 0


def _acknowledge(own: Packets) -> NDArray[np.int16]:
    """The kind of acknowledge that each syndrome is."""
    return own.syndrome >> VALUE_BITS & 3


_SERVICE = (1 << (np.arange(256) >> 5)).astype(np.uint8)


def _raise(most: Numbers, flows: Numbers, values: Numbers) -> None:
    most[flows] = np.maximum(most[flows], values)
