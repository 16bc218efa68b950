"""Planted bugs of requesters: responses, refusals, and the headers of requests."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from rdmawire.fuzz.planted_bugs.bug import PlantedBug
from rdmawire.ib import completer
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import ExtendedHeader, Response, Rules
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.send_queue import Wqe
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.wr import SendOpcode
from rdmawire.wire import serial
from rdmawire.wire.header import Header
from rdmawire.wire.ib import DETH, IETH, RETH, XRCETH, Ack, AtomicETH, ImmDt, Nak
from rdmawire.wire.opcode import Opcode, Operation
from rdmawire.wire.packet import LAYOUTS

_ACKED: Final = STANDARD.responses[Opcode.RC_ACKNOWLEDGE]
_ATOMIC: Final = STANDARD.responses[Opcode.RC_ATOMIC_ACKNOWLEDGE]
_READ_ONLY: Final = STANDARD.responses[Opcode.RC_RDMA_READ_RESPONSE_ONLY]
_NAK: Final = STANDARD.refusals[Ack.NAK]
_RNR: Final = STANDARD.refusals[Ack.RNR_NAK]


def _one_packet_too_far(qp: QueuePair, response: Arrival) -> None:
    """Take an ACK for the packet after its PSN, too."""
    _ACKED(qp, response)
    if qp.sq.in_flight:
        completer.settle(qp, serial.add(response.psn, 2))


def _one_packet_too_few(qp: QueuePair, response: Arrival) -> None:
    """Take an ACK for the packets before its PSN alone."""
    completer.settle(qp, response.psn)


def _all_naks_are_repeated(qp: QueuePair, _: int) -> None:
    """Take each NAK for a PSN sequence error."""
    _NAK(qp, Nak.PSN_SEQUENCE_ERROR)


def _invalid_as_access(qp: QueuePair, code: int) -> None:
    """Take Invalid Request for Remote Access Error."""
    _NAK(qp, Nak.REMOTE_ACCESS_ERROR if code == Nak.INVALID_REQUEST else code)


def _endless_rnr_retries(qp: QueuePair, timer: int) -> None:
    """Restore the RNR retries at each RNR NAK."""
    qp.retry_state.rnr_retries = 7
    _RNR(qp, timer)


def _rnr_without_wait(qp: QueuePair, _: int) -> None:
    """Send again at once after an RNR NAK."""
    _NAK(qp, Nak.PSN_SEQUENCE_ERROR)


def _next_rnr_timer(qp: QueuePair, timer: int) -> None:
    """Wait for the time of the next RNR timer code."""
    _RNR(qp, (timer + 1) % 32)


def _rnr_ignored(_: QueuePair, __: int) -> None:
    """Ignore RNR NAKs."""


def _short_responses_pass(qp: QueuePair, response: Arrival) -> None:
    """Accept an only READ response of any length."""
    wqe = qp.sq.oldest()
    if wqe is None or wqe.psn != response.psn or not wqe.places or wqe.packets > 1:
        _READ_ONLY(qp, response)
        return
    payload = response.payload[: wqe.length].ljust(wqe.length, b"\0")
    _READ_ONLY(qp, response._replace(payload=payload))


def _mirrored_atomic(qp: QueuePair, response: Arrival) -> None:
    """Write the original value of an atomic as on the wire: big-endian."""
    aeth, atomic = response.extended
    value = int.from_bytes(atomic.origremdt.to_bytes(8, "big"), "little")
    _ATOMIC(qp, response._replace(extended=(aeth, atomic.replace(origremdt=value))))


def _from_the_start(wqe: Wqe) -> dict[str, int]:
    return {"va": wqe.wr.remote_address} if wqe.answered else {}


def _full_length(wqe: Wqe) -> dict[str, int]:
    return {"dmalen": wqe.length} if wqe.answered else {}


def _key_without_variant(wqe: Wqe) -> dict[str, int]:
    return {"rkey": wqe.wr.rkey & ~0xFF}


def _operands_exchanged(wqe: Wqe) -> dict[str, int]:
    return {"swapdt": wqe.wr.compare_add, "cmpdt": wqe.wr.swap}


def _no_immediate(_: Wqe) -> dict[str, int]:
    return {"immdt": 0}


def _other_key(wqe: Wqe) -> dict[str, int]:
    return {"rkey": wqe.wr.invalidate_rkey ^ 1}


def _header(table: type[Header], values: Callable[[Wqe], dict[str, int]]) -> Rules:
    """Return rules whose requests have other values in a header."""
    row = STANDARD.headers[table]

    def make(qp: Any, wqe: Any) -> Header:
        return row.make(qp, wqe).replace(**values(wqe))

    return STANDARD.with_header(table, ExtendedHeader(make, row.widths))


def _response(opcode: Opcode, function: Response) -> Rules:
    return replace(STANDARD, responses={**STANDARD.responses, opcode: function})


def _refusal(ack: Ack, function: Callable[[QueuePair, int], None]) -> Rules:
    return replace(STANDARD, refusals={**STANDARD.refusals, ack: function})


def _without_credits() -> Rules:
    """A WRITE with immediate does not wait for credits."""
    opcode = SendOpcode.RDMA_WRITE_WITH_IMM
    verb = replace(STANDARD.verbs[opcode], takes_receive=False)
    return replace(STANDARD, verbs={**STANDARD.verbs, opcode: verb})


def _outbound(kind: QPType, work: SendOpcode, **operations: Operation) -> Rules:
    """Return rules with other opcodes in the packets of one type of work."""
    service = STANDARD.services[kind]
    opcodes: dict[str, Any] = {
        name: service.base | operation for name, operation in operations.items()
    }
    row = replace(service.outbound[work], layouts=LAYOUTS, **opcodes)
    changed = replace(service, outbound={**service.outbound, work: row})
    return replace(STANDARD, services={**STANDARD.services, kind: changed})


def _send_error(kind: QPType) -> Rules:
    """Return rules in which a local error of a send leads to the error state."""
    service = replace(STANDARD.services[kind], send_error=QPState.ERR)
    return replace(STANDARD, services={**STANDARD.services, kind: service})


def _destination(table: type[Header], make: Callable[[QueuePair, Wqe], Header]) -> Rules:
    """Return rules that fill a header otherwise."""
    return STANDARD.with_header(table, ExtendedHeader(make, STANDARD.headers[table].widths))


def _qkey_as_posted(qp: QueuePair, wqe: Wqe) -> Header:
    return DETH(qkey=wqe.wr.remote_qkey, srcqp=qp.qp_num)


def _own_qkey(qp: QueuePair, _: Wqe) -> Header:
    return DETH(qkey=qp.qkey, srcqp=qp.qp_num)


def _other_source(qp: QueuePair, wqe: Wqe) -> Header:
    return STANDARD.headers[DETH].make(qp, wqe).replace(srcqp=qp.qp_num ^ 1)


def _queue_of_the_first_packet(_: QueuePair, wqe: Wqe) -> Header:
    """Name the shared receive queue in the first packet of a message alone."""
    return XRCETH(xrcsrq=0 if wqe.sent else wqe.wr.remote_srqn)


def _next_queue(_: QueuePair, wqe: Wqe) -> Header:
    return XRCETH(xrcsrq=(wqe.wr.remote_srqn + 1) % (1 << 24))


def _bug(name: str, about: str, clause: str, rules: Rules, service: str = "rc") -> PlantedBug:
    return PlantedBug(name, about, clause, rules, service, kind="requester")


BUGS = (
    _bug(
        "ack-too-far",
        "an ACK acknowledges the packet after its PSN, too",
        "IBA 9.7.5.1.2",
        _response(Opcode.RC_ACKNOWLEDGE, _one_packet_too_far),
    ),
    _bug(
        "ack-too-short",
        "an ACK acknowledges the packets before its PSN alone",
        "IBA 9.7.5.1.2",
        _response(Opcode.RC_ACKNOWLEDGE, _one_packet_too_few),
    ),
    _bug(
        "naks-repeated",
        "each NAK is taken for a PSN sequence error, and the request is retransmitted",
        "IBA 9.9.2.3",
        _refusal(Ack.NAK, _all_naks_are_repeated),
    ),
    _bug(
        "invalid-request-as-access-error",
        "work that is refused as Invalid Request completes with Remote Access Error",
        "IBA 9.9.2.3",
        _refusal(Ack.NAK, _invalid_as_access),
    ),
    _bug(
        "endless-rnr",
        "each RNR NAK restores the RNR retries",
        "IBA 9.7.5.2.8",
        _refusal(Ack.RNR_NAK, _endless_rnr_retries),
    ),
    _bug(
        "rnr-without-wait",
        "after an RNR NAK the request is retransmitted at once",
        "IBA 9.7.5.2.8",
        _refusal(Ack.RNR_NAK, _rnr_without_wait),
    ),
    _bug(
        "next-rnr-timer",
        "the wait after an RNR NAK is that of the next timer code",
        "IBA 9.7.5.2.8",
        _refusal(Ack.RNR_NAK, _next_rnr_timer),
    ),
    _bug(
        "rnr-nak-ignored",
        "RNR NAKs are ignored",
        "IBA 9.7.5.2.8",
        _refusal(Ack.RNR_NAK, _rnr_ignored),
    ),
    _bug(
        "short-read",
        "the length of an only READ response is not checked",
        "IBA 9.7.5.1.3",
        _response(Opcode.RC_RDMA_READ_RESPONSE_ONLY, _short_responses_pass),
    ),
    _bug(
        "mirrored-atomic",
        "the original value of an atomic is written in big-endian order",
        "IBA 9.7.5.1.4",
        _response(Opcode.RC_ATOMIC_ACKNOWLEDGE, _mirrored_atomic),
    ),
    _bug(
        "read-from-start",
        "a READ that is resumed names its memory from the start",
        "IBA 9.7.3.1",
        _header(RETH, _from_the_start),
    ),
    _bug(
        "read-of-full-length",
        "a READ that is resumed asks for all of its bytes",
        "IBA 9.7.3.1",
        _header(RETH, _full_length),
    ),
    _bug(
        "key-without-variant",
        "requests have the R_Key without its lower eight bits",
        "IBA 9.3.3",
        _header(RETH, _key_without_variant),
    ),
    _bug(
        "atomic-operands-exchanged",
        "COMPARE SWAP has its two operands exchanged",
        "IBA 9.4.5",
        _header(AtomicETH, _operands_exchanged),
    ),
    _bug(
        "immediate-of-zero",
        "requests have the immediate 0",
        "IBA 9.4.1",
        _header(ImmDt, _no_immediate),
    ),
    _bug(
        "invalidates-another-key",
        "SEND with Invalidate names another key",
        "IBA 9.4.1.1.1",
        _header(IETH, _other_key),
    ),
    _bug(
        "without-credits",
        "a WRITE with immediate does not wait for credits",
        "IBA 9.7.7.2",
        _without_credits(),
    ),
    _bug(
        "uc-middle-as-first",
        "middle packets of a SEND have the opcode of a first one",
        "IBA 9.8.2.1",
        _outbound(QPType.UC, SendOpcode.SEND, middle=Operation.SEND_FIRST),
        "uc",
    ),
    _bug(
        "uc-lost-immediate",
        "a WRITE with immediate of several packets ends without the immediate",
        "IBA 9.4.3",
        _outbound(QPType.UC, SendOpcode.RDMA_WRITE_WITH_IMM, last=Operation.RDMA_WRITE_LAST),
        "uc",
    ),
    _bug(
        "uc-local-error-is-fatal",
        "a local error of a send leads to ERR, not to SQE",
        "IBA 10.3.1.6",
        _send_error(QPType.UC),
        "uc",
    ),
    _bug(
        "ud-qkey-as-posted",
        "the high bit of a remote Q_Key does not select the queue pair's own",
        "IBA 10.2.5",
        _destination(DETH, _qkey_as_posted),
        "ud",
    ),
    _bug(
        "ud-own-qkey",
        "datagrams have the queue pair's own Q_Key, whatever was posted",
        "IBA 10.2.5",
        _destination(DETH, _own_qkey),
        "ud",
    ),
    _bug(
        "ud-source-qp",
        "datagrams name another queue pair as their source",
        "IBA 9.3.2",
        _destination(DETH, _other_source),
        "ud",
    ),
    _bug(
        "ud-local-error-is-fatal",
        "a local error of a send leads to ERR, not to SQE",
        "IBA 10.3.1.6",
        _send_error(QPType.UD),
        "ud",
    ),
    _bug(
        "xrc-first-names-queue",
        "later packets of a message name shared receive queue 0",
        "IBA A14",
        _destination(XRCETH, _queue_of_the_first_packet),
        "xrc",
    ),
    _bug(
        "xrc-other-queue",
        "packets name the shared receive queue with the next number",
        "IBA A14",
        _destination(XRCETH, _next_queue),
        "xrc",
    ),
    _bug(
        "xrc-ack-too-short",
        "an ACK of an XRC target acknowledges the packets before its PSN alone",
        "IBA 9.7.5.1.2",
        _response(Opcode.XRC_ACKNOWLEDGE, _one_packet_too_few),
        "xrc",
    ),
)
