"""Headers that carry RDMA on Ethernet and IP, and the classes of their addresses."""

import re
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final

from rdmawire.wire.header import Header, bits, flag, group, raw
from rdmawire.wire.show import HEX, IPV4, IPV6, MAC, hex_digits, scaled


class EtherType(IntEnum):
    """EtherTypes of RDMA and of related protocols."""

    IPV4 = 0x0800
    ARP = 0x0806
    VLAN = 0x8100
    IPV6 = 0x86DD
    MAC_CONTROL = 0x8808
    QINQ = 0x88A8
    ROCE = 0x8915
    QINQ_OLD = 0x9100


class IPProtocol(IntEnum):
    """IP protocol numbers used here, including IPv6 extension headers."""

    HOP_BY_HOP = 0
    ICMP = 1
    IGMP = 2
    TCP = 6
    UDP = 17
    ROUTING = 43
    FRAGMENT = 44
    ICMPV6 = 58
    NO_NEXT_HEADER = 59
    DESTINATION_OPTIONS = 60


class ECN(IntEnum):
    """Explicit congestion notification. RFC 3168, section 5."""

    NOT_ECT = 0
    ECT_1 = 1
    ECT_0 = 2
    CE = 3


ROCE_PORT = 4791
VXLAN_PORT = 4789


class Ethernet(Header, clause="IEEE 802.3, 3.2", label="eth"):
    """Ethernet II."""

    dst: bytes = raw(6, "eth.dst", MAC, also=("eth.addr",))
    src: bytes = raw(6, "eth.src", MAC, also=("eth.addr",))
    type: int = bits(16, "eth.type", HEX, enum=EtherType)


class Ethernet8023(Header, clause="IEEE 802.3, 3.2.6", label="eth8023"):
    """Ethernet with a length where Ethernet II has its type (below 0x0600)."""

    dst: bytes = raw(6, "eth.dst", MAC, also=("eth.addr",))
    src: bytes = raw(6, "eth.src", MAC, also=("eth.addr",))
    length: int = bits(16, "eth.len")


class VLAN(Header, clause="IEEE 802.1Q, 9.6"):
    """Customer VLAN tag, after its EtherType 0x8100."""

    priority: int = bits(3, "vlan.priority")
    dei: int = flag("vlan.dei")
    id: int = bits(12, "vlan.id")
    type: int = bits(16, "vlan.etype", HEX, enum=EtherType)


class ServiceVLAN(Header, clause="IEEE 802.1Q, 9.6", label="svlan"):
    """Service VLAN tag (QinQ), after its EtherType 0x88A8."""

    priority: int = bits(3, "ieee8021ad.priority")
    dei: int = bits(1, "ieee8021ad.dei")
    id: int = bits(12, "ieee8021ad.id")
    type: int = bits(16, "", HEX, enum=EtherType)


class Loopback(Header, clause="LINKTYPE_NULL"):
    """BSD loopback: an address family, in the byte order of the host that captured."""

    family: bytes = raw(4)


class SLL(Header, clause="LINKTYPE_LINUX_SLL"):
    """Linux cooked capture, version 1."""

    pkttype: int = bits(16, "sll.pkttype")
    hatype: int = bits(16, "sll.hatype")
    halen: int = bits(16, "sll.halen")
    src: bytes = raw(6, "sll.src.eth", MAC)
    unused: bytes = raw(2, "sll.unused")
    type: int = bits(16, "sll.etype", HEX, enum=EtherType)


class SLL2(Header, clause="LINKTYPE_LINUX_SLL2"):
    """Linux cooked capture, version 2."""

    type: int = bits(16, "sll.etype", HEX, enum=EtherType)
    reserved: int = bits(16)
    ifindex: int = bits(32, "sll.ifindex")
    hatype: int = bits(16, "sll.hatype")
    pkttype: int = bits(8, "sll.pkttype")
    halen: int = bits(8, "sll.halen")
    src: bytes = raw(6, "sll.src.eth", MAC)
    unused: bytes = raw(2, "sll.unused")


class ARP(Header, clause="RFC 826"):
    """Address Resolution Protocol, for IPv4 over Ethernet."""

    hw_type: int = bits(16, "arp.hw.type")
    proto_type: int = bits(16, "arp.proto.type", HEX, enum=EtherType)
    hw_size: int = bits(8, "arp.hw.size")
    proto_size: int = bits(8, "arp.proto.size")
    opcode: int = bits(16, "arp.opcode")
    src_hw: bytes = raw(6, "arp.src.hw_mac", MAC)
    src_proto: bytes = raw(4, "arp.src.proto_ipv4", IPV4)
    dst_hw: bytes = raw(6, "arp.dst.hw_mac", MAC)
    dst_proto: bytes = raw(4, "arp.dst.proto_ipv4", IPV4)


class IPv4(Header, clause="RFC 791, 3.1", label="ip"):
    """Internet Protocol version 4, without its options."""

    version: int = bits(4, "ip.version", default=4)
    ihl: int = bits(4, "ip.hdr_len", scaled(4), default=5)
    dsfield: int = group("ip.dsfield", "dscp", "ecn", show=HEX)
    dscp: int = bits(6, "ip.dsfield.dscp", clause="RFC 2474")
    ecn: int = bits(2, "ip.dsfield.ecn", enum=ECN, clause="RFC 3168, 5")
    total_length: int = bits(16, "ip.len")
    identification: int = bits(16, "ip.id", HEX)
    flags: int = group("ip.flags", "rb", "df", "mf", show=HEX)
    rb: int = flag("ip.flags.rb")
    df: int = flag("ip.flags.df")
    mf: int = flag("ip.flags.mf")
    fragment_offset: int = bits(13, "ip.frag_offset", tree=scaled(8))
    ttl: int = bits(8, "ip.ttl", default=64)
    protocol: int = bits(8, "ip.proto", enum=IPProtocol)
    checksum: int = bits(16, "ip.checksum", HEX)
    src: bytes = raw(4, "ip.src", IPV4, also=("ip.addr", "ip.src_host", "ip.host"))
    dst: bytes = raw(4, "ip.dst", IPV4, also=("ip.addr", "ip.dst_host", "ip.host"))


class IPv6(Header, clause="RFC 8200, 3"):
    """Internet Protocol version 6, without its extension headers."""

    version: int = bits(4, "ipv6.version", default=6, also=("ip.version",))
    tclass: int = group("ipv6.tclass", "dscp", "ecn", show=hex_digits(8))
    dscp: int = bits(6, "ipv6.tclass.dscp", clause="RFC 2474")
    ecn: int = bits(2, "ipv6.tclass.ecn", enum=ECN, clause="RFC 3168, 5")
    flow: int = bits(20, "ipv6.flow", HEX)
    payload_length: int = bits(16, "ipv6.plen")
    next_header: int = bits(8, "ipv6.nxt", enum=IPProtocol)
    hop_limit: int = bits(8, "ipv6.hlim", default=64)
    src: bytes = raw(16, "ipv6.src", IPV6, also=("ipv6.addr", "ipv6.src_host", "ipv6.host"))
    dst: bytes = raw(16, "ipv6.dst", IPV6, also=("ipv6.addr", "ipv6.dst_host", "ipv6.host"))


class IPv6Extension(Header, clause="RFC 8200, 4.3 to 4.6", label="ipv6ext"):
    """Start of an IPv6 extension header: hop-by-hop, routing or destination options.

    ``length`` counts units of eight bytes after the first eight.
    """

    next_header: int = bits(8, enum=IPProtocol)
    length: int = bits(8)


class IPv6Fragment(Header, clause="RFC 8200, 4.5", label="ipv6frag"):
    """IPv6 fragment header: which part of the whole packet this is."""

    next_header: int = bits(8, "ipv6.fraghdr.nxt", enum=IPProtocol)
    reserved: int = bits(8, "ipv6.fraghdr.reserved_octet", HEX)
    offset: int = bits(13, "ipv6.fraghdr.offset")
    reserved2: int = bits(2, "ipv6.fraghdr.reserved_bits")
    more: int = flag("ipv6.fraghdr.more")
    identification: int = bits(32, "ipv6.fraghdr.ident", HEX)


class UDP(Header, clause="RFC 768"):
    """User Datagram Protocol."""

    srcport: int = bits(16, "udp.srcport", also=("udp.port",))
    dstport: int = bits(16, "udp.dstport", also=("udp.port",))
    length: int = bits(16, "udp.length")
    checksum: int = bits(16, "udp.checksum", HEX)


class TCP(Header, clause="RFC 9293, 3.1"):
    """Transmission Control Protocol, without its options."""

    srcport: int = bits(16, "tcp.srcport", also=("tcp.port",))
    dstport: int = bits(16, "tcp.dstport", also=("tcp.port",))
    seq: int = bits(32, "tcp.seq_raw")
    acknowledgment: int = bits(32, "tcp.ack_raw")
    data_offset: int = bits(4, "tcp.hdr_len", scaled(4), default=5)
    flags: int = group("tcp.flags", "resv3", ..., "fin", show=HEX)
    resv3: int = bits(3, "tcp.flags.res")
    ae: int = flag("tcp.flags.ae")
    cwr: int = flag("tcp.flags.cwr")
    ece: int = flag("tcp.flags.ece")
    urg: int = flag("tcp.flags.urg")
    ack: int = flag("tcp.flags.ack")
    psh: int = flag("tcp.flags.push")
    rst: int = flag("tcp.flags.reset")
    syn: int = flag("tcp.flags.syn")
    fin: int = flag("tcp.flags.fin")
    window: int = bits(16, "tcp.window_size_value")
    checksum: int = bits(16, "tcp.checksum", HEX)
    urgent_pointer: int = bits(16, "tcp.urgent_pointer")


class VXLAN(Header, clause="RFC 7348, 5"):
    """Virtual eXtensible LAN, with the bits of its group policy extension."""

    gbp_extension: int = flag("vxlan.flag_g")
    reserved3: int = bits(3)
    vni_valid: int = flag("vxlan.flag_i")
    reserved4: int = bits(4)
    dont_learn: int = flag("vxlan.flag_d")
    reserved2: int = bits(2)
    policy_applied: int = flag("vxlan.flag_a")
    reserved3b: int = bits(3)
    group_policy: int = bits(16, "vxlan.gbp")
    vni: int = bits(24, "vxlan.vni")
    reserved8: int = bits(8, "vxlan.reserved8")


class MACControl(IntEnum):
    """Opcodes of MAC control frames."""

    PAUSE = 0x0001
    PFC = 0x0101


class MACControlOpcode(Header, clause="IEEE 802.3, 31.4", label="macc"):
    """Opcode of a MAC control frame (EtherType 0x8808)."""

    opcode: int = bits(16, "macc.opcode", HEX, enum=MACControl)


class Pause(Header, clause="IEEE 802.3, 31B.2"):
    """PAUSE: stop for ``pause_time`` quanta of 512 bit times."""

    pause_time: int = bits(16, "macc.pause_time")


class PFC(Header, clause="IEEE 802.1Q, 36.2"):
    """Priority-based flow control: which priorities stop, and each one's quanta."""

    enable: int = group("macc.cbfc.enbv", "reserved", ..., "c0", show=HEX)
    reserved: int = bits(8)
    c7, c6, c5, c4, c3, c2, c1, c0 = (flag(f"macc.cbfc.enbv.c{i}") for i in range(7, -1, -1))
    time0, time1, time2, time3, time4, time5, time6, time7 = (
        bits(16, f"macc.cbfc.pause_time.c{i}") for i in range(8)
    )


_MAC: Final = r"(?a)[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}"
_GROUP_BIT: Final = 1
_OF_NO_HOST: Final = tuple(
    map(
        ip_network,
        ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/8", "ff00::/8"),
    )
)
"""Unspecified, loopback, multicast and reserved networks. RFC 6890; RFC 4291, section 2.4."""


def mac_bytes(text: str) -> bytes:
    """Parse ``02:00:00:00:00:01`` or ``02-00-00-00-00-01`` into 6 bytes.

    ``ValueError`` for any other text.
    """
    if not re.fullmatch(_MAC, text):
        raise ValueError(f"{text!r} is no Ethernet address such as 02:00:00:00:00:01")
    return bytes.fromhex(re.sub("[:-]", "", text))


def of_group(mac: bytes) -> bool:
    """Whether this is a group address: the first bit sent is set. IEEE 802.3, 3.2.3."""
    return bool(mac[0] & _GROUP_BIT)


def of_one_host(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address may identify one host: not multicast, loopback or reserved."""
    zone = getattr(address, "scope_id", None)
    return zone is None and not any(address in network for network in _OF_NO_HOST)
