"""Where the headers of a frame stand, and the checksums that cover them."""

from collections.abc import Sequence
from typing import NamedTuple

from rdmawire.traffic.edit.seal import Seal
from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH, LRH
from rdmawire.wire.inet import IPv4, IPv6

Hosts = tuple[bytes, bytes]
"""Source and destination: IPv4 address, IPv6 address or GID, else LID; or nothing."""

_MAPPED = bytes(10) + b"\xff\xff"


class Place(NamedTuple):
    """A header, and the octet of the frame where it begins."""

    offset: int
    header: Header


class Said(NamedTuple):
    """Where a header says how long a packet is: it ends ``scale`` times that behind ``start``.

    The number is the lower bits of two octets at ``offset``, those under ``mask``.
    """

    offset: int
    start: int
    mask: int = 0xFFFF
    scale: int = 1

    def end(self, octets: bytes) -> int:
        """Where the packet ends."""
        at = self.offset
        return self.start + ((octets[at] << 8 | octets[at + 1]) & self.mask) * self.scale


class Layout(NamedTuple):
    """What stands where in a frame.

    ``places`` are the headers, outermost first, and ``seals`` the checksums, innermost first.
    ``head``: frames of this link type whose first octets agree with it, but for what
    :data:`~rdmawire.traffic.edit.head.VARIES` lists, are laid out alike; 0 if that is not sure.
    Their packet ends where each of ``said`` tells.
    """

    places: Sequence[Place]
    hosts: Hosts
    seals: Sequence[Seal] = ()
    head: int = 0
    said: Sequence[Said] = ()


def hosts_of(places: Sequence[Place]) -> Hosts:
    """Who sends a frame to whom, by the innermost header that says so."""
    for _, header in reversed(places):
        if isinstance(header, IPv4 | IPv6):
            return host(header.src), host(header.dst)
        if isinstance(header, GRH):
            return host(header.sgid), host(header.dgid)
        if isinstance(header, LRH):
            return header.slid.to_bytes(2, "big"), header.dlid.to_bytes(2, "big")
    return b"", b""


def host(address: bytes) -> bytes:
    """A host's address; of IPv4 addresses written as IPv6 ones, the last four octets."""
    return address[12:] if len(address) == 16 and address.startswith(_MAPPED) else address
