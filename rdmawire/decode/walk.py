"""One walk through a frame, from the link inwards.

Each protocol is a step: a function that takes its header from the walk and returns what follows,
as a selector (the table of numbers to look in) and a number. A mapping from both to the next step
says what carries what: :data:`rdmawire.decode.PROTOCOLS`. A copy of it with one row added knows one
more tunnel or payload protocol.

The walk records the headers and their offsets, what each checksum covers and where it is stored,
and where the first bytes are that do not parse. It raises nothing, whatever the bytes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from rdmawire.decode.checksum import Addresses, Checksum, ICRCStart
from rdmawire.errors import WireError
from rdmawire.wire.erf import ERF
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, LRH
from rdmawire.wire.inet import ROCE_PORT, TCP, UDP, IPv4, IPv6
from rdmawire.wire.layout import Piece, Placed, size
from rdmawire.wire.show import byte_count

_HeaderT = TypeVar("_HeaderT", bound=Header)


class By:
    """What selects the next step. Plain texts: members of an enum are slow to look up."""

    LINK = "link type"
    ETHERTYPE = "EtherType"
    MAC_CONTROL = "MAC control opcode"
    IP = "IP protocol"
    UDP = "UDP port"
    TCP = "TCP port"
    ERF = "ERF type"
    LNH = "link next header"
    TRANSPORT = "IBA transport"
    QP = "queue pair"
    DATA = "data"
    TRAILER = "trailer"


Selected = tuple[str, int]
"""A selector and a number."""
Following = Selected | None
"""What follows a header; ``None`` after the last one."""
Step = Callable[["Walk"], Following]
Protocols = Mapping[Selected, Step]
"""What carries what. What is not listed is data."""


class Located(NamedTuple):
    """A header, and its offset in the frame (bytes)."""

    offset: int
    header: Header


class LengthField(NamedTuple):
    """A field that says where a packet ends: ``scale`` times its value after ``start``.

    The value is the bits under ``mask`` of the two bytes at ``offset``.
    """

    offset: int
    start: int
    mask: int = 0xFFFF
    scale: int = 1

    def end(self, data: bytes) -> int:
        """The offset at which the packet ends."""
        at = self.offset
        return self.start + ((data[at] << 8 | data[at + 1]) & self.mask) * self.scale


LENGTH_FIELDS: Final[Mapping[type[Header], LengthField]] = {
    LRH: LengthField(4, 0, 0x07FF, 4),
    GRH: LengthField(4, GRH.SIZE),
    IPv4: LengthField(2, 0),
    IPv6: LengthField(4, IPv6.SIZE),
    UDP: LengthField(4, 0),
}
"""Length fields by header; offsets count from the first byte of the header."""

Hosts = tuple[bytes, bytes]
"""Source and destination of a frame: IPv4 address, IPv6 address or GID, or LID; or nothing."""

_MAPPED = bytes(10) + b"\xff\xff"


def host(address: bytes) -> bytes:
    """The address that a host goes by: an IPv4-mapped IPv6 address becomes the IPv4 address."""
    return address[12:] if len(address) == 16 and address.startswith(_MAPPED) else address


class FrameLayout(NamedTuple):
    """What a walk recorded.

    ``headers``: outermost first. ``hosts``: source and destination, by the innermost header that
    has addresses. ``checksums``: innermost first. ``packet``: offsets of the bytes
    from the BTH to the pad, if the frame has all of a valid transport packet. ``fragment_at``: the
    offset at which the payload of an IP fragment begins. ``malformed_at``: the offset of the first
    byte that does not parse.
    """

    headers: Sequence[Located]
    hosts: Hosts
    checksums: Sequence[Checksum] = ()
    packet: range | None = None
    fragment_at: int | None = None
    malformed_at: int | None = None

    @property
    def lengths(self) -> list[LengthField]:
        """The length fields, outermost first, with their offsets in the frame."""
        rows = ((at, LENGTH_FIELDS.get(type(header))) for at, header in self.headers)
        return [
            LengthField(at + row.offset, at + row.start, row.mask, row.scale)
            for at, row in rows
            if row is not None
        ]


def _hosts(headers: Sequence[Located]) -> Hosts:
    """Source and destination, by the innermost header that has addresses."""
    for _, header in reversed(headers):
        if isinstance(header, IPv4 | IPv6):
            return host(header.src), host(header.dst)
        if isinstance(header, GRH):
            return host(header.sgid), host(header.dgid)
        if isinstance(header, LRH):
            return header.slid.to_bytes(2, "big"), header.dlid.to_bytes(2, "big")
    return b"", b""


class NotCapturedError(Exception):
    """The capture ends before the header. The frame itself may be valid."""


_new = tuple.__new__


class Walk:
    """The state of a walk: the next byte, and the end of the layer at hand.

    ``short``: bytes of the layer at hand are missing, so nothing after them can be
    verified. ``truncated``: the capture has not all of the frame. ``addresses`` are those
    that a pseudo header covers; routing headers override them. ``icrc`` is where the ICRC of a BTH
    that follows begins. ``bth`` is the last BTH.

    :mod:`rdmawire.dissect.dissector` extends it: what is a method without effect here becomes nodes
    there.
    """

    __slots__ = (
        *("addresses", "bth", "checksums", "data", "end", "fragment_at", "headers", "icrc"),
        *("malformed_at", "offset", "packet", "protocols", "roce_ports", "short"),
        *("truncated", "tunnels"),
    )
    bth: BTH
    protocols: Protocols

    def __init__(self, data: bytes, roce_ports: Collection[int], length: int) -> None:
        self.data = data
        self.roce_ports = roce_ports
        self.offset = 0
        self.end = len(data)
        self.truncated = length > self.end
        self.short = False
        self.tunnels = 0
        self.addresses: Addresses | None = None
        self.icrc: ICRCStart | None = None
        self.headers: list[Located] = []
        self.checksums: list[Checksum] = []
        self.packet: range | None = None
        self.fragment_at: int | None = None
        self.malformed_at: int | None = None

    @property
    def left(self) -> int:
        """Bytes left in the layer at hand."""
        return self.end - self.offset

    def need(self, length: int, name: str) -> None:
        """Check that the layer at hand has ``length`` more bytes, which ``name`` takes.

        Raises:
            WireError: it has fewer.
            NotCapturedError: it has fewer because the capture ends there.

        """
        if length > self.end - self.offset:
            if self.truncated and self.end == len(self.data):
                raise NotCapturedError
            raise WireError(f"{name} takes {byte_count(length)}, {self.left} are left")

    def take(self, table: type[_HeaderT]) -> _HeaderT:
        """Read and record the next header. Raises as :meth:`need`."""
        start = self.offset
        end = start + table.SIZE
        if end > self.end:
            self.need(table.SIZE, table.__name__)
        header = table.parse(self.data, start)
        self.headers.append(_new(Located, (start, header)))
        self.offset = end
        return header

    def take_bytes(self, name: str, length: int) -> None:  # noqa: ARG002
        """Pass ``length`` bytes that are no header, such as options."""
        self.offset += length

    def take_pieces(self, pieces: Iterator[Placed]) -> list[Piece]:
        """Record the headers of a message that its own layout takes apart."""
        found = []
        for offset, piece in pieces:
            self.take_piece(offset, piece)
            self.offset = offset + size(piece)
            found.append(piece)
        return found

    def take_piece(self, offset: int, piece: Piece) -> None:
        """Record one piece, if it is a header."""
        if isinstance(piece, Header):
            self.headers.append(Located(offset, piece))

    def take_payload(self, pad: int = 0) -> None:
        """All that is left is the payload of RDMA, and ``pad`` bytes that fill it up."""

    def take_rest(self) -> None:
        """All that is left is of a protocol that is not listed."""

    def trail(self, name: str, start: int) -> None:  # noqa: ARG002
        """The bytes from ``start`` follow the layers inside; the layer at hand ends there."""
        self.end = start

    def narrow(self, length: int, name: str) -> None:  # noqa: ARG002
        """The layer at hand has ``length`` more bytes, as the field ``name`` says."""
        end = self.offset + length
        if length < 0 or end > self.end:
            self.short = True
        else:
            self.end = end

    def cover(self, checksum: Checksum) -> None:
        """Record a checksum."""
        self.checksums.append(checksum)

    def enter_fragment(self, protocol: int, offset: int, *, more: bool) -> Following:
        """Enter a part of an IP packet at ``offset``; ``more`` parts follow.

        The first part has the next header. Checksums in it cover bytes that are elsewhere.
        """
        if offset or more:
            self.fragment_at = self.offset
        return None if offset else (By.IP, protocol)

    def enter_erf(self, record: ERF) -> None:
        """Enter the frame in a record of Endace's format."""

    def enter_datagram(self, udp: UDP) -> None:
        """Enter the payload of UDP."""

    def enter_segment(self, tcp: TCP) -> Following:
        """Enter the payload of TCP."""
        return None if self.fragment_at is not None else (By.TCP, tcp.dstport)

    def name_opcode(self, name: str) -> None:
        """Note what a table of other opcodes calls the opcode of the last header."""

    def enter_management(self, start: int, pieces: Sequence[Piece]) -> None:
        """Leave a management datagram that begins at ``start``."""

    def complain(self, error: WireError) -> None:
        """End the layer at hand: the rest of it does not parse."""
        self.malformed_at = self.offset if error.offset is None else error.offset

    def run(self, start: Selected, protocols: Protocols) -> None:
        """Walk to the end of the frame. This raises nothing, whatever the bytes."""
        self.protocols = protocols
        following: Following = start
        try:
            while following is not None:
                step = protocols.get(following)
                if step is None:
                    self.take_rest()
                    return
                following = step(self)
        except WireError as error:
            self.complain(error)
        except NotCapturedError:
            self.take_rest()

    def layout(self) -> FrameLayout:
        """What was recorded."""
        return FrameLayout(
            self.headers,
            _hosts(self.headers),
            self.checksums[::-1],
            self.packet,
            self.fragment_at,
            self.malformed_at,
        )


ROCE_PORTS: Final = frozenset((ROCE_PORT,))
