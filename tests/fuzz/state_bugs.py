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


Step = dict[str, Any]


class StateBug(NamedTuple):
    """Rules of an adapter with a bug, what the oracle reports of it, and steps that show it.

    They are steps on one connection of ``service`` between two hosts, of which the first one has
    the rules.
    """

    rules: Rules
    what: str
    steps: tuple[Step, ...]
    service: str = "RC"

    @property
    def case(self) -> dict[str, Any]:
        """The steps as a case of the fuzzer."""
        connection = {"service": self.service, "hosts": [0, 1], "psns": [0, 100]}
        setup = {"profiles": ["ibta", "ibta"], "connections": [connection]}
        return {"setup": setup, "steps": list(self.steps)}


def _post(end: int, verb: str, **arguments: int) -> Step:
    return {"step": "post", "end": end, "verb": verb, **arguments}


def _receive(end: int, length: int) -> Step:
    return {"step": "receive", "end": end, "length": length}


_SETTLE: Final = {"step": "settle"}


_OUTSIDE: Final = planted("range-one-too-long").rules
BUGS: Final = {
    "completed twice": StateBug(
        planted("completed-twice").rules,
        "receive completions",
        (_post(1, "SEND", length=8), _receive(0, 1024), _SETTLE),
    ),
    "flush missing": StateBug(
        _refusal(Ack.NAK, _nak_without_flush),
        "flush",
        (_receive(1, 0), _post(0, "SEND", length=255), _post(0, "SEND"), _SETTLE),
    ),
    "retries not restored": StateBug(
        _WITHOUT_RETRIES,
        "completion status",
        ({"step": "fault", "do": "drop", "ahead": 1}, _post(0, "RDMA_WRITE", length=8), _SETTLE)
        * 3,
    ),
    "stuck": StateBug(
        _refusal(Ack.RNR_NAK, _rnr_without_timer), "stuck", (_post(0, "SEND", length=512), _SETTLE)
    ),
    "range too long": StateBug(
        _OUTSIDE, "replies", (_post(1, "RDMA_READ", length=7, region=3, offset=250), _SETTLE)
    ),
    "memory outside": StateBug(
        _OUTSIDE,
        "memory",
        (_post(1, "RDMA_WRITE", length=768, offset=1281), {"step": "wait", "ns": 1000}),
        "UC",
    ),
    "not counted": StateBug(
        STANDARD.with_header(AETH, ExtendedHeader(_aeth_not_counted, {})),
        "counters",
        (_post(1, "SEND"), {"step": "wait", "ns": 3000}),
    ),
}
"""Each is a row of the standard's rules replaced."""
