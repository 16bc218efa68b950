"""What profiles do differently from ``ibta``, and whether the standard allows it.

The models of both roles follow the profile ``ibta``, but for the differences that are accepted: by
default those that the standard allows. The others are findings; a campaign with ``accept: all``
accepts them too, and finds what is in no row.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.terminal import quote, suggest
from rdmawire.verbs.profile import IBTA, Profile


class ProfileDifference(NamedTuple):
    """A field of a :class:`Profile`, whether the standard allows other values, and why."""

    field: str
    allowed: bool
    clause: str
    reason: str


DIFFERENCES: Final = (
    ProfileDifference(
        "end_to_end_credits",
        True,
        "IBA 9.7.7.2",
        "the credit count 31 says that ACKs limit nothing; RNR NAKs hold the requester back",
    ),
    ProfileDifference(
        "acks_newest",
        True,
        "IBA 9.7.5.1.2, 9.7.5.2.2",
        "ACKs coalesce; an ACK beyond a READ without a response makes the requester repeat it",
    ),
    ProfileDifference(
        "validates_duplicates",
        True,
        "IBA 9.7.5.1.4",
        "a requester repeats requests unchanged; others are its error, and none is executed",
    ),
    ProfileDifference(
        "reads_beyond",
        True,
        "IBA 9.7.4.1.5",
        "a responder may have more resources for READs and atomics than were agreed",
    ),
    ProfileDifference(
        "unsupported",
        False,
        "IBA 9.7.4.1.4",
        "an operation that the responder does not support gets a NAK",
    ),
    ProfileDifference(
        "naks_gaps_after_rnr",
        False,
        "IBA 9.7.5.2.8",
        "after an RNR NAK, no packet gets a NAK until the expected one arrives",
    ),
    ProfileDifference(
        "naks_malformed_requests",
        False,
        "IBA 9.7.4.1.4, 9.7.4.1.6",
        "a reserved opcode, or a payload that the operation does not allow, gets a NAK",
    ),
    ProfileDifference(
        "too_long",
        False,
        "IBA 9.9.3",
        "a message longer than its receive is an invalid request",
    ),
    ProfileDifference(
        "too_long_status",
        False,
        "IBA 9.9.3",
        "the receive of a message that is too long completes with a local length error",
    ),
    ProfileDifference(
        "first_may_fit",
        False,
        "IBA 9.7.4.1.6",
        "the first packet of a WRITE has less than RETH.dmalen",
    ),
    ProfileDifference(
        "checks_send_lengths",
        False,
        "IBA 9.7.4.1.6",
        "first and middle packets are full, last ones not empty, none is longer than the path MTU",
    ),
    ProfileDifference(
        "limits_dmalen",
        False,
        "IBA 9.7.4.1.6",
        "a RETH.dmalen beyond 2**31 is an invalid request",
    ),
    ProfileDifference(
        "resumed_reads_go_on",
        False,
        "IBA 9.7.5.1.3",
        "the responses of each READ begin with a first or only one",
    ),
    ProfileDifference(
        "flush_icrc_covers_headers_twice",
        False,
        "IBA 7.8.1",
        "the ICRC covers each byte once",
    ),
)
"""The differences of responders that a packet can show."""

REQUESTER_DIFFERENCES: Final = (
    ProfileDifference(
        "unsupported",
        True,
        "IBA A19",
        "FLUSH and ATOMIC WRITE are optional: posting them fails where they are not supported",
    ),
    ProfileDifference(
        "endless_retry_cnt",
        False,
        "IBA 9.7.6.1.3",
        "a retry count of 7 means seven retries; of the two counts, only RNR retries have no limit",
    ),
    ProfileDifference(
        "rnr_timer_ns",
        False,
        "IBA 9.7.5.2.8",
        "after an RNR NAK, nothing is sent before the time of its timer code is over",
    ),
    ProfileDifference(
        "flush_icrc_covers_headers_twice",
        False,
        "IBA 7.8.1",
        "the ICRC covers each byte once",
    ),
)
"""The differences of requesters that work, responses and time can show.

No row is needed for limits beyond what a case can reach (``packets_in_flight``,
``responses_fill_window``, ``packets_per_ack``), and for ``frees_slots_at_poll``: no case posts more
than the queue surely holds.
"""

ACCEPT: Final = ("allowed", "all", "none")
"""Differences that are accepted: those that the standard allows, all, or none."""


def accepted(
    profile: Profile, accept: str = ACCEPT[0], rows: Iterable[ProfileDifference] = DIFFERENCES
) -> Profile:
    """Return ``ibta`` with the differences of ``profile`` that are accepted.

    ``accept`` is one of :data:`ACCEPT`, ``rows`` are the differences of the role. Raises
    :class:`FuzzError` for another word.
    """
    if accept not in ACCEPT:
        known = ", ".join(ACCEPT)
        raise FuzzError(f"accept {quote(accept)} is none of {known}{suggest(accept, ACCEPT)}")
    fields = {
        row.field: getattr(profile, row.field)
        for row in rows
        if accept == "all" or (accept == "allowed" and row.allowed)
    }
    return replace(IBTA, **fields)
