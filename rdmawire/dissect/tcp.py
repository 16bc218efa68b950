"""TCP streams put together again: segments in any order become bytes in order.

Each direction of a connection counts its bytes from zero: the first one after the SYN, or the
first one captured where nobody saw a SYN. Segments that come early are held; bytes that come
twice count once, and where they differ the first ones stay. A hole is given up, and reported,
when the other side has acknowledged what is behind it, or when more is held than the limits
allow. Bytes handed on are not kept, so a retransmission is compared only with what is held.

What a segment costs is bounded: by its own length and by the number of segments held.
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
"""Most that one direction holds behind a hole: past either, the hole is given up."""

CONNECTIONS = 4096
"""Connections remembered; past that, the one longest silent is forgotten."""

HELD_IN_ALL = 64 << 20
"""Bytes of memory that segments held take in all directions together."""

SEGMENT_COST = 128
"""Bytes of memory that a segment held takes in CPython beside its own."""


class Data(NamedTuple):
    """Bytes of a stream, the next ones in order."""

    position: int
    data: bytes


class Hole(NamedTuple):
    """Bytes of a stream that will not come."""

    position: int
    length: int


Piece = Data | Hole


class Segment(NamedTuple):
    """What became of a TCP segment.

    ``position`` is where in the stream its payload begins, ``length`` what it had on the wire,
    ``captured`` what of that is there. ``pieces`` are what is now known of the stream, in order:
    more than the segment's own bytes if it filled a hole, nothing if it left one before it.
    ``repeated`` of its bytes had come before, or come before the first one captured;
    ``conflict`` says that some of those that could be compared were others.
    """

    position: int
    length: int
    captured: int = 0
    pieces: tuple[Piece, ...] = ()
    repeated: int = 0
    conflict: bool = False


class _Held(NamedTuple):
    """Bytes that wait for those before them; none where the capture cut the segment."""

    position: int
    length: int
    data: bytes

    @property
    def end(self) -> int:
        return self.position + self.length

    def from_position(self, position: int) -> "_Held":
        """What of it begins at ``position``."""
        skip = position - self.position
        return _Held(position, self.length - skip, self.data[skip:])

    def up_to(self, position: int) -> "_Held":
        """What of it ends at ``position``."""
        length = position - self.position
        return _Held(self.position, length, self.data[:length])


class Direction:
    """One direction of a connection. ``joined`` says that its SYN was not seen."""

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
        """Take in a segment; ``length`` is that of its payload if the capture cut it short."""
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
        """Bytes of memory that what is held takes."""
        return self.held + SEGMENT_COST * len(self._held)

    def acknowledged(self, ack: int) -> None:
        """The other side has everything before ``ack``, wherever the capture lost it."""
        if self._base is not None:
            self._acknowledged = max(self._acknowledged, self._position(ack))

    def give_up(self) -> tuple[Piece, ...]:
        """Wait no longer: all that is held, with the holes before it."""
        pieces: list[Piece] = []
        while self._held:
            self._skip_hole(pieces)
        return tuple(pieces)

    def _position(self, seq: int) -> int:
        """Where in the stream a sequence number is: the place nearest to what comes next."""
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
        """Keep what is new of these bytes; how many were not, and whether they differed."""
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
        """Hand on what is held and has nothing missing before it."""
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
        """Whether the hole before what is held will not be filled."""
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
    """A TCP connection: its number, its directions, and the state of the protocol above."""

    __slots__ = ("bases", "deaf", "directions", "stream", "upper")

    def __init__(self, stream: int, upper: T) -> None:
        self.stream = stream
        self.upper = upper
        self.deaf = False
        self.directions = (Direction(), Direction())
        self.bases: list[int | None] = [None, None]

    def fix_bases(self, way: int, tcp: TCP) -> None:
        """Fix what relative numbers count from, once for each direction."""
        if self.bases[way] is None:
            self.bases[way] = SEQUENCE.add(tcp.seq, tcp.syn - 1)
        if tcp.ack and self.bases[1 - way] is None:
            self.bases[1 - way] = SEQUENCE.add(tcp.acknowledgment, -1)

    @property
    def cost(self) -> int:
        """Bytes of memory that what both directions hold takes."""
        return sum(direction.cost for direction in self.directions)

    def is_begun_anew(self, way: int, tcp: TCP) -> bool:
        """Whether a SYN comes with another number than the direction has begun with."""
        base = self.bases[way]
        return bool(tcp.syn) and base is not None and base != tcp.seq

    def restart(self, way: int, upper: T) -> None:
        """A direction begins anew: the answer to the SYN came with another number."""
        self.upper = upper
        ways = list(self.directions)
        ways[way] = Direction()
        self.directions = (ways[0], ways[1])
        self.bases[way] = None

    def deafen(self) -> None:
        """Nobody cares for the bytes any more: hold none."""
        self.deaf = True
        self.directions = (Direction(), Direction())


class Arrival(NamedTuple, Generic[T]):
    """A TCP segment in its connection, with the numbers that Wireshark prints.

    ``way`` is 0 for the side that spoke first. ``seq``, ``ack`` and ``nxtseq`` are relative:
    ``tcp.seq``, ``tcp.ack`` and ``tcp.nxtseq``.
    """

    connection: Connection[T]
    way: int
    seq: int
    ack: int
    nxtseq: int
    segment: Segment


_End = tuple[bytes, int]
_Key = tuple[_End, _End]


def _ignore(_: object) -> None:
    """Nobody wants to know."""


class Tracker(Generic[T]):
    """All connections of a capture, numbered like Wireshark's ``tcp.stream``.

    ``upper`` makes the state of the protocol above, once for each connection, and ``drop`` is
    told when it is not needed any more. A connection that was forgotten gets a new number when it
    speaks again.
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
    ) -> Arrival[T]:
        """Take in a segment; ``length`` is that of its payload if the capture cut it short."""
        connection, way = self._take((src, tcp.srcport), (dst, tcp.dstport), tcp)
        connection.fix_bases(way, tcp)
        own, other = connection.bases[way] or 0, connection.bases[1 - way] or 0
        size = len(payload) if length is None else length
        seq = SEQUENCE.add(tcp.seq, -own)
        ack = SEQUENCE.add(tcp.acknowledgment, -other) if tcp.ack else tcp.acknowledgment
        nxtseq = SEQUENCE.add(seq, size + (tcp.syn | tcp.fin))
        segment = self._put(connection, way, tcp, payload, length)
        return Arrival(connection, way, seq, ack, nxtseq, segment)

    def _put(
        self, connection: Connection[T], way: int, tcp: TCP, payload: bytes, length: int | None
    ) -> Segment:
        if connection.deaf:
            size = len(payload) if length is None else length
            return Segment(0, size, len(payload))
        direction = connection.directions[way]
        before = direction.cost
        segment = direction.segment(tcp.seq, payload, syn=bool(tcp.syn), length=length)
        if tcp.ack:
            connection.directions[1 - way].acknowledged(tcp.acknowledgment)
        self._held += direction.cost - before
        if self._held > self._max_held:
            self._held -= direction.cost
            segment = segment._replace(pieces=segment.pieces + direction.give_up())
        return segment

    def deafen(self, connection: Connection[T]) -> None:
        """Put no more bytes of this connection together."""
        self._held -= connection.cost
        connection.deafen()

    def _take(self, source: _End, sink: _End, tcp: TCP) -> tuple[Connection[T], int]:
        """The connection that a segment belongs to, and its way; a new one if it begins one."""
        key, way = self._find(source, sink)
        connection = self._connections.get(key)
        if connection is None:
            return self._begin(key), 0
        if connection.is_begun_anew(way, tcp):
            if not tcp.ack:
                self._forget(key)
                return self._begin((source, sink)), 0
            self._restart(connection, way)
        self._connections.move_to_end(key)
        return connection, way

    def _find(self, source: _End, sink: _End) -> tuple[_Key, int]:
        """The key of the connection between two ends, and the way from one to the other."""
        back = (sink, source) in self._connections and (source, sink) not in self._connections
        return ((sink, source), 1) if back else ((source, sink), 0)

    def _begin(self, key: _Key) -> Connection[T]:
        connection = self._connections[key] = Connection(self._next, self._upper())
        self._next += 1
        if len(self._connections) > self._most:
            self._forget(next(iter(self._connections)))
        return connection

    def _restart(self, connection: Connection[T], way: int) -> None:
        """The answer to the SYN has come with another number."""
        self._held -= connection.directions[way].cost
        self._drop(connection.upper)
        connection.restart(way, self._upper())

    def _forget(self, key: _Key) -> None:
        connection = self._connections.pop(key)
        self._held -= connection.cost
        self._drop(connection.upper)
