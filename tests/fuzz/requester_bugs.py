"""Rules of a requester with one row replaced, for tests of the fuzzer itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.fuzzer import RequesterFuzzer, Spec
from rdmawire.ib import completer
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import ExtendedHeader, Rules
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.send_queue import Wqe
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.wr import SendOpcode
from rdmawire.wire import serial
from rdmawire.wire.ib import RETH, Ack
from rdmawire.wire.opcode import Opcode

_ACKED: Final = STANDARD.responses[Opcode.RC_ACKNOWLEDGE]
_ATOMIC: Final = STANDARD.responses[Opcode.RC_ATOMIC_ACKNOWLEDGE]


def _one_packet_too_far(qp: QueuePair, response: Arrival) -> None:
    """An ACK acknowledges the packet after its PSN, too."""
    _ACKED(qp, response)
    if qp.sq.in_flight:
        completer.settle(qp, serial.add(response.psn, 2))


def _all_naks_are_repeated(qp: QueuePair, _: int) -> None:
    """Each NAK is taken for a PSN sequence error."""
    STANDARD.refusals[Ack.NAK](qp, 0)


def _endless_rnr_retries(qp: QueuePair, timer: int) -> None:
    """The RNR retries are restored by each RNR NAK."""
    qp.retry_state.rnr_retries = 7
    STANDARD.refusals[Ack.RNR_NAK](qp, timer)


def _short_responses_pass(qp: QueuePair, response: Arrival) -> None:
    """The length of a last READ response is not checked."""
    wqe = qp.sq.oldest()
    if wqe is None or wqe.psn != response.psn or not wqe.places or wqe.packets > 1:
        STANDARD.responses[Opcode.RC_RDMA_READ_RESPONSE_ONLY](qp, response)
        return
    payload = response.payload[: wqe.length].ljust(wqe.length, b"\0")
    only = STANDARD.responses[Opcode.RC_RDMA_READ_RESPONSE_ONLY]
    only(qp, response._replace(payload=payload))


def _mirrored_atomic(qp: QueuePair, response: Arrival) -> None:
    """The original value of an atomic is written as on the wire: big-endian."""
    aeth, atomic = response.extended
    value = int.from_bytes(atomic.origremdt.to_bytes(8, "big"), "little")
    _ATOMIC(qp, response._replace(extended=(aeth, atomic.replace(origremdt=value))))


def _from_the_start(qp: QueuePair, wqe: Wqe) -> Any:
    """A READ that is resumed names its memory from the start."""
    reth = STANDARD.headers[RETH].make(qp, wqe)
    return reth.replace(va=wqe.wr.remote_address) if wqe.answered else reth


def _response(opcode: Opcode, function: Callable[[QueuePair, Arrival], None]) -> Rules:
    return replace(STANDARD, responses={**STANDARD.responses, opcode: function})


def _refusal(ack: Ack, function: Callable[[QueuePair, int], None]) -> Rules:
    return replace(STANDARD, refusals={**STANDARD.refusals, ack: function})


def _without_credits() -> Rules:
    """A WRITE with immediate does not wait for credits."""
    opcode = SendOpcode.RDMA_WRITE_WITH_IMM
    verb = replace(STANDARD.verbs[opcode], takes_receive=False)
    return replace(STANDARD, verbs={**STANDARD.verbs, opcode: verb})


BUGS: Final[dict[str, Rules]] = {
    "ack-too-far": _response(Opcode.RC_ACKNOWLEDGE, _one_packet_too_far),
    "naks-repeated": _refusal(Ack.NAK, _all_naks_are_repeated),
    "endless-rnr": _refusal(Ack.RNR_NAK, _endless_rnr_retries),
    "short-read": _response(Opcode.RC_RDMA_READ_RESPONSE_ONLY, _short_responses_pass),
    "mirrored-atomic": _response(Opcode.RC_ATOMIC_ACKNOWLEDGE, _mirrored_atomic),
    "read-from-start": STANDARD.with_header(
        RETH, ExtendedHeader(_from_the_start, STANDARD.headers[RETH].widths)
    ),
    "without-credits": _without_credits(),
}
"""Rules of requesters, by the name of their bug."""


class BuggyRequester(RequesterFuzzer):
    """Fuzzes a requester with the rules of the bug that ``spec`` names."""

    def __init__(self, spec: Spec) -> None:
        super().__init__({"kind": "requester"}, EngineTarget(rules=BUGS[spec["rules"]]))
