"""Paths: an address handle becomes the headers that stand before the BTH. IBA A17.3, A17.4."""

from rdmawire.nic.address import MAPPED_IPV4, AddressHandle, GIDType, is_ipv4
from rdmawire.nic.encapsulation import Encapsulation, encapsulation_for, link_headers
from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import ROCE_PORT, UDP, EtherType, IPProtocol, IPv4, IPv6
from rdmawire.wire.layout import Piece


def headers_to(
    handle: AddressHandle, mac: bytes, port: int, encapsulation: Encapsulation | None = None
) -> tuple[Header, ...]:
    """What stands before the BTH of a path: Ethernet, tags, and a GRH, or IP and UDP.

    ``mac`` (six bytes) is the sender's, ``port`` its UDP port. IP is of the version that the GIDs
    have. The encapsulation is the path's own where none is given. IPv4's identification stays
    zero: a packet that is never fragmented needs none (RFC 6864, 4.1).
    """
    found = encapsulation_for(handle) if encapsulation is None else encapsulation
    ethertype, *network = _network(handle, port, found.gid_type)
    return *link_headers(handle.dmac, mac, found.tags, ethertype), *network


def _network(
    handle: AddressHandle, port: int, gid_type: GIDType
) -> tuple[EtherType, Header] | tuple[EtherType, Header, Header]:
    """The EtherType of a network header, that header, and UDP where it belongs to it."""
    if gid_type is GIDType.ROCE_V1:
        return EtherType.ROCE, _grh(handle)
    udp = UDP(srcport=port, dstport=ROCE_PORT)
    if is_ipv4(handle.dgid):
        return EtherType.IPV4, _ipv4(handle), udp
    return EtherType.IPV6, _ipv6(handle), udp


def _grh(handle: AddressHandle) -> GRH:
    return GRH(
        tclass=handle.traffic_class,
        flowlabel=handle.flow_label,
        hoplmt=handle.hop_limit,
        sgid=handle.sgid,
        dgid=handle.dgid,
    )


def _ipv4(handle: AddressHandle) -> IPv4:
    return IPv4(
        dscp=handle.traffic_class >> 2,
        ecn=handle.traffic_class & 3,
        df=1,
        ttl=handle.hop_limit,
        protocol=IPProtocol.UDP,
        src=handle.sgid[len(MAPPED_IPV4) :],
        dst=handle.dgid[len(MAPPED_IPV4) :],
    )


def _ipv6(handle: AddressHandle) -> IPv6:
    return IPv6(
        dscp=handle.traffic_class >> 2,
        ecn=handle.traffic_class & 3,
        flow=handle.flow_label,
        next_header=IPProtocol.UDP,
        hop_limit=handle.hop_limit,
        src=handle.sgid,
        dst=handle.dgid,
    )


def gids_of(headers: tuple[Piece, ...]) -> tuple[bytes, bytes]:
    """The GIDs that a packet came from and goes to."""
    for piece in headers:
        if isinstance(piece, IPv4):
            return MAPPED_IPV4 + piece.src, MAPPED_IPV4 + piece.dst
        if isinstance(piece, IPv6):
            return piece.src, piece.dst
        if isinstance(piece, GRH):
            return piece.sgid, piece.dgid
    return b"", b""
