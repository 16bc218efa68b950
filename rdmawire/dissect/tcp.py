"""TCP stream reassembly: segments in any order become bytes in order.

Each direction of a connection counts its bytes from zero: the first one after the SYN, or the
first one captured if there was no SYN. Early segments are held; repeated bytes count once, and
where they differ the first ones are kept. A hole is given up, and reported, when the peer has
acknowledged bytes after it, or when the held bytes exceed the limits. Delivered bytes are not
kept, so a retransmission is compared only with held bytes.

The cost of a segment is bounded by its own length and by the number of segments held.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from rdmawire.wire.inet import TCP
from rdmawire.wire.serial import BITS_32

SEQUENCE = BITS_32
"""Sequence numbers. RFC 9293, 3.4."""

HELD_SEGMENTS = 256
HELD_BYTES = 1 << 20
"""Limits of what one direction holds after a hole: past either, the hole is given up."""

CONNECTIONS = 4096
"""Connections remembered; past that, the one idle longest is forgotten."""

HELD_IN_ALL = 64 << 20
"""Limit of memory in bytes for the held segments of all directions."""

SEGMENT_COST = 128
"""Bytes of memory of a held segment in CPython, without its data."""


class Data(NamedTuple):
    """The next bytes of a stream, in order."""

    position: int
    data: bytes


class Hole(NamedTuple):
    """Bytes of a stream that were not captured."""

    position: int
    length: int


Piece = Data | Hole


class Segment(NamedTuple):
    """Reassembly result of a TCP segment.

    ``position`` is the offset of its payload in the stream, ``length`` the payload's size on the
    wire, ``captured`` its captured size. ``pieces`` are the new parts of the stream, in order:
    more than the segment's own bytes if it filled a hole, none if it left a hole.
    ``repeated`` bytes were received earlier, or precede the first captured one;
    ``conflict`` says that some bytes that could be compared differ.
    """

    position: int
    length: int
    captured: int = 0
    pieces: tuple[Piece, ...] = ()
    repeated: int = 0
    conflict: bool = False


class _Held(NamedTuple):
    """Bytes waiting for earlier ones; ``data`` is empty where the capture cut the segment."""

    position: int
    length: int
    data: bytes

    @property
    def end(self) -> int:
        return self.position + self.length

    def from_position(self, position: int) -> "_Held":
        """The part from ``position`` on."""
        skip = position - self.position
        return _Held(position, self.length - skip, self.data[skip:])

    def up_to(self, position: int) -> "_Held":
        """The part before ``position``."""
        length = position - self.position
        return _Held(self.position, length, self.data[:length])


class Direction:
    """One direction of a connection. ``joined`` says that its SYN was not captured."""

    __slots__ = ("_acknowledged", "_base", "_held", "_next", "held", "joined")

    def __init__(self) -> None:
        self.joined = False
        self.held = 0
        self._base: int | None = None
        self._next = 0
        self._acknowledged = 0
        self._held: list[_Held] = []

    def segment(
        self, seq: int, payload: bytes, *, syn: bool = False, length: int | None = None
    ) -> Segment:
        """Process a segment; ``length`` is that of its payload if the capture truncated it."""
        if self._base is None:
            self._base = SEQUENCE.add(seq, syn)
            self.joined = not syn
        start = self._position(seq + syn)
        size = len(payload) if length is None else max(length, len(payload))
        if start == self._next and not self._held and size == len(payload):
            self._next += size
            return Segment(start, size, size, (Data(start, payload),) if size else ())
        return self._disorderly(start, payload, size)

    @property
    def cost(self) -> int:
        """Bytes of memory of the held segments."""
        return self.held + SEGMENT_COST * len(self._held)

    def acknowledged(self, ack: int) -> None:
        """Record that the peer has received every byte before ``ack``."""
        if self._base is not None:
            self._acknowledged = max(self._acknowledged, self._position(ack))

    def give_up(self) -> tuple[Piece, ...]:
        """Stop waiting: return all held bytes, and the holes before them."""
        pieces: list[Piece] = []
        while self._held:
            self._skip_hole(pieces)
        return tuple(pieces)

    def _position(self, seq: int) -> int:
        """Stream position of a sequence number: the one nearest to the next expected byte."""
        assert self._base is not None
        return self._next + SEQUENCE.distance(self._base + self._next, seq)

    def _disorderly(self, start: int, payload: bytes, size: int) -> Segment:
        repeated, conflict = self._hold(_Held(start, len(payload), payload))
        if size > len(payload):
            self._hold(_Held(start + len(payload), size - len(payload), b""))
        pieces: list[Piece] = []
        self._drain(pieces)
        while self._held and self._is_hopeless():
            self._skip_hole(pieces)
        return Segment(start, size, len(payload), tuple(pieces), repeated, conflict)

    def _hold(self, new: _Held) -> tuple[int, bool]:
        """Hold the new bytes; return the number of repeated ones, and whether they differed."""
        repeated, conflict = 0, False
        if new.position < self._next:
            repeated = min(self._next, new.end) - new.position
            new = new.from_position(min(self._next, new.end))
        index = bisect_right(self._held, new.position, key=lambda held: held.end)
        while new.length:
            held = self._held[index] if index < len(self._held) else None
            if held is None or new.end <= held.position:
                self._keep(index, new)
                break
            if new.position < held.position:
                self._keep(index, new.up_to(held.position))
                index, new = index + 1, new.from_position(held.position)
            end = min(new.end, held.end)
            conflict |= _differ(new, held, end)
            repeated += end - new.position
            index, new = index + 1, new.from_position(end)
        return repeated, conflict

    def _keep(self, index: int, new: _Held) -> None:
        self._held.insert(index, new)
        self.held += len(new.data)

    def _drain(self, pieces: list[Piece]) -> None:
        """Deliver held bytes that have no hole before them."""
        taken = 0
        for held in self._held:
            if held.position != self._next:
                break
            whole = len(held.data) == held.length
            pieces.append(
                Data(held.position, held.data) if whole else Hole(held.position, held.length)
            )
            self.held -= len(held.data)
            self._next = held.end
            taken += 1
        del self._held[:taken]

    def _is_hopeless(self) -> bool:
        """Whether the hole before the held bytes will not be filled."""
        return (
            self._held[0].position <= self._acknowledged
            or len(self._held) > HELD_SEGMENTS
            or self.held > HELD_BYTES
        )

    def _skip_hole(self, pieces: list[Piece]) -> None:
        first = self._held[0].position
        pieces.append(Hole(self._next, first - self._next))
        self._next = first
        self._drain(pieces)


def _differ(new: _Held, held: _Held, end: int) -> bool:
    """Whether two runs of bytes differ where they overlap, up to ``end``."""
    start = max(new.position, held.position)
    first = new.data[start - new.position : end - new.position]
    second = held.data[start - held.position : end - held.position]
    return bool(first and second) and first != second


T = TypeVar("T")


class Connection(Generic[T]):
    """A TCP connection: its number, its directions, and the state of the upper protocol."""

    __slots__ = ("bases", "deaf", "directions", "stream", "upper")

    def __init__(self, stream: int, upper: T) -> None:
        self.stream = stream
        self.upper = upper
        self.deaf = False
        self.directions = (Direction(), Direction())
        self.bases: list[int | None] = [None, None]

    def fix_bases(self, side: int, tcp: TCP) -> None:
        """Set the bases of relative numbers, once for each direction."""
        if self.bases[side] is None:
            self.bases[side] = SEQUENCE.add(tcp.seq, tcp.syn - 1)
        if tcp.ack and self.bases[1 - side] is None:
            self.bases[1 - side] = SEQUENCE.add(tcp.acknowledgment, -1)

    @property
    def cost(self) -> int:
        """Bytes of memory of the held segments of both directions."""
        return sum(direction.cost for direction in self.directions)

    def is_begun_anew(self, side: int, tcp: TCP) -> bool:
        """Whether a SYN has another sequence number than the direction began with."""
        base = self.bases[side]
        return bool(tcp.syn) and base is not None and base != tcp.seq

    def restart(self, side: int, upper: T) -> None:
        """Restart a direction whose SYN ACK has a new sequence number."""
        self.upper = upper
        sides = list(self.directions)
        sides[side] = Direction()
        self.directions = (sides[0], sides[1])
        self.bases[side] = None

    def stop(self) -> None:
        """Discard held bytes and stop reassembly."""
        self.deaf = True
        self.directions = (Direction(), Direction())


class TrackedSegment(NamedTuple, Generic[T]):
    """A TCP segment in its connection, with the numbers that Wireshark prints.

    ``side`` is 0 for the direction of the first segment. ``seq``, ``ack`` and ``nxtseq`` are
    relative: ``tcp.seq``, ``tcp.ack`` and ``tcp.nxtseq``.
    """

    connection: Connection[T]
    side: int
    seq: int
    ack: int
    nxtseq: int
    segment: Segment


_End = tuple[bytes, int]
_Key = tuple[_End, _End]


def _ignore(_: object) -> None:
    """Do nothing."""


class Tracker(Generic[T]):
    """All connections of a capture, numbered like Wireshark's ``tcp.stream``.

    ``upper`` makes the state of the upper protocol, once for each connection, and ``drop`` is
    called when that state is no longer needed. A forgotten connection gets a new number with its
    next segment.
    """

    def __init__(
        self,
        upper: Callable[[], T],
        most: int = CONNECTIONS,
        held: int = HELD_IN_ALL,
        drop: Callable[[T], None] = _ignore,
    ) -> None:
        self._upper, self._drop = upper, drop
        self._most, self._max_held = most, held
        self._connections: OrderedDict[_Key, Connection[T]] = OrderedDict()
        self._next = 0
        self._held = 0

    def segment(
        self, src: bytes, dst: bytes, tcp: TCP, payload: bytes, length: int | None = None
    ) -> TrackedSegment[T]:
        """Process a segment; ``length`` is that of its payload if the capture truncated it."""
        connection, side = self._take((src, tcp.srcport), (dst, tcp.dstport), tcp)
        connection.fix_bases(side, tcp)
        own, other = connection.bases[side] or 0, connection.bases[1 - side] or 0
        size = len(payload) if length is None else length
        seq = SEQUENCE.add(tcp.seq, -own)
        ack = SEQUENCE.add(tcp.acknowledgment, -other) if tcp.ack else tcp.acknowledgment
        nxtseq = SEQUENCE.add(seq, size + (tcp.syn | tcp.fin))
        segment = self._put(connection, side, tcp, payload, length)
        return TrackedSegment(connection, side, seq, ack, nxtseq, segment)

    def _put(
        self, connection: Connection[T], side: int, tcp: TCP, payload: bytes, length: int | None
    ) -> Segment:
        if connection.deaf:
            size = len(payload) if length is None else length
            return Segment(0, size, len(payload))
        direction = connection.directions[side]
        before = direction.cost
        segment = direction.segment(tcp.seq, payload, syn=bool(tcp.syn), length=length)
        if tcp.ack:
            connection.directions[1 - side].acknowledged(tcp.acknowledgment)
        self._held += direction.cost - before
        if self._held > self._max_held:
            self._held -= direction.cost
            segment = segment._replace(pieces=segment.pieces + direction.give_up())
        return segment

    def stop(self, connection: Connection[T]) -> None:
        """Stop the reassembly of a connection."""
        self._held -= connection.cost
        connection.stop()

    def _take(self, source: _End, sink: _End, tcp: TCP) -> tuple[Connection[T], int]:
        """The connection and direction of a segment; a new connection if it begins one."""
        key, side = self._find(source, sink)
        connection = self._connections.get(key)
        if connection is None:
            return self._begin(key), 0
        if connection.is_begun_anew(side, tcp):
            if not tcp.ack:
                self._forget(key)
                return self._begin((source, sink)), 0
            self._restart(connection, side)
        self._connections.move_to_end(key)
        return connection, side

    def _find(self, source: _End, sink: _End) -> tuple[_Key, int]:
        """The connection's key, and the number of the direction from ``source`` to ``sink``."""
        back = (sink, source) in self._connections and (source, sink) not in self._connections
        return ((sink, source), 1) if back else ((source, sink), 0)

    def _begin(self, key: _Key) -> Connection[T]:
        connection = self._connections[key] = Connection(self._next, self._upper())
        self._next += 1
        if len(self._connections) > self._most:
            self._forget(next(iter(self._connections)))
        return connection

    def _restart(self, connection: Connection[T], side: int) -> None:
        """Restart a direction whose SYN ACK has a new sequence number."""
        self._held -= connection.directions[side].cost
        self._drop(connection.upper)
        connection.restart(side, self._upper())

    def _forget(self, key: _Key) -> None:
        connection = self._connections.pop(key)
        self._held -= connection.cost
        self._drop(connection.upper)
