"""The way through a frame, from the link inwards, to find where its headers stand.

A step takes its header and says which step follows: see :mod:`rdmawire.traffic.edit.walk`. Where
bytes do not parse, or the capture ends, the walk ends, and keeps what it has found.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Optional, TypeVar

from rdmawire.capture.record import LinkType
from rdmawire.errors import WireError
from rdmawire.ib.tx_template import HEAD_OF_BTH
from rdmawire.traffic.edit.checksums import (
    NOWHERE,
    ComputeICRC,
    HeaderSum,
    InvariantCRC,
    LinkCRC,
    Seal,
    SumKind,
    TransportSum,
)
from rdmawire.wire import mad
from rdmawire.wire.ends import final_in_routing, final_in_source_route, home_in_options
from rdmawire.wire.erf import ERF, ERFEthernetPad, ERFExtension, ERFType
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, ICRC, LNH, LRH, RWH, VCRC, FlowControl
from rdmawire.wire.icrc import icrc_grh, icrc_ipv4, icrc_ipv6, icrc_local
from rdmawire.wire.inet import (
    ARP,
    ROCE_PORT,
    SLL,
    SLL2,
    TCP,
    UDP,
    VLAN,
    VXLAN,
    VXLAN_PORT,
    Ethernet,
    Ethernet8023,
    EtherType,
    IPProtocol,
    IPv4,
    IPv6,
    IPv6Extension,
    IPv6Fragment,
    Loopback,
    ServiceVLAN,
)
from rdmawire.wire.native import IBA_TRANSPORT
from rdmawire.wire.opcode import SHAPES, Service
from rdmawire.wire.packet import layout

Hosts = tuple[bytes, bytes]
"""Source and destination: IPv4 address, IPv6 address or GID, else LID; or nothing."""

_MAPPED = bytes(10) + b"\xff\xff"


class Place(NamedTuple):
    """A header, and the byte of the frame where it begins."""

    offset: int
    header: Header


class Said(NamedTuple):
    """Where a header says how long a packet is: it ends ``scale`` times that behind ``start``.

    The number is the lower bits of two bytes at ``offset``, those under ``mask``.
    """

    offset: int
    start: int
    mask: int = 0xFFFF
    scale: int = 1

    def end(self, data: bytes) -> int:
        """Where the packet ends."""
        at = self.offset
        return self.start + ((data[at] << 8 | data[at + 1]) & self.mask) * self.scale


class Layout(NamedTuple):
    """What stands where in a frame.

    ``places`` are the headers, outermost first, and ``seals`` the checksums, innermost first.
    ``head``: frames of this link type whose first bytes agree with it, but for what
    :data:`~rdmawire.traffic.edit.flow_cache.VARIES` lists, are laid out alike; 0 if that is not
    sure. Their packet ends where each of ``said`` tells.
    """

    places: Sequence[Place]
    hosts: Hosts
    seals: Sequence[Seal] = ()
    head: int = 0
    said: Sequence[Said] = ()


def hosts_of(places: Sequence[Place]) -> Hosts:
    """Who sends a frame to whom, by the innermost header that says so."""
    for _, header in reversed(places):
        if isinstance(header, IPv4 | IPv6):
            return host(header.src), host(header.dst)
        if isinstance(header, GRH):
            return host(header.sgid), host(header.dgid)
        if isinstance(header, LRH):
            return header.slid.to_bytes(2, "big"), header.dlid.to_bytes(2, "big")
    return b"", b""


def host(address: bytes) -> bytes:
    """A host's address; of IPv4 addresses written as IPv6 ones, the last four bytes."""
    return address[12:] if len(address) == 16 and address.startswith(_MAPPED) else address


_H = TypeVar("_H", bound=Header)

Step = Callable[["Walk"], Optional["Step"]]
Steps = Mapping[int, Step]


class Walk:
    """Where a walk stands: the next byte, and where the layer at hand ends.

    ``short`` says that something is missing of that layer. ``head`` and ``said`` are as in
    :class:`~rdmawire.traffic.edit.walk.Layout`; without ``alike``, there is no such head.
    ``source`` and ``destination`` are the offsets of the pseudo header's addresses, the latter
    ``None`` if it is not known; ``icrc`` is what an ICRC would be.
    """

    icrc: ComputeICRC

    def __init__(self, data: bytes, ports: Collection[int]) -> None:
        self.data = data
        self.ports = ports
        self.offset = 0
        self.end = len(data)
        self.short = False
        self.alike = True
        self.head = 0
        self.tunnels = 0
        self.fragment = False
        self.source = range(0)
        self.destination: range | None = range(0)
        self.places: list[Place] = []
        self.seals: list[Seal] = []
        self.said: list[Said] = []

    def take(self, table: type[_H]) -> _H:
        """The next header."""
        end = self.offset + table.SIZE
        if end > self.end:
            raise WireError(f"{table.__name__} ends behind byte {self.end}", self.offset)
        header = table.parse(self.data, self.offset)
        self.places.append(Place(self.offset, header))
        self.offset = end
        return header

    def narrow(self, length: int) -> None:
        """The layer at hand has so many bytes more."""
        end = self.offset + length
        self.short = self.short or end > self.end or length < 0
        if length >= 0:
            self.end = min(self.end, end)

    @property
    def whole_end(self) -> int:
        """Where the layer at hand ends, if all of it is there."""
        return NOWHERE if self.short else self.end

    def run(self, step: Step | None) -> Layout:
        """Walk to the end of the frame. Whatever the bytes, this raises nothing."""
        try:
            while step is not None:
                step = step(self)
        except WireError:
            self.alike = False
        head = self.head if self.alike else 0
        return Layout(self.places, hosts_of(self.places), self.seals[::-1], head, self.said)


MAX_TUNNELS = 16
"""Tunnels in tunnels that are followed, as in a dissection: each one's sum is over all inside."""

_MIN_ETHERTYPE = 0x0600
_PORTS = 4
"""Bytes of the ports that TCP and UDP begin with."""
_ICMPV6 = 4
"""Bytes of an ICMPv6 message up to behind its checksum. RFC 4443, 2.1."""
_FAMILIES = {2: EtherType.IPV4} | dict.fromkeys((10, 24, 28, 30), EtherType.IPV6)
"""Address families of IPv4, and of IPv6 in various systems. LINKTYPE_NULL."""


def layout_of(
    data: bytes, link_type: int = LinkType.ETHERNET, ports: Collection[int] = (ROCE_PORT,)
) -> Layout:
    """Where things stand in a frame; ``ports`` are the UDP destination ports of RoCEv2."""
    return Walk(data, ports).run(_LINKS.get(link_type))


def _tagged(
    table: type[Ethernet | VLAN | ServiceVLAN | SLL | SLL2 | RWH], walk: Walk
) -> Step | None:
    """A header that ends with an EtherType, or has one."""
    header = walk.take(table)
    return _ETHERTYPES.get(header.etype if isinstance(header, RWH) else header.type)


def _ethernet(walk: Walk) -> Step | None:
    """Ethernet II, or IEEE 802.3 with a length, of which no more is known."""
    at = walk.offset + 12
    if int.from_bytes(walk.data[at : at + 2], "big") < _MIN_ETHERTYPE:
        walk.take(Ethernet8023)
        return None
    return _tagged(Ethernet, walk)


def _raw_ip(walk: Walk) -> Step | None:
    """No link header: the version says which IP it is."""
    return {4: _ipv4, 6: _ipv6}.get(walk.data[0] >> 4) if walk.data else None


def _loopback(walk: Walk) -> Step | None:
    """BSD loopback: the address family in the byte order of the host that captured."""
    family = walk.take(Loopback).family
    number = min(int.from_bytes(family, "little"), int.from_bytes(family, "big"))
    return _ETHERTYPES.get(_FAMILIES.get(number, 0))


def _last(table: type[Header], walk: Walk) -> None:
    """A header that nothing follows."""
    walk.take(table)


def _erf(walk: Walk) -> Step | None:
    """A record of Endace: its extension headers, then a frame of its own kind."""
    walk.alike = False
    record = walk.take(ERF)
    more = record.ext_header
    while more:
        more = walk.take(ERFExtension).more
    extended = walk.offset
    if record.type == ERFType.ETHERNET:
        walk.take(ERFEthernetPad)
    walk.narrow(min(record.wlen, record.rlen - extended))
    return _ERF.get(record.type)


def _flow_control(walk: Walk) -> None:
    """A link packet with credits, which ends with its LPCRC."""
    start = walk.offset
    walk.take(FlowControl)
    walk.seals.append(LinkCRC(FlowControl, start, walk.offset - VCRC.SIZE))


def _local_route(walk: Walk) -> Step | None:
    """The LRH: the VCRC ends the packet, and is not counted in its length."""
    start = walk.offset
    lrh = walk.take(LRH)
    end = start + lrh.pktlen * 4
    walk.seals.append(LinkCRC(VCRC, start, end if end + VCRC.SIZE <= walk.end else NOWHERE))
    walk.narrow(end - walk.offset)
    walk.said.append(Said(start + 4, start, 0x07FF, 4))
    walk.icrc = lambda data, _, end: icrc_local(data, start, end)
    return _LINK_NEXT.get(lrh.lnh)


def _global_route(walk: Walk) -> Step | None:
    """The GRH: behind an LRH, or behind an Ethernet header in RoCE."""
    start = walk.offset
    grh = walk.take(GRH)
    walk.narrow(grh.paylen)
    walk.said.append(Said(start + 4, walk.offset))
    walk.icrc = lambda data, _, end: icrc_grh(data, start, end)
    return _transport if grh.nxthdr == IBA_TRANSPORT else None


def _ipv4(walk: Walk) -> Step | None:
    """IPv4 and its options. Of a packet that was cut up, the first part has the next header."""
    start = walk.offset
    ip = walk.take(IPv4)
    end = start + ip.ihl * 4
    if ip.version != 4 or end < walk.offset:
        raise WireError(f"IPv4 version {ip.version}, ihl {ip.ihl}", start)
    walk.seals.append(HeaderSum(start, end))
    if end > walk.end:
        raise WireError("the options of IPv4 are cut off", walk.offset)
    walk.offset = end
    if ip.total_length:  # zero: a host's own capture of what its NIC will cut up
        walk.narrow(ip.total_length - ip.ihl * 4)
    walk.said.append(Said(start + 2, start))
    walk.icrc = lambda data, bth, end: icrc_ipv4(data, start, end, bth)
    walk.source, walk.destination = range(start + 12, start + 16), range(start + 16, start + 20)
    options = start + IPv4.SIZE
    if final := final_in_source_route(walk.data[options:end]):
        walk.destination = _moved(final, options)
    return _into_ip(walk, ip.protocol, bool(ip.mf), ip.fragment_offset)


def _ipv6(walk: Walk) -> Step | None:
    """IPv6; its extension headers are steps of their own."""
    start = walk.offset
    ip = walk.take(IPv6)
    if ip.version != 6:
        raise WireError(f"IPv6 version {ip.version}", start)
    if ip.payload_length:  # zero: as in IPv4, above
        walk.narrow(ip.payload_length)
    walk.said.append(Said(start + 4, walk.offset))
    walk.icrc = lambda data, bth, end: icrc_ipv6(data, start, end, bth)
    walk.source, walk.destination = range(start + 8, start + 24), range(start + 24, start + 40)
    return _into_ip(walk, ip.next_header)


def _into_ip(
    walk: Walk, protocol: int, more: bool = False, fragment_offset: int = 0
) -> Step | None:
    walk.head = walk.offset
    walk.fragment = more
    return None if fragment_offset else _PROTOCOLS.get(protocol)


def _ipv6_extension(walk: Walk) -> Step | None:
    """Hop-by-hop, routing and destination options."""
    walk.alike = False
    extension = walk.take(IPv6Extension)
    walk.offset += 6 + extension.length * 8
    return _PROTOCOLS.get(extension.next_header)


def _ipv6_routing(walk: Walk) -> Step | None:
    """A routing header: checksums may cover a destination in it. RFC 8200, 8.1."""
    start = walk.offset
    step = _ipv6_extension(walk)
    if walk.offset <= walk.end:
        final = final_in_routing(walk.data[start : walk.offset])
        if final is None or final:
            walk.destination = None if final is None else _moved(final, start)
    return step


def _ipv6_destination(walk: Walk) -> Step | None:
    """Destination options: checksums may cover a home address in them. RFC 6275, 6.3."""
    start = walk.offset
    step = _ipv6_extension(walk)
    if walk.offset <= walk.end and (home := home_in_options(walk.data[start : walk.offset])):
        walk.source = _moved(home, start)
    return step


def _moved(places: range, by: int) -> range:
    return range(places.start + by, places.stop + by)


def _ipv6_fragment(walk: Walk) -> Step | None:
    """A fragment; whole packets may have this header too."""
    walk.alike = False
    fragment = walk.take(IPv6Fragment)
    walk.fragment = bool(fragment.more)
    return None if fragment.offset else _PROTOCOLS.get(fragment.next_header)


def _sum(kind: SumKind, walk: Walk, start: int) -> None:
    whole = not walk.fragment
    ends = walk.source, walk.destination
    walk.seals.append(TransportSum(kind, start, walk.whole_end, ends, whole=whole))


def _icmpv6(walk: Walk) -> None:
    """ICMPv6, of which only the checksum is of interest: the addresses count in it."""
    if walk.end - walk.offset < _ICMPV6:
        raise WireError("no room for the checksum of ICMPv6", walk.offset)
    _sum(SumKind.ICMPV6, walk, walk.offset)


def _tcp(walk: Walk) -> None:
    """TCP. What it carries is a stream's business."""
    start = walk.offset
    walk.take(TCP)
    walk.head = start + _PORTS
    _sum(SumKind.TCP, walk, start)


def _udp(walk: Walk) -> Step | None:
    """UDP. The destination port says what is inside."""
    start = walk.offset
    udp = walk.take(UDP)
    walk.head = start + _PORTS
    if udp.length or len(walk.source) == 4:
        walk.narrow(udp.length - UDP.SIZE)
    walk.said.append(Said(start + 4, start))
    _sum(SumKind.UDP, walk, start)
    if walk.fragment:
        return None
    return _transport if udp.dstport in walk.ports else _TUNNELS.get(udp.dstport)


def _vxlan(walk: Walk) -> Step | None:
    """VXLAN: an Ethernet frame inside."""
    walk.alike = False
    walk.tunnels += 1
    walk.take(VXLAN)
    return _ethernet if walk.tunnels <= MAX_TUNNELS else None


def _transport(walk: Walk) -> None:
    """One transport packet, from the BTH to the ICRC; datagrams of management are looked into."""
    start = walk.offset
    bth = walk.take(BTH)
    walk.head = start + HEAD_OF_BTH
    _expect_icrc(walk, start)
    for table in layout(bth.opcode).headers:
        walk.take(table)
    shape = SHAPES.get(bth.opcode)
    if shape is None or shape.service is not Service.UD or bth.destqp not in mad.MANAGEMENT_QPS:
        return
    walk.alike = False
    if not walk.short:
        _management(walk, walk.end - bth.padcnt)


def _expect_icrc(walk: Walk, bth: int) -> None:
    if walk.short:
        walk.seals.append(InvariantCRC(walk.icrc, bth, NOWHERE))
        return
    if walk.end - walk.offset < ICRC.SIZE:
        raise WireError("no room for the ICRC", walk.offset)
    walk.seals.append(InvariantCRC(walk.icrc, bth, walk.end))
    walk.end -= ICRC.SIZE


def _management(walk: Walk, end: int) -> None:
    pieces = mad.layout(walk.data, walk.offset, end)
    for offset, piece in pieces:
        if isinstance(piece, Header):
            walk.places.append(Place(offset, piece))


_LINKS: Steps = {
    LinkType.NULL: _loopback,
    LinkType.ETHERNET: _ethernet,
    LinkType.RAW_BSD: _raw_ip,
    LinkType.RAW_OPENBSD: _raw_ip,
    LinkType.RAW: _raw_ip,
    LinkType.LINUX_SLL: partial(_tagged, SLL),
    LinkType.ERF: _erf,
    LinkType.IPV4: _ipv4,
    LinkType.IPV6: _ipv6,
    LinkType.INFINIBAND: _local_route,
    LinkType.LINUX_SLL2: partial(_tagged, SLL2),
}

_ETHERTYPES: Steps = {
    EtherType.IPV4: _ipv4,
    EtherType.IPV6: _ipv6,
    EtherType.ARP: partial(_last, ARP),
    EtherType.VLAN: partial(_tagged, VLAN),
    EtherType.QINQ: partial(_tagged, ServiceVLAN),
    EtherType.QINQ_OLD: partial(_tagged, VLAN),
    EtherType.ROCE: _global_route,
}

_PROTOCOLS: Steps = {
    IPProtocol.UDP: _udp,
    IPProtocol.TCP: _tcp,
    IPProtocol.ICMPV6: _icmpv6,
    IPProtocol.FRAGMENT: _ipv6_fragment,
    IPProtocol.HOP_BY_HOP: _ipv6_extension,
    IPProtocol.ROUTING: _ipv6_routing,
    IPProtocol.DESTINATION_OPTIONS: _ipv6_destination,
}

_TUNNELS: Steps = {VXLAN_PORT: _vxlan}

_ERF: Steps = {
    ERFType.ETHERNET: _ethernet,
    ERFType.INFINIBAND: _local_route,
    ERFType.INFINIBAND_LINK: _flow_control,
}

_LINK_NEXT: Steps = {
    LNH.RAW: partial(_tagged, RWH),
    LNH.IP_NON_IBA: _ipv6,
    LNH.IBA_LOCAL: _transport,
    LNH.IBA_GLOBAL: _global_route,
}
