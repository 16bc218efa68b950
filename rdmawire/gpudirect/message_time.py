"""How long a message of RDMA WRITEs with immediate occupies links, frame by frame, without frames.

Frames are those of RoCEv2 over IPv4 with a path MTU of 4096 bytes. Sizes are bytes.
"""

from functools import lru_cache
from typing import Final

from rdmawire.fabric import Cable
from rdmawire.fabric.link import bit_times, wire_time
from rdmawire.units import SECOND
from rdmawire.wire.ib import BTH, RETH, ImmDt
from rdmawire.wire.inet import UDP, Ethernet, IPv4

MTU: Final = 4096
HEADERS: Final = Ethernet.SIZE + IPv4.SIZE + UDP.SIZE + BTH.SIZE + 4
"""Bytes of a frame beside the payload, with ICRC and without FCS."""
FIRST_HEADERS: Final = RETH.SIZE + ImmDt.SIZE
"""Bytes of the headers that are once in a message."""
EFFICIENCY: Final = MTU * 8 / bit_times(MTU + HEADERS)
"""Share of the rate of a wire that full packets leave for data."""


def message_time(size: int, cable: Cable) -> tuple[float, float]:
    """Return how long (ns) a message occupies the link of an adapter, and when it has arrived.

    The second link, of the switch, adds the time of one packet.
    """
    full, rest = divmod(size, MTU)
    if cable.rate is None:
        return 0.0, 2.0 * cable.latency
    packet = wire_time(MTU + HEADERS, cable.rate)
    last = wire_time(rest + HEADERS, cable.rate) if rest or not full else 0
    busy = full * packet + last + FIRST_HEADERS * 8 / cable.rate * SECOND
    return busy, busy + 2 * cable.latency + (last or packet)


@lru_cache(4096)
def wire_volume(size: int) -> float:
    """Return the bytes of data that would take as long on a wire as a message of ``size`` bytes.

    The wire carries data at :data:`EFFICIENCY` of its rate.
    """
    full, rest = divmod(size, MTU)
    bits = full * bit_times(MTU + HEADERS)
    if rest or not full:
        bits += bit_times(rest + HEADERS)
    return (bits + FIRST_HEADERS * 8) / 8 * EFFICIENCY
