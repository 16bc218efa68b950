"""Flow steering: which raw packet queue pair takes a frame that has no RDMA packet.

ibv_create_flow(3), and receive side scaling (RSS) as of ibv_create_rwq_ind_table(3), which spreads
flows over receive queues by a Toeplitz hash. Source of the hash: Microsoft, "RSS hashing functions"
and "Verifying the RSS hash calculation".
"""

from collections.abc import Sequence
from enum import IntEnum
from errno import EINVAL
from typing import Final, NamedTuple

from rdmawire.decode import outline
from rdmawire.errors import VerbsError
from rdmawire.ib.qp import QueuePair
from rdmawire.validate import check_bytes, check_int
from rdmawire.verbs.ah import MAC_BYTES
from rdmawire.wire.header import Header
from rdmawire.wire.inet import (
    TCP,
    UDP,
    VLAN,
    VXLAN,
    Ethernet,
    Ethernet8023,
    EtherType,
    IPProtocol,
    IPv4,
    IPv6,
    ServiceVLAN,
)

_LAST_NUMBER: Final = 0xFFFF
_LAST_PROTOCOL: Final = 0xFF
_LAST_TAG: Final = 0xFF_FFFF


class IPFlow(NamedTuple):
    """The IP packet of a frame: protocol, addresses, and the ports of UDP or TCP if it has any.

    ``ports`` are source and destination; a later fragment has none.
    """

    protocol: int
    src: bytes
    dst: bytes
    ports: tuple[int, int] | None


def ip_flow(frame: bytes) -> IPFlow | None:
    """Return what a frame's outermost IP header and the header after it say, if there is one."""
    return _first_flow(frame, outline(frame).headers)


def _first_flow(frame: bytes, headers: Sequence[tuple[int, type[Header]]]) -> IPFlow | None:
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


class FlowKind(IntEnum):
    """Which frames a rule is about: ``type`` of ``ibv_flow_attr``. ibv_create_flow(3).

    A default rule takes frames that no normal rule takes: all, or those to groups. A sniffer gets a
    copy of each frame that the port sends or receives, those of RDMA included.
    """

    NORMAL = 0
    ALL_DEFAULT = 1
    MC_DEFAULT = 2
    SNIFFER = 3


Part = type[Header] | type[EtherType]


class HeaderMatch(NamedTuple):
    """A header that a frame must have: its bits under ``mask`` are ``value``.

    ``part`` is the table of the header, or ``EtherType`` for the two bytes behind the Ethernet
    header's addresses and VLAN tags. ``inner`` says that it is in a tunnel (VXLAN).
    """

    part: Part
    value: int = 0
    mask: int = 0
    inner: bool = False

    @property
    def size(self) -> int:
        """Bytes of the header."""
        return _TYPE_BYTES if self.part is EtherType else self.part.SIZE  # type: ignore[union-attr]


class SteeredFrame:
    """A frame and its headers.

    ``flow`` is that of the outermost IP header. ``parts`` are the offsets (bytes) of headers by
    their tables: outside of a tunnel, and inside.
    """

    __slots__ = ("data", "flow", "parts")

    def __init__(self, data: bytes) -> None:
        headers = outline(data).headers
        tunnel = next((n for n, (_, table) in enumerate(headers) if table is VXLAN), len(headers))
        self.data = data
        self.flow = _first_flow(data, headers)
        self.parts = _places(headers[: tunnel + 1]), _places(headers[tunnel + 1 :])

    def has(self, match: HeaderMatch) -> bool:
        """Whether the frame has a header with these bits."""
        at = self.parts[match.inner].get(match.part)
        if at is None:
            return False
        found = int.from_bytes(self.data[at : at + match.size], "big")
        return found & match.mask == match.value


def _places(headers: Sequence[tuple[int, type[Header]]]) -> dict[Part, int]:
    places: dict[Part, int] = {}
    for at, table in headers:
        places.setdefault(Ethernet if table is Ethernet8023 else table, at)
        if table in _LINK_HEADERS:
            places[EtherType] = at + table.SIZE - _TYPE_BYTES
    return places


_LINK_HEADERS: Final = {Ethernet, Ethernet8023, VLAN, ServiceVLAN}
_TYPE_BYTES: Final = 2


class FlowCounter:
    """Counts the frames that rules took: ``packets``, and ``bytes`` of them."""

    def __init__(self) -> None:
        self.packets = self.bytes = 0


class FlowRule(NamedTuple):
    """The frames that go to a raw packet queue pair: those that match all given fields.

    ``dmac`` has six bytes, ``ethertype``, ``ip_protocol`` and ``dst_port`` (of UDP or TCP) are
    numbers; ``None`` matches any; ``headers`` match other fields. Of the rules that match, those
    with the lowest ``priority`` take the frame, and if all of them are ``dont_trap``, those with
    the next priority too. ``rss`` is an indirection table of queue pairs: ``hashing`` of the flow
    selects one of them instead of ``qp``. A frame without an IP packet has the hash 0. Completions
    have the number ``tag`` as ``imm_data``. With ``drops`` no queue pair gets the frames.
    """

    qp: QueuePair
    dmac: bytes | None = None
    ethertype: int | None = None
    ip_protocol: int | None = None
    dst_port: int | None = None
    priority: int = 0
    rss: tuple[QueuePair, ...] = ()
    kind: FlowKind = FlowKind.NORMAL
    headers: tuple[HeaderMatch, ...] = ()
    dont_trap: bool = False
    drops: bool = False
    tag: int = 0
    hashing: "RssHash | None" = None
    counter: FlowCounter | None = None

    @property
    def order(self) -> tuple[bool, int]:
        """The place among rules: of those that match a frame, the lowest take it."""
        return self.kind is not FlowKind.NORMAL, self.priority

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

    def matches(self, frame: SteeredFrame) -> bool:
        """Whether a frame matches the rule."""
        data, flow = frame.data, frame.flow
        return (
            self.dmac in (None, data[:6])
            and self.ethertype in (None, int.from_bytes(data[12:14], "big"))
            and (
                self.ip_protocol is None or (flow is not None and flow.protocol == self.ip_protocol)
            )
            and (self.dst_port is None or _dst_port(flow) == self.dst_port)
            and (self.kind is not FlowKind.MC_DEFAULT or bool(data and data[0] & _GROUP_BIT))
            and all(map(frame.has, self.headers))
        )

    def queue_for(self, flow: IPFlow | None) -> QueuePair:
        """Return the queue pair that takes a frame."""
        if len(self.rss) < 2:  # one entry needs no hash
            return self.rss[0] if self.rss else self.qp
        hashed = 0 if flow is None else (self.hashing or RssHash()).of(flow)
        return self.rss[hashed % len(self.rss)]


_GROUP_BIT: Final = 1
_LIMITS: Final = {
    "ethertype": _LAST_NUMBER,
    "ip_protocol": _LAST_PROTOCOL,
    "dst_port": _LAST_NUMBER,
    "priority": _LAST_NUMBER,
    "tag": _LAST_TAG,
}


def _dst_port(flow: IPFlow | None) -> int | None:
    return None if flow is None or flow.ports is None else flow.ports[1]


def matching(rules: Sequence[FlowRule], frame: SteeredFrame) -> list[FlowRule]:
    """Return the rules that take a frame: those of the first priority with a match.

    Where all of these are ``dont_trap``, those of the next priority follow.
    """
    found = [rule for rule in rules if rule.matches(frame)]
    taking: list[FlowRule] = []
    for order in sorted({rule.order for rule in found}):
        first = [rule for rule in found if rule.order == order]
        taking += first
        if not all(rule.dont_trap for rule in first):
            break
    return taking


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


class RssHash(NamedTuple):
    """What RSS hashes, and the key (40 bytes).

    ``fields`` are bits of ``ibv_rx_hash_fields``, from the lowest on: source and destination
    address of IPv4, then of IPv6, source and destination port of TCP, then of UDP. A packet without
    any of them has the hash 0.
    """

    fields: int = 0xFF
    key: bytes = RSS_KEY

    def of(self, flow: IPFlow) -> int:
        """The hash of a flow."""
        first, parts = _ADDRESS_BITS[len(flow.src)], (flow.src, flow.dst)
        data = self._chosen(first, parts)
        if flow.ports is not None and flow.protocol in _PORT_BITS:
            ports = tuple(port.to_bytes(_PORT_BYTES, "big") for port in flow.ports)
            data += self._chosen(_PORT_BITS[IPProtocol(flow.protocol)], ports)
        return toeplitz_hash(data, self.key)

    def _chosen(self, first: int, parts: tuple[bytes, ...]) -> bytes:
        """The parts that are hashed; ``first`` is the bit number of the first one in ``fields``."""
        return b"".join(part for bit, part in enumerate(parts, first) if self.fields >> bit & 1)


_ADDRESS_BITS: Final = {4: 0, 16: 2}
_PORT_BITS: Final = {IPProtocol.TCP: 4, IPProtocol.UDP: 6}
