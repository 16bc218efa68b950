"""One conversation in every carriage: tags, tunnels, IP's options, links of other kinds.

An adapter speaks RoCEv2 in plain Ethernet frames; here its packets are put into other headers, and
lengths, checksums and CRCs made to fit.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rdmawire.capture import LinkType
from rdmawire.verbs import SendOpcode
from rdmawire.wire import roce
from rdmawire.wire.ib import GRH, LRH
from rdmawire.wire.inet import (
    ROCE_PORT,
    SLL,
    SLL2,
    UDP,
    VLAN,
    VXLAN,
    VXLAN_PORT,
    Ethernet,
    EtherType,
    IPProtocol,
    IPv4,
    IPv6,
    IPv6Extension,
    IPv6Fragment,
    ServiceVLAN,
)
from rdmawire.wire.layout import Piece
from rdmawire.wire.native import NativePacket
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from tools.make_captures.golden.case import (
    CLIENT,
    OTHER,
    PLACES,
    SERVER,
    STEP,
    Case,
    Receive,
    Work,
    case,
)
from tools.make_captures.golden.errors import work
from tools.make_captures.golden.played import Played
from tools.make_captures.golden.stage import Sent, Stage

_LIDS = {CLIENT: 0x0A01, SERVER: 0x0B02}
_ROUTER_ALERT = bytes.fromhex("94040000")
_PADDING = bytes.fromhex("0104 00000000")
"""The rest of an extension header that only pads. RFC 8200, 4.2."""
_ROUTED = bytes.fromhex("0000 00000000")
"""The rest of a routing header of type 0, which names no more nodes. RFC 2460, 4.4; RFC 5095."""


class Way(NamedTuple):
    """From one end to the other."""

    who: str
    port: int

    def ethernet(self, ethertype: int) -> Ethernet:
        """The Ethernet header."""
        here, there = PLACES[False][self.who], PLACES[False][OTHER[self.who]]
        return Ethernet(there.mac, here.mac, ethertype)

    def ipv4(self, protocol: int = IPProtocol.UDP, ihl: int = 5) -> IPv4:
        """An IPv4 header."""
        here, there = PLACES[False][self.who], PLACES[False][OTHER[self.who]]
        return IPv4(
            ihl=ihl, dscp=26, ecn=2, df=1, ttl=64, protocol=protocol,
            src=here.gid[-4:], dst=there.gid[-4:],
        )  # fmt: skip

    def ipv6(self, following: int = IPProtocol.UDP) -> IPv6:
        """An IPv6 header."""
        here, there = PLACES[True][self.who], PLACES[True][OTHER[self.who]]
        return IPv6(
            dscp=26, ecn=2, flow=0x5C1B7, next_header=following, hop_limit=64,
            src=here.gid, dst=there.gid,
        )  # fmt: skip

    def udp(self, port: int = ROCE_PORT, checksum: int = 0) -> UDP:
        """A UDP header; any checksum but 0 is made to fit."""
        return UDP(self.port, port, 0, checksum)

    def grh(self) -> GRH:
        """A GRH."""
        here, there = PLACES[True][self.who], PLACES[True][OTHER[self.who]]
        return GRH(tclass=26 << 2, flowlabel=0x5C1B7, sgid=here.gid, dgid=there.gid)

    def lrh(self) -> LRH:
        """An LRH."""
        return LRH(vl=2, sl=3, dlid=_LIDS[OTHER[self.who]], slid=_LIDS[self.who])


Headers = Callable[[Way], tuple[Piece, ...]]


def _v4(way: Way) -> tuple[Piece, ...]:
    return way.ipv4(), way.udp()


def _v6(way: Way) -> tuple[Piece, ...]:
    return way.ipv6(), way.udp()


def _plain(ethertype: int, network: Headers) -> Headers:
    return lambda way: (way.ethernet(ethertype), *network(way))


def _tagged(*tags: VLAN | ServiceVLAN, first: int, network: Headers) -> Headers:
    return lambda way: (way.ethernet(first), *tags, *network(way))


def _extended(kind: int, extension: bytes) -> Headers:
    return _plain(EtherType.IPV6, lambda way: (way.ipv6(kind), extension, way.udp(checksum=1)))


def _tunnelled(outer: int, inner: int) -> Headers:
    networks = {EtherType.IPV4: _v4, EtherType.IPV6: _v6}

    def headers(way: Way) -> tuple[Piece, ...]:
        ip, udp = networks[EtherType(outer)](way)
        assert isinstance(udp, UDP)
        tunnel = (way.ethernet(outer), ip, udp.replace(dstport=VXLAN_PORT), _VXLAN)
        return (*tunnel, way.ethernet(inner), *networks[EtherType(inner)](way))

    return headers


_VXLAN = VXLAN(vni_valid=1, vni=0x7654)
_V4_TAG, _V6_TAG, _ROCE_TAG = (
    VLAN(3, 0, 100, kind) for kind in (EtherType.IPV4, EtherType.IPV6, EtherType.ROCE)
)
_UDP_NEXT = IPProtocol.UDP
_FRAGMENT = IPv6Fragment(_UDP_NEXT, identification=0x1234).build()

ETHERNET: dict[str, Headers] = {
    "ipv4": _plain(EtherType.IPV4, _v4),
    "ipv4-udp-checksum": _plain(EtherType.IPV4, lambda way: (way.ipv4(), way.udp(checksum=1))),
    "ipv4-options": _plain(
        EtherType.IPV4, lambda way: (way.ipv4(ihl=6), _ROUTER_ALERT, way.udp())
    ),
    "ipv6": _plain(EtherType.IPV6, _v6),
    "ipv6-udp-checksum": _plain(EtherType.IPV6, lambda way: (way.ipv6(), way.udp(checksum=1))),
    "ipv6-hop-by-hop": _extended(
        IPProtocol.HOP_BY_HOP, IPv6Extension(_UDP_NEXT).build() + _PADDING
    ),
    "ipv6-routing": _extended(IPProtocol.ROUTING, IPv6Extension(_UDP_NEXT).build() + _ROUTED),
    "ipv6-destination-options": _extended(
        IPProtocol.DESTINATION_OPTIONS, IPv6Extension(_UDP_NEXT).build() + _PADDING
    ),
    "ipv6-atomic-fragment": _extended(IPProtocol.FRAGMENT, _FRAGMENT),
    "roce-v1": _plain(EtherType.ROCE, lambda way: (way.grh(),)),
    "vlan-ipv4": _tagged(_V4_TAG, first=EtherType.VLAN, network=_v4),
    "vlan-ipv6": _tagged(_V6_TAG, first=EtherType.VLAN, network=_v6),
    "vlan-roce-v1": _tagged(
        _ROCE_TAG, first=EtherType.VLAN, network=lambda way: (way.grh(),)
    ),
    "priority-tag": _tagged(
        VLAN(5, 0, 0, EtherType.IPV4), first=EtherType.VLAN, network=_v4
    ),
    "two-vlans": _tagged(
        VLAN(1, 0, 200, EtherType.VLAN), _V4_TAG, first=EtherType.VLAN, network=_v4
    ),
    "qinq": _tagged(
        ServiceVLAN(6, 0, 0xABC, EtherType.VLAN), _V4_TAG, first=EtherType.QINQ, network=_v4
    ),
    "qinq-9100": _tagged(
        VLAN(6, 0, 0xABC, EtherType.VLAN), _V4_TAG, first=EtherType.QINQ_OLD, network=_v4
    ),
    **{
        f"vxlan-{outer.name.lower()}-{inner.name.lower()}": _tunnelled(outer, inner)
        for outer in (EtherType.IPV4, EtherType.IPV6)
        for inner in (EtherType.IPV4, EtherType.IPV6)
    },
}  # fmt: skip
"""Ways to carry a packet in an Ethernet frame."""


def _sll(ethertype: int, network: Headers) -> Headers:
    def headers(way: Way) -> tuple[Piece, ...]:
        incoming = way.who == SERVER
        mac = way.ethernet(0).src
        return SLL(0 if incoming else 4, 1, 6, mac, b"\0\0", ethertype), *network(way)

    return headers


def _sll2(ethertype: int, network: Headers) -> Headers:
    def headers(way: Way) -> tuple[Piece, ...]:
        incoming = way.who == SERVER
        mac = way.ethernet(0).src
        return SLL2(ethertype, 0, 3, 1, 0 if incoming else 4, 6, mac, b"\0\0"), *network(way)

    return headers


def _family(data: bytes, network: Headers) -> Headers:
    return lambda way: (data, *network(way))


_LITTLE_INET, _BIG_INET = (2).to_bytes(4, "little"), (2).to_bytes(4, "big")
_FREEBSD_INET6 = (28).to_bytes(4, "little")

LINKS: dict[LinkType, dict[str, Headers]] = {
    LinkType.NULL: {
        "little-ipv4": _family(_LITTLE_INET, _v4),
        "big-ipv4": _family(_BIG_INET, _v4),
        "ipv6": _family(_FREEBSD_INET6, _v6),
    },
    LinkType.RAW_BSD: {"ipv4": _v4, "ipv6": _v6},
    LinkType.RAW_OPENBSD: {"ipv4": _v4, "ipv6": _v6},
    LinkType.RAW: {"ipv4": _v4, "ipv6": _v6},
    LinkType.LINUX_SLL: {
        "ipv4": _sll(EtherType.IPV4, _v4),
        "ipv6": _sll(EtherType.IPV6, _v6),
    },
    LinkType.LINUX_SLL2: {
        "ipv4": _sll2(EtherType.IPV4, _v4),
        "ipv6": _sll2(EtherType.IPV6, _v6),
    },
    LinkType.IPV4: {"ipv4": _v4},
    LinkType.IPV6: {"ipv6": _v6},
}
"""Ways to carry a packet in records of other link types."""

NATIVE: dict[str, bool] = {"local": False, "global": True}
"""Packets on InfiniBand's own links, by whether they have a GRH."""

Seal = Callable[[Way, Packet], bytes]


def in_ethernet() -> Iterator[Played]:
    """The conversation in Ethernet frames of every kind."""
    for name, headers in ETHERNET.items():
        yield _carried(name, f"in Ethernet: {name.replace('-', ' ')}", _sealed(headers))


def on_links() -> Iterator[Played]:
    """The conversation in records of other link types."""
    for link_type, ways in LINKS.items():
        for name, headers in ways.items():
            word = link_type.name.lower().replace("_", "-")
            shows = f"in records of link type {link_type.name}: {name}"
            yield _carried(f"{word}-{name}", shows, _sealed(headers), link_type)


def on_infiniband() -> Iterator[Played]:
    """The conversation on InfiniBand's own links."""
    for name, has_grh in NATIVE.items():
        shows = f"on InfiniBand's own links, {'with' if has_grh else 'without'} a GRH"
        yield _carried(f"native-{name}", shows, _native(has_grh), LinkType.INFINIBAND)


def _sealed(headers: Headers) -> Seal:
    return lambda way, packet: Frame(headers(way), packet).seal().build()


def _native(has_grh: bool) -> Seal:
    def seal(way: Way, packet: Packet) -> bytes:
        grh = way.grh() if has_grh else None
        return NativePacket(way.lrh(), grh, packet).seal().build()

    return seal


def _conversation(name: str) -> Case:
    """A SEND and a READ, with what answers them."""
    return case(
        f"carried-{name}", "", Receive(0, SERVER, 6), work(SendOpcode.SEND, 6),
        Work(STEP, CLIENT, SendOpcode.RDMA_READ, 300),
    )  # fmt: skip


def _carried(name: str, shows: str, seal: Seal, link_type: int = LinkType.ETHERNET) -> Played:
    sent = [_recarried(one, seal, link_type) for one in Stage(_conversation(name)).run().sent]
    return Played(f"carried-{name}", f"a SEND and a READ {shows}", sent, {"service": "RC"})


def _recarried(sent: Sent, seal: Seal, link_type: int) -> Sent:
    """The same packet in other headers."""
    frame = roce.parse(sent.frame)
    udp = next(piece for piece in frame.headers if isinstance(piece, UDP))
    data = seal(Way(sent.who, udp.srcport), frame.packet)
    return sent._replace(frame=data, link_type=link_type)
