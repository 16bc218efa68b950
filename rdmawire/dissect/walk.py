"""The walk through one frame that keeps every byte: headers become nodes, and so does the rest.

The steps are those of :mod:`rdmawire.decode`. Bytes that do not parse, trailers and CRCs become
nodes too, and fields that follow from elsewhere are added beside the headers.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rdmawire.decode.checksum import (
    NOWHERE,
    TCP_SUM,
    UDP_SUM,
    Checksum,
    HeaderSum,
    InvariantCRC,
    LinkCRC,
    TransportSum,
)
from rdmawire.decode.walk import By, Following, Protocols, Selected, Walk
from rdmawire.dissect import generated
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.generated import ChecksumFields
from rdmawire.dissect.node import Extra, Node
from rdmawire.dissect.rmpp import RMPPReassembly
from rdmawire.errors import WireError
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.erf import ERF
from rdmawire.wire.header import Header
from rdmawire.wire.ib import ICRC, VCRC, FlowControl
from rdmawire.wire.icrc import icrc_headers_twice, vcrc
from rdmawire.wire.inet import ROCE_PORT, TCP, UDP
from rdmawire.wire.layout import Piece, joined
from rdmawire.wire.opcode import Opcode

if TYPE_CHECKING:
    from rdmawire.dissect.mpa_framing import Streams

MAX_CONVERSATIONS: Final = 65536
"""Conversations remembered at most; past that, the one longest silent is forgotten."""


class Conversations:
    """Numbers conversations from zero in the order of their first frames, as Wireshark does."""

    def __init__(self, maximum: int = MAX_CONVERSATIONS) -> None:
        self._numbers: OrderedDict[Hashable, int] = OrderedDict()
        self._maximum = maximum
        self._next = 0

    def has_room(self, count: int) -> bool:
        """Whether none is forgotten though frames of ``count`` more conversations come."""
        return len(self._numbers) + count <= self._maximum

    def number(self, one: Hashable, other: Hashable) -> int:
        """The number of the conversation between two ends, in either direction."""
        key = (one, other) if (other, one) not in self._numbers else (other, one)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._next
            self._next += 1
            if len(self._numbers) > self._maximum:
                self._numbers.popitem(last=False)
        else:
            self._numbers.move_to_end(key)
        return number


class Session:
    """What is remembered from frame to frame, of bounded size.

    ``roce_ports`` are the UDP destination ports that carry RoCEv2.
    """

    def __init__(self, roce_ports: Iterable[int] = (ROCE_PORT,)) -> None:
        self.roce_ports = frozenset(roce_ports)
        self.rmpp = RMPPReassembly()
        self.udp = Conversations()

    @cached_property
    def streams(self) -> "Streams":
        """The TCP streams that carry iWARP."""
        from rdmawire.dissect.mpa_framing import Streams

        return Streams()

    def udp_stream(self, hosts: tuple[bytes, bytes], udp: UDP) -> int:
        """The number of a datagram's conversation."""
        source, destination = hosts
        return self.udp.number((source, udp.srcport), (destination, udp.dstport))


_HeaderT = TypeVar("_HeaderT", bound=Header)

_FIELDS: Final = {
    "ip options": generated.IP_OPTIONS,
    "ipv6 options": generated.IPV6_OPTIONS,
    "tcp options": generated.TCP_OPTIONS,
    "vendor": generated.VENDOR,
    "trailer": generated.TRAILER,
    "pad": generated.PAD,
    "payload": generated.PAYLOAD,
}
"""The fields of nodes that are plain bytes."""

_new = tuple.__new__
_NO_HOSTS: Final = (b"", b"")
_IPV6_ADDRESS: Final = 16
_FLUSH: Final = int(Opcode.RC_FLUSH)


class NodeWalk(Walk):
    """A walk that makes the nodes of a dissection.

    ``closers`` read what follows the layers inside: trailers and CRCs. ``complaints`` are why the
    frame is malformed, the first reason first.
    """

    __slots__ = ("closers", "complaints", "dissection", "missing", "nodes", "session")

    def __init__(self, dissection: Dissection, session: Session) -> None:
        super().__init__(dissection.data, session.roce_ports, dissection.length)
        self.dissection = dissection
        self.session = session
        self.nodes = dissection.nodes
        self.missing = 0
        self.closers: list[Callable[[], None]] = []
        self.complaints: list[Node] = []

    @property
    def hosts(self) -> tuple[bytes, bytes]:
        """The addresses that a pseudo header covers; nothing without an IP header."""
        return _NO_HOSTS if self.addresses is None else self.addresses.read(self.data)

    # Bytes become nodes.

    def take(self, table: type[_HeaderT]) -> _HeaderT:
        start = self.offset
        end = start + table.SIZE
        if end > self.end:
            self.need(table.SIZE, table.__name__)
        header = table.parse(self.data, start)
        self.nodes.append(Node(table.label, start, self.data[start:end], header))
        self.offset = end
        return header

    def take_bytes(self, name: str, length: int) -> None:
        data = self.data[self.offset : min(self.offset + length, self.end)]
        extras = (_new(Extra, (_FIELDS[name], data)),)
        self.nodes.append(Node(name, self.offset, data, None, extras))
        self.offset += len(data)

    def take_piece(self, offset: int, piece: Piece) -> None:
        self.nodes.append(piece_node(piece, offset))

    def take_payload(self, pad: int = 0) -> None:
        """Wireshark counts the pad as data, so ``data.data`` does as well."""
        data = self.data[self.offset : self.end]
        if not data:
            return
        size = len(data) - pad
        payload = data[:size] if pad else data
        extras = (
            _new(Extra, (generated.PAYLOAD, payload)),
            _new(Extra, (generated.DATA, data)),
            _new(Extra, (generated.DATA_LENGTH, len(data))),
        )
        self.nodes.append(Node("payload", self.offset, payload, None, extras))
        self.offset += size
        if pad:
            self.take_bytes("pad", pad)

    def take_rest(self) -> None:
        if self.left > 0:
            self.take_bytes("payload", self.left)

    def trail(self, name: str, start: int) -> None:
        end, self.end = self.end, start

        def close() -> None:
            self.offset, self.end = start, end
            self.take_bytes(name, end - start)

        self.closers.append(close)

    def narrow(self, length: int, name: str) -> None:
        end = self.offset + length
        if length < 0 or end > self.end:
            if length < 0 or not (self.truncated or self.short):
                self.note(f"{name} says that {length} bytes follow, {self.left} are there")
            self.short = True
            self.missing = max(end - self.end, 0)
        elif end < self.end:
            self.trail("trailer", end)

    # Checksums are verified.

    def cover(self, checksum: Checksum) -> None:
        _VERIFY[type(checksum)](self, checksum)

    def leave(self, fields: ChecksumFields, node: Node) -> None:
        """Note beside a node that a checksum cannot be verified: it is not there, or cut off."""
        self.dissection.unverified.append(fields.name)
        node.add(fields.status, fields.absent)

    def check(self, fields: ChecksumFields, found: int, expected: int) -> None:
        """Verify the checksum in the last node."""
        self.dissection.checks.append(fields.judge(self.nodes[-1], found, expected))

    # What is known of the frame, and of others.

    def enter_fragment(self, protocol: int, offset: int, *, more: bool) -> Following:  # noqa: ARG002
        """Fragments are not put together, so a part is data: RDMA is never fragmented."""
        return By.DATA, 0

    def enter_erf(self, record: ERF) -> None:
        """The time of the record is finer than that of the capture."""
        frame = self.dissection
        frame.lead, frame.interface, frame.time_ns = self.offset, record.cap, record.time_ns

    def enter_datagram(self, udp: UDP) -> None:
        node = self.nodes[-1]
        node.add(generated.UDP_STREAM, self.session.udp_stream(self.hosts, udp))
        if payload := self.data[self.offset : self.end]:
            node.add(generated.UDP_PAYLOAD, payload)

    def name_opcode(self, name: str) -> None:
        self.nodes[-1].words = {"opcode": name}

    # What is wrong.

    def note(self, reason: str, data: bytes = b"", offset: int | None = None) -> None:
        """Remember why the frame is malformed, for a node at its end."""
        at = self.offset if offset is None else offset
        node = Node("malformed", at, data, reason=reason)
        node.add(generated.MALFORMED, f"{reason} (at byte {at})")
        self.complaints.append(node)

    def complain(self, error: WireError) -> None:
        at = self.offset if error.offset is None else error.offset
        self.note(error.reason, self.data[at : self.end], at)

    def run(self, start: Selected, protocols: Protocols) -> None:
        if start not in protocols:
            self.note(f"{start[0]} {start[1]} is not known")
        super().run(start, protocols)
        for close in reversed(self.closers):
            close()
        if self.truncated:
            self._note_truncation()
        if self.complaints:
            self.nodes += self.complaints

    def _note_truncation(self) -> None:
        kept, length = len(self.data), self.dissection.length
        node = Node("cut", kept, b"")
        node.add(generated.CUT, f"the capture kept {kept} of {length} bytes")
        self.nodes.append(node)


def piece_node(piece: Piece, offset: int, *, reassembled: bool = False) -> Node:
    """The node of a header, or of plain bytes."""
    data = joined(piece)
    if isinstance(piece, bytes):
        extras = (Extra(generated.PAYLOAD, data),)
        return Node("bytes", offset, data, extras=extras, reassembled=reassembled)
    return Node(type(piece).label, offset, data, piece, reassembled=reassembled)


def _verify_ipv4(walk: NodeWalk, checksum: HeaderSum) -> None:
    start, end = checksum.start, checksum.end
    if end > walk.end:
        walk.leave(generated.IPV4_CHECKSUM, walk.nodes[-1])
        return
    data = walk.data[start:end]
    found = data[10] << 8 | data[11]
    walk.check(generated.IPV4_CHECKSUM, found, ipv4_header_checksum(data))


def _verify_transport(walk: NodeWalk, checksum: TransportSum) -> None:
    data, at, kind = walk.data, checksum.at, checksum.kind
    if kind is UDP_SUM:
        fields = generated.UDP_CHECKSUM
    elif kind is TCP_SUM and 0 <= (data[at - 4] >> 4) * 4 - TCP.SIZE <= walk.left:
        fields = generated.TCP_CHECKSUM
    else:  # ICMPv6 has no header here, and a TCP header that is malformed has no status
        return
    found = data[at] << 8 | data[at + 1]
    if not found and kind.may_be_absent:
        # RFC 8200, 8.1: over IPv6 only tunnels may leave it out (RFC 6935). RoCEv2 does.
        illegal = walk.addresses is not None and walk.addresses.size == _IPV6_ADDRESS
        status = generated.ILLEGAL if illegal else generated.NOT_PRESENT
        walk.nodes[-1].add(fields.status, status)
    elif checksum.verifiable:
        walk.check(fields, found, checksum.expected(data, checksum.end))
    else:
        walk.leave(fields, walk.nodes[-1])


def _verify_icrc(walk: NodeWalk, checksum: InvariantCRC) -> None:
    if checksum.end == NOWHERE:
        walk.leave(generated.ICRC, walk.nodes[-1])
        return

    def close() -> None:
        walk.offset, walk.end = checksum.at, checksum.end
        found = walk.take(ICRC).crc
        expected = checksum.expected(walk.data, checksum.end)
        if walk.data[checksum.bth] == _FLUSH:
            expected = _icrc_of_flush(walk, checksum, found, expected)
        walk.check(generated.ICRC, found, expected)

    walk.closers.append(close)


def _icrc_of_flush(walk: NodeWalk, checksum: InvariantCRC, found: int, expected: int) -> int:
    """The ICRC that a FLUSH should have: the standard one, or Linux's if that is there."""
    linux = icrc_headers_twice(expected, walk.data[checksum.bth : checksum.at])
    if found != linux:
        return expected
    walk.nodes[-1].add(generated.ICRC_NOTE, "good by rxe's rule for FLUSH")
    return linux


def _verify_link(walk: NodeWalk, checksum: LinkCRC) -> None:
    start, end = checksum.start, checksum.end
    if checksum.table is FlowControl:
        found = int.from_bytes(walk.data[end : end + VCRC.SIZE], "big")
        walk.check(generated.LPCRC, found, vcrc(walk.data, start, end))
        return

    def close() -> None:
        if end == NOWHERE:
            walk.leave(generated.VCRC, walk.nodes[0])
            return
        walk.offset, walk.end = end, end + VCRC.SIZE
        walk.check(generated.VCRC, walk.take(VCRC).crc, vcrc(walk.data, start, end))

    walk.closers.append(close)


_VERIFY: Final[dict[type[Checksum], Callable[[NodeWalk, Any], None]]] = {
    HeaderSum: _verify_ipv4,
    TransportSum: _verify_transport,
    InvariantCRC: _verify_icrc,
    LinkCRC: _verify_link,
}
