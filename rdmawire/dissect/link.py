"""Steps of the link layers: Ethernet and its tags, cooked captures, ERF, InfiniBand's own links."""

from rdmawire.dissect import checksums, generated
from rdmawire.dissect.walk import By, ComputeICRC, Following, Walk
from rdmawire.errors import WireError
from rdmawire.wire.erf import ERF, ERFEthernetPad, ERFExtension, ERFType
from rdmawire.wire.ib import GRH, LRH, RWH, VCRC, FlowControl
from rdmawire.wire.icrc import icrc_grh, icrc_lrh, vcrc
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

_MIN_ETHERTYPE = 0x0600


def ethernet(walk: Walk) -> Following:
    """Ethernet II, or IEEE 802.3 with a length."""
    if walk.left >= Ethernet.SIZE:
        ethertype = int.from_bytes(walk.data[walk.offset + 12 : walk.offset + 14], "big")
        if ethertype < _MIN_ETHERTYPE:
            walk.narrow(walk.take(Ethernet8023).length, "IEEE 802.3 length")
            return By.DATA, 0
    return By.ETHERTYPE, walk.take(Ethernet).type


def vlan(walk: Walk) -> Following:
    """A customer's tag."""
    return By.ETHERTYPE, walk.take(VLAN).type


def service_vlan(walk: Walk) -> Following:
    """A provider's tag."""
    return By.ETHERTYPE, walk.take(ServiceVLAN).type


def sll(walk: Walk) -> Following:
    """Linux cooked capture, version 1."""
    return By.ETHERTYPE, walk.take(SLL).type


def sll2(walk: Walk) -> Following:
    """Linux cooked capture, version 2."""
    return By.ETHERTYPE, walk.take(SLL2).type


def raw_ip(walk: Walk) -> Following:
    """No link header: the version says which IP it is."""
    walk.need(1, "the version of IP")
    version = walk.data[walk.offset] >> 4
    ethertype = {4: EtherType.IPV4, 6: EtherType.IPV6}.get(version)
    if ethertype is None:
        raise WireError(f"IP version {version}: neither 4 nor 6")
    return By.ETHERTYPE, ethertype


# Systems number IPv6 differently; the registry of link types lists these.
_FAMILIES = {2: EtherType.IPV4} | dict.fromkeys((10, 24, 28, 30), EtherType.IPV6)


def loopback(walk: Walk) -> Following:
    """BSD loopback: the address family, in the byte order of the host that captured."""
    family = walk.take(Loopback).family
    number = min(int.from_bytes(family, order) for order in ("little", "big"))
    if number not in _FAMILIES:
        raise WireError(f"Loopback.family {number}: 2 for IPv4, or 10, 24, 28, 30 for IPv6")
    return By.ETHERTYPE, _FAMILIES[number]


def arp(walk: Walk) -> Following:
    """Address resolution; for other hardware than Ethernet, or protocols than IPv4, as data."""
    kind = walk.data[walk.offset : walk.offset + 6]
    if kind != bytes.fromhex("000108000604"):
        return By.DATA, 0
    walk.take(ARP)
    return By.TRAILER, 0


def mac_control(walk: Walk) -> Following:
    """Pause, priority flow control, and whatever else is sent between two ports."""
    return By.MAC_CONTROL, walk.take(MACControlOpcode).opcode


def pause(walk: Walk) -> Following:
    """PAUSE; a frame is padded to sixty bytes behind it."""
    walk.take(Pause)
    return By.TRAILER, 0


def pfc(walk: Walk) -> Following:
    """Priority-based flow control."""
    walk.take(PFC)
    return By.TRAILER, 0


def trailer(walk: Walk) -> Following:
    """What follows a packet that does not say how long it is: padding."""
    if walk.left:
        walk.take_bytes("trailer", walk.left, generated.TRAILER)
    return None


def erf(walk: Walk) -> Following:
    """A record of Endace's format, with its extension headers; its time is the finer one."""
    record = walk.take(ERF)
    more = record.ext_header
    while more:
        more = walk.take(ERFExtension).more
    extended = walk.offset
    if record.type == ERFType.ETHERNET:
        walk.take(ERFEthernetPad)
    frame = walk.dissection
    frame.lead, frame.interface, frame.time_ns = walk.offset, record.cap, record.time_ns
    walk.narrow(min(record.wlen, record.rlen - extended), "ERF.wlen")
    return By.ERF, record.type


def flow_control(walk: Walk) -> Following:
    """A link packet with credits. IBA 7.9.4: its CRC is that of a VCRC."""
    start = walk.offset
    found = walk.take(FlowControl).lpcrc
    walk.check(checksums.LPCRC, found, vcrc(walk.data, start, walk.offset - VCRC.SIZE))
    return By.TRAILER, 0


def roce_grh(walk: Walk) -> Following:
    """The GRH of a RoCE packet, right behind the Ethernet header."""
    start = walk.offset
    return _grh(walk, walk.take(GRH), lambda _bth, end: icrc_grh(walk.data, start, end))


def local_route(walk: Walk) -> Following:
    """The LRH: the VCRC ends the packet, and is not counted in its length."""
    start = walk.offset
    lrh = walk.take(LRH)
    _check_length(walk, lrh)
    _expect_vcrc(walk, start, lrh.pktlen * 4)
    walk.icrc = lambda _bth, end: icrc_lrh(walk.data, start, end)
    return By.LNH, lrh.lnh


def _check_length(walk: Walk, lrh: LRH) -> None:
    """IBA 7.7.8: the length counts from the LRH's first byte, so the LRH itself is in it."""
    if lrh.pktlen * 4 < LRH.SIZE:
        walk.closers.append(_miss_vcrc)
        raise WireError(f"LRH.pktlen {lrh.pktlen}: at least 2 words, which the LRH takes")


def _expect_vcrc(walk: Walk, start: int, length: int) -> None:
    end = start + length
    if end + VCRC.SIZE <= walk.end:
        walk.narrow(end + VCRC.SIZE - walk.offset, "LRH.pktlen")
        walk.end = end
        walk.owe_crc(VCRC, end, checksums.VCRC, lambda: vcrc(walk.data, start, end))
    else:
        walk.narrow(end - walk.offset, "LRH.pktlen")
        walk.closers.append(_miss_vcrc)


def _miss_vcrc(walk: Walk) -> None:
    walk.leave(checksums.VCRC, walk.nodes[0])


def global_route(walk: Walk) -> Following:
    """The GRH behind an LRH."""
    return _grh(walk, walk.take(GRH), walk.icrc)


def _grh(walk: Walk, grh: GRH, icrc: ComputeICRC) -> Following:
    walk.icrc = icrc
    walk.narrow(grh.paylen, "GRH.paylen")
    return (By.TRANSPORT, 0) if grh.nxthdr == IBA_TRANSPORT else (By.IP, grh.nxthdr)


def raw_packet(walk: Walk) -> Following:
    """A raw packet: no transport of IBA, and no ICRC."""
    return By.ETHERTYPE, walk.take(RWH).etype


def raw_ipv6(_: Walk) -> Following:
    """IPv6 right behind an LRH: no transport of IBA, and no ICRC."""
    return By.ETHERTYPE, EtherType.IPV6
