"""Addresses that the checksums of UDP, TCP and ICMPv6 cover, if not those of the IP header.

With a source route or a routing header, this is the final destination (RFC 8200, 8.1; RFC 1122,
4.2.3.8); for a mobile host, its home address (RFC 6275, 6.3). Offsets are in bytes from the start
of the extension header or of the options.
"""

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import NamedTuple

from rdmawire.errors import WireError
from rdmawire.wire.inet import IPProtocol, IPv4, IPv6, IPv6Extension, IPv6Fragment

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


def behind_extension(ip: IPv6, kind: int, header: bytes) -> IPv6 | None:
    """The IPv6 header with the addresses that checksums after this extension header cover.

    ``None`` if the addresses are unknown.
    """
    if kind == IPProtocol.ROUTING:
        final = final_in_routing(header)
        if final is None:
            return None
        return ip.replace(dst=header[final.start : final.stop]) if final else ip
    if kind == IPProtocol.DESTINATION_OPTIONS and (home := home_in_options(header)):
        return ip.replace(src=header[home.start : home.stop])
    return ip


def behind_options(ip: IPv4, options: bytes) -> IPv4:
    """The IPv4 header with the addresses that checksums after its ``options`` cover."""
    final = final_in_source_route(options)
    return ip.replace(dst=options[final.start : final.stop]) if final else ip


_SIZES: dict[int, Callable[[bytes, int], int]] = {
    **dict.fromkeys(
        (IPProtocol.HOP_BY_HOP, IPProtocol.ROUTING, IPProtocol.DESTINATION_OPTIONS),
        lambda data, at: 8 + 8 * IPv6Extension.parse(data, at).length,
    ),
    IPProtocol.FRAGMENT: lambda _bytes, _at: IPv6Fragment.SIZE,
}
"""Sizes (bytes) of extension headers, by type; the arguments are bytes and an offset."""


def with_ends(ip: IPv4 | IPv6, between: bytes) -> IPv4 | IPv6:
    """The IP header with the addresses that the checksums of its payload cover.

    ``between`` are its options or extension headers. Raises :class:`WireError` if the addresses are
    unknown.
    """
    if isinstance(ip, IPv4):
        return behind_options(ip, between)
    found, kind, at = ip, ip.next_header, 0
    while at < len(between) and kind in _SIZES:
        end = at + _SIZES[kind](between, at)
        after = behind_extension(found, kind, between[at:end]) if end <= len(between) else None
        if after is None:
            raise WireError("an extension header leaves the final destination unknown", at)
        found, kind, at = after, between[at], end
    return found
