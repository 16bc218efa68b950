"""MPA connections: start-up frames and FPDUs out of the two streams of a TCP connection.

Each direction is a machine of its own (:mod:`rdmawire.analysis.mpa_way`); what both share is
:class:`~rdmawire.analysis.mpa_agreement.Agreement`. Everything that happens is reported with the
TCP segment that completes it. At most one FPDU, or the window of a search, is kept for each
direction, and no more than a :class:`~rdmawire.analysis.mpa_budget.Budget` for all together; each
octet is looked at a bounded number of times.
"""

from typing import NamedTuple

from rdmawire.analysis.mpa_agreement import Agreement
from rdmawire.analysis.mpa_budget import KEPT_IN_ALL, Budget
from rdmawire.analysis.mpa_event import Event, NotIwarp
from rdmawire.analysis.mpa_way import Way
from rdmawire.analysis.tcp_stream import CONNECTIONS, Arrival, Piece, Segment, Tracker
from rdmawire.wire.inet import TCP


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
