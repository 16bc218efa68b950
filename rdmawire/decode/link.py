"""Steps of the link layers: Ethernet and its tags, cooked captures, ERF, InfiniBand's own links."""

from functools import partial
from typing import Final

from rdmawire.decode.checksum import NOWHERE, ICRCStart, LinkCRC
from rdmawire.decode.walk import By, Following, Walk
from rdmawire.errors import WireError
from rdmawire.wire.erf import ERF, ERFEthernetPad, ERFExtension, ERFType
from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH, LRH, RWH, VCRC, FlowControl
from rdmawire.wire.icrc import icrc_grh, icrc_local
from rdmawire.wire.inet import (
    ARP,
    PFC,
    SLL,
    SLL2,
    VLAN,
    Ethernet,
    Ethernet8023,
    EtherType,
    Loopback,
    MACControlOpcode,
    Pause,
    ServiceVLAN,
)
from rdmawire.wire.native import IBA_TRANSPORT

_MIN_ETHERTYPE: Final = 0x06
"""First byte of the least EtherType; less is a length. IEEE 802.3, 3.2.6."""
_ETHERNET: Final = Ethernet.SIZE
_MIN_PKTLEN: Final = LRH.SIZE // 4
_ARP_OF_IPV4: Final = bytes.fromhex("000108000604")
"""How an ARP packet begins whose hardware is Ethernet and whose protocol is IPv4. RFC 826."""
_ADDRESS_FAMILIES: Final = {2: EtherType.IPV4} | dict.fromkeys((10, 24, 28, 30), EtherType.IPV6)
"""Address families of IPv4, and of IPv6 in various systems. LINKTYPE_NULL."""

_new = tuple.__new__


def ethernet(walk: Walk) -> Following:
    """Ethernet II, or IEEE 802.3 with a length."""
    at = walk.offset
    if walk.end - at >= _ETHERNET and walk.data[at + 12] < _MIN_ETHERTYPE:
        walk.narrow(walk.take(Ethernet8023).length, "IEEE 802.3 length")
        return By.DATA, 0
    return By.ETHERTYPE, walk.take(Ethernet).type


def _tagged(table: type[VLAN | ServiceVLAN | SLL | SLL2], walk: Walk) -> Following:
    """A header that ends with an EtherType."""
    return By.ETHERTYPE, walk.take(table).type


vlan, service_vlan = partial(_tagged, VLAN), partial(_tagged, ServiceVLAN)
sll, sll2 = partial(_tagged, SLL), partial(_tagged, SLL2)


def raw_ip(walk: Walk) -> Following:
    """No link header: the version says which IP it is."""
    walk.need(1, "the version of IP")
    version = walk.data[walk.offset] >> 4
    ethertype = {4: EtherType.IPV4, 6: EtherType.IPV6}.get(version)
    if ethertype is None:
        raise WireError(f"IP version {version}: neither 4 nor 6")
    return By.ETHERTYPE, ethertype


def loopback(walk: Walk) -> Following:
    """BSD loopback: the address family, in the byte order of the host that captured."""
    family = walk.take(Loopback).family
    number = min(int.from_bytes(family, "little"), int.from_bytes(family, "big"))
    if number not in _ADDRESS_FAMILIES:
        raise WireError(f"Loopback.family {number}: 2 for IPv4, or 10, 24, 28, 30 for IPv6")
    return By.ETHERTYPE, _ADDRESS_FAMILIES[number]


def arp(walk: Walk) -> Following:
    """Address resolution; for other hardware than Ethernet, or protocols than IPv4, as data."""
    if walk.data[walk.offset : walk.offset + len(_ARP_OF_IPV4)] != _ARP_OF_IPV4:
        return By.DATA, 0
    return _padded(ARP, walk)


def _padded(table: type[Header], walk: Walk) -> Following:
    """A packet that does not say how long it is: Ethernet may pad the frame after it."""
    walk.take(table)
    return By.TRAILER, 0


pause, pfc = partial(_padded, Pause), partial(_padded, PFC)


def mac_control(walk: Walk) -> Following:
    """Pause, priority flow control, and whatever else is sent between two ports."""
    return By.MAC_CONTROL, walk.take(MACControlOpcode).opcode


def trailer(walk: Walk) -> Following:
    """Padding."""
    if walk.left:
        walk.take_bytes("trailer", walk.left)
    return None


def erf(walk: Walk) -> Following:
    """A record of Endace's format, with its extension headers."""
    record = walk.take(ERF)
    more = record.ext_header
    while more:
        more = walk.take(ERFExtension).more
    extended = walk.offset
    if record.type == ERFType.ETHERNET:
        walk.take(ERFEthernetPad)
    walk.enter_erf(record)
    walk.narrow(min(record.wlen, record.rlen - extended), "ERF.wlen")
    return By.ERF, record.type


def flow_control(walk: Walk) -> Following:
    """A link packet with credits. IBA 7.9.4: its CRC is that of a VCRC."""
    start = walk.offset
    walk.take(FlowControl)
    walk.cover(LinkCRC(FlowControl, start, walk.offset - VCRC.SIZE))
    return By.TRAILER, 0


def local_route(walk: Walk) -> Following:
    """The LRH: the VCRC ends the packet, and is not counted in its length."""
    start = walk.offset
    lrh = walk.take(LRH)
    end = start + lrh.pktlen * 4
    if lrh.pktlen < _MIN_PKTLEN:  # IBA 7.7.8: the LRH itself is in it
        walk.cover(LinkCRC(VCRC, start, NOWHERE))
        raise WireError(f"LRH.pktlen {lrh.pktlen}: at least 2 words, which the LRH takes")
    if end + VCRC.SIZE <= walk.end:
        walk.narrow(end + VCRC.SIZE - walk.offset, "LRH.pktlen")
        walk.end = end
        walk.cover(LinkCRC(VCRC, start, end))
    else:
        walk.narrow(end - walk.offset, "LRH.pktlen")
        walk.cover(LinkCRC(VCRC, start, NOWHERE))
    walk.icrc = ICRCStart(_icrc_local, start)
    return By.LNH, lrh.lnh


def global_route(walk: Walk) -> Following:
    """The GRH, after an LRH or, in RoCE, after an Ethernet header."""
    start = walk.offset
    grh = walk.take(GRH)
    walk.icrc = _new(ICRCStart, (_icrc_grh, start, 0))
    walk.narrow(grh.paylen, "GRH.paylen")
    if grh.nxthdr == IBA_TRANSPORT:
        return By.TRANSPORT, 0
    return By.IP, grh.nxthdr


def _icrc_local(data: bytes | bytearray, start: int, end: int, _: int) -> int:
    return icrc_local(data, start, end)


def _icrc_grh(data: bytes | bytearray, start: int, end: int, _: int) -> int:
    return icrc_grh(data, start, end)


def raw_packet(walk: Walk) -> Following:
    """A raw packet: no transport of IBA, and no ICRC."""
    return By.ETHERTYPE, walk.take(RWH).etype


def raw_ipv6(_: Walk) -> Following:
    """IPv6 right after an LRH: no transport of IBA, and no ICRC."""
    return By.ETHERTYPE, EtherType.IPV6
