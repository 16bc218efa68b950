"""One direction of an MPA connection: octets in order become start-up frames and FPDUs.

The machine has three phases:

- OPENING: a start-up frame may begin here. If the stream's start was seen and there is none, the
  connection is not iWARP.
- FRAMED: it is known where the next FPDU begins, so its length says where the one after begins.
- SEARCHING: nobody knows, because the start was not seen or octets are lost; see
  :mod:`rdmawire.analysis.mpa_search`.

Beside the phases stands what is left of an FPDU that lost octets: it is dropped, and framing goes
on behind it.

Framing that began with a start-up frame is certain, and survives many FPDUs in a row that make no
sense. Framing that a search has found survives none; and if the search found no Markers, it is
clear of them only after as many octets as Markers are apart.
"""

from enum import Enum

from rdmawire.analysis.mpa_agreement import Agreement
from rdmawire.analysis.mpa_chain import HEAD, read_head
from rdmawire.analysis.mpa_event import (
    CRCStatus,
    Event,
    Fpdu,
    Lost,
    NotIwarp,
    Skipped,
    StartUp,
    Torn,
)
from rdmawire.analysis.mpa_search import PATIENCE, Found, Search
from rdmawire.analysis.tcp_stream import Data, Hole
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

SENSELESS = 16
"""FPDUs in a row without the versions of DDP and RDMAP that certain framing survives."""

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
        self._settled = self._certain = False
        self._senseless = 0
        self._clear = self._proof = self._checked = position
        self._search: Search | None = None
        self._patience = PATIENCE

    def take(self, data: Data) -> list[Event]:
        """The next octets."""
        octets = data.octets
        if self._agreement.rejected:
            return _skipped(data.position, data.position + len(octets))
        if self._missing:
            octets = octets[self._missing :]
            self._missing -= len(data.octets) - len(octets)
            if not octets:
                return []
        return _STEPS[self.phase](self, octets)

    # OPENING

    def _open(self, octets: bytes) -> list[Event]:
        self._buffer += octets
        table = _table(self._buffer)
        if table is None:
            return self._search_again(0) if self._joined else [NotIwarp()]
        if len(self._buffer) < table.SIZE:
            return []
        header = table.parse(self._buffer)
        # RFC 5044, section 7.1.1: a receiver ends the connection for more.
        length = header.pd_length if header.pd_length <= MOST_PRIVATE_DATA else 0
        if len(self._buffer) < table.SIZE + length:
            return []
        return self._opened(header, length)

    def _opened(self, header: StartUpHeader, length: int) -> list[Event]:
        """The start-up frame is whole; FPDUs follow."""
        end = header.SIZE + length
        private, rest = bytes(self._buffer[header.SIZE : end]), bytes(self._buffer[end:])
        enhanced = MPAEnhanced.parse(private) if header.s and length >= MPAEnhanced.SIZE else None
        started = StartUp(self._start, None, header, private, enhanced)
        self._agreement.start_up(self._number, header)
        self._start += end
        self._buffer = bytearray()
        if header.pd_length > MOST_PRIVATE_DATA:
            self._begin_search(self._start)
        else:
            self.phase, self._certain, self._base = Phase.FRAMED, True, self._start
        return [started, *(self.take(Data(self._start, rest)) if rest else [])]

    # FRAMED

    def _read(self, octets: bytes) -> list[Event]:
        self._buffer += octets
        if not self._settled and not self._settle():
            return []
        events: list[Event] = []
        at = 0
        while at + (size := self._size(at)) <= len(self._buffer) and size:
            event = self._fpdu(bytes(self._buffer[at : at + size]), self._start + at)
            if event is None:
                return events + self._search_again(at)
            events.append(event)
            at += size
        del self._buffer[:at]
        self._start += at
        return events

    def _settle(self) -> bool:
        """Find out whether the stream has Markers, and whether that can be known now."""
        wanted = self._agreement.wants_markers(self._number)
        if wanted is None and len(self._buffer) < Marker.SIZE:
            return False
        if wanted is None:
            # The first Marker is zero (RFC 5044, 4.3); no DDP segment begins with zeros.
            wanted = not any(self._buffer[: Marker.SIZE])
        self._base = self._base if wanted else None
        self._settled = True
        return True

    def _size(self, at: int) -> int:
        """Octets of the FPDU at this index of the buffer; 0 if its length has not come."""
        return size_at(self._buffer, at, len(self._buffer), self._in_stream(self._start + at))

    def _in_stream(self, position: int) -> int | None:
        """A position as MPA counts it; ``None`` if the stream has no Markers."""
        return None if self._base is None else (position - self._base) % MARKER_SPACING

    def _fpdu(self, octets: bytes, position: int) -> Fpdu | None:
        """The FPDU, unless it says that the framing is wrong."""
        fpdu = parse_fpdu(octets, position=self._in_stream(position))
        event = Fpdu(position, None, octets, fpdu, self._agreement.judge(fpdu))
        if event.crc is CRCStatus.GOOD:
            self._senseless = 0
            return event
        trusted = self._is_sensible(event) if self._certain else self._is_plausible(event)
        return event if trusted else None

    def _is_sensible(self, event: Fpdu) -> bool:
        """Whether certain framing stays so."""
        control = event.fpdu.ulpdu[:2]
        versions = len(control) == 2 and control[0] & 0x03 == 1 and control[1] & 0xC0 == 0x40
        self._senseless = 0 if versions else self._senseless + 1
        return self._senseless <= SENSELESS

    def _is_plausible(self, event: Fpdu) -> bool:
        """Whether framing that was found holds good."""
        unproved = self._base is None and self._clear <= event.position < self._proof
        if unproved and event.position != self._checked and _may_hold_marker(event):
            self._checked = event.position
            return False
        index = event.fpdu.header
        if len(event.octets) < index + HEAD:
            return False
        return read_head(event.octets, index, event.position) is not None

    def _search_again(self, at: int) -> list[Event]:
        """Look for FPDUs from this index of the buffer on."""
        rest = bytes(self._buffer[at:])
        self._begin_search(self._start + at)
        return self._look(rest)

    # SEARCHING

    def _begin_search(self, position: int) -> None:
        base = self._base if self._settled else None
        self._search = Search(
            position,
            known=self._agreement.known,
            crc=self._agreement.crc,
            base=base,
            patience=self._patience,
        )
        self.phase = Phase.SEARCHING
        self._start, self._buffer, self._missing = position, bytearray(), 0
        self._certain = False

    def _look(self, octets: bytes) -> list[Event]:
        search = self._search
        assert search is not None
        search.known = self._agreement.known
        found = search.feed(octets)
        self._patience = search.patience
        if found is not None:
            return self._found(search, found)
        return [NotIwarp()] if search.hopeless else []

    def _found(self, search: Search, found: Found) -> list[Event]:
        self._agreement.found(crc=found.sure)
        self.phase, self._search = Phase.FRAMED, None
        self._base, self._settled = found.base, True
        self._clear, self._proof = found.clear, found.position + MARKER_SPACING + Marker.SIZE
        self._start = found.position
        self._buffer = search.buffer[found.position - search.start :]
        return _skipped(search.origin, found.position) + self._read(b"")

    # holes

    def lose(self, hole: Hole) -> list[Event]:
        """Octets that will not come."""
        events: list[Event] = []
        if not self._agreement.rejected:
            events = self._tear(hole.position, hole.position + hole.length)
        if self._agreement.known:
            events.append(Lost(hole.position, hole.length))
        return events

    def _tear(self, start: int, end: int) -> list[Event]:
        """What octets from ``start`` to ``end`` that are missing do to the framing."""
        if self._missing:
            self._go_on(start + self._missing, end)
            return []
        size = self._size(0) if self.phase is Phase.FRAMED and self._settled else 0
        if size:
            torn = Torn(self._start, None, bytes(self._buffer), size)
            self._go_on(self._start + size, end)
            return [torn]
        origin = self._search.origin if self._search else self._start
        self._begin_search(end)
        return _skipped(origin, start) if self._agreement.known else []

    def _go_on(self, torn_end: int, end: int) -> None:
        """Framing goes on behind a torn FPDU, unless a hole up to ``end`` goes further."""
        if torn_end < end:
            self._begin_search(end)
        else:
            self._start, self._buffer = torn_end, bytearray()
            self._missing = torn_end - end


_STEPS = {
    Phase.OPENING: Way._open,
    Phase.FRAMED: Way._read,
    Phase.SEARCHING: Way._look,
}


def _table(buffer: bytearray) -> type[StartUpHeader] | None:
    """The start-up frame that these octets begin, or can still begin."""
    begun = bytes(buffer[:_KEY])
    return next((table for key, table in _TABLES.items() if key.startswith(begun)), None)


def _may_hold_marker(event: Fpdu) -> bool:
    """Whether an FPDU read as one without Markers looks as if it had one."""
    words = range(0, min(len(event.octets), MARKER_SPACING), 4)
    return event.crc is CRCStatus.BAD or any(
        int.from_bytes(event.octets[at : at + 4], "big") == at for at in words
    )


def _skipped(start: int, end: int) -> list[Event]:
    return [Skipped(start, end - start)] if end > start else []
