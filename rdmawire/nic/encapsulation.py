"""What carries packets of a path: VLAN tags, and RoCE or RoCEv2.

An address handle sets it: ``vlan`` and ``sl`` make the tag (RoCE maps a service level to the
priority code point; IEEE 802.1Q, 6.9.3), ``gid_type`` the network header. What it sets holds for
all packets of its queue pair, requests and responses, as an adapter's address vector does (Linux
takes the VLAN from the port's GID, the priority from the service level). Where it sets nothing,
requests have no tag and are RoCEv2, and responses are sent as the request came.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from rdmawire.nic.address import AddressHandle, GIDType
from rdmawire.nic.completion import NetworkType
from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import VLAN, Ethernet, EtherType, IPv4, IPv6, ServiceVLAN
from rdmawire.wire.layout import Piece

PRIORITY_TAG: Final = 0
"""The VLAN identifier of a tag that has a priority alone. IEEE 802.1Q, 9.6."""


class Tag(NamedTuple):
    """A VLAN tag: the EtherType that announces it, and the header, of ``type`` 0 here."""

    ethertype: int
    header: VLAN | ServiceVLAN


class Encapsulation(NamedTuple):
    """The tags before the network header, outermost first, and which that is."""

    tags: tuple[Tag, ...] = ()
    gid_type: GIDType = GIDType.ROCE_V2


PLAIN: Final = Encapsulation()
"""No tag, RoCEv2."""


def encapsulation_for(handle: AddressHandle, request: Encapsulation = PLAIN) -> Encapsulation:
    """The encapsulation of a path; what the handle does not set is taken from ``request``."""
    gid_type = request.gid_type if handle.gid_type is None else GIDType(handle.gid_type)
    return Encapsulation(_tags_for(handle) or request.tags, gid_type)


def _tags_for(handle: AddressHandle) -> tuple[Tag, ...]:
    if handle.vlan is None and not handle.sl:
        return ()
    vlan = PRIORITY_TAG if handle.vlan is None else handle.vlan
    return (Tag(EtherType.VLAN, VLAN(priority=handle.sl, id=vlan)),)


def encapsulation_of(headers: tuple[Piece, ...]) -> Encapsulation:
    """The encapsulation of a packet with these headers before its BTH."""
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

    ``headers`` stand before its BTH. Of several tags the innermost counts.
    """
    sl, vlan, smac, network = 0, None, b"", NetworkType.IB
    for header in headers:
        if isinstance(header, Ethernet):
            smac = header.src
        elif isinstance(header, VLAN | ServiceVLAN):
            sl, vlan = header.priority, header.id
        else:
            network = _NETWORKS.get(type(header), network)
    return 0, sl, 0, vlan, smac, network


def link_headers(dst: bytes, src: bytes, tags: Iterable[Tag], ethertype: int) -> tuple[Header, ...]:
    """Ethernet from ``src`` to ``dst`` (six bytes each), with tags before this EtherType."""
    headers: list[Header] = []
    for tag in reversed(tuple(tags)):
        headers.insert(0, tag.header.replace(type=ethertype))
        ethertype = tag.ethertype
    return Ethernet(dst, src, ethertype), *headers
