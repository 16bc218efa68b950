"""Bugs of a reliable responder, as rules with one row replaced."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rdmawire.ib import checks, execute
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import RequestRule, Rules
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import RELIABLE, Fault
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.enums import QPType
from rdmawire.wire import serial
from rdmawire.wire.ib import RETH, AtomicETH, Nak
from tests.fuzz.planted import SHORT_WRITES

Step = Callable[[QueuePair, RequestRule, Arrival], Fault | None]


def _none(_: QueuePair, __: RequestRule, ___: Arrival) -> None:
    """No check at all."""


def _any_psn_ahead(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """A gap in the PSNs is not noticed."""
    if serial.distance(qp.inbound.epsn, request.psn) > 0:
        qp.inbound.epsn = request.psn
    return checks.check_psn_and_op_seq(qp, role, request)


def _changed(request: Arrival, place: int, **values: int) -> Arrival:
    """Return the request with other values in one of its headers."""
    headers = request.extended
    other = headers[place].replace(**values)
    return request._replace(extended=(*headers[:place], other, *headers[place + 1 :]))


def _key_of_24_bits(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """The variant of the R_Key is not compared."""
    place = role.places[RETH]
    index = request.extended[place].rkey & ~0xFF
    valid = [key for key in range(index, index + 0x100) if qp.device.keys.find(key) is not None]
    return checks.check_rkey(qp, role, _changed(request, place, rkey=(*valid, index)[0]))


def _one_byte_missing(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """A WRITE of one byte less than RETH.dmalen is complete."""
    incoming = qp.inbound.incoming
    end = incoming.placed + len(request.payload)
    short = role.ends and end == incoming.limit - 1
    return None if short else checks.check_message_length(qp, role, request)


def _adds_one_more(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """FETCH_ADD adds one too many."""
    place = role.places[AtomicETH]
    operand = (request.extended[place].swapdt + 1) % (1 << 64)
    return execute.fetch_add(qp, role, _changed(request, place, swapdt=operand))


def _no_msn(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """The MSN does not count messages."""
    fault = execute.finish(qp, role, request)
    qp.inbound.msn = 0
    return fault


def _with(check: Step, bug: Step) -> Rules:
    return STANDARD.with_step(check, bug)


def _reaction(fault: Fault, **values: object) -> Rules:
    usual = RELIABLE[fault]
    return STANDARD.with_reaction(QPType.RC, fault, replace(usual, **values))  # type: ignore[arg-type]


BUGS: Final[dict[str, Rules]] = {
    "a WRITE may be short": SHORT_WRITES,
    "a gap is not noticed": _with(checks.check_psn_and_op_seq, _any_psn_ahead),
    "a key of 24 bits": _with(checks.check_rkey, _key_of_24_bits),
    "no check of access flags": _with(checks.check_op_valid, _none),
    "no check of lengths": _with(checks.check_length, _none),
    "no check of DMA lengths": _with(checks.check_dmalen, _none),
    "the last byte may be missing": _with(checks.check_message_length, _one_byte_missing),
    "no limit of READs": _with(checks.check_rd_atomic, _none),
    "FETCH_ADD adds one more": _with(execute.fetch_add, _adds_one_more),
    "the MSN stays 0": _with(execute.finish, _no_msn),
    "a duplicate is dropped": _reaction(Fault.DUPLICATE, replay=False),
    "another NAK of a key": _reaction(Fault.RKEY, nak=Nak.INVALID_REQUEST),
    "a NAK for each packet after a gap": _reaction(Fault.SEQUENCE, once=False),
    "a refused key does not end the queue pair": _reaction(Fault.RKEY, fatal=False),
}
