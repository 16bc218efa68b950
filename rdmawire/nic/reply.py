"""The way back to the sender of a datagram: ibv_init_ah_from_wc(3), ibv_create_ah_from_wc(3)."""

from collections.abc import Sequence
from errno import EINVAL
from typing import Final

from rdmawire.errors import VerbsError, WireError
from rdmawire.memory.argument import as_bytes, check_kind
from rdmawire.nic.address import AddressHandle, GIDType, is_ipv4, is_multicast
from rdmawire.nic.completion import NetworkType, WCFlags, WCStatus, WorkCompletion
from rdmawire.nic.path import gids_of
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import ECN, IPv4, IPv6

_HEADERS: Final[dict[NetworkType, type[GRH] | type[IPv4] | type[IPv6]]] = {
    NetworkType.ROCE_V1: GRH,
    NetworkType.IPV4: IPv4,
    NetworkType.IPV6: IPv6,
}


def init_ah_from_wc(wc: WorkCompletion, grh: bytes, gids: Sequence[bytes]) -> AddressHandle:
    """The path back to the sender of a datagram, in the datagram's encapsulation.

    ``wc`` is the completion of its receive, ``grh`` the first 40 bytes of the receive's memory,
    ``gids`` the port's table. VLAN, service level, traffic class, flow label, hop limit and type of
    the GID are those of the datagram; the ECN mark Congestion Experienced is not copied. For a
    datagram to a multicast group the source is the first GID of the same IP version. ``VerbsError``
    EINVAL if ``wc`` is no completion of a datagram, or the port no longer has the GID.
    """
    back = way_back(wc, grh)
    return back._replace(sgid=_own_gid(back.sgid, gids))


def way_back(wc: WorkCompletion, grh: bytes) -> AddressHandle:
    """As :func:`init_ah_from_wc`, but ``sgid`` is the datagram's destination, a group as well."""
    check_kind("wc", wc, WorkCompletion)
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


def _network_header(wc: WorkCompletion, grh: bytes) -> GRH | IPv4 | IPv6:
    """The header at the end of the forty bytes. IBA A17.4.4."""
    kind = _HEADERS.get(wc.network_hdr_type)
    if kind is None:
        raise VerbsError("the completion is not of a datagram that was received", EINVAL)
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
