"""InfiniBand links and switches: speeds, time on the wire, cut-through, forwarding by LID.

What is modelled: the rate after encoding, the delimiters of packets, the latency of a switch that
forwards a packet when it has its LRH, and linear forwarding tables. All packets are on virtual lane
0 (:mod:`rdmawire.ib.encapsulation`). Buffers have no bound and credits do not run out, so no packet
is lost; flow control packets (IBA 7.9) are not sent, but take a share of the rate where a measured
rate is known. Speeds of all links of a network are alike: a switch cannot send faster than it
receives.
"""

from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import ClassVar, Final, NamedTuple, Protocol, runtime_checkable

from rdmawire.errors import FabricError
from rdmawire.fabric.classify import Classifier, FlowInfo
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Framing, Link
from rdmawire.fabric.port_queue import RatedLink, TrafficClass
from rdmawire.fabric.switch import Route, Switch, SwitchPort
from rdmawire.fabric.switch_config import SwitchSettings
from rdmawire.units import SECOND, gbps
from rdmawire.wire.ib import LRH
from rdmawire.wire.roce import Medium

# Speeds.

_8B_10B: Final = Fraction(8, 10)
_64B_66B: Final = Fraction(64, 66)
_WITH_FEC: Final = Fraction(16, 17)
"""256b/257b, then RS(544, 514)."""
_EDR: Final = Fraction(975, 1000) * (4096 + 28) / 4096
"""ib_write_bw over EDR with an MTU of 4096: 96.6 Gbit/s (NVIDIA developer forum, topic 273376) and
98.4 Gbit/s (11,728 MiB/s, linux-rdma/perftest issue 225). The share of their mean, with the 28
bytes of each packet that are no payload."""


class InfiniBandSpeed(NamedTuple):
    """A speed of a lane: the ``rate`` in its name, and ``signalling``, both bits per second.

    ``encoding`` is the share of the signalling that is data, ``share`` the part of the data that
    is packets: the rest is flow control and symbols that keep lanes aligned. It is 1 where no
    measured rate is known.
    """

    name: str
    rate: int
    signalling: int
    encoding: Fraction
    share: Fraction = Fraction(1)


SPEEDS: Final = (
    InfiniBandSpeed("SDR", gbps(2.5), gbps(2.5), _8B_10B),
    InfiniBandSpeed("DDR", gbps(5), gbps(5), _8B_10B),
    InfiniBandSpeed("QDR", gbps(10), gbps(10), _8B_10B),
    InfiniBandSpeed("FDR", gbps(14), gbps(14.0625), _64B_66B),
    InfiniBandSpeed("EDR", gbps(25), gbps(25.78125), _64B_66B, _EDR),
    InfiniBandSpeed("HDR", gbps(50), gbps(53.125), _WITH_FEC),
    InfiniBandSpeed("NDR", gbps(100), gbps(106.25), _WITH_FEC),
    InfiniBandSpeed("XDR", gbps(200), gbps(212.5), _WITH_FEC),
)
"""The speeds of a lane. IBA, volume 2; roadmap of the IBTA."""
WIDTHS: Final = (4, 1, 2, 8, 12)
"""Lanes of a link, the usual number first. IBA, volume 2."""


def packet_rate(rate: int) -> int:
    """Return the bits per second that packets have of a link with this rate in its name.

    100 Gbit/s is EDR with four lanes. :class:`FabricError` for a rate that no link has.
    """
    for width in WIDTHS:
        for speed in SPEEDS:
            if speed.rate * width == rate:
                return int(speed.signalling * width * speed.encoding * speed.share)
    usual = ", ".join(f"{4 * speed.rate / SECOND:g}" for speed in SPEEDS)
    raise FabricError(f"no InfiniBand link has {rate / SECOND:g} Gbit/s; four lanes have {usual}")


# Links.

DELIMITERS: Final = 2
"""Symbols before and after a packet, of a byte each: SDP and EGP. IBA, volume 2."""


@lru_cache(1 << 12)
def _time_parts(size: int, rate: int) -> tuple[int, int]:
    """Duration of a packet of ``size`` bytes, LRH and VCRC included: ns, and ns / ``rate``."""
    return divmod((size + DELIMITERS) * 8 * SECOND, rate)


INFINIBAND: Final = Framing(Medium.INFINIBAND, _time_parts)


class InfiniBandLink(Link):
    """A link for native packets, between two ports.

    ``rate`` is the one in its name (:func:`packet_rate`), ``switch_latency`` the time (ns) from the
    first byte of a packet at the ingress port of a switch until it can leave the egress port.
    A switch gets a packet with its first byte (cut-through), an adapter with the last one.
    ``adapters`` is the number of its ends that are adapters; a network sets it.
    """

    framing: ClassVar[Framing] = INFINIBAND

    def __init__(self, latency: int = 0, *, rate: int | None, switch_latency: int = 0) -> None:
        super().__init__(latency, rate=None if rate is None else packet_rate(rate))
        self.switch_latency = switch_latency
        self.adapters = 2

    def _flight(self, frame: Envelope) -> int:
        if self.adapters == 0 or (self.adapters == 1 and frame.hops == 1):
            return self.latency + self.switch_latency
        if self.rate is None:
            return self.latency
        time, rest = _time_parts(len(frame.data), self.rate)
        return self.latency + time + (rest > 0)


class OneLane(Classifier):
    """All packets are on virtual lane 0."""

    def traits(self, frame: bytes) -> FlowInfo:  # noqa: ARG002 - as of Ethernet
        """Return the classification of a packet."""
        return _LANE_0


_LANE_0: Final = FlowInfo(0, False, b"")


# Switches.


@runtime_checkable
class InfiniBandHost(Protocol):
    """A host on an InfiniBand link: the LIDs of its port."""

    @property
    def lids(self) -> range: ...


def keys_of(host: InfiniBandHost) -> list[bytes]:
    """Return the LIDs of a host, as packets and forwarding tables have them."""
    return [lid.to_bytes(2, "big") for lid in host.lids]


_DLID: Final = slice(2, 4)
"""Bytes of the destination LID in an LRH. IBA 7.7."""
_UNBOUNDED: Final = SwitchSettings(buffer=1 << 62, queue=1 << 62)


class InfiniBandSwitchPort(SwitchPort):
    """A port of an InfiniBand switch."""

    __slots__ = ()

    def receive(self, frame: Envelope, now: int) -> None:
        """Receive a packet, and forward it by its destination LID."""
        key = frame.data[_DLID]
        route = self._routes.get(key) or self._find(key)
        if not route.ports or len(frame.data) < LRH.SIZE:
            self.switch.drop_unroutable(frame)
            return
        for port in route.ports:
            self.switch.forward(frame, route.traffic_class, port, now)


class InfiniBandSwitch(Switch):
    """A switch for native packets. Its forwarding table has the LIDs given to it (IBA 14.2.5.10).

    Packets to other LIDs are discarded, and counted in ``stranded``.
    """

    def __init__(self, name: str, random: Random | None = None) -> None:
        super().__init__(name, _UNBOUNDED, random)

    def add_port(self, mac: bytes, link: RatedLink, *, in_spanning_tree: bool = True) -> SwitchPort:
        """Add a port at the end of a link."""
        port = InfiniBandSwitchPort(
            self, len(self.ports), mac, link, in_spanning_tree=in_spanning_tree
        )
        self._append(port)
        return port

    def route(self, ingress: SwitchPort, key: bytes) -> Route:
        """Return the route of packets to a LID: one port, the same for all packets."""
        lane = TrafficClass(0, ingress.number)
        given = self.table.given(key)
        if not given or ingress.number in given:
            return Route((), lane)
        return Route((self.ports[given[int.from_bytes(key, "big") % len(given)]],), lane)
