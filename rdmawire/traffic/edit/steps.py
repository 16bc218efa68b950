"""Which header follows which: the steps of a walk, and the tables of what leads to each."""

from collections.abc import Collection
from functools import partial

from rdmawire.capture.record import LinkType
from rdmawire.errors import WireError
from rdmawire.ib.tx_template import HEAD_OF_BTH
from rdmawire.traffic.edit.place import Layout, Place, Said
from rdmawire.traffic.edit.seal import (
    NOWHERE,
    HeaderSum,
    InvariantCRC,
    LinkCRC,
    SumKind,
    TransportSum,
)
from rdmawire.traffic.edit.walk import Step, Steps, Walk
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

MOST_TUNNELS = 16
"""Tunnels in tunnels that are followed, as in a dissection: each one's sum is over all inside."""

_LEAST_ETHERTYPE = 0x0600
_PORTS = 4
"""Octets of the ports that TCP and UDP begin with."""
_ICMPV6 = 4
"""Octets of an ICMPv6 message up to behind its checksum. RFC 4443, 2.1."""
_FAMILIES = {2: EtherType.IPV4} | dict.fromkeys((10, 24, 28, 30), EtherType.IPV6)
"""Address families of IPv4, and of IPv6 in various systems. LINKTYPE_NULL."""


def layout_of(
    octets: bytes, link_type: int = LinkType.ETHERNET, ports: Collection[int] = (ROCE_PORT,)
) -> Layout:
    """Where things stand in a frame; ``ports`` are the UDP destination ports of RoCEv2."""
    return Walk(octets, ports).run(_LINKS.get(link_type))


def _tagged(
    table: type[Ethernet | VLAN | ServiceVLAN | SLL | SLL2 | RWH], walk: Walk
) -> Step | None:
    """A header that ends with an EtherType, or has one."""
    header = walk.take(table)
    return _ETHERTYPES.get(header.etype if isinstance(header, RWH) else header.type)


def _ethernet(walk: Walk) -> Step | None:
    """Ethernet II, or IEEE 802.3 with a length, of which no more is known."""
    at = walk.offset + 12
    if int.from_bytes(walk.octets[at : at + 2], "big") < _LEAST_ETHERTYPE:
        walk.take(Ethernet8023)
        return None
    return _tagged(Ethernet, walk)


def _raw_ip(walk: Walk) -> Step | None:
    """No link header: the version says which IP it is."""
    return {4: _ipv4, 6: _ipv6}.get(walk.octets[0] >> 4) if walk.octets else None


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
    walk.icrc = lambda octets, _, end: icrc_local(octets, start, end)
    return _LINK_NEXT.get(lrh.lnh)


def _global_route(walk: Walk) -> Step | None:
    """The GRH: behind an LRH, or behind an Ethernet header in RoCE."""
    start = walk.offset
    grh = walk.take(GRH)
    walk.narrow(grh.paylen)
    walk.said.append(Said(start + 4, walk.offset))
    walk.icrc = lambda octets, _, end: icrc_grh(octets, start, end)
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
    walk.icrc = lambda octets, bth, end: icrc_ipv4(octets, start, end, bth)
    walk.source, walk.destination = range(start + 12, start + 16), range(start + 16, start + 20)
    options = start + IPv4.SIZE
    if final := final_in_source_route(walk.octets[options:end]):
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
    walk.icrc = lambda octets, bth, end: icrc_ipv6(octets, start, end, bth)
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
        final = final_in_routing(walk.octets[start : walk.offset])
        if final is None or final:
            walk.destination = None if final is None else _moved(final, start)
    return step


def _ipv6_destination(walk: Walk) -> Step | None:
    """Destination options: checksums may cover a home address in them. RFC 6275, 6.3."""
    start = walk.offset
    step = _ipv6_extension(walk)
    if walk.offset <= walk.end and (home := home_in_options(walk.octets[start : walk.offset])):
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
    return _ethernet if walk.tunnels <= MOST_TUNNELS else None


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
    pieces = mad.layout(walk.octets, walk.offset, end)
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
