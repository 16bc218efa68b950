"""Flow steering: which raw packet queue pair takes a frame that has no RDMA packet.

ibv_create_flow(3), and receive side scaling (RSS) as of ibv_create_rwq_ind_table(3), which spreads
flows over receive queues by a Toeplitz hash. Source of the hash: Microsoft, "RSS hashing functions"
and "Verifying the RSS hash calculation".
"""

from collections.abc import Sequence
from errno import EINVAL
from typing import Final, NamedTuple

from rdmawire.decode import outline
from rdmawire.errors import VerbsError
from rdmawire.ib.qp import QueuePair
from rdmawire.validate import check_bytes, check_int
from rdmawire.verbs.ah import MAC_BYTES
from rdmawire.wire.header import Header
from rdmawire.wire.inet import TCP, UDP, IPv4, IPv6

_LAST_NUMBER: Final = 0xFFFF
_LAST_PROTOCOL: Final = 0xFF


class IPFlow(NamedTuple):
    """The IP packet of a frame: protocol, addresses, and the ports of UDP or TCP if it has any.

    ``ports`` are source and destination; a later fragment has none.
    """

    protocol: int
    src: bytes
    dst: bytes
    ports: tuple[int, int] | None

    @property
    def rss_hash(self) -> int:
        """The Toeplitz hash of addresses and ports, with the standard key."""
        return rss_hash(self.src, self.dst, self.ports)


def ip_flow(frame: bytes) -> IPFlow | None:
    """Return what a frame's outermost IP header and the header after it say, if there is one."""
    headers = outline(frame).headers
    for number, (at, table) in enumerate(headers):
        if table is IPv4 or table is IPv6:
            return _flow_of(table.parse(frame, at), frame, headers[number + 1 :])
    return None


def _flow_of(ip: IPv4 | IPv6, frame: bytes, inner: Sequence[tuple[int, type[Header]]]) -> IPFlow:
    protocol = ip.protocol if isinstance(ip, IPv4) else ip.next_header
    for at, table in inner:
        if table is UDP or table is TCP:
            header = table.parse(frame, at)
            return IPFlow(protocol, ip.src, ip.dst, (header.srcport, header.dstport))
    return IPFlow(protocol, ip.src, ip.dst, None)


class FlowRule(NamedTuple):
    """The frames that go to a raw packet queue pair: those that match all given fields.

    ``dmac`` has six bytes, ``ethertype``, ``ip_protocol`` and ``dst_port`` (of UDP or TCP) are
    numbers; ``None`` matches any. Of the rules that match, those with the lowest ``priority`` take
    the frame. ``rss`` is an indirection table of queue pairs: the Toeplitz hash of the flow selects
    one of them instead of ``qp``. A frame without an IP packet has the hash 0.
    """

    qp: QueuePair
    dmac: bytes | None = None
    ethertype: int | None = None
    ip_protocol: int | None = None
    dst_port: int | None = None
    priority: int = 0
    rss: tuple[QueuePair, ...] = ()

    @property
    def queues(self) -> tuple[QueuePair, ...]:
        """The queue pairs that may take frames."""
        return self.rss or (self.qp,)

    def check(self) -> None:
        """``VerbsError`` EINVAL for impossible values, and for other queue pair types."""
        for qp in (self.qp, *self.rss):
            if qp.service.wire is not None:
                raise VerbsError(f"QP {qp.qp_num:#x} takes no raw packets", EINVAL)
        if self.dmac is not None:
            check_bytes("dmac", self.dmac, MAC_BYTES)
        for name, most in _LIMITS.items():
            if (number := getattr(self, name)) is not None:
                check_int(name, number, 0, most)

    def matches(self, frame: bytes, flow: IPFlow | None) -> bool:
        """Whether a frame, whose IP packet is ``flow``, matches the rule."""
        return (
            self.dmac in (None, frame[:6])
            and self.ethertype in (None, int.from_bytes(frame[12:14], "big"))
            and (
                self.ip_protocol is None or (flow is not None and flow.protocol == self.ip_protocol)
            )
            and (self.dst_port is None or _dst_port(flow) == self.dst_port)
        )

    def queue_for(self, flow: IPFlow | None) -> QueuePair:
        """Return the queue pair that takes a frame."""
        if len(self.rss) < 2:  # one entry needs no hash
            return self.queues[0]
        return self.rss[(0 if flow is None else flow.rss_hash) % len(self.rss)]


_LIMITS: Final = {
    "ethertype": _LAST_NUMBER,
    "ip_protocol": _LAST_PROTOCOL,
    "dst_port": _LAST_NUMBER,
    "priority": _LAST_NUMBER,
}


def _dst_port(flow: IPFlow | None) -> int | None:
    return None if flow is None or flow.ports is None else flow.ports[1]


def takers(rules: Sequence[FlowRule], frame: bytes) -> list[QueuePair]:
    """Return the queue pairs that take a frame: those of the first priority with a match."""
    if not rules:
        return []
    flow = ip_flow(frame)
    matching = [rule for rule in rules if rule.matches(frame, flow)]
    first = min((rule.priority for rule in matching), default=0)
    found = (rule.queue_for(flow) for rule in matching if rule.priority == first)
    return [qp for qp in found if qp.takes_packets]


RSS_KEY: Final = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
)
"""The secret key of Microsoft's verification suite, which most drivers have as their default."""
_HASH_BITS: Final = 32
_HASH_MASK: Final = (1 << _HASH_BITS) - 1
_PORT_BYTES: Final = 2


def toeplitz_hash(data: bytes, key: bytes = RSS_KEY) -> int:
    """Return the hash (32 bits) of ``data``; ``key`` has at least four bytes more.

    For each bit of the data that is set, the 32 bits of the key that begin at its place are added
    (exclusive or). ``ValueError`` for a key that is too short.
    """
    if len(key) < len(data) + _HASH_BITS // 8:
        raise ValueError(f"a key of {len(key)} bytes for {len(data)} bytes: 4 more are needed")
    bits, window = int.from_bytes(data, "big"), int.from_bytes(key, "big")
    first, last = len(data) * 8 - 1, len(key) * 8 - _HASH_BITS
    result = 0
    for place in range(len(data) * 8):
        if bits >> (first - place) & 1:
            result ^= window >> (last - place) & _HASH_MASK
    return result


def rss_hash(
    src: bytes, dst: bytes, ports: tuple[int, int] | None = None, key: bytes = RSS_KEY
) -> int:
    """Return the hash of a flow: its addresses (4 or 16 bytes), and its ports if it has any.

    ``ports`` are source and destination.
    """
    numbers = (
        b"" if ports is None else b"".join(port.to_bytes(_PORT_BYTES, "big") for port in ports)
    )
    return toeplitz_hash(src + dst + numbers, key)
