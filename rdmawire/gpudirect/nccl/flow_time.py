"""What an operation takes as flows, and how long a message occupies links."""

from typing import Final, NamedTuple

from rdmawire.fabric import Cable
from rdmawire.fabric.link import wire_time
from rdmawire.units import SECOND

_MTU: Final = 4096
_PACKET: Final = 14 + 20 + 8 + 12 + 4
"""Bytes of a frame beside the payload, without FCS: Ethernet, IPv4, UDP, BTH, ICRC."""
_FIRST: Final = 16 + 4
"""Bytes of RETH and immediate data, once in a message."""
ENTRY: Final = 64
"""Bytes of an entry that offers a buffer; about the time (ns) that it adds."""


class FlowReport(NamedTuple):
    """What an operation takes: ``duration`` in ns, and the bytes on links.

    ``adapter_bytes`` are bytes of values that the busiest adapter sends, ``nvlink_bytes`` those
    over all NVLinks.
    """

    duration: int
    adapter_bytes: int
    nvlink_bytes: int
    messages: int


def message_time(size: int, cable: Cable) -> tuple[float, float]:
    """Return how long (ns) a message occupies the link of an adapter, and when it has arrived.

    The second link, of the switch, adds the time of one packet.
    """
    full, rest = divmod(size, _MTU)
    if cable.rate is None:
        return 0.0, 2.0 * cable.latency
    packet = wire_time(_MTU + _PACKET, cable.rate)
    last = wire_time(rest + _PACKET, cable.rate) if rest or not full else 0
    busy = full * packet + last + _FIRST * 8 / cable.rate * SECOND
    return busy, busy + 2 * cable.latency + (last or packet)
