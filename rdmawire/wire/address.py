"""Text forms and classes of Ethernet and IP addresses."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final

_MAC: Final = re.compile(r"[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}", re.ASCII)
_GROUP_BIT: Final = 1
_OF_NO_HOST: Final = tuple(
    map(
        ip_network,
        ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/8", "ff00::/8"),
    )
)
"""Unspecified, loopback, multicast and reserved networks. RFC 6890; RFC 4291, section 2.4."""


def mac_bytes(text: str) -> bytes:
    """Parse ``02:00:00:00:00:01`` or ``02-00-00-00-00-01`` into 6 bytes.

    ``ValueError`` for any other text.
    """
    if not _MAC.fullmatch(text):
        raise ValueError(f"{text!r} is no Ethernet address such as 02:00:00:00:00:01")
    return bytes.fromhex(re.sub("[:-]", "", text))


def of_group(mac: bytes) -> bool:
    """Whether this is a group address: the first bit sent is set. IEEE 802.3, 3.2.3."""
    return bool(mac[0] & _GROUP_BIT)


def of_one_host(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address may identify one host: not multicast, loopback or reserved."""
    zone = getattr(address, "scope_id", None)
    return zone is None and not any(address in network for network in _OF_NO_HOST)
