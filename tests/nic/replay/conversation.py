"""Who talks to whom in a capture: the queue pairs of one end, and their peers."""

from collections.abc import Iterable
from typing import NamedTuple

from rdmawire.nic.address import AddressHandle, udp_source_port
from rdmawire.nic.path import gids_of
from rdmawire.nic.state import QPType
from rdmawire.wire.ib import DETH
from rdmawire.wire.inet import UDP, Ethernet, IPv4, IPv6
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Part, Service
from tests.nic.replay.capture import Capture, Seen

TYPES = {Service.RC: QPType.RC, Service.UC: QPType.UC, Service.UD: QPType.UD}
_FOLDED = 0x3FFF

CLIENT, SERVER = "client", "server"
_HOSTS = {SERVER: 1, CLIENT: 2}
"""The last octet of their addresses."""
_WHOLE = (Part.FIRST, Part.MIDDLE)


class Pair(NamedTuple):
    """A queue pair of one end; datagrams have no ``peer``."""

    own: int
    peer: int
    type: QPType


class Side(NamedTuple):
    """One end of a capture: the host that has this GID."""

    capture: Capture
    gid: bytes
    name: str

    @property
    def command(self) -> str:
        """What ran there."""
        return self.capture.server if self.name == SERVER else self.capture.client

    @property
    def sent(self) -> list[Seen]:
        return [seen for seen in self.capture.frames if seen.source == self.gid]

    @property
    def received(self) -> list[Seen]:
        return [seen for seen in self.capture.frames if seen.destination == self.gid]

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
        listening = {frame.qpn for frame in self.received}
        return Pair(_other(seen, listening), seen.qpn, TYPES[seen.shape.service])

    def _receiver(self, seen: Seen) -> Pair:
        if seen.header(DETH) is not None:
            return Pair(seen.qpn, 0, QPType.UD)
        listening = {frame.qpn for frame in self.sent}
        return Pair(seen.qpn, _other(seen, listening), TYPES[seen.shape.service])

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
            return MTU.OCTETS_4096
        full = {
            len(seen.payload)
            for seen in self.capture.frames
            if seen.shape.part in _WHOLE and self.pair_of(seen) == pair
        }
        assert len(full) <= 1, f"first and middle packets of {sorted(full)} octets"
        return MTU((full.pop() if full else 1024).bit_length() - 8)

    def path(self, pair: Pair) -> AddressHandle:
        """The way to the peer of a connected queue pair."""
        sent = self._first(pair, self.sent)
        if sent is not None:
            return path_of(sent, pair.own)
        received = self._first(pair, self.received)
        assert received is not None
        there = path_of(received, pair.peer)
        return there._replace(dmac=_ethernet(received).src, dgid=there.sgid, sgid=there.dgid)

    def _first(self, pair: Pair, frames: Iterable[Seen]) -> Seen | None:
        return next((seen for seen in frames if self.pair_of(seen) == pair), None)


def side(capture: Capture, name: str) -> Side:
    """The client or the server of a capture."""
    gids = {capture.frames[0].source, capture.frames[0].destination}
    number = _HOSTS[name]
    return Side(capture, next(gid for gid in gids if gid[-1] == number), name)


def path_of(seen: Seen, own: int) -> AddressHandle:
    """The address handle by which queue pair ``own`` sent a frame."""
    source, destination = gids_of(seen.frame.headers)
    ip = seen.header(IPv4) or seen.header(IPv6)
    assert ip is not None
    hops = ip.ttl if isinstance(ip, IPv4) else ip.hop_limit
    traffic_class = ip.dscp << 2 | ip.ecn
    label = _flow_label(seen, own)
    return AddressHandle(_ethernet(seen).dst, destination, source, hops, traffic_class, label)


def _ethernet(seen: Seen) -> Ethernet:
    found = seen.header(Ethernet)
    assert found is not None
    return found


def _flow_label(seen: Seen, own: int) -> int:
    """None, where the numbers of the queue pairs alone give the port; else one that gives it."""
    port = _port(seen)
    return 0 if udp_source_port(0, own, seen.qpn) == port else port & _FOLDED


def _port(seen: Seen) -> int:
    udp = seen.header(UDP)
    assert udp is not None
    return udp.srcport


def _other(seen: Seen, heard: set[int]) -> int:
    """Of the numbers that frames go to, the one that gives this frame's UDP source port.

    Where none does, a flow label gave it, or no frame goes there. Both ends then had the same.
    """
    fitting = (qpn for qpn in heard if udp_source_port(0, qpn, seen.qpn) == _port(seen))
    return next(fitting, seen.qpn)
