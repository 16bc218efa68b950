"""What is in the pack of generated captures: file names, link types, and what each shows."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rdmawire.capture import MAX_RECORD, LinkType
from rdmawire.wire.erf import ERFType
from tools.make_captures import faulty, iwarp, iwarp_streams, transport


class Capture(NamedTuple):
    """A capture to make: its frames, in order.

    No more than ``snap_length`` bytes of a frame are kept; its record tells how many it had.
    """

    name: str
    link_type: int
    shows: str
    frames: Callable[[], Iterable[bytes]]
    snap_length: int = MAX_RECORD


def _records(kind: ERFType, frames: Callable[[], Iterator[bytes]]) -> Callable[[], Iterator[bytes]]:
    return lambda: (transport.erf(kind, frame, i) for i, frame in enumerate(frames()))


def _shows(frames: Callable[[], Iterable[bytes]]) -> str:
    """What the function that makes the frames says of them."""
    return (frames.__doc__ or "").split("\n")[0].rstrip(".")


_ETHERNET = LinkType.ETHERNET

PACK = (
    Capture("roce_v2_ipv4.pcap", _ETHERNET, "every opcode over IPv4", transport.roce_v2_ipv4),
    Capture("roce_v2_ipv6.pcap", _ETHERNET, "every opcode over IPv6", transport.roce_v2_ipv6),
    Capture("roce_v1.pcap", _ETHERNET, "every opcode over EtherType 0x8915", transport.roce_v1),
    Capture(
        "native.pcap",
        LinkType.INFINIBAND,
        "every opcode on InfiniBand's own links",
        transport.native,
    ),
    Capture(
        "native_erf.pcap",
        LinkType.ERF,
        "the same in records of Endace's format",
        _records(ERFType.INFINIBAND, transport.native),
    ),
    Capture(
        "ethernet_erf.pcap",
        LinkType.ERF,
        "Ethernet in records of Endace's format",
        _records(ERFType.ETHERNET, transport.tagged),
    ),
    Capture(
        "link_packets_erf.pcap",
        LinkType.ERF,
        "link packets with credits",
        _records(ERFType.INFINIBAND_LINK, transport.link_packets),
    ),
    Capture(
        "raw_packets_erf.pcap",
        LinkType.ERF,
        "raw packets on InfiniBand's own links",
        _records(ERFType.INFINIBAND, transport.raw_packets),
    ),
    Capture("syndromes.pcap", _ETHERNET, "every syndrome of an AETH", transport.syndromes),
    Capture("congestion.pcap", _ETHERNET, "ECN, FECN, BECN and a CNP", transport.congestion),
    Capture("tagged.pcap", _ETHERNET, "VLAN and QinQ tags", transport.tagged),
    Capture("vxlan.pcap", _ETHERNET, "RoCEv2 inside VXLAN", transport.tunnelled),
    Capture("flow_control.pcap", _ETHERNET, "PAUSE and PFC", transport.flow_control),
    Capture(
        "raw_ip.pcap",
        LinkType.RAW,
        "no link header, IPv4 options, IPv6 extension headers",
        transport.raw_ip,
    ),
    Capture("loopback.pcap", LinkType.NULL, "BSD loopback", transport.loopback),
    Capture("cooked.pcap", LinkType.LINUX_SLL, "Linux cooked, version 1", transport.cooked),
    Capture("cooked2.pcap", LinkType.LINUX_SLL2, "Linux cooked, version 2", transport.cooked2),
    Capture(
        "management.pcap",
        _ETHERNET,
        "every management datagram, in RoCEv2",
        transport.management_roce,
    ),
    Capture(
        "management_erf.pcap",
        LinkType.ERF,
        "every management datagram on InfiniBand's own links",
        _records(ERFType.INFINIBAND, transport.management_native),
    ),
    Capture(
        "connection_codes.pcap",
        _ETHERNET,
        "every status and reason of connection management",
        transport.connection_codes,
    ),
    Capture(
        "neighbours.pcap",
        _ETHERNET,
        "ARP, IEEE 802.3, and source ports that other protocols own",
        transport.neighbours,
    ),
    *(
        Capture(f"{name}.pcap", _ETHERNET, _shows(frames) or name.replace("_", " "), frames)
        for name, frames in (iwarp.SCENARIOS | iwarp_streams.STREAMS).items()
    ),
    Capture(
        "roce_v2_snapped.pcap",
        _ETHERNET,
        "every opcode, frames cut by the capture inside headers, payload and CRC",
        transport.roce_v2_ipv4,
        snap_length=68,
    ),
    Capture(
        "iwarp_snapped.pcap",
        _ETHERNET,
        "FPDUs cut by the capture inside headers and payload",
        iwarp_streams.snapped,
        snap_length=90,
    ),
)

FAULTY = (
    Capture("bad_icrc.pcap", _ETHERNET, "the second frame's ICRC is wrong", faulty.bad_icrc),
    Capture("bad_checksums.pcap", _ETHERNET, _shows(faulty.bad_checksums), faulty.bad_checksums),
    Capture("bad_vcrc.pcap", LinkType.INFINIBAND, "the VCRC is wrong", faulty.bad_vcrc),
    Capture("malformed.pcap", _ETHERNET, _shows(faulty.malformed), faulty.malformed),
    Capture("two_reasons.pcap", _ETHERNET, _shows(faulty.two_reasons), faulty.two_reasons),
    Capture(
        "iwarp_bad_crc.pcap", _ETHERNET, _shows(iwarp_streams.conflict), iwarp_streams.conflict
    ),
    Capture("iwarp_reserved.pcap", _ETHERNET, _shows(iwarp.reserved_bits), iwarp.reserved_bits),
)
"""Captures with something wrong in them, to see what is said of it."""
