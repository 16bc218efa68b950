"""One direction of an MPA connection: octets in order become start-up frames and FPDUs.

The machine has three phases:

- OPENING: a start-up frame may begin here. If the stream's start was seen and there is none, the
  connection is not iWARP.
- FRAMED: it is known where the next FPDU begins, so its length says where the one after begins.
- SEARCHING: nobody knows, because the start was not seen or octets are lost; see
  :mod:`rdmawire.analysis.mpa_search`.

Beside the phases stands what is left of an FPDU that lost octets, or was let go to save memory:
it is dropped, and framing goes on behind it. Whether framing is still in step is the business of
:mod:`rdmawire.analysis.mpa_doubt`.
"""

from enum import Enum

from rdmawire.analysis.mpa_agreement import Agreement
from rdmawire.analysis.mpa_chain import HEAD
from rdmawire.analysis.mpa_doubt import Doubt
from rdmawire.analysis.mpa_event import (
    Event,
    Forgotten,
    Fpdu,
    Lost,
    NotIwarp,
    Skipped,
    StartUp,
    Torn,
)
from rdmawire.analysis.mpa_search import PATIENCE, Found, Search
from rdmawire.analysis.tcp_stream import Data, Hole, Piece, Segment
from rdmawire.wire.mpa import (
    MARKER_SPACING,
    MOST_PRIVATE_DATA,
    REPLY_KEY,
    REQUEST_KEY,
    Marker,
    MPAEnhanced,
    MPAReply,
    MPARequest,
    StartUpHeader,
    parse_fpdu,
    size_at,
)

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
        """Octets of memory that letting go would free."""
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
        """The next octets."""
        events: list[Event] = []
        octets: bytes | None = data.octets[self._missing :]
        self._missing -= len(data.octets) - len(octets or b"")
        while octets is not None:
            octets = self._step(octets, events)
        return events

    def _step(self, octets: bytes, events: list[Event]) -> bytes | None:
        """Do what the phase does; what the next phase has to look at, if there is one."""
        if self._agreement.rejected:
            at_hand = self._search.end if self._search else self._start + len(self._buffer)
            self._pass_over(at_hand + len(octets), events)
            return None
        return _STEPS[self.phase](self, octets, events)

    def _begin(self, position: int) -> int | None:
        """Where in the current segment something begins, if it does."""
        return position - self._at_hand.start if position in self._at_hand else None

    def _pass_over(self, end: int, events: list[Event]) -> None:
        """What comes before ``end`` belongs to no FPDU, for the connection was rejected."""
        events += _skipped(self._search.origin if self._search else self._start, end)
        self._start, self._buffer, self._search = end, bytearray(), None

    # OPENING

    def _open(self, octets: bytes, events: list[Event]) -> bytes | None:
        self._buffer += octets
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
        length = header.pd_length if header.pd_length <= MOST_PRIVATE_DATA else 0
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

    def _read(self, octets: bytes, events: list[Event]) -> bytes | None:
        self._buffer += octets
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
        """Octets of the FPDU at this index of the buffer; 0 if its length has not come."""
        return size_at(self._buffer, at, len(self._buffer), self._in_stream(self._start + at))

    def _in_stream(self, position: int) -> int | None:
        """A position as MPA counts it; ``None`` if the stream has no Markers."""
        return None if self._base is None else (position - self._base) % MARKER_SPACING

    def _fpdu(self, at: int, size: int) -> Fpdu:
        """The FPDU at this index of the buffer, where it is whole."""
        position, octets = self._start + at, bytes(self._buffer[at : at + size])
        fpdu = parse_fpdu(octets, position=self._in_stream(position))
        self._agreement.learn(fpdu)
        status = self._agreement.status(fpdu)
        return Fpdu(position, self._begin(position), octets, fpdu, status)

    # SEARCHING

    def _begin_search(self, at: int, *, aligned: bool = False) -> bytes:
        """Look for FPDUs from this index of the buffer on: the octets to look at."""
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

    def _look(self, octets: bytes, events: list[Event]) -> bytes | None:
        search = self._search
        assert search is not None
        search.known = self._agreement.known
        found = search.feed(octets)
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
        """Octets that will not come."""
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
        """What octets from ``start`` to ``end`` that are missing do to the framing."""
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
    """The start-up frame that these octets begin, or can still begin."""
    begun = bytes(buffer[:_KEY])
    return next((table for key, table in _TABLES.items() if key.startswith(begun)), None)


def _skipped(start: int, end: int) -> list[Event]:
    return [Skipped(start, end - start)] if end > start else []
