"""Service ids and private data of the IP-addressed CM. IBA A11.

The header at the start of the private data of REQ and SIDR_REQ has the IP addresses and port
of both ends; the consumer's data follow it.
"""

from collections.abc import Iterator

from rdmawire.wire.header import Header, bits, raw
from rdmawire.wire.layout import Placed, tables
from rdmawire.wire.show import HEX, IPV4, IPV6

SERVICE_PREFIX = 0x0000000001
"""The upper 40 bits of service ids that identify an IP protocol and port. IBA A11.2."""

_IP = "infiniband.cm.req.ip_cm"


class IPCM4(Header, clause="IBA A11.4"):
    """IP header of a connection manager's private data: port and IPv4 addresses.

    Each address stands in the last four of sixteen bytes.
    """

    major_version: int = bits(4, f"{_IP}.majv", HEX)
    minor_version: int = bits(4, f"{_IP}.minv", HEX)
    ip_version: int = bits(4, f"{_IP}.ipv", HEX, default=4)
    resv4: int = bits(4, f"{_IP}.reserved", HEX)
    source_port: int = bits(16, f"{_IP}.sport", HEX)
    source_resv96: bytes = raw(12)
    source_ip: bytes = raw(4, f"{_IP}.sip4", IPV4)
    destination_resv96: bytes = raw(12)
    destination_ip: bytes = raw(4, f"{_IP}.dip4", IPV4)


class IPCM6(Header, clause="IBA A11.4"):
    """IP header of a connection manager's private data: port and IPv6 addresses."""

    major_version: int = bits(4, f"{_IP}.majv", HEX)
    minor_version: int = bits(4, f"{_IP}.minv", HEX)
    ip_version: int = bits(4, f"{_IP}.ipv", HEX, default=6)
    resv4: int = bits(4, f"{_IP}.reserved", HEX)
    source_port: int = bits(16, f"{_IP}.sport", HEX)
    source_ip: bytes = raw(16, f"{_IP}.sip6", IPV6)
    destination_ip: bytes = raw(16, f"{_IP}.dip6", IPV6)


def header(buffer: bytes, offset: int) -> Iterator[Placed]:
    """The header at ``offset`` bytes; its IP version selects the table."""
    found = IPCM4.parse(buffer, offset)
    table = IPCM4 if found.ip_version == 4 else IPCM6
    yield from tables(table)(buffer, offset)
