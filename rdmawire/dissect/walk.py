"""The walk through one frame, from the link inwards.

Each protocol is a step: a function that takes its header from the walk and says what follows,
by a selector (which table of numbers) and a key (the number).
:data:`rdmawire.dissect.dissector.NEXT` maps both to the next step, so what can follow what is data.
A step that meets bytes it cannot read raises ``WireError``; the walk keeps what it found before and
ends with a node that says why.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from rdmawire.dissect import generated
from rdmawire.dissect.checksums import Checksum
from rdmawire.dissect.mpa_framing import Streams
from rdmawire.dissect.node import Derived, Dissection, Extra, Node
from rdmawire.dissect.rmpp import RMPPReassembly
from rdmawire.errors import WireError
from rdmawire.wire.header import Header
from rdmawire.wire.ib import ICRC, VCRC
from rdmawire.wire.inet import ROCE_PORT, UDP, IPv4, IPv6
from rdmawire.wire.show import byte_count

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


_H = TypeVar("_H", bound=Header)


class By:
    """What selects the next step. Plain texts: an enum's members are slow to look up."""

    LINK = "link type"
    ETHERTYPE = "EtherType"
    MAC_CONTROL = "MAC control opcode"
    IP = "IP protocol"
    UDP = "UDP port"
    ERF = "ERF type"
    LNH = "link next header"
    TRANSPORT = "IBA transport"
    MAD = "management queue pair"
    DATA = "data"
    TRAILER = "trailer"


Selected = tuple[str, int]
Following = Selected | None
ComputeICRC = Callable[[int, int], int]
"""The ICRC that a frame should have, given where its BTH stands and where its pad ends."""
Step = Callable[["Walk"], Following]
Closer = Callable[["Walk"], None]


class _NotCapturedError(Exception):
    """The capture kept no more of the frame: no fault of the frame's."""


class Walk:
    """Where a dissection stands: the next byte, the end of the layer at hand, what is owed.

    ``closers`` are what still has to be read behind the layers inside: trailers and CRCs.
    ``icrc`` computes the ICRC that the frame should have; every header that a BTH can stand
    behind sets it. ``short`` says that bytes are missing, so that nothing behind them can be
    checked; ``missing`` counts those of the layer at hand. ``complaints`` are why the frame is
    malformed, the first reason first.
    """

    __slots__ = (
        *("closers", "complaints", "cut", "data", "dissection", "end", "ends_known", "icrc"),
        *("missing", "network", "network_offset", "nodes", "offset", "session", "short"),
        "tunnels",
    )
    icrc: ComputeICRC

    def __init__(self, dissection: Dissection, session: Session) -> None:
        self.dissection = dissection
        self.session = session
        self.nodes = dissection.nodes
        self.data = dissection.data
        self.offset = 0
        self.end = len(self.data)
        self.cut = dissection.length > len(self.data)
        self.short = False
        self.missing = 0
        self.closers: list[Closer] = []
        self.tunnels = 0
        self.complaints: list[Node] = []
        self.network: IPv4 | IPv6 | None = None
        self.network_offset = 0
        self.ends_known = True

    @property
    def left(self) -> int:
        """Bytes left in the layer at hand."""
        return self.end - self.offset

    def need(self, length: int, who: str) -> None:
        """End the layer at hand unless it has ``length`` more bytes, which ``who`` takes."""
        if length > self.end - self.offset:
            if self.cut and self.end == len(self.data):
                raise _NotCapturedError
            raise WireError(f"{who} takes {byte_count(length)}, {self.left} are left")

    def take(self, table: type[_H]) -> _H:
        """The next header, which becomes a node."""
        start, end = self.offset, self.offset + table.SIZE
        if end > self.end:
            self.need(table.SIZE, table.__name__)
        header = table.parse(self.data, start)
        self.nodes.append(Node(table.label, start, self.data[start:end], header))
        self.offset = end
        return header

    def take_bytes(self, name: str, length: int, field: Derived) -> bytes:
        """The next ``length`` bytes, which become a node without a header."""
        data = self.data[self.offset : min(self.offset + length, self.end)]
        node = Node(name, self.offset, data, None, (Extra(field, data),))
        self.nodes.append(node)
        self.offset += len(data)
        return data

    def take_data(self, pad: int = 0) -> None:
        """All that is left, as the payload of RDMA or TCP; the last ``pad`` bytes fill it up.

        Wireshark counts the pad as data, so ``data.data`` does as well.
        """
        data = self.data[self.offset : self.end]
        if not data:
            return
        self.take_bytes("payload", len(data) - pad, generated.PAYLOAD)
        self.nodes[-1].add(generated.DATA, data)
        self.nodes[-1].add(generated.DATA_LENGTH, len(data))
        if pad:
            self.take_bytes("pad", pad, generated.PAD)

    def take_rest(self) -> None:
        """All that is left, as what some other protocol means something by."""
        if self.left > 0:
            self.take_bytes("payload", self.left, generated.PAYLOAD)

    def narrow(self, length: int, who: str) -> None:
        """``who`` says that ``length`` bytes follow; what is behind them is a trailer."""
        end = self.offset + length
        if length < 0 or end > self.end:
            if length < 0 or not (self.cut or self.short):
                self.complain(f"{who} says that {length} bytes follow, {self.left} are there")
            self.short = True
            self.missing = max(end - self.end, 0)
        elif end < self.end:
            self.owe("trailer", end, self.end, generated.TRAILER)
            self.end = end

    def owe(self, name: str, start: int, end: int, field: Derived) -> None:
        """Bytes from ``start`` to ``end`` that become a node after the layers inside."""

        def pay(walk: Walk) -> None:
            walk.offset, walk.end = start, end
            walk.take_bytes(name, end - start, field)

        self.closers.append(pay)

    def leave(self, kind: Checksum, node: Node) -> None:
        """Say beside a node that a checksum cannot be verified: it is not there, or cut off."""
        self.dissection.unverified.append(kind.name)
        node.add(kind.status, kind.absent)

    def owe_crc(
        self, table: type[ICRC | VCRC], end: int, kind: Checksum, expected: Callable[[], int]
    ) -> None:
        """A CRC at byte ``end`` that is read and judged after the layers inside."""

        def pay(walk: Walk) -> None:
            walk.offset, walk.end = end, end + table.SIZE
            walk.check(kind, walk.take(table).crc, expected())

        self.closers.append(pay)

    def complain(self, reason: str, data: bytes = b"", offset: int | None = None) -> None:
        """Remember why the frame is malformed, for a node at its end."""
        at = self.offset if offset is None else offset
        node = Node("malformed", at, data, reason=reason)
        node.add(generated.MALFORMED, f"{reason} (at byte {at})")
        self.complaints.append(node)

    def give_up(self, error: WireError) -> None:
        """End the layer at hand: what is left of it does not parse."""
        at = self.offset if error.offset is None else error.offset
        self.complain(error.reason, self.data[at : self.end], at)

    def check(self, kind: Checksum, found: int, expected: int) -> None:
        """Judge the checksum that stands in the last node."""
        self.dissection.checks.append(kind.judge(self.nodes[-1], found, expected))

    def run(self, start: Selected, steps: Mapping[Selected, Step]) -> None:
        """Walk to the end of the frame. Whatever the bytes, this raises nothing."""
        if start not in steps:
            self.complain(f"{start[0]} {start[1]} is not known")
        try:
            self._follow(start, steps)
        except WireError as error:
            self.give_up(error)
        except _NotCapturedError:
            self.take_rest()
        self._close()
        if self.cut:
            self._note_cut()
        if self.complaints:
            self.nodes += self.complaints

    def _follow(self, following: Following, steps: Mapping[Selected, Step]) -> None:
        while following is not None:
            step = steps.get(following)
            if step is None:
                self.take_rest()
                return
            following = step(self)

    def _close(self) -> None:
        """Read what stands behind the layers, the innermost first."""
        for closer in reversed(self.closers):
            closer(self)

    def _note_cut(self) -> None:
        kept, length = len(self.data), self.dissection.length
        node = Node("cut", kept, b"")
        node.add(generated.CUT, f"the capture kept {kept} of {length} bytes")
        self.nodes.append(node)
