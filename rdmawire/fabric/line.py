"""What a frame takes on an Ethernet wire: octets beside its own, and time."""

from functools import lru_cache
from typing import Final

FCS: Final = 4
GAP: Final = 8 + 12
"""Preamble with start of frame, and the gap between packets, in octets. IEEE 802.3, 3.2, 4.4.2."""

SMALLEST: Final = 60
"""Octets of the shortest frame, without its FCS: shorter ones are padded. IEEE 802.3, 4.4.2."""

TAGS: Final = (b"\x81\x00", b"\x88\xa8")
TAG_OCTETS: Final = 4
HEADER: Final = 14
QUANTUM: Final = 512
"""Bit times that pauses count in. IEEE 802.3, 31B.2."""

SECOND: Final = 1_000_000_000


_LENGTHS: Final = 1 << 12
"""Lengths of frames that are remembered: most frames have one of few."""


@lru_cache(_LENGTHS)
def bits(octets: int) -> int:
    """Bit times that a frame of so many octets (without FCS) takes, gap included."""
    return (max(octets, SMALLEST) + FCS + GAP) * 8


@lru_cache(_LENGTHS)
def time_of(octets: int, rate: int) -> int:
    """Nanoseconds that a frame of so many octets takes at so many bits a second, rounded up."""
    return duration(bits(octets), rate)


def duration(bit_times: int, rate: int | None) -> int:
    """Nanoseconds that so many bit times take, rounded up; none on a wire without a rate."""
    return -(-bit_times * SECOND // rate) if rate else 0


def exceeds(frame: bytes, mtu: int) -> bool:
    """Whether a frame carries more than ``mtu`` octets behind its Ethernet header and tags."""
    spare = len(frame) - HEADER - mtu
    at = HEADER - 2
    while spare > 0 and frame[at : at + 2] in TAGS:
        spare -= TAG_OCTETS
        at += TAG_OCTETS
    return spare > 0
