"""Steps of the Internet protocols: IPv4, IPv6, UDP, TCP, VXLAN."""

from typing import Final

from rdmawire.decode.checksum import (
    ICMPV6_SUM,
    NOWHERE,
    TCP_SUM,
    UDP_SUM,
    Addresses,
    HeaderSum,
    ICRCStart,
    PseudoSum,
    TransportSum,
)
from rdmawire.decode.walk import By, Following, Walk
from rdmawire.errors import WireError
from rdmawire.wire.checksum import final_in_routing, final_in_source_route, home_in_options
from rdmawire.wire.icrc import icrc_ipv4, icrc_ipv6
from rdmawire.wire.inet import (
    TCP,
    UDP,
    VXLAN,
    IPv4,
    IPv6,
    IPv6Extension,
    IPv6Fragment,
)

MAX_TUNNELS: Final = 16
"""Tunnels in tunnels that are followed. Each checksum covers all that is inside it, so without a
bound a frame takes time and memory by the square of its length. Networks have one or two."""

_new = tuple.__new__
_IPV4_SIZE, _UDP_SIZE, _TCP_SIZE = IPv4.SIZE, UDP.SIZE, TCP.SIZE
_ICMPV6_SIZE: Final = 4
"""Bytes of an ICMPv6 message up to the end of its checksum. RFC 4443, 2.1."""


def ipv4(walk: Walk) -> Following:
    """IPv4 and its options."""
    start = walk.offset
    ip = walk.take(IPv4)
    size = ip.ihl * 4
    if ip.version != 4 or size < _IPV4_SIZE:
        raise WireError(f"IPv4.version {ip.version} and ihl {ip.ihl}: 4 and at least 5", start)
    walk.addresses = _new(Addresses, (start + 12, start + 16, 4, True))
    walk.cover(HeaderSum(start, start + size))
    if size > _IPV4_SIZE:
        options = walk.offset
        walk.need(size - _IPV4_SIZE, "IPv4 options")
        walk.take_bytes("ip options", size - _IPV4_SIZE)
        if final := final_in_source_route(walk.data[options : walk.offset]):
            walk.addresses = Addresses(start + 12, options + final.start, 4)
    if ip.total_length:  # zero: a host's own capture of what its NIC will segment
        walk.narrow(ip.total_length - size, "IPv4.total_length")
    walk.icrc = _new(ICRCStart, (icrc_ipv4, start, start + size + _UDP_SIZE))
    if ip.mf or ip.fragment_offset:
        return walk.enter_fragment(ip.protocol, ip.fragment_offset, more=bool(ip.mf))
    return By.IP, ip.protocol


def ipv6(walk: Walk) -> Following:
    """IPv6; its extension headers are steps of their own."""
    start = walk.offset
    ip = walk.take(IPv6)
    if ip.version != 6:
        raise WireError(f"IPv6.version {ip.version}: 6", start)
    walk.addresses = _new(Addresses, (start + 8, start + 24, 16, True))
    if ip.payload_length:  # zero: as in IPv4, above
        walk.narrow(ip.payload_length, "IPv6.payload_length")
    walk.icrc = _new(ICRCStart, (icrc_ipv6, start, 0))
    return By.IP, ip.next_header


def ipv6_extension(walk: Walk) -> Following:
    """Hop-by-hop options, and what all extension headers have in common."""
    extension = walk.take(IPv6Extension)
    length = 6 + extension.length * 8
    walk.need(length, "IPv6 extension")
    walk.take_bytes("ipv6 options", length)
    return By.IP, extension.next_header


def ipv6_routing(walk: Walk) -> Following:
    """A routing header: checksums may cover a destination in it. RFC 8200, 8.1."""
    start = walk.offset
    following = ipv6_extension(walk)
    addresses = walk.addresses
    if addresses is not None and addresses.size == 16:
        final = final_in_routing(walk.data[start : walk.offset])
        if final is None:
            walk.addresses = addresses._replace(known=False)
        elif final:
            walk.addresses = addresses._replace(destination=start + final.start)
    return following


def ipv6_destination(walk: Walk) -> Following:
    """Destination options: checksums may cover a home address in them. RFC 6275, 6.3."""
    start = walk.offset
    following = ipv6_extension(walk)
    addresses = walk.addresses
    if addresses is not None and addresses.size == 16:
        home = home_in_options(walk.data[start : walk.offset])
        if home:
            walk.addresses = addresses._replace(source=start + home.start)
    return following


def ipv6_fragment(walk: Walk) -> Following:
    """A fragment; complete packets may have this header too."""
    fragment = walk.take(IPv6Fragment)
    if fragment.offset or fragment.more:
        return walk.enter_fragment(fragment.next_header, fragment.offset, more=bool(fragment.more))
    return By.IP, fragment.next_header


def _cover(walk: Walk, kind: PseudoSum, start: int) -> None:
    end = NOWHERE if walk.short else walk.end
    whole = walk.fragment_at is None
    walk.cover(TransportSum(kind, start, end, walk.addresses, whole))


def icmpv6(walk: Walk) -> Following:
    """ICMPv6, of which only the checksum is of interest: the addresses count in it."""
    if walk.left >= _ICMPV6_SIZE:
        _cover(walk, ICMPV6_SUM, walk.offset)
    return By.DATA, 0


def tcp(walk: Walk) -> Following:
    """TCP and its options. What it carries is a stream's business, or a port's."""
    start = walk.offset
    header = walk.take(TCP)
    size = header.data_offset * 4
    _cover(walk, TCP_SUM, start)
    if size < _TCP_SIZE:
        raise WireError(f"TCP.data_offset {header.data_offset}: at least 5", start)
    walk.need(size - _TCP_SIZE, "TCP options")
    if size > _TCP_SIZE:
        walk.take_bytes("tcp options", size - _TCP_SIZE)
    return walk.enter_segment(header)


def udp(walk: Walk) -> Following:
    """UDP. The destination port alone says what is inside, whichever side has the source port."""
    start = walk.offset
    header = walk.take(UDP)
    addresses = walk.addresses
    if header.length or addresses is None or addresses.size == 4:  # RFC 2675: zero in a jumbogram
        walk.narrow(header.length - _UDP_SIZE, "UDP.length")
    _cover(walk, UDP_SUM, start)
    walk.enter_datagram(header)
    if walk.fragment_at is not None:
        return None
    if header.dstport in walk.roce_ports:
        return By.TRANSPORT, 0
    return By.UDP, header.dstport


def vxlan(walk: Walk) -> Following:
    """VXLAN: an Ethernet frame inside."""
    enter_tunnel(walk, "VXLAN")
    walk.take(VXLAN)
    return By.LINK, 1


def enter_tunnel(walk: Walk, name: str) -> None:
    """Count a tunnel. Raises :class:`WireError` if there are too many around it."""
    if walk.tunnels == MAX_TUNNELS:
        raise WireError(f"{name}: the frame has {MAX_TUNNELS} tunnels around this one already")
    walk.tunnels += 1
