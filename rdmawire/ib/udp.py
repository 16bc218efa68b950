"""The payloads of UDP sockets, as the IP packets of adapters with ``Medium.IP``.

A socket's payload is the packet from the BTH to the ICRC; addresses are passed separately. The ICRC
covers the IP and UDP headers (IBA A17.5), so these are built from the addresses. Fields that a
socket does not show are taken as adapters send them: IPv4 without options, identification 0, Don't
Fragment (RFC 6864, 4.1), and no UDP checksum.
"""

from errno import EINVAL
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple, Self

from rdmawire.errors import VerbsError, WireError
from rdmawire.ib.encapsulation import gids_of, headers_to
from rdmawire.validate import as_bytes, check_int
from rdmawire.verbs.ah import GID_BYTES, AddressHandle, check_address, is_ipv4, mapped
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.inet import ROCE_PORT, UDP, IPProtocol, IPv4, IPv6
from rdmawire.wire.layout import joined
from rdmawire.wire.roce import Medium

SocketAddress = tuple[str, int]
"""IP address and port, as in ``recvfrom`` and ``sendto`` of AF_INET sockets."""

_MAX_PORT: Final = 0xFFFF
_MAX_LENGTH: Final = 0xFFFF - IPv4.SIZE - UDP.SIZE
_NO_MAC: Final = bytes(6)


class Datagram(NamedTuple):
    """The payload of a UDP datagram, and fields of the headers before it.

    ``source`` and ``destination`` are GIDs (16 bytes), IPv4-mapped for IPv4. ``traffic_class``
    holds DSCP and ECN, ``hop_limit`` is the TTL.
    """

    payload: bytes
    source: bytes
    destination: bytes
    source_port: int = ROCE_PORT
    destination_port: int = ROCE_PORT
    traffic_class: int = 0
    hop_limit: int = 64

    @classmethod
    def received(cls, payload: bytes, peer: SocketAddress, own: SocketAddress) -> Self:
        """Return the datagram that a socket bound to ``own`` received from ``peer``.

        ``VerbsError`` EINVAL for an invalid address.
        """
        return cls(payload, _gid(peer[0]), _gid(own[0]), peer[1], own[1])

    @classmethod
    def of(cls, packet: bytes) -> Self:
        """Return the datagram in an IP packet that an adapter sends.

        :class:`WireError` for other packets, and for IPv4 options and extension headers.
        """
        version = packet[0] >> 4 if packet else 0
        ip: IPv4 | IPv6
        if version == _IPV4:
            ip = IPv4.parse(packet)
            protocol, hop_limit = ip.protocol, ip.ttl
            if ip.ihl * 4 != IPv4.SIZE:
                raise WireError(f"IPv4.ihl {ip.ihl}: packets with options are not sent", 0)
        else:
            ip = IPv6.parse(packet)
            protocol, hop_limit = ip.next_header, ip.hop_limit
        if protocol != IPProtocol.UDP:
            raise WireError(f"IP protocol {protocol} is not UDP", 0)
        udp = UDP.parse(packet, ip.SIZE)
        payload = packet[ip.SIZE + UDP.SIZE : ip.SIZE + udp.length]
        source, destination = gids_of((ip,))
        ports = udp.srcport, udp.dstport
        return cls(payload, source, destination, *ports, ip.dscp << 2 | ip.ecn, hop_limit)

    @property
    def to(self) -> SocketAddress:
        """The destination, for ``sendto``."""
        gid = self.destination
        return str(ip_address(gid[12:] if is_ipv4(gid) else gid)), self.destination_port

    def packet(self) -> bytes:
        """Return the IP packet, for ``receive`` of an adapter.

        ``VerbsError`` EINVAL for invalid addresses, ports and payloads.
        """
        payload = as_bytes("payload", self.payload)
        return _head(len(payload), *self[1:]) + payload


_IPV4: Final = 4


def _gid(address: str) -> bytes:
    """The GID of an IP address written as text."""
    try:
        packed = ip_address(address).packed
    except ValueError as error:
        raise VerbsError(str(error), EINVAL) from error
    return packed if len(packed) == GID_BYTES else mapped(packed)


@lru_cache(maxsize=1024)
def _head(  # noqa: PLR0917 - the fields of a Datagram
    length: int,
    source: bytes,
    destination: bytes,
    source_port: int,
    destination_port: int,
    traffic_class: int,
    hop_limit: int,
) -> bytes:
    """The IP and UDP headers before ``length`` bytes."""
    check_int("bytes of payload", length, 0, _MAX_LENGTH)
    check_int("source_port", source_port, 0, _MAX_PORT)
    check_int("destination_port", destination_port, 0, _MAX_PORT)
    path = AddressHandle(_NO_MAC, destination, source, hop_limit, traffic_class)
    check_address(path)
    ip, udp = headers_to(path, _NO_MAC, source_port, medium=Medium.IP)
    length += UDP.SIZE
    udp = udp.replace(dstport=destination_port, length=length)
    if isinstance(ip, IPv4):
        ip = ip.replace(total_length=IPv4.SIZE + length)
        ip = ip.replace(checksum=ipv4_header_checksum(ip.build()))
    else:
        ip = ip.replace(payload_length=length)
    return joined(ip, udp)
