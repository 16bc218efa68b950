"""Steps of the Internet protocols: IPv4, IPv6, UDP, VXLAN."""

from rdmawire.dissect import checksums, generated
from rdmawire.dissect.node import Extra
from rdmawire.dissect.walk import By, Following, Walk
from rdmawire.errors import WireError
from rdmawire.wire.checksum import ipv4_header_checksum, udp_checksum
from rdmawire.wire.ends import behind_extension, behind_options
from rdmawire.wire.icrc import icrc_ipv4, icrc_ipv6
from rdmawire.wire.inet import (
    UDP,
    VXLAN,
    VXLAN_PORT,
    IPProtocol,
    IPv4,
    IPv6,
    IPv6Extension,
    IPv6Fragment,
)

MAX_TUNNELS = 16
"""Tunnels in tunnels that are followed. Each sums and copies all that is inside it, so without a
bound a frame takes time and memory by the square of its length. Networks have one or two."""


def ipv4(walk: Walk) -> Following:
    """IPv4 and its options. Fragments are not put together: RDMA is never fragmented."""
    start = walk.offset
    ip = walk.take(IPv4)
    size = ip.ihl * 4
    if ip.version != 4 or size < IPv4.SIZE:
        raise WireError(f"IPv4.version {ip.version} and ihl {ip.ihl}: 4 and at least 5", start)
    walk.network, walk.network_offset, walk.ends_known = ip, start, True
    _check_ipv4(walk, ip, start + size)
    if size > IPv4.SIZE:
        walk.need(size - IPv4.SIZE, "IPv4 options")
        options = walk.take_bytes("ip options", size - IPv4.SIZE, generated.IP_OPTIONS)
        walk.network = behind_options(ip, options)
    if ip.total_length:  # zero: a host's own capture of what its NIC will cut up
        walk.narrow(ip.total_length - size, "IPv4.total_length")
    walk.icrc = lambda _bth, end: icrc_ipv4(walk.data, start, end)
    return (By.DATA, 0) if ip.mf or ip.fragment_offset else (By.IP, ip.protocol)


def _check_ipv4(walk: Walk, ip: IPv4, end: int) -> None:
    if end > walk.end:
        walk.leave(checksums.IPV4, walk.nodes[-1])
        return
    expected = ipv4_header_checksum(walk.data[walk.network_offset : end])
    walk.check(checksums.IPV4, ip.checksum, expected)


def ipv6(walk: Walk) -> Following:
    """IPv6; its extension headers are steps of their own."""
    start = walk.offset
    ip = walk.take(IPv6)
    if ip.version != 6:
        raise WireError(f"IPv6.version {ip.version}: 6", start)
    walk.network, walk.network_offset, walk.ends_known = ip, start, True
    if ip.payload_length:  # zero: as in IPv4, above
        walk.narrow(ip.payload_length, "IPv6.payload_length")
    walk.icrc = lambda bth, end: icrc_ipv6(walk.data, start, end, bth)
    return By.IP, ip.next_header


def ipv6_extension(kind: IPProtocol, walk: Walk) -> Following:
    """Hop-by-hop options, routing, destination options: see :mod:`rdmawire.wire.ends`."""
    start = walk.offset
    extension = walk.take(IPv6Extension)
    length = 6 + extension.length * 8
    walk.need(length, "IPv6 extension")
    walk.take_bytes("ipv6 options", length, generated.IPV6_OPTIONS)
    if isinstance(walk.network, IPv6):
        ends = behind_extension(walk.network, kind, walk.data[start : walk.offset])
        walk.network, walk.ends_known = ends or walk.network, walk.ends_known and ends is not None
    return By.IP, extension.next_header


def ipv6_fragment(walk: Walk) -> Following:
    """A fragment; whole packets may have this header too."""
    fragment = walk.take(IPv6Fragment)
    whole = not (fragment.offset or fragment.more)
    return (By.IP, fragment.next_header) if whole else (By.DATA, 0)


def udp(walk: Walk) -> Following:
    """UDP. The destination port alone says what is inside, whoever owns the source port."""
    start = walk.offset
    header = walk.take(UDP)
    node = walk.nodes[-1]
    if header.length or not isinstance(walk.network, IPv6):
        walk.narrow(header.length - UDP.SIZE, "UDP.length")
    _check_udp(walk, header, start)
    node.extras += (Extra(generated.UDP_STREAM, walk.session.udp_stream(walk.network, header)),)
    if payload := walk.data[walk.offset : walk.end]:
        node.extras += (Extra(generated.UDP_PAYLOAD, payload),)
    if header.dstport in walk.session.roce_ports:
        return By.TRANSPORT, 0
    return By.UDP, header.dstport


def _check_udp(walk: Walk, header: UDP, start: int) -> None:
    if not header.checksum:
        # RFC 8200, 8.1: over IPv6 only tunnels may leave it out (RFC 6935). RoCEv2 does.
        illegal = isinstance(walk.network, IPv6)
        status = generated.ILLEGAL if illegal else generated.NOT_PRESENT
        walk.nodes[-1].add(generated.UDP_CHECKSUM_STATUS, status)
    elif walk.short or walk.network is None or not walk.ends_known:
        walk.leave(checksums.UDP, walk.nodes[-1])
    else:
        expected = udp_checksum(walk.network, walk.data[start : walk.end])
        walk.check(checksums.UDP, header.checksum, expected)


def vxlan(walk: Walk) -> Following:
    """VXLAN: an Ethernet frame inside."""
    if walk.tunnels == MAX_TUNNELS:
        raise WireError(f"VXLAN: the frame has {MAX_TUNNELS} tunnels around this one already")
    walk.tunnels += 1
    walk.take(VXLAN)
    return By.LINK, 1


EXTENSIONS = (IPProtocol.HOP_BY_HOP, IPProtocol.ROUTING, IPProtocol.DESTINATION_OPTIONS)
TUNNELS = (VXLAN_PORT,)
