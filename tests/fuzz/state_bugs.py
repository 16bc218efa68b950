"""Rules with one row replaced, for tests of state-level fuzzing."""

from dataclasses import replace
from typing import Any, Final, NamedTuple

from rdmawire.fuzz.planted_bugs import planted
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import ExtendedHeader, Response, Rules
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, Ack, Nak

_NAK: Final = STANDARD.refusals[Ack.NAK]


def _without_retries(function: Response) -> Response:
    """A response advances the queue, and restores no retries."""

    def responded(qp: QueuePair, response: Arrival) -> None:
        left = qp.retry_state.retries
        function(qp, response)
        qp.retry_state.retries = min(left, qp.retry_state.retries)

    return responded


def _nak_without_flush(qp: QueuePair, code: int) -> None:
    """A NAK ends the oldest work; the work behind it is forgotten."""
    if code != Nak.PSN_SEQUENCE_ERROR:
        qp.sq.posted.clear()
        while len(qp.sq.sent) > 1:
            qp.sq.sent.pop()
    _NAK(qp, code)


def _rnr_without_timer(qp: QueuePair, _: int) -> None:
    """An RNR NAK stops the requester, and no timer is started."""
    qp.retry_state.stop()
    qp.retry_state.in_rnr_wait = True


def _aeth_not_counted(qp: Any, answer: Any) -> Header:
    """An RNR NAK is sent, and not counted."""
    aeth = STANDARD.headers[AETH].make(qp, answer)
    if aeth.build()[0] >> 5 == Ack.RNR_NAK:
        qp.counters.send_rnr_err -= 1
    return aeth


_WITHOUT_RETRIES: Final = replace(
    STANDARD,
    responses={code: _without_retries(one) for code, one in STANDARD.responses.items()},
)


def _refusal(ack: Ack, function: Any) -> Rules:
    return replace(STANDARD, refusals={**STANDARD.refusals, ack: function})


class StateBug(NamedTuple):
    """Rules of an adapter with a bug, the services that show it, and what the oracle reports."""

    rules: Rules
    what: str
    service: str = "RC"


_OUTSIDE: Final = planted("range-one-too-long").rules
BUGS: Final = {
    "completed twice": StateBug(planted("completed-twice").rules, "receive completions"),
    "flush missing": StateBug(_refusal(Ack.NAK, _nak_without_flush), "flush"),
    "retries not restored": StateBug(_WITHOUT_RETRIES, "completion status"),
    "stuck": StateBug(_refusal(Ack.RNR_NAK, _rnr_without_timer), "stuck"),
    "range too long": StateBug(_OUTSIDE, "replies"),
    "memory outside": StateBug(_OUTSIDE, "memory", "UC"),
    "not counted": StateBug(
        STANDARD.with_header(AETH, ExtendedHeader(_aeth_not_counted, {})), "counters"
    ),
}
"""Each is a row of the standard's rules replaced."""
