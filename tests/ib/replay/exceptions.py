"""Where our frames need not be Linux's, byte for byte and in time: each case has a row here.

A row says what is compared instead, and why that is free or better. ``test_exceptions.py`` shows
the frames that need it.
"""

from dataclasses import dataclass

from rdmawire.wire import roce
from rdmawire.wire.inet import IPv4

SPURIOUS: dict[str, frozenset[int]] = {
    "rxe61_rnr": frozenset({29}),
    "rxe61jumbo_rc_pingpong_4096": frozenset({56, 58, 59, 60, 61}),
}
"""Requests that Linux sent once more though no answer was late: see :data:`SPURIOUS_TIMEOUT`."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What differs, what the replay does about it, and why it may differ."""

    what: str
    instead: str
    reason: str


IDENTIFICATION = Allowed(
    "IPv4 identification, with the header checksum and the ICRC that cover it",
    "ours is set to the captured one and the frame sealed again, then all bytes are compared",
    "a packet that is never fragmented needs none (RFC 6864, 4.1): Linux counts, ours is zero",
)
MANAGEMENT = Allowed(
    "connection management datagrams to queue pair 1",
    "left out",
    "they are the work of the connection manager, not of the NIC",
)
PACE = Allowed(
    "how many requests are on their way when a NAK or an answer arrives",
    "ours is asked for as many as Linux had sent; where nothing was lost it may send all at once"
    " as well, and sends the same",
    "the standard leaves it to the requester, and the network, how fast requests go",
)
SPURIOUS_TIMEOUT = Allowed(
    "requests that Linux repeated although their answer was not late",
    "as requester ours is not asked for them; as responder it answers them",
    "Linux's timer runs on from an earlier request; the wait is at least the Local ACK Timeout"
    " from the last request or answer (IBA 9.7.6.1.3)",
)
TIME = Allowed(
    "when timers fire",
    "the order of frames is compared, and that ours fire within two of Linux's 4 ms ticks of them",
    "Linux counts in ticks, rounding ACK timeouts down, and its timer runs on from an earlier"
    " request",
)
IMPLIED_NAK = Allowed(
    "when a READ is repeated whose response was lost",
    "the order of frames is compared",
    "a response that is missing is an implied NAK, upon which ours repeats at once (IBA"
    " 9.7.5.1.2); Linux waits for its timer",
)
COALESCED = Allowed(
    "ACKs to requests that arrive in one burst",
    "the last ACK of a burst is compared; one request at a time, all of them are",
    "a responder may acknowledge several requests with one ACK (IBA 9.7.5.1.2)",
)
EXCEPTIONS = (
    IDENTIFICATION,
    MANAGEMENT,
    PACE,
    SPURIOUS_TIMEOUT,
    TIME,
    IMPLIED_NAK,
    COALESCED,
)
"""All of them."""


def with_identification(ours: bytes, captured: roce.Frame) -> bytes:
    """Our frame with the captured IPv4 identification, and the checksum and ICRC that follow."""
    there = next((header for header in captured.headers if isinstance(header, IPv4)), None)
    if there is None:
        return ours
    frame = roce.parse(ours)
    headers = tuple(
        header.replace(identification=there.identification) if isinstance(header, IPv4) else header
        for header in frame.headers
    )
    return frame._replace(headers=headers).seal().build()
