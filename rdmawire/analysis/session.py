"""What is remembered from frame to frame: conversations, connections, transactions."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable

from rdmawire.analysis.mpa_stream import Streams
from rdmawire.analysis.rmpp import RMPPReassembly
from rdmawire.wire.inet import ROCE_PORT, UDP, IPv4, IPv6

CONVERSATIONS = 65536
"""Conversations remembered at most; past that, the one longest silent is forgotten."""


class Conversations:
    """Numbers conversations from zero in the order of their first frames, as Wireshark does."""

    def __init__(self, most: int = CONVERSATIONS) -> None:
        self._numbers: OrderedDict[Hashable, int] = OrderedDict()
        self._most = most
        self._next = 0

    def number(self, one: Hashable, other: Hashable) -> int:
        """The number of the conversation between two ends, whichever speaks."""
        key = (one, other) if (other, one) not in self._numbers else (other, one)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._next
            self._next += 1
            if len(self._numbers) > self._most:
                self._numbers.popitem(last=False)
        else:
            self._numbers.move_to_end(key)
        return number


class Session:
    """The memory of a dissection, of bounded size.

    ``roce_ports`` are the UDP destination ports that carry RoCEv2.
    """

    def __init__(self, roce_ports: Iterable[int] = (ROCE_PORT,)) -> None:
        self.roce_ports = frozenset(roce_ports)
        self.rmpp = RMPPReassembly()
        self.streams = Streams()
        self._udp = Conversations()

    def udp_stream(self, ip: IPv4 | IPv6 | None, udp: UDP) -> int:
        """The number of a datagram's conversation."""
        source, destination = (ip.src, ip.dst) if ip else (b"", b"")
        return self._udp.number((source, udp.srcport), (destination, udp.dstport))
