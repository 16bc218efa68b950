"""What the octets of a record begin with, and how many of them one record may have.

The numbers are the LINKTYPE_ values of the registry at https://www.tcpdump.org/linktypes.html,
which pcap and pcapng share. A file may carry any number; those below are the ones an RDMA
capture is seen with.
"""

from enum import IntEnum
from typing import Self

MAX_RECORD = 262_144
"""The most octets a record may have, libpcap's MAXIMUM_SNAPLEN: tools write no longer ones."""

_MIB = 1 << 20

# Link types whose frames are longer than MAX_RECORD by their nature; libpcap and Wireshark
# read these lengths too.
_LONGER = {
    231: 128 * _MIB,  # D-Bus
    249: 128 * _MIB,  # USBPcap
    279: 8 * _MIB,  # Elektrobit high speed capture and replay
}


class LinkType(IntEnum):
    """Link types of RDMA captures; ``meaning`` says in a line what a record begins with."""

    meaning: str

    def __new__(cls, number: int, meaning: str = "") -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        member.meaning = meaning
        return member

    NULL = 0, "BSD loopback: four octets of address family in the host's byte order, then IP"
    ETHERNET = 1, "Ethernet frame without preamble and, as a rule, without its checksum"
    RAW_BSD = 12, "IPv4 or IPv6 packet, as some systems number RAW"
    RAW_OPENBSD = 14, "IPv4 or IPv6 packet, as OpenBSD numbers RAW"
    RAW = 101, "IPv4 or IPv6 packet, told apart by the version in its first octet"
    LINUX_SLL = 113, "Linux cooked capture, 16 octets: what a capture on all interfaces gives"
    ERF = 197, "Endace extensible record, as InfiniBand capture cards write"
    IPV4 = 228, "IPv4 packet"
    IPV6 = 229, "IPv6 packet"
    INFINIBAND = 247, "InfiniBand packet beginning with its LRH"
    LINUX_SLL2 = 276, "Linux cooked capture, version 2, 20 octets: names the interface"


def longest_record(link_type: int) -> int:
    """The most octets that a record of this link type may have."""
    return _LONGER.get(link_type, MAX_RECORD)
