"""The Internet checksum: IPv4 headers, and UDP and TCP with their pseudo header. RFC 1071."""

from rdmawire.wire.inet import IPProtocol, IPv4, IPv6


def internet_checksum(data: bytes, start: int = 0) -> int:
    """The checksum of ``data``, in which the checksum field counts as zero.

    ``start`` is an initial sum, such as that of a pseudo header. An odd last byte is padded with
    a zero byte.
    """
    padded = data + b"\0" if len(data) % 2 else data
    # The one's complement sum of 16-bit words equals the number modulo 65535.
    total = start + int.from_bytes(padded, "big")
    folded = total % 0xFFFF
    if not folded and total:
        folded = 0xFFFF
    return folded ^ 0xFFFF


def pseudo_header(ip: IPv4 | IPv6, protocol: IPProtocol, length: int) -> int:
    """The pseudo header's sum for an upper-layer packet of ``length`` bytes.

    RFC 768 and 9293 over IPv4, RFC 8200 section 8.1 over IPv6: the same sum. For source routes and
    routing headers, see :mod:`rdmawire.wire.ends`.
    """
    addresses = int.from_bytes(ip.src + ip.dst, "big")
    return addresses + protocol + length


def ipv4_header_checksum(header: bytes) -> int:
    """The correct checksum of an IPv4 header with its options; its checksum field is ignored."""
    return internet_checksum(header[:10] + b"\0\0" + header[12:])


def udp_checksum(ip: IPv4 | IPv6, datagram: bytes) -> int:
    """The checksum of a UDP datagram, never zero: zero means no checksum."""
    start = pseudo_header(ip, IPProtocol.UDP, len(datagram))
    return internet_checksum(datagram[:6] + b"\0\0" + datagram[8:], start) or 0xFFFF


def tcp_checksum(ip: IPv4 | IPv6, segment: bytes) -> int:
    """The checksum of a TCP segment."""
    start = pseudo_header(ip, IPProtocol.TCP, len(segment))
    return internet_checksum(segment[:16] + b"\0\0" + segment[18:], start)
