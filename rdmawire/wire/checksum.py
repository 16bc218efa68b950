"""The Internet checksum: IPv4 headers, and UDP and TCP with their pseudo header. RFC 1071.

With a source route or a routing header, the checksums of UDP, TCP and ICMPv6 cover the final
destination instead of the IP header's (RFC 8200, 8.1; RFC 1122, 4.2.3.8); for a mobile host, its
home address (RFC 6275, 6.3). Offsets of addresses are in bytes from the start of the extension
header or of the options.
"""

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import NamedTuple

from rdmawire.errors import WireError
from rdmawire.wire.inet import IPProtocol, IPv4, IPv6, IPv6Extension


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
    routing headers, see :func:`with_ends`.
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


_FIXED = 8
"""Offset in bytes of the first address in a routing header of type 2 or 4."""

_FINAL: dict[int, Callable[[int], int]] = {
    0: lambda size: size - 16,  # RFC 2460, 4.4: the last address
    2: lambda _: _FIXED,  # RFC 6275, 6.4: the home address
    4: lambda _: _FIXED,  # RFC 8754, 2: Segment List[0] is the last segment of the path
}
"""Offset of the final destination in a routing header, by type; the argument is its size."""

_HOME_ADDRESS = 0xC9
"""The IPv6 option with the sender's home address. RFC 6275, 6.3."""
_SOURCE_ROUTES = (131, 137)
"""Options of IPv4: loose and strict source route. RFC 791, 3.1."""

HERE = range(0)
"""The checksums cover the address in the IP header."""


def final_in_routing(header: bytes) -> range | None:
    """Offset of the final destination in a routing header, :data:`HERE` if it has been reached.

    ``None`` if the type is unknown or there are too few addresses.
    """
    kind, left = header[2], header[3]
    if not left:
        return HERE
    at = _FINAL[kind](len(header)) if kind in _FINAL else 0
    if at < _FIXED or left > (len(header) - _FIXED) // 16:
        return None
    return range(at, at + 16)


def home_in_options(header: bytes) -> range:
    """Offset of the home address in a destination options header; :data:`HERE` for none."""
    for at, kind, size in _options(header, _IPV6_OPTIONS):
        if kind == _HOME_ADDRESS and size == 2 + 16:
            return range(at + 2, at + size)
    return HERE


def final_in_source_route(options: bytes) -> range:
    """Offset of the final destination in IPv4 options; :data:`HERE` if it has been reached."""
    for at, kind, size in takewhile(lambda option: option[1], _options(options, _IPV4_OPTIONS)):
        # The route is complete when its pointer, counted from 1, is after its end.
        if kind in _SOURCE_ROUTES and size >= 3 + 4 and options[at + 2] <= size - 3:
            return range(at + size - 4, at + size)
    return HERE


class _Form(NamedTuple):
    """Encoding of options.

    They begin at offset ``start``; types in ``single`` are one byte (padding, end of options).
    ``uncounted`` is the number of bytes of other options that their length byte excludes.
    """

    start: int
    single: tuple[int, ...]
    uncounted: int


_IPV6_OPTIONS = _Form(2, (0,), 2)  # RFC 8200, 4.2
_IPV4_OPTIONS = _Form(0, (0, 1), 0)  # RFC 791, 3.1


def _options(data: bytes, form: _Form) -> Iterator[tuple[int, int, int]]:
    """Yield offset, type and size (bytes) of each option, up to the first truncated one."""
    at = form.start
    while at < len(data):
        is_single = data[at] in form.single
        size = 1 if is_single else sum(data[at + 1 : at + 2]) + form.uncounted
        if at + size > len(data) or size < (1 if is_single else 2):
            return
        yield at, data[at], size
        at += size


def _behind_extension(ip: IPv6, kind: int, header: bytes) -> IPv6 | None:
    """The IPv6 header with the addresses covered after this extension header, if known."""
    if kind == IPProtocol.ROUTING:
        final = final_in_routing(header)
        if final is None:
            return None
        return ip.replace(dst=header[final.start : final.stop]) if final else ip
    if kind == IPProtocol.DESTINATION_OPTIONS and (home := home_in_options(header)):
        return ip.replace(src=header[home.start : home.stop])
    return ip


_WITH_LENGTH = (IPProtocol.HOP_BY_HOP, IPProtocol.ROUTING, IPProtocol.DESTINATION_OPTIONS)
"""Extension headers that have a length field. RFC 8200, 4.3 to 4.6."""


def with_ends(ip: IPv4 | IPv6, between: bytes) -> IPv4 | IPv6:
    """The IP header with the addresses that the checksums of its payload cover.

    ``between`` are its options or extension headers. Raises :class:`WireError` if the addresses are
    unknown.
    """
    if isinstance(ip, IPv4):
        final = final_in_source_route(between)
        return ip.replace(dst=between[final.start : final.stop]) if final else ip
    found, kind, at = ip, ip.next_header, 0
    while at < len(between) and kind in (*_WITH_LENGTH, IPProtocol.FRAGMENT):
        counted = IPv6Extension.parse(between, at).length if kind in _WITH_LENGTH else 0
        end = at + 8 + 8 * counted
        after = _behind_extension(found, kind, between[at:end]) if end <= len(between) else None
        if after is None:
            raise WireError("an extension header leaves the final destination unknown", at)
        found, kind, at = after, between[at], end
    return found
