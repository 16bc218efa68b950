"""Exceptions to the rule that our frames equal Linux's, byte for byte and in time.

Each names what is compared instead, and why a difference is allowed. ``test_exceptions.py`` shows
the frames that need it.
"""

from dataclasses import dataclass

from rdmawire.wire import roce
from rdmawire.wire.inet import IPv4

SPURIOUS: dict[str, frozenset[int]] = {
    "rxe61_rnr": frozenset({29}),
    "rxe61jumbo_rc_pingpong_4096": frozenset({56, 58, 59, 60, 61}),
}
"""Retransmissions by Linux although no response was late: see :data:`SPURIOUS_TIMEOUT`."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may differ, what is compared instead, and why it may differ."""

    what: str
    instead: str
    reason: str


IDENTIFICATION = Allowed(
    "IPv4 identification, with the header checksum and the ICRC that cover it",
    "all bytes, after our identification is set to the captured one and the frame is sealed again",
    "a packet that is never fragmented needs no identification (RFC 6864, 4.1): Linux counts, ours"
    " is zero",
)
MANAGEMENT = Allowed(
    "connection management datagrams to queue pair 1",
    "nothing",
    "the connection manager sends them, not the NIC",
)
PACE = Allowed(
    "how many requests are in flight when a NAK or a response arrives",
    "ours sends as many requests as Linux had sent; where nothing was lost, ours also sends all at"
    " once, and the frames are the same",
    "how fast requests are sent is up to the requester and the network",
)
SPURIOUS_TIMEOUT = Allowed(
    "requests that Linux retransmitted although their response was not late",
    "as requester ours does not send them; as responder it answers them",
    "Linux's timer runs from an earlier request; the wait is at least the Local ACK Timeout from"
    " the last request or response (IBA 9.7.6.1.3)",
)
TIME = Allowed(
    "when timers expire",
    "the order of frames, and that ours expire within two of Linux's 4 ms ticks",
    "Linux counts in ticks, rounding ACK timeouts down, and its timer runs from an earlier request",
)
IMPLIED_NAK = Allowed(
    "when a READ is repeated after the loss of its response",
    "the order of frames",
    "a missing response is an implied NAK, after which ours retransmits at once (IBA 9.7.5.1.2);"
    " Linux waits for its timer",
)
COALESCED = Allowed(
    "ACKs to requests that arrive in one burst",
    "the last ACK of a burst; all ACKs if requests arrive one at a time",
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
