"""Addresses as people write them: of stations on Ethernet, and of hosts in IP."""

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
"""Nobody, oneself, groups, and what is reserved. RFC 6890; RFC 4291, section 2.4."""


def mac_bytes(text: str) -> bytes:
    """The 6 bytes of ``02:00:00:00:00:01`` or ``02-00-00-00-00-01``.

    ``ValueError`` for any other text.
    """
    if not _MAC.fullmatch(text):
        raise ValueError(f"{text!r} is no Ethernet address such as 02:00:00:00:00:01")
    return bytes.fromhex(re.sub("[:-]", "", text))


def of_group(mac: bytes) -> bool:
    """Whether it is a group's address, no station's: the first bit sent. IEEE 802.3, 3.2.3."""
    return bool(mac[0] & _GROUP_BIT)


def of_one_host(address: IPv4Address | IPv6Address) -> bool:
    """Whether it may stand for one host on a network: no group, loopback or reserved address."""
    zone = getattr(address, "scope_id", None)
    return zone is None and not any(address in network for network in _OF_NO_HOST)
