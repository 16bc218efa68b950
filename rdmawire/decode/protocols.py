"""What carries what: from a number in a header to the step that reads what follows."""

from collections.abc import Collection, Mapping
from functools import cache, partial
from struct import Struct
from typing import Final, NamedTuple

from rdmawire.capture.record import LinkType
from rdmawire.decode import ib, inet, link
from rdmawire.decode.checksum import Checksum
from rdmawire.decode.walk import ROCE_PORTS, By, FrameLayout, Protocols, Selected, Step, Walk
from rdmawire.wire.erf import ERFType
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, ICRC, LNH
from rdmawire.wire.inet import (
    ROCE_PORT,
    UDP,
    VXLAN_PORT,
    Ethernet,
    EtherType,
    IPProtocol,
    IPv4,
    IPv6,
    MACControl,
)
from rdmawire.wire.mad import MANAGEMENT_QPS
from rdmawire.wire.opcode import Payload
from rdmawire.wire.packet import LAYOUTS, OpcodeTable

TABLES: Final[Mapping[str, Mapping[int, Step]]] = {
    By.LINK: {
        LinkType.NULL: link.loopback,
        LinkType.ETHERNET: link.ethernet,
        LinkType.RAW_BSD: link.raw_ip,
        LinkType.RAW_OPENBSD: link.raw_ip,
        LinkType.RAW: link.raw_ip,
        LinkType.LINUX_SLL: link.sll,
        LinkType.ERF: link.erf,
        LinkType.IPV4: inet.ipv4,
        LinkType.IPV6: inet.ipv6,
        LinkType.INFINIBAND: link.local_route,
        LinkType.LINUX_SLL2: link.sll2,
    },
    By.ETHERTYPE: {
        EtherType.IPV4: inet.ipv4,
        EtherType.IPV6: inet.ipv6,
        EtherType.ARP: link.arp,
        EtherType.VLAN: link.vlan,
        EtherType.QINQ: link.service_vlan,
        EtherType.QINQ_OLD: link.vlan,
        EtherType.MAC_CONTROL: link.mac_control,
        EtherType.ROCE: link.global_route,
    },
    By.MAC_CONTROL: {MACControl.PAUSE: link.pause, MACControl.PFC: link.pfc},
    By.IP: {
        IPProtocol.UDP: inet.udp,
        IPProtocol.TCP: inet.tcp,
        IPProtocol.ICMPV6: inet.icmpv6,
        IPProtocol.FRAGMENT: inet.ipv6_fragment,
        IPProtocol.HOP_BY_HOP: inet.ipv6_extension,
        IPProtocol.ROUTING: inet.ipv6_routing,
        IPProtocol.DESTINATION_OPTIONS: inet.ipv6_destination,
    },
    By.UDP: {VXLAN_PORT: inet.vxlan},
    By.TCP: {},
    By.ERF: {
        ERFType.ETHERNET: link.ethernet,
        ERFType.INFINIBAND: link.local_route,
        ERFType.INFINIBAND_LINK: link.flow_control,
    },
    By.LNH: {
        LNH.RAW: link.raw_packet,
        LNH.IP_NON_IBA: link.raw_ipv6,
        LNH.IBA_LOCAL: ib.transport,
        LNH.IBA_GLOBAL: link.global_route,
    },
    By.TRANSPORT: {0: ib.transport},
    By.QP: dict.fromkeys(MANAGEMENT_QPS, ib.management),
    By.TRAILER: {0: link.trailer},
}
"""For each selector, the steps by number."""

PROTOCOLS: Final[dict[Selected, Step]] = {
    (selector, number): step for selector, steps in TABLES.items() for number, step in steps.items()
}
"""The steps by selector and number. What is not listed is data."""


def with_opcodes(opcodes: OpcodeTable, protocols: Protocols = PROTOCOLS) -> Protocols:
    """A copy in which transport packets have the layouts of ``opcodes``."""
    transport = partial(ib.transport, opcodes=opcodes)
    steps = {selected: step for selected, step in protocols.items() if step is ib.transport}
    return {**protocols, **dict.fromkeys(steps, transport)}


def opcodes_of(protocols: Protocols) -> OpcodeTable:
    """The layouts of transport packets that :func:`with_opcodes` set, or else the standard's."""
    step = protocols.get((By.TRANSPORT, 0))
    found = step.keywords.get("opcodes", LAYOUTS) if isinstance(step, partial) else LAYOUTS
    assert isinstance(found, OpcodeTable)
    return found


LINK_TYPES: Final = frozenset(TABLES[By.LINK])
"""The link types that are known."""


def walk_frame(
    data: bytes,
    link_type: int = LinkType.ETHERNET,
    *,
    roce_ports: Collection[int] = ROCE_PORTS,
    protocols: Protocols = PROTOCOLS,
) -> FrameLayout:
    """The layout of a frame; ``roce_ports`` are the UDP destination ports of RoCEv2."""
    walk = Walk(data, roce_ports, len(data))
    walk.run((By.LINK, link_type), protocols)
    return walk.layout()


class Outline(NamedTuple):
    """Where the headers of a frame are: offset (bytes) and table of each, outermost first.

    ``packet``: offsets of the bytes from the BTH to the pad, if the frame has all of a valid
    transport packet.
    """

    headers: tuple[tuple[int, type[Header]], ...]
    packet: range | None = None


def outline(data: bytes, protocols: Protocols = PROTOCOLS) -> Outline:
    """Where the headers of an Ethernet frame are, without their values."""
    plain = _plain_outline(data) if protocols is PROTOCOLS else None
    if plain is not None:
        return plain
    walk = _OutlineWalk(data, ROCE_PORTS, len(data))
    walk.run((By.LINK, 1), protocols)
    return Outline(tuple((at, type(header)) for at, header in walk.headers), walk.packet)


class _OutlineWalk(Walk):
    """A walk that records no checksums."""

    __slots__ = ()

    def cover(self, checksum: Checksum) -> None: ...


# The common case is an intact RoCEv2 frame: one look at what leads to the BTH, and its opcode.

_IPV4, _IPV6 = (int(each).to_bytes(2, "big") for each in (EtherType.IPV4, EtherType.IPV6))
_read_ipv4 = Struct(">14xBxH2xHxB12xHH2xBB2xI").unpack_from
_read_ipv6 = Struct(">14xB3xHB35xHH2xBB2xI").unpack_from
"""Version, length, (IPv4) fragment, protocol; UDP port and length; opcode, pad, QP of the BTH."""
_UDP: Final = int(IPProtocol.UDP)
_VERSION_IHL: Final = 0x45
_FRAGMENT: Final = 0x3FFF
"""More fragments, and the fragment offset. RFC 791, 3.1."""
_QPN: Final = 0xFF_FFFF
_LENGTHS: Final = {Payload.ANY: None, Payload.NONE: 0, Payload.EIGHT: 8}
_LEADS: Final = {ip: (Ethernet, ip, UDP, BTH) for ip in (IPv4, IPv6)}
_MIN_SIZES: Final = {
    ip: sum(table.SIZE for table in tables) + ICRC.SIZE for ip, tables in _LEADS.items()
}
_new = tuple.__new__


@cache
def _plain_rows(ip: type[IPv4 | IPv6], opcode: int) -> tuple[Outline, int, int | None] | None:
    """The headers of a plain frame, where its payload begins, and how long that must be."""
    found = LAYOUTS.get(opcode)
    if found is None or found.shape is None:
        return None
    rows: list[tuple[int, type[Header]]] = []
    end = 0
    for table in (*_LEADS[ip], *found.headers):
        rows.append((end, table))
        end += table.SIZE
    return Outline(tuple(rows)), end, _LENGTHS[found.shape.payload]


def _plain_outline(data: bytes) -> Outline | None:
    """The outline of an intact RoCEv2 frame without options or tags; ``None`` for others."""
    ethertype, size = data[12:14], len(data)
    ip: type[IPv4 | IPv6]
    if ethertype == _IPV4 and size >= _MIN_SIZES[IPv4]:
        version, length, fragment, protocol, port, udp, opcode, flags, qp = _read_ipv4(data)
        if version != _VERSION_IHL or fragment & _FRAGMENT:
            return None
        ip, ip_end, udp_end = IPv4, 14 + length, 34 + udp
    elif ethertype == _IPV6 and size >= _MIN_SIZES[IPv6]:
        version, length, protocol, port, udp, opcode, flags, qp = _read_ipv6(data)
        if version >> 4 != 6:
            return None
        ip, ip_end, udp_end = IPv6, 54 + length, 54 + udp
    else:
        return None
    rows = _plain_rows(ip, opcode)
    if rows is None or protocol != _UDP or port != ROCE_PORT or not udp_end <= ip_end <= size:
        return None
    found, payload, fixed = rows
    end, pad = udp_end - ICRC.SIZE, flags >> 4 & 3
    left = end - payload
    fits = left % 4 == 0 and pad <= left if fixed is None else (left, pad) == (fixed, 0)
    if not fits or (By.QP, qp & _QPN) in PROTOCOLS:
        return None
    return _new(Outline, (found.headers, range(udp_end - udp + UDP.SIZE, end)))
