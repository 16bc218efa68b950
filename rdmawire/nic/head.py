"""Heads of frames: what all frames of one path, opcode and length begin with, up to the PSN.

What a head says holds for every frame of its length that begins with it, so it is found out once
and kept. How long a head is follows from the EtherType where frames are of the usual build. Others
look the same at first (IPv4 options stand between what is looked at and the BTH): what was found
out is kept only where the head ends at :func:`word_offset`.
"""

from collections.abc import Iterable
from typing import Final

from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import UDP, VLAN, Ethernet, EtherType, IPv4, IPv6
from rdmawire.wire.layout import Piece, size

HEAD_OF_BTH: Final = 8
"""Octets of the BTH before the word that holds AckReq and PSN."""

MOST_HEADS: Final = 1024
"""Heads that one port keeps, or one path; it begins anew after that many."""

MOST_SEEN: Final = 1 << 14
"""Heads that a tap remembers, which sees all of a network; it begins anew after that many."""

HEAD_SIZES: Final = {
    int(ethertype).to_bytes(2, "big"): sum(header.SIZE for header in headers) + HEAD_OF_BTH
    for ethertype, headers in (
        (EtherType.IPV4, (Ethernet, IPv4, UDP)),
        (EtherType.IPV6, (Ethernet, IPv6, UDP)),
        (EtherType.ROCE, (Ethernet, GRH)),
    )
}
"""How long the head of a frame of the usual build is, by the two octets of its EtherType."""

_TAG: Final = EtherType.VLAN.to_bytes(2, "big")


def head_size(frame: bytes) -> int:
    """How long the head of a frame is, with one tag or none; 0 where the EtherType tells not."""
    return HEAD_SIZES.get(frame[12:14]) or tagged_size(frame)


def tagged_size(frame: bytes) -> int:
    """As :func:`head_size`, of a frame with one tag."""
    behind_tag = HEAD_SIZES.get(frame[16:18])
    return behind_tag + VLAN.SIZE if behind_tag and frame[12:14] == _TAG else 0


def word_offset(headers: Iterable[Piece]) -> int:
    """Where the head really ends, and the word with AckReq and PSN stands, behind these headers."""
    return sum(map(size, headers)) + HEAD_OF_BTH
