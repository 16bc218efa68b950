"""What is asked for: service ids, and the addresses and ports that rdma_cm puts into them. IBA A11.

rdma_cm's service ids stand for a port of a port space. Their requests begin the private data with
a header of 36 octets that says whose IP addresses and port these are.
"""

from enum import IntEnum
from typing import NamedTuple

from rdmawire.nic.address import FLOW_LABELS, MAPPED_IPV4, is_ipv4, mapped
from rdmawire.wire.ip_cm import IPCM4, IPCM6, SERVICE_PREFIX


class PortSpace(IntEnum):
    """Where ports are counted: the numbers of rdma_port_space."""

    IPOIB = 0x0002
    TCP = 0x0106
    UDP = 0x0111
    IB = 0x013F


RDMA_UDP_QKEY = 0x01234567
"""The Q_Key of rdma_cm's datagrams (RDMA_UDP_QKEY)."""

IP_VERSIONS = (4, 6)
_LOWER_BITS = 24


def service_id(space: PortSpace, port: int) -> int:
    """The service id of a port, of 64 bits."""
    return space << 16 | port


def flow_label(source_port: int, service: int) -> int:
    """The flow label of a connection between two ports, as Linux's rdma_cm makes it."""
    return (31 * source_port + service % (1 << 16)) % FLOW_LABELS


def has_ip_header(service: int) -> bool:
    """Whether private data of requests for this service begin with the IP header. IBA A11.2."""
    return service >> _LOWER_BITS == SERVICE_PREFIX


class Endpoints(NamedTuple):
    """What the IP header says: two GIDs of 16 octets, and the sender's port."""

    source: bytes
    destination: bytes
    source_port: int

    def header(self) -> IPCM4 | IPCM6:
        """As it stands on the wire; of an IPv4 address without ``::ffff:``."""
        if not is_ipv4(self.source):
            return IPCM6(
                source_port=self.source_port,
                source_ip=self.source,
                destination_ip=self.destination,
            )
        prefix = len(MAPPED_IPV4)
        return IPCM4(
            source_port=self.source_port,
            source_ip=self.source[prefix:],
            destination_ip=self.destination[prefix:],
        )


def endpoints_in(header: IPCM4 | IPCM6) -> Endpoints | None:
    """What a header says; ``None`` for a version that nobody knows. IBA A11.4."""
    known = not header.major_version and not header.minor_version
    if not known or header.ip_version not in IP_VERSIONS:
        return None
    source, destination = header.source_ip, header.destination_ip
    if isinstance(header, IPCM4):
        source, destination = mapped(source), mapped(destination)
    return Endpoints(source, destination, header.source_port)
