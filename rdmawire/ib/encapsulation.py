"""The encapsulation of packets of a path: VLAN tags, and RoCE or RoCEv2.

An address handle sets it: ``vlan`` and ``sl`` make the tag (RoCE maps a service level to the
priority code point; IEEE 802.1Q, 6.9.3), ``gid_type`` the network header. Its settings apply to all
packets of its queue pair, requests and responses, as an adapter's address vector does (Linux takes
the VLAN from the port's GID, the priority from the service level). Without settings, requests have
no tag and are RoCEv2, and responses use the encapsulation of the request.
"""

from collections.abc import Iterable, Sequence
from errno import EINVAL
from typing import Final, NamedTuple, TypeAlias

from rdmawire.errors import VerbsError, WireError
from rdmawire.validate import as_bytes, check_type
from rdmawire.verbs.ah import (
    FIRST_MULTICAST_LID,
    GID_BYTES,
    MAC_BYTES,
    MAPPED_IPV4,
    PATH_BITS,
    PERMISSIVE_LID,
    AddressHandle,
    GIDType,
    is_ipv4,
    is_multicast,
)
from rdmawire.verbs.enums import NetworkType, WCFlags, WCStatus, WorkCompletion
from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH, LNH, LRH
from rdmawire.wire.inet import (
    ECN,
    ROCE_PORT,
    UDP,
    VLAN,
    Ethernet,
    EtherType,
    IPProtocol,
    IPv4,
    IPv6,
    ServiceVLAN,
)
from rdmawire.wire.layout import Piece
from rdmawire.wire.roce import Medium

PRIORITY_TAG: Final = 0
"""The VLAN identifier of a tag that only carries a priority. IEEE 802.1Q, 9.6."""


class Tag(NamedTuple):
    """A VLAN tag: the EtherType that announces it, and the header, with ``type`` 0."""

    ethertype: int
    header: VLAN | ServiceVLAN


class Encapsulation(NamedTuple):
    """The tags before the network header, outermost first, and the type of that header."""

    tags: tuple[Tag, ...] = ()
    gid_type: GIDType = GIDType.ROCE_V2


PLAIN: Final = Encapsulation()
"""No tag, RoCEv2."""


def encapsulation_for(handle: AddressHandle, request: Encapsulation = PLAIN) -> Encapsulation:
    """The encapsulation of a path; settings that the handle lacks are taken from ``request``."""
    gid_type = request.gid_type if handle.gid_type is None else GIDType(handle.gid_type)
    return Encapsulation(_tags_for(handle) or request.tags, gid_type)


def _tags_for(handle: AddressHandle) -> tuple[Tag, ...]:
    if handle.vlan is None and not handle.sl:
        return ()
    vlan = PRIORITY_TAG if handle.vlan is None else handle.vlan
    return (Tag(EtherType.VLAN, VLAN(priority=handle.sl, id=vlan)),)


def encapsulation_of(headers: tuple[Piece, ...]) -> Encapsulation:
    """The encapsulation of a packet with these headers before its BTH."""
    if headers and isinstance(headers[0], LRH):
        return PLAIN
    tags = []
    ethertype = 0
    for header in headers:
        if isinstance(header, VLAN | ServiceVLAN):
            tags.append(Tag(ethertype, header.replace(type=0)))
        if isinstance(header, Ethernet | VLAN | ServiceVLAN):
            ethertype = header.type
    grh = any(isinstance(header, GRH) for header in headers)
    if not tags and not grh:
        return PLAIN
    return Encapsulation(tuple(tags), GIDType.ROCE_V1 if grh else GIDType.ROCE_V2)


_NETWORKS: dict[type[Piece], NetworkType] = {
    GRH: NetworkType.ROCE_V1,
    IPv4: NetworkType.IPV4,
    IPv6: NetworkType.IPV6,
}


def origin_of(
    headers: tuple[Piece, ...],
) -> tuple[int, int, int, int | None, bytes, NetworkType]:
    """Fields of a datagram's completion, from ``slid`` to ``network_hdr_type``.

    ``headers`` precede its BTH. Of several tags the innermost counts.
    """
    if headers and isinstance(headers[0], LRH):
        lrh = headers[0]
        bits = lrh.dlid % PATH_BITS
        return lrh.slid, lrh.sl, bits, None, bytes(MAC_BYTES), NetworkType.IB
    sl, vlan, smac, network = 0, None, bytes(MAC_BYTES), NetworkType.IB
    for header in headers:
        if isinstance(header, Ethernet):
            smac = header.src
        elif isinstance(header, VLAN | ServiceVLAN):
            sl, vlan = header.priority, header.id
        else:
            network = _NETWORKS.get(type(header), network)
    return 0, sl, 0, vlan, smac, network


def link_headers(dst: bytes, src: bytes, tags: Iterable[Tag], ethertype: int) -> tuple[Header, ...]:
    """Ethernet from ``src`` to ``dst`` (six bytes each), with tags before ``ethertype``."""
    headers: list[Header] = []
    for tag in reversed(tuple(tags)):
        headers.insert(0, tag.header.replace(type=ethertype))
        ethertype = tag.ethertype
    return Ethernet(dst, src, ethertype), *headers


def headers_to(
    handle: AddressHandle,
    mac: bytes,
    port: int,
    encapsulation: Encapsulation | None = None,
    *,
    medium: Medium = Medium.ETHERNET,
    lid: int = 0,
) -> tuple[Header, ...]:
    """The headers before the BTH of a path: Ethernet, tags, and a GRH, or IP and UDP.

    ``mac`` (six bytes) is the sender's, ``port`` its UDP port. The IP version is that of the GIDs.
    The default encapsulation is the path's; ``medium`` IP has none, and no Ethernet header. IPv4's
    identification stays zero: a packet that is never fragmented needs none (RFC 6864, 4.1).
    ``medium`` INFINIBAND has an LRH, whose SLID is ``lid`` with the path bits, and a GRH if the
    path is global.
    """
    if medium is Medium.INFINIBAND:
        return _native(handle, lid)
    found = encapsulation_for(handle) if encapsulation is None else encapsulation
    ethertype, *network = _network(handle, port, found.gid_type)
    if medium is Medium.IP:
        return tuple(network)
    return *link_headers(handle.dmac, mac, found.tags, ethertype), *network


def check_medium(handle: AddressHandle | None, medium: Medium) -> None:
    """Raises ``VerbsError`` EINVAL for a path whose packets the medium does not carry."""
    if handle is None:
        return
    if medium is Medium.INFINIBAND:
        _check_native(handle)
        return
    if handle.dlid or not handle.is_global:
        reason = "is_global is False" if not handle.is_global else f"dlid {handle.dlid:#x}"
        raise VerbsError(f"{reason}: the link carries {medium.value}, without LIDs", EINVAL)
    if medium is Medium.ETHERNET:
        return
    if handle.vlan is not None:
        reason = f"vlan {handle.vlan}: the link carries untagged {medium.value}"
        raise VerbsError(reason, EINVAL)
    if handle.gid_type == GIDType.ROCE_V1:
        raise VerbsError(f"gid_type ROCE_V1: the link carries {medium.value}, not GRHs", EINVAL)


def _check_native(handle: AddressHandle) -> None:
    if not 0 < handle.dlid < PERMISSIVE_LID:
        raise VerbsError(f"dlid {handle.dlid:#x}: a path needs the LID of a port", EINVAL)
    if handle.vlan is not None or handle.gid_type is not None:
        name = "vlan" if handle.vlan is not None else "gid_type"
        carried = Medium.INFINIBAND.value
        raise VerbsError(f"{name} {getattr(handle, name)}: the link carries {carried}", EINVAL)
    if handle.dlid >= FIRST_MULTICAST_LID and not handle.is_global:
        raise VerbsError(f"dlid {handle.dlid:#x}: a multicast packet has a GRH", EINVAL)


def _native(handle: AddressHandle, lid: int) -> tuple[Header, ...]:
    """An LRH on virtual lane 0, and a GRH if the path is global. IBA 7.7, 8.3."""
    lnh = LNH.IBA_GLOBAL if handle.is_global else LNH.IBA_LOCAL
    slid = lid | handle.src_path_bits
    lrh = LRH(sl=handle.sl, lnh=lnh, dlid=handle.dlid, slid=slid)
    return (lrh, _grh(handle)) if handle.is_global else (lrh,)


def _network(
    handle: AddressHandle, port: int, gid_type: GIDType
) -> tuple[EtherType, Header] | tuple[EtherType, Header, Header]:
    """The EtherType of a network header, that header, and for IP a UDP header."""
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


Address: TypeAlias = bytes | tuple[int, bytes]
"""The address of a port: its GID; in a native packet its LID, and its GID or no bytes."""


def ends_of(headers: tuple[Piece, ...]) -> tuple[Address, Address]:
    """The source and destination addresses of a packet. IBA 9.6.1.2, 9.6.1.5."""
    source, destination = gids_of(headers)
    if headers and isinstance(headers[0], LRH):
        return (headers[0].slid, source), (headers[0].dlid, destination)
    return source, destination


def ends_on(handle: AddressHandle, medium: Medium, lid: int) -> tuple[Address, Address]:
    """The own address on a path, and the peer's; ``lid`` is the port's. As :func:`ends_of`."""
    if medium is not Medium.INFINIBAND:
        return handle.sgid, handle.dgid
    own, peer = (handle.sgid, handle.dgid) if handle.is_global else (b"", b"")
    return (lid | handle.src_path_bits, own), (handle.dlid, peer)


def gids_of(headers: tuple[Piece, ...]) -> tuple[bytes, bytes]:
    """The source and destination GIDs of a packet."""
    for piece in headers:
        if isinstance(piece, IPv4):
            return MAPPED_IPV4 + piece.src, MAPPED_IPV4 + piece.dst
        if isinstance(piece, IPv6):
            return piece.src, piece.dst
        if isinstance(piece, GRH):
            return piece.sgid, piece.dgid
    return b"", b""


_HEADERS: Final[dict[NetworkType, type[GRH] | type[IPv4] | type[IPv6]]] = {
    NetworkType.ROCE_V1: GRH,
    NetworkType.IPV4: IPv4,
    NetworkType.IPV6: IPv6,
}


def init_ah_from_wc(wc: WorkCompletion, grh: bytes, gids: Sequence[bytes]) -> AddressHandle:
    """The path back to the sender of a datagram, in the datagram's encapsulation.

    ``wc`` is the completion of its receive, ``grh`` the first 40 bytes of the receive's memory,
    ``gids`` the port's table. VLAN, service level, traffic class, flow label, hop limit and GID
    type are those of the datagram; the ECN mark Congestion Experienced is not copied. For a
    datagram to a multicast group the source is the first GID of the same IP version. ``VerbsError``
    EINVAL if ``wc`` is not a datagram's completion, or the port no longer has the GID.
    """
    back = way_back(wc, grh)
    if not back.is_global:
        return back
    return back._replace(sgid=_own_gid(back.sgid, gids))


def way_back(wc: WorkCompletion, grh: bytes) -> AddressHandle:
    """As :func:`init_ah_from_wc`, but ``sgid`` is the datagram's destination, even a group."""
    check_type("wc", wc, WorkCompletion)
    if wc.slid:
        return _native_way_back(wc, grh)
    if wc.status != WCStatus.SUCCESS or not wc.wc_flags & WCFlags.GRH:
        raise VerbsError("the completion is not of a datagram that was received", EINVAL)
    header = _network_header(wc, as_bytes("grh", grh))
    source, destination = gids_of((header,))
    hop_limit, traffic_class, flow_label = _route(header)
    return AddressHandle(
        wc.smac,
        source,
        destination,
        hop_limit=hop_limit,
        traffic_class=traffic_class - (traffic_class & 3 == ECN.CE),
        flow_label=flow_label,
        sl=wc.sl,
        vlan=wc.vlan_id,
        gid_type=GIDType.ROCE_V1 if isinstance(header, GRH) else GIDType.ROCE_V2,
    )


def _native_way_back(wc: WorkCompletion, grh: bytes) -> AddressHandle:
    """The path back on a native link; it is global if the datagram had a GRH. IBA 13.5.4."""
    if wc.status != WCStatus.SUCCESS:
        raise VerbsError("the completion is not of a datagram that was received", EINVAL)
    none = bytes(GID_BYTES)
    back = AddressHandle(
        bytes(MAC_BYTES),
        none,
        none,
        sl=wc.sl,
        dlid=wc.slid,
        src_path_bits=wc.dlid_path_bits,
        is_global=False,
    )
    if not wc.wc_flags & WCFlags.GRH:
        return back
    header = _parsed(GRH, as_bytes("grh", grh))
    assert isinstance(header, GRH)
    hop_limit, traffic_class, flow_label = _route(header)
    return back._replace(
        dgid=header.sgid,
        sgid=header.dgid,
        is_global=True,
        hop_limit=hop_limit,
        traffic_class=traffic_class,
        flow_label=flow_label,
    )


def _network_header(wc: WorkCompletion, grh: bytes) -> GRH | IPv4 | IPv6:
    """The header at the end of the 40 bytes. IBA A17.4.4."""
    kind = _HEADERS.get(wc.network_hdr_type)
    if kind is None:
        raise VerbsError("the completion is not of a datagram that was received", EINVAL)
    return _parsed(kind, grh)


def _parsed(kind: type[GRH] | type[IPv4] | type[IPv6], grh: bytes) -> GRH | IPv4 | IPv6:
    """Parse the header at the end of the 40 bytes."""
    if len(grh) != GRH.SIZE:
        raise VerbsError(f"grh of {len(grh)} bytes: the first {GRH.SIZE} are needed", EINVAL)
    try:
        return kind.parse(grh, GRH.SIZE - kind.SIZE)
    except WireError as error:
        raise VerbsError(f"grh: {error}", EINVAL) from error


def _route(header: GRH | IPv4 | IPv6) -> tuple[int, int, int]:
    """Hop limit, traffic class and flow label."""
    if isinstance(header, GRH):
        return header.hoplmt, header.tclass, header.flowlabel
    if isinstance(header, IPv6):
        return header.hop_limit, header.dscp << 2 | header.ecn, header.flow
    return header.ttl, header.dscp << 2 | header.ecn, 0


def _own_gid(destination: bytes, gids: Sequence[bytes]) -> bytes:
    if destination in gids:
        return destination
    if is_multicast(destination):
        for gid in gids:
            if is_ipv4(gid) == is_ipv4(destination):
                return gid
    raise VerbsError(f"the port has no GID {destination.hex(':', 2)}", EINVAL)


_NETWORK_HEADERS: Final = (GRH, IPv4, IPv6)


def grh_of(headers: tuple[Piece, ...]) -> bytes:
    """The 40 bytes before a datagram's payload, from the headers before its BTH."""
    for piece in headers:
        if isinstance(piece, _NETWORK_HEADERS):
            return piece.build().rjust(GRH.SIZE, b"\0")
    return bytes(GRH.SIZE)
