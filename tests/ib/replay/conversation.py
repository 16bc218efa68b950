"""Who talks to whom in a capture: the queue pairs of one end, and their peers."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rdmawire.ib.encapsulation import gids_of
from rdmawire.verbs.ah import AddressHandle, udp_source_port
from rdmawire.verbs.enums import QPType
from rdmawire.wire.ib import DETH
from rdmawire.wire.inet import UDP, Ethernet, IPv4, IPv6
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Part, Service
from tests.ib.replay.capture import Capture, Seen

TYPES = {Service.RC: QPType.RC, Service.UC: QPType.UC, Service.UD: QPType.UD}
CLIENT, SERVER = "client", "server"
_HOSTS = {SERVER: 1, CLIENT: 2}
"""The last byte of their addresses."""
_WHOLE = (Part.FIRST, Part.MIDDLE)


class Pair(NamedTuple):
    """A queue pair of one end; datagrams have no ``peer``."""

    own: int
    peer: int
    type: QPType


@dataclass(frozen=True, eq=False)
class Side:
    """One end of a capture: the host that has this GID."""

    capture: Capture
    gid: bytes
    name: str

    @property
    def command(self) -> str:
        """What ran there."""
        return self.capture.server if self.name == SERVER else self.capture.client

    @cached_property
    def sent(self) -> list[Seen]:
        return [seen for seen in self.capture.frames if seen.source == self.gid]

    @cached_property
    def received(self) -> list[Seen]:
        return [seen for seen in self.capture.frames if seen.destination == self.gid]

    @cached_property
    def flow_label(self) -> int:
        return self.capture.flow_label

    @cached_property
    def _own_qpns(self) -> set[int]:
        return {seen.qpn for seen in self.received}

    @cached_property
    def _peer_qpns(self) -> set[int]:
        return {seen.qpn for seen in self.sent}

    @property
    def mac(self) -> bytes:
        return _ethernet(self.sent[0]).src if self.sent else _ethernet(self.received[0]).dst

    def pairs(self) -> list[Pair]:
        """Its queue pairs, by number."""
        return sorted({*map(self._sender, self.sent), *map(self._receiver, self.received)})

    def _sender(self, seen: Seen) -> Pair:
        """Who sent a frame: a datagram says so, and else the UDP port was made of both numbers."""
        deth = seen.header(DETH)
        if deth is not None:
            return Pair(deth.srcqp, 0, QPType.UD)
        return Pair(self._other(seen, self._own_qpns), seen.qpn, TYPES[seen.shape.service])

    def _receiver(self, seen: Seen) -> Pair:
        if seen.header(DETH) is not None:
            return Pair(seen.qpn, 0, QPType.UD)
        return Pair(seen.qpn, self._other(seen, self._peer_qpns), TYPES[seen.shape.service])

    def _other(self, seen: Seen, received: set[int]) -> int:
        """Of the numbers that frames go to, the one that gives this frame's UDP source port.

        Where no frame goes to that end, both had the same number.
        """
        udp = seen.header(UDP)
        assert udp is not None
        label = self.flow_label
        fitting = (qpn for qpn in received if udp_source_port(label, qpn, seen.qpn) == udp.srcport)
        return next(fitting, seen.qpn)

    def of(self, pair: Pair, frames: Iterable[Seen], *, response: bool) -> list[Seen]:
        """The requests or responses among these frames that this queue pair sent or got."""
        return [
            seen
            for seen in frames
            if seen.shape.response is response and self.pair_of(seen) == pair
        ]

    def pair_of(self, seen: Seen) -> Pair:
        """The queue pair of this end that a frame came from or went to."""
        return self._sender(seen) if seen.source == self.gid else self._receiver(seen)

    def mtu(self, pair: Pair) -> MTU:
        """The path MTU: what fills a packet that is not the last; datagrams have the port's."""
        if pair.type is QPType.UD:
            return MTU.MTU_4096
        full = {
            len(seen.payload)
            for seen in self.capture.frames
            if seen.shape.part in _WHOLE and self.pair_of(seen) == pair
        }
        assert len(full) <= 1, f"first and middle packets of {sorted(full)} bytes"
        return MTU((full.pop() if full else 1024).bit_length() - 8)

    def path(self, pair: Pair) -> AddressHandle:
        """The way to the peer of a connected queue pair."""
        sent = self._first(pair, self.sent)
        if sent is not None:
            return path_of(sent, self.flow_label)
        received = self._first(pair, self.received)
        assert received is not None
        there = path_of(received, self.flow_label)
        return there._replace(dmac=_ethernet(received).src, dgid=there.sgid, sgid=there.dgid)

    def _first(self, pair: Pair, frames: Iterable[Seen]) -> Seen | None:
        return next((seen for seen in frames if self.pair_of(seen) == pair), None)


def side(capture: Capture, name: str) -> Side:
    """The client or the server of a capture."""
    gids = {capture.frames[0].source, capture.frames[0].destination}
    number = _HOSTS[name]
    return Side(capture, next(gid for gid in gids if gid[-1] == number), name)


def path_of(seen: Seen, flow_label: int) -> AddressHandle:
    """The address handle by which a frame was sent."""
    source, destination = gids_of(seen.frame.headers)
    ip = seen.header(IPv4) or seen.header(IPv6)
    assert ip is not None
    hops = ip.ttl if isinstance(ip, IPv4) else ip.hop_limit
    traffic_class = ip.dscp << 2 | ip.ecn
    return AddressHandle(_ethernet(seen).dst, destination, source, hops, traffic_class, flow_label)


def _ethernet(seen: Seen) -> Ethernet:
    found = seen.header(Ethernet)
    assert found is not None
    return found
