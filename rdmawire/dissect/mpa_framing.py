"""MPA connections: start-up frames and FPDUs out of the two streams of a TCP connection.

Each direction is a state machine of its own (:class:`Way`); what both share is
:class:`~rdmawire.dissect.mpa_event.Agreement`. Everything that happens is reported with the
TCP segment that completes it. At most one FPDU, or the window of a search, is kept for each
direction, and no more than a :class:`~rdmawire.dissect.mpa_event.Budget` for all together; each
byte is looked at a bounded number of times.
"""

from enum import Enum
from typing import NamedTuple

from rdmawire.dissect.mpa_event import (
    KEPT_IN_ALL,
    Agreement,
    Budget,
    CRCStatus,
    Event,
    Forgotten,
    Fpdu,
    Lost,
    NotIwarp,
    Skipped,
    StartUp,
    Torn,
)
from rdmawire.dissect.mpa_resync import HEAD, PATIENCE, Found, Search, read_head
from rdmawire.dissect.tcp import CONNECTIONS, Arrival, Data, Hole, Piece, Segment, Tracker
from rdmawire.wire.inet import TCP
from rdmawire.wire.mpa import (
    MARKER_SPACING,
    MAX_PRIVATE_DATA,
    REPLY_KEY,
    REQUEST_KEY,
    FPDULength,
    Marker,
    MPAEnhanced,
    MPAReply,
    MPARequest,
    StartUpHeader,
    parse_fpdu,
    size_at,
)

SENSELESS = 16
"""FPDUs in a row without the versions of DDP and RDMAP that certain framing survives."""


class Doubt:
    """Is told what framing brings, in order. ``in_step`` says whether framing may go on."""

    __slots__ = ("_certain", "_clear", "_doubted", "_proof", "_senseless", "in_step")

    def __init__(self, position: int) -> None:
        self.in_step = True
        self._certain = False
        self._senseless = 0
        self._clear = self._proof = position
        self._doubted = position - 1

    def begin_certain(self) -> None:
        """Framing begins behind a start-up frame."""
        self._certain = self.in_step = True

    def begin_found(self, found: Found) -> None:
        """Framing begins where a search has found an FPDU."""
        self._certain, self.in_step = False, True
        clear = found.base is not None
        end = found.position if clear else found.position + MARKER_SPACING + Marker.SIZE
        self._clear, self._proof = found.clear, end

    def take_head(self, position: int, data: bytes | bytearray, place: int | None) -> None:
        """An FPDU begins with these bytes; ``place`` is its position as MPA counts, if it does."""
        cut = len(data) < HEAD or (place is not None and -place % MARKER_SPACING < HEAD)
        if not self._certain and not cut and read_head(data, 0, position) is None:
            self._fall_out(position)

    def take(self, event: Fpdu) -> None:
        """An FPDU is whole."""
        if self._certain:
            self._senseless = 0 if _is_sensible(event) else self._senseless + 1
            self.in_step = self._senseless <= SENSELESS
        elif event.crc is not CRCStatus.GOOD and self._is_unproved(event):
            self._fall_out(event.position)

    def _fall_out(self, position: int) -> None:
        if position > self._doubted:
            self._doubted, self.in_step = position, False

    def _is_unproved(self, event: Fpdu) -> bool:
        """Whether an FPDU without a good CRC is none, or hides a Marker nobody knows of."""
        unclear = self._clear <= event.position < self._proof
        return (unclear and _may_hold_marker(event)) or _contradicts_itself(event)


def _is_sensible(event: Fpdu) -> bool:
    """Whether an FPDU has a good CRC, or DDP and RDMAP in the versions there are."""
    control = event.fpdu.ulpdu[:2]
    versions = len(control) == 2 and control[0] & 0x03 == 1 and control[1] & 0xC0 == 0x40
    return versions or event.crc is CRCStatus.GOOD


def _may_hold_marker(event: Fpdu) -> bool:
    """Whether an FPDU read as one without Markers looks as if it had one."""
    words = range(0, min(len(event.data), MARKER_SPACING), 4)
    return event.crc is CRCStatus.BAD or any(
        int.from_bytes(event.data[at : at + 4], "big") == at for at in words
    )


def _contradicts_itself(event: Fpdu) -> bool:
    """Whether an FPDU without a good CRC is none that a conforming sender makes."""
    fpdu = event.fpdu
    content = FPDULength(len(fpdu.ulpdu)).build() + fpdu.ulpdu
    short = len(content) < HEAD
    return short or any(fpdu.wrong_markers()) or read_head(content, 0, event.position) is None


_TABLES: dict[bytes, type[StartUpHeader]] = {REQUEST_KEY: MPARequest, REPLY_KEY: MPAReply}
_KEY = len(REQUEST_KEY)


class Phase(Enum):
    """What a direction is doing."""

    OPENING = "waiting for a start-up frame"
    FRAMED = "reading FPDUs"
    SEARCHING = "looking for an FPDU"


class Way:
    """Direction ``number`` of a connection; its stream is counted from ``position`` on.

    ``joined`` says that the stream's start was not seen.
    """

    def __init__(self, number: int, agreement: Agreement, position: int, *, joined: bool) -> None:
        self.phase = Phase.OPENING
        self._number, self._agreement, self._joined = number, agreement, joined
        self._start, self._buffer = position, bytearray()
        self._missing = 0
        self._base: int | None = None
        self._settled = self._negotiated = False
        self._doubt = Doubt(position)
        self._search: Search | None = None
        self._patience = PATIENCE
        self._at_hand = range(position, position)
        self._forgotten: list[Event] = []

    def receive(self, piece: Piece, segment: Segment) -> list[Event]:
        """What the next piece of the stream brings; ``segment`` is the one that brought it."""
        self._at_hand = range(segment.position, segment.position + segment.captured)
        events, self._forgotten = self._forgotten, []
        return events + (self._lose(piece) if isinstance(piece, Hole) else self._take(piece))

    @property
    def kept(self) -> int:
        """Bytes of memory that letting go would free."""
        return self._search.kept if self._search else len(self._buffer)

    def let_go(self) -> None:
        """Keep nothing: a search goes on with what comes next, an FPDU is passed over."""
        if self._search:
            self._search.let_go()
        elif self.phase is Phase.FRAMED and self._settled and (size := self._size(0)):
            self._forgotten.append(Forgotten(self._start, size))
            self._missing = size - len(self._buffer)
            self._start, self._buffer = self._start + size, bytearray()

    def _take(self, data: Data) -> list[Event]:
        """The next bytes."""
        events: list[Event] = []
        raw: bytes | None = data.data[self._missing :]
        self._missing -= len(data.data) - len(raw or b"")
        while raw is not None:
            raw = self._step(raw, events)
        return events

    def _step(self, data: bytes, events: list[Event]) -> bytes | None:
        """Do what the phase does; what the next phase has to look at, if there is one."""
        if self._agreement.rejected:
            at_hand = self._search.end if self._search else self._start + len(self._buffer)
            self._pass_over(at_hand + len(data), events)
            return None
        return _STEPS[self.phase](self, data, events)

    def _begin(self, position: int) -> int | None:
        """Where in the current segment something begins, if it does."""
        return position - self._at_hand.start if position in self._at_hand else None

    def _pass_over(self, end: int, events: list[Event]) -> None:
        """What comes before ``end`` belongs to no FPDU, for the connection was rejected."""
        events += _skipped(self._search.origin if self._search else self._start, end)
        self._start, self._buffer, self._search = end, bytearray(), None

    # OPENING

    def _open(self, data: bytes, events: list[Event]) -> bytes | None:
        self._buffer += data
        table = _table(self._buffer)
        if table is None and self._joined:
            return self._begin_search(0, aligned=True)
        if table is None:
            events.append(NotIwarp())
            return None
        if len(self._buffer) < table.SIZE:
            return None
        header = table.parse(self._buffer)
        # RFC 5044, section 7.1.1: a receiver ends the connection for more.
        length = header.pd_length if header.pd_length <= MAX_PRIVATE_DATA else 0
        if len(self._buffer) < table.SIZE + length:
            return None
        events.append(self._opened(header, length))
        return b"" if header.pd_length == length else self._begin_search(0)

    def _opened(self, header: StartUpHeader, length: int) -> StartUp:
        """The start-up frame is whole; FPDUs follow."""
        end = header.SIZE + length
        private = bytes(self._buffer[header.SIZE : end])
        enhanced = MPAEnhanced.parse(private) if header.s and length >= MPAEnhanced.SIZE else None
        started = StartUp(self._start, self._begin(self._start), header, private, enhanced)
        self._agreement.start_up(self._number, header)
        del self._buffer[:end]
        self._start += end
        self.phase, self._base = Phase.FRAMED, self._start
        self._doubt.begin_certain()
        return started

    # FRAMED

    def _read(self, data: bytes, events: list[Event]) -> bytes | None:
        self._buffer += data
        if not self._settled:
            self._settle()
        at = 0
        while self._settled and (size := self._size(at)):
            event = self._fpdu(at, size) if at + size <= len(self._buffer) else None
            self._weigh(at, event)
            if not self._doubt.in_step:
                return self._begin_search(at)
            if event is None:
                break
            events.append(event)
            at += size
        del self._buffer[:at]
        self._start += at
        return None

    def _settle(self) -> None:
        """Find out whether the stream has Markers, if that can be known now."""
        wanted = self._agreement.wants_markers(self._number)
        if wanted is None and len(self._buffer) < Marker.SIZE:
            return
        if wanted is None:
            # The first Marker is zero (RFC 5044, 4.3); no DDP segment begins with zeros.
            wanted = not any(self._buffer[: Marker.SIZE])
        self._base = self._base if wanted else None
        self._settled = self._negotiated = True

    def _weigh(self, at: int, event: Fpdu | None) -> None:
        """Let doubt know the FPDU at this index of the buffer, or as much of it as there is."""
        position = self._start + at
        self._doubt.take_head(position, self._buffer[at : at + HEAD], self._in_stream(position))
        if event is not None:
            self._doubt.take(event)

    def _size(self, at: int) -> int:
        """Bytes of the FPDU at this index of the buffer; 0 if its length has not come."""
        return size_at(self._buffer, at, len(self._buffer), self._in_stream(self._start + at))

    def _in_stream(self, position: int) -> int | None:
        """A position as MPA counts it; ``None`` if the stream has no Markers."""
        return None if self._base is None else (position - self._base) % MARKER_SPACING

    def _fpdu(self, at: int, size: int) -> Fpdu:
        """The FPDU at this index of the buffer, where it is whole."""
        position, data = self._start + at, bytes(self._buffer[at : at + size])
        fpdu = parse_fpdu(data, position=self._in_stream(position))
        self._agreement.learn(fpdu)
        status = self._agreement.status(fpdu)
        return Fpdu(position, self._begin(position), data, fpdu, status)

    # SEARCHING

    def _begin_search(self, at: int, *, aligned: bool = False) -> bytes:
        """Look for FPDUs from this index of the buffer on: the bytes to look at."""
        rest = bytes(self._buffer[at:])
        self._start += at
        self._buffer = bytearray()
        self.phase, self._missing = Phase.SEARCHING, 0
        # A place of Markers that a search has found may be wrong; that of the start-up is not.
        self._settled = self._settled and self._negotiated
        self._search = Search(
            self._start,
            known=self._agreement.known,
            crc=self._agreement.crc,
            base=self._base if self._settled else None,
            settled=self._settled,
            patience=self._patience,
            aligned=aligned,
        )
        return rest

    def _look(self, data: bytes, events: list[Event]) -> bytes | None:
        search = self._search
        assert search is not None
        search.known = self._agreement.known
        found = search.feed(data)
        self._patience = search.patience
        if found is not None:
            events += _skipped(search.origin, found.position)
            self._found(search, found)
            return b""
        if search.hopeless:
            events.append(NotIwarp())
        return None

    def _found(self, search: Search, found: Found) -> None:
        self._agreement.found(crc=found.sure)
        self.phase, self._search = Phase.FRAMED, None
        if not self._negotiated:
            self._base, self._settled = found.base, True
        self._doubt.begin_found(found)
        self._start = found.position
        self._buffer = search.buffer[found.position - search.start :]

    # holes

    def _lose(self, hole: Hole) -> list[Event]:
        """Bytes that will not come."""
        events: list[Event] = []
        end = hole.position + hole.length
        if self._agreement.rejected:
            self._pass_over(hole.position, events)
            self._start = end
        else:
            self._tear(hole.position, end, events)
        if self._agreement.known:
            events.append(Lost(hole.position, hole.length))
        return events

    def _tear(self, start: int, end: int, events: list[Event]) -> None:
        """What bytes from ``start`` to ``end`` that are missing do to the framing."""
        if self._missing:
            self._go_on(start + self._missing, end)
            return
        size = self._size(0) if self.phase is Phase.FRAMED and self._settled else 0
        if size:
            begin, place = self._begin(self._start), self._in_stream(self._start)
            events.append(Torn(self._start, begin, bytes(self._buffer), size, place))
            self._go_on(self._start + size, end)
            return
        if self._agreement.known:
            events += _skipped(self._search.origin if self._search else self._start, start)
        self._search_behind(end)

    def _go_on(self, torn_end: int, end: int) -> None:
        """Framing goes on behind a torn FPDU, unless a hole up to ``end`` goes further."""
        if torn_end < end:
            self._search_behind(end)
        else:
            self._start, self._buffer = torn_end, bytearray()
            self._missing = torn_end - end

    def _search_behind(self, end: int) -> None:
        self._start, self._buffer = end, bytearray()
        self._begin_search(0, aligned=True)


_STEPS = {
    Phase.OPENING: Way._open,
    Phase.FRAMED: Way._read,
    Phase.SEARCHING: Way._look,
}


def _table(buffer: bytearray) -> type[StartUpHeader] | None:
    """The start-up frame that these bytes begin, or can still begin."""
    begun = bytes(buffer[:_KEY])
    return next((table for key, table in _TABLES.items() if key.startswith(begun)), None)


def _skipped(start: int, end: int) -> list[Event]:
    return [Skipped(start, end - start)] if end > start else []


class MPAConnection:
    """Both directions of a TCP connection that may be iWARP. ``over`` says that it is not.

    What they keep is paid from ``budget``, which connections share.
    """

    __slots__ = ("_budget", "_ways", "agreement", "over")

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self.agreement = Agreement()
        self.over = False
        self._ways: list[Way | None] = [None, None]

    def receive(self, way: int, segment: Segment, *, joined: bool) -> list[Event]:
        """What the pieces of a segment of this direction bring.

        ``joined`` says that the start of the direction's stream was not seen.
        """
        events: list[Event] = []
        for piece in segment.pieces:
            if not self.over:
                events += self._piece(way, piece, segment, joined)
        return events

    def _piece(self, number: int, piece: Piece, segment: Segment, joined: bool) -> list[Event]:
        way = self._ways[number]
        if way is None:
            way = self._ways[number] = Way(number, self.agreement, piece.position, joined=joined)
        events = way.receive(piece, segment)
        self._budget.settle(way)
        if events and isinstance(events[-1], NotIwarp):
            self.close()
        return events

    def close(self) -> None:
        """Nobody asks for this connection any more: keep nothing."""
        self.over = True
        for way in filter(None, self._ways):
            self._budget.forget(way)
        self._ways = [None, None]


class Result(NamedTuple):
    """A TCP segment, the connection it belongs to, and what happened in the MPA stream by it."""

    arrival: Arrival[MPAConnection]
    events: list[Event]


class Streams:
    """All TCP connections of a capture, and MPA in those that are iWARP."""

    def __init__(self, connections: int = CONNECTIONS, kept: int = KEPT_IN_ALL) -> None:
        self.budget = Budget(kept)
        self._tracker: Tracker[MPAConnection] = Tracker(
            self._connection, connections, drop=MPAConnection.close
        )

    def _connection(self) -> MPAConnection:
        return MPAConnection(self.budget)

    def segment(
        self, src: bytes, dst: bytes, tcp: TCP, payload: bytes, length: int | None = None
    ) -> Result:
        """Take in a TCP segment between two IP addresses.

        ``length`` is that of the payload on the wire, if the capture cut it short.
        """
        arrival = self._tracker.segment(src, dst, tcp, payload, length)
        connection = arrival.connection
        if not arrival.segment.pieces:
            return Result(arrival, [])
        joined = connection.directions[arrival.way].joined
        events = connection.upper.receive(arrival.way, arrival.segment, joined=joined)
        if connection.upper.over:
            self._tracker.deafen(connection)
        return Result(arrival, events)
