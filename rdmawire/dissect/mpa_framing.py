"""MPA connections: start-up frames and FPDUs from the two streams of a TCP connection.

Each direction is a state machine of its own (:class:`StreamDirection`); both share the state of
:class:`~rdmawire.dissect.mpa_event.Agreement`. Each event is reported with the TCP segment that
completes it. At most one FPDU, or the window of a search, is buffered for each direction, and at
most a :class:`~rdmawire.dissect.mpa_event.Budget` for all together; each byte is examined a
bounded number of times.
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
    PartialFpdu,
    Skipped,
    StartUp,
)
from rdmawire.dissect.mpa_resync import HEAD, PATIENCE, Search, SyncPoint, read_head
from rdmawire.dissect.tcp import CONNECTIONS, Data, Hole, Piece, Segment, TrackedSegment, Tracker
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

MAX_INVALID_FPDUS = 16
"""Consecutive FPDUs without valid DDP and RDMAP versions that certain framing tolerates."""


class FramingConfidence:
    """Confidence in the framing of a stream. ``in_step`` says whether framing may continue."""

    __slots__ = ("_certain", "_clear", "_doubted", "_proof", "_senseless", "in_step")

    def __init__(self, position: int) -> None:
        self.in_step = True
        self._certain = False
        self._senseless = 0
        self._clear = self._proof = position
        self._doubted = position - 1

    def begin_certain(self) -> None:
        """Framing begins after a start-up frame."""
        self._certain = self.in_step = True

    def begin_found(self, found: SyncPoint) -> None:
        """Framing begins at an FPDU that a search found."""
        self._certain, self.in_step = False, True
        clear = found.base is not None
        end = found.position if clear else found.position + MARKER_SPACING + Marker.SIZE
        self._clear, self._proof = found.clear, end

    def take_head(self, position: int, data: bytes | bytearray, place: int | None) -> None:
        """Check the first bytes of an FPDU; ``place`` is its offset from a Marker, if any."""
        cut = len(data) < HEAD or (place is not None and -place % MARKER_SPACING < HEAD)
        if not self._certain and not cut and read_head(data, 0, position) is None:
            self._fall_out(position)

    def take(self, event: Fpdu) -> None:
        """Check a complete FPDU."""
        if self._certain:
            self._senseless = 0 if _is_sensible(event) else self._senseless + 1
            self.in_step = self._senseless <= MAX_INVALID_FPDUS
        elif event.crc is not CRCStatus.GOOD and self._is_unproved(event):
            self._fall_out(event.position)

    def _fall_out(self, position: int) -> None:
        if position > self._doubted:
            self._doubted, self.in_step = position, False

    def _is_unproved(self, event: Fpdu) -> bool:
        """Whether an FPDU without a good CRC is invalid, or may contain an unexpected Marker."""
        unclear = self._clear <= event.position < self._proof
        return (unclear and _may_hold_marker(event)) or _contradicts_itself(event)


def _is_sensible(event: Fpdu) -> bool:
    """Whether an FPDU has a good CRC, or valid versions of DDP and RDMAP."""
    control = event.fpdu.ulpdu[:2]
    versions = len(control) == 2 and control[0] & 0x03 == 1 and control[1] & 0xC0 == 0x40
    return versions or event.crc is CRCStatus.GOOD


def _may_hold_marker(event: Fpdu) -> bool:
    """Whether an FPDU that was read without Markers may contain one."""
    words = range(0, min(len(event.data), MARKER_SPACING), 4)
    return event.crc is CRCStatus.BAD or any(
        int.from_bytes(event.data[at : at + 4], "big") == at for at in words
    )


def _contradicts_itself(event: Fpdu) -> bool:
    """Whether no conforming sender makes this FPDU, which has no good CRC."""
    fpdu = event.fpdu
    content = FPDULength(len(fpdu.ulpdu)).build() + fpdu.ulpdu
    short = len(content) < HEAD
    return short or any(fpdu.wrong_markers()) or read_head(content, 0, event.position) is None


_TABLES: dict[bytes, type[StartUpHeader]] = {REQUEST_KEY: MPARequest, REPLY_KEY: MPAReply}
_KEY = len(REQUEST_KEY)


class Phase(Enum):
    """Phase of a direction."""

    OPENING = "waiting for a start-up frame"
    FRAMED = "reading FPDUs"
    SEARCHING = "looking for an FPDU"


class StreamDirection:
    """Direction ``number`` of a connection; its stream begins at ``position``.

    ``joined`` says that the start of the stream was not captured.
    """

    def __init__(self, number: int, agreement: Agreement, position: int, *, joined: bool) -> None:
        self.phase = Phase.OPENING
        self._number, self._agreement, self._joined = number, agreement, joined
        self._start, self._buffer = position, bytearray()
        self._missing = 0
        self._base: int | None = None
        self._settled = self._negotiated = False
        self._doubt = FramingConfidence(position)
        self._search: Search | None = None
        self._patience = PATIENCE
        self._at_hand = range(position, position)
        self._forgotten: list[Event] = []

    def receive(self, piece: Piece, segment: Segment) -> list[Event]:
        """Return the events of the next piece of the stream, which ``segment`` completed."""
        self._at_hand = range(segment.position, segment.position + segment.captured)
        events, self._forgotten = self._forgotten, []
        return events + (self._lose(piece) if isinstance(piece, Hole) else self._take(piece))

    @property
    def kept(self) -> int:
        """Bytes of memory that ``let_go`` would free."""
        return self._search.kept if self._search else len(self._buffer)

    def let_go(self) -> None:
        """Discard the buffer: a search continues with the next bytes, an FPDU is skipped."""
        if self._search:
            self._search.let_go()
        elif self.phase is Phase.FRAMED and self._settled and (size := self._size(0)):
            self._forgotten.append(Forgotten(self._start, size))
            self._missing = size - len(self._buffer)
            self._start, self._buffer = self._start + size, bytearray()

    def _take(self, data: Data) -> list[Event]:
        """Process the next bytes."""
        events: list[Event] = []
        raw: bytes | None = data.data[self._missing :]
        self._missing -= len(data.data) - len(raw or b"")
        while raw is not None:
            raw = self._step(raw, events)
        return events

    def _step(self, data: bytes, events: list[Event]) -> bytes | None:
        """Process ``data`` in the current phase; return the bytes for the next phase, if any."""
        if self._agreement.rejected and not self._opens(data):
            at_hand = self._search.end if self._search else self._start + len(self._buffer)
            self._pass_over(at_hand + len(data), events)
            return None
        return _STEPS[self.phase](self, data, events)

    def _opens(self, data: bytes) -> bool:
        """Whether ``data`` is of a start-up frame: a capture may have the reply before it."""
        return self.phase is Phase.OPENING and _table(self._buffer + data) is not None

    def _begin(self, position: int) -> int | None:
        """Offset of ``position`` in the current segment; ``None`` if it is outside."""
        return position - self._at_hand.start if position in self._at_hand else None

    def _pass_over(self, end: int, events: list[Event]) -> None:
        """Skip the bytes before ``end``: no FPDU follows once the connection was rejected."""
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
        # RFC 5044, section 7.1.1: a receiver closes the connection on longer private data.
        length = header.pd_length if header.pd_length <= MAX_PRIVATE_DATA else 0
        if len(self._buffer) < table.SIZE + length:
            return None
        events.append(self._opened(header, length))
        return b"" if header.pd_length == length else self._begin_search(0)

    def _opened(self, header: StartUpHeader, length: int) -> StartUp:
        """Finish a complete start-up frame; FPDUs follow."""
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
        """Determine whether the stream has Markers, if enough bytes are available."""
        wanted = self._agreement.wants_markers(self._number)
        if wanted is None and len(self._buffer) < Marker.SIZE:
            return
        if wanted is None:
            # The first Marker is zero (RFC 5044, 4.3); no DDP segment begins with zeros.
            wanted = not any(self._buffer[: Marker.SIZE])
        self._base = self._base if wanted else None
        self._settled = self._negotiated = True

    def _weigh(self, at: int, event: Fpdu | None) -> None:
        """Pass the FPDU at buffer index ``at``, or the available part of it, to ``Doubt``."""
        position = self._start + at
        self._doubt.take_head(position, self._buffer[at : at + HEAD], self._in_stream(position))
        if event is not None:
            self._doubt.take(event)

    def _size(self, at: int) -> int:
        """Size in bytes of the FPDU at buffer index ``at``; 0 if its length field is incomplete."""
        return size_at(self._buffer, at, len(self._buffer), self._in_stream(self._start + at))

    def _in_stream(self, position: int) -> int | None:
        """Offset of ``position`` from a Marker; ``None`` if the stream has no Markers."""
        return None if self._base is None else (position - self._base) % MARKER_SPACING

    def _fpdu(self, at: int, size: int) -> Fpdu:
        """The complete FPDU of ``size`` bytes at buffer index ``at``."""
        position, data = self._start + at, bytes(self._buffer[at : at + size])
        fpdu = parse_fpdu(data, position=self._in_stream(position))
        self._agreement.learn(fpdu)
        status = self._agreement.status(fpdu)
        return Fpdu(position, self._begin(position), data, fpdu, status)

    # SEARCHING

    def _begin_search(self, at: int, *, aligned: bool = False) -> bytes:
        """Search for FPDUs from buffer index ``at`` on; return the bytes to search."""
        rest = bytes(self._buffer[at:])
        self._start += at
        self._buffer = bytearray()
        self.phase, self._missing = Phase.SEARCHING, 0
        # A Marker position found by a search may be wrong; the one of the start-up is certain.
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

    def _found(self, search: Search, found: SyncPoint) -> None:
        self._agreement.found(crc=found.sure)
        self.phase, self._search = Phase.FRAMED, None
        if not self._negotiated:
            self._base, self._settled = found.base, True
        self._doubt.begin_found(found)
        self._start = found.position
        self._buffer = search.buffer[found.position - search.start :]

    # holes

    def _lose(self, hole: Hole) -> list[Event]:
        """Process bytes that were not captured."""
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
        """Update the framing for missing bytes from ``start`` to ``end``."""
        if self._missing:
            self._continue_after(start + self._missing, end)
            return
        size = self._size(0) if self.phase is Phase.FRAMED and self._settled else 0
        if size:
            begin, place = self._begin(self._start), self._in_stream(self._start)
            events.append(PartialFpdu(self._start, begin, bytes(self._buffer), size, place))
            self._continue_after(self._start + size, end)
            return
        if self._agreement.known:
            events += _skipped(self._search.origin if self._search else self._start, start)
        self._search_behind(end)

    def _continue_after(self, fpdu_end: int, end: int) -> None:
        """Continue framing after a truncated FPDU, unless a hole up to ``end`` extends past it."""
        if fpdu_end < end:
            self._search_behind(end)
        else:
            self._start, self._buffer = fpdu_end, bytearray()
            self._missing = fpdu_end - end

    def _search_behind(self, end: int) -> None:
        self._start, self._buffer = end, bytearray()
        self._begin_search(0, aligned=True)


_STEPS = {
    Phase.OPENING: StreamDirection._open,
    Phase.FRAMED: StreamDirection._read,
    Phase.SEARCHING: StreamDirection._look,
}


def _table(buffer: bytearray) -> type[StartUpHeader] | None:
    """The type of start-up frame that ``buffer`` begins, or may begin once it is longer."""
    begun = bytes(buffer[:_KEY])
    return next((table for key, table in _TABLES.items() if key.startswith(begun)), None)


def _skipped(start: int, end: int) -> list[Event]:
    return [Skipped(start, end - start)] if end > start else []


class MPAConnection:
    """Both directions of a TCP connection that may be iWARP. ``over`` says that it is not.

    Their buffers count against ``budget``, which all connections share.
    """

    __slots__ = ("_budget", "_directions", "agreement", "over")

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self.agreement = Agreement()
        self.over = False
        self._directions: list[StreamDirection | None] = [None, None]

    def receive(self, side: int, segment: Segment, *, joined: bool) -> list[Event]:
        """Return the events of the pieces of a segment from side ``side`` (0 or 1).

        ``joined`` says that the start of the direction's stream was not captured.
        """
        events: list[Event] = []
        for piece in segment.pieces:
            if not self.over:
                events += self._piece(side, piece, segment, joined)
        return events

    def _piece(self, number: int, piece: Piece, segment: Segment, joined: bool) -> list[Event]:
        direction = self._directions[number]
        if direction is None:
            direction = self._directions[number] = StreamDirection(
                number, self.agreement, piece.position, joined=joined
            )
        events = direction.receive(piece, segment)
        self._budget.settle(direction)
        if events and isinstance(events[-1], NotIwarp):
            self.close()
        return events

    def close(self) -> None:
        """Discard the buffers of a connection that is no longer needed."""
        self.over = True
        for direction in filter(None, self._directions):
            self._budget.forget(direction)
        self._directions = [None, None]


class Result(NamedTuple):
    """A TCP segment, its connection, and the MPA events that it completes."""

    arrival: TrackedSegment[MPAConnection]
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
        """Process a TCP segment between two IP addresses.

        ``length`` is that of the payload on the wire, if the capture truncated it.
        """
        arrival = self._tracker.segment(src, dst, tcp, payload, length)
        connection = arrival.connection
        if not arrival.segment.pieces:
            return Result(arrival, [])
        joined = connection.directions[arrival.side].joined
        events = connection.upper.receive(arrival.side, arrival.segment, joined=joined)
        if connection.upper.over:
            self._tracker.stop(connection)
        return Result(arrival, events)
