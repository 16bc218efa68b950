"""The FPDUs of a capture, for an edit: found as a dissection finds them."""

from rdmawire.analysis.mpa_event import CRCStatus, Event, Fpdu, NotIwarp, StartUp, Torn
from rdmawire.analysis.mpa_stream import Streams
from rdmawire.traffic.edit.fpdu import Found
from rdmawire.traffic.edit.place import Hosts
from rdmawire.traffic.edit.stream import NOT_IWARP, Arrived, Finder
from rdmawire.wire.inet import TCP


def fpdu_finder() -> Finder:
    """What puts the TCP streams of one capture together, and finds the FPDUs in them."""
    streams = Streams()

    def find(hosts: Hosts, tcp: TCP, payload: bytes, length: int) -> Arrived | None:
        result = streams.segment(*hosts, tcp, payload, length)
        arrival, events = result.arrival, result.events
        connection = arrival.connection
        if connection.upper.over and not events:
            return None
        found = [_found(event) for event in events if isinstance(event, Fpdu | Torn)]
        known = max(map(_end, events), default=0)
        at = arrival.segment.position
        return Arrived(connection.upper, arrival.way, at, known, found)

    return find


def _found(event: Fpdu | Torn) -> Found:
    judged = isinstance(event, Fpdu) and event.crc is not CRCStatus.ABSENT
    return Found(event.position, event.octets, event.fpdu, judged)


def _end(event: Event) -> int:
    """Up to where a stream is understood, now that this has happened."""
    if isinstance(event, NotIwarp):
        return NOT_IWARP
    if isinstance(event, Fpdu | Torn | StartUp):
        return event.position + len(event.octets)
    return event.position + event.length
