"""Planted bugs of answers: ACKs, NAKs, MSNs, credits, completions; and of the other services."""

from dataclasses import replace

from rdmawire.fuzz.planted_bugs.bug import (
    PlantedBug,
    after,
    before,
    no_check,
    with_reaction,
    with_step,
)
from rdmawire.ib import checks, execute
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import NO_MESSAGE, NO_RECEIVE, Acknowledge, ReadResponse
from rdmawire.ib.rules import ExtendedHeader, RequestRule
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import RELIABLE, Fault
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.enums import QPType
from rdmawire.wire import serial
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, DETH, XRCETH, Ack, Nak


def _aeth(**values: int) -> ExtendedHeader:
    """Return the row of an AETH with some fields of all ACKs replaced."""
    standard = STANDARD.headers[AETH]

    def make(qp: object, answer: object) -> Header:
        made: AETH = standard.make(qp, answer)  # type: ignore[assignment]
        return made.replace(**values) if made.ack == Ack.ACK else made

    return ExtendedHeader(make, {})


def _msn_at_most(limit: int) -> ExtendedHeader:
    standard = STANDARD.headers[AETH]

    def make(qp: object, answer: object) -> Header:
        made: AETH = standard.make(qp, answer)  # type: ignore[assignment]
        return made.replace(msn=made.msn & limit)

    return ExtendedHeader(make, {})


def _not_counted(qp: QueuePair, role: RequestRule, _: Arrival) -> None:
    """Do not count a WRITE as a message."""
    if role.access:
        qp.inbound.msn = serial.add(qp.inbound.msn, -1)


def _counted(qp: QueuePair, _: RequestRule, __: Arrival) -> None:
    """Count each packet of a message."""
    qp.inbound.msn = serial.add(qp.inbound.msn, 1)


def _read_not_counted(qp: QueuePair, _: RequestRule, __: Arrival) -> None:
    answer = qp.inbound.pending[-1]
    if isinstance(answer, ReadResponse):
        answer.msn = qp.inbound.msn = serial.add(qp.inbound.msn, -1)


def _always_acks(qp: QueuePair, _: RequestRule, request: Arrival) -> None:
    """Acknowledge packets without AckReq."""
    if not request.ackreq:
        qp.inbound.ack_due = True
        qp.wake()


def _acks_ends_alone(qp: QueuePair, role: RequestRule, _: Arrival) -> None:
    """Do not acknowledge packets inside a message."""
    if not role.ends:
        qp.inbound.ack_due = False


def _two_completions(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Complete the receive of a SEND twice."""
    recv, msn, psn = qp.inbound.recv, qp.inbound.msn, qp.inbound.epsn
    fault = execute.finish_whole(qp, role, request)
    if fault is None:
        qp.inbound.recv, qp.inbound.msn, qp.inbound.epsn = recv, msn, psn
        fault = execute.finish_whole(qp, role, request)
    return fault


def _no_completion(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Forget the completion of a SEND of several packets."""
    qp.inbound.msn = serial.add(qp.inbound.msn, 1)
    if role.access:
        qp.inbound.msn = serial.add(qp.inbound.msn, -1)
        return execute.finish(qp, role, request)
    qp.inbound.recv, qp.inbound.incoming = NO_RECEIVE, NO_MESSAGE
    return execute.advance(qp, role, request)


def _no_immediate(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    return execute.finish(qp, replace(role, headers=()), request)


def _length_of_last(qp: QueuePair, role: RequestRule, request: Arrival) -> None:
    """Report the length of the last packet as that of the message."""
    if role.receipt is not None:
        qp.inbound.incoming.placed = len(request.payload)


def _length_with_pad(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    padded = request.payload + bytes(-len(request.payload) % 4)
    return execute.finish_whole(qp, role, request._replace(payload=padded))


def _ack_of_next(qp: QueuePair, _: RequestRule, __: Arrival) -> None:
    """Acknowledge with the PSN that is expected next."""
    if qp.inbound.ack_due:
        qp.inbound.ack_due = False
        qp.inbound.pending.append(Acknowledge(qp.inbound.epsn, qp.inbound.msn))


def _qkey_of_16_bits(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Compare the lower 16 bits of a Q_Key."""
    qkey = request.extended[role.places[DETH]].qkey
    return Fault.QKEY if (qkey ^ qp.qkey) & 0xFFFF else None


def _no_grh_space(qp: QueuePair, _: RequestRule, request: Arrival) -> Fault | None:
    """Write a datagram to the start of its receive, without 40 bytes for the GRH."""
    incoming = qp.inbound.incoming
    if len(request.payload) + 40 > incoming.limit:
        return Fault.TOO_LONG
    incoming.sink.write(0, request.payload)
    incoming.placed = len(request.payload) + 40
    return None


def _follows_anything(qp: QueuePair, role: RequestRule, _: Arrival) -> Fault | None:
    """On UC, continue the message in progress where a new one begins."""
    inbound = qp.inbound
    if role.begins and inbound.incoming is not NO_MESSAGE:
        return Fault.OP_SEQUENCE
    return None if inbound.incoming.family is role.follows else Fault.OP_SEQUENCE


def _any_srq(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Take an SRQ of another XRC domain, and another one inside a message."""
    srq = qp.device.srqs.get(request.extended[role.places[XRCETH]].xrcsrq)
    if srq is None or srq.xrc is None:
        return Fault.OP_VALID
    qp.srq, qp.recv_cq = srq, srq.xrc.cq
    qp.pd = qp.recv_pd = srq.pd
    return None


def _xrc_resource(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Answer with RNR for an empty SRQ, except XRC, which answers with an error."""
    fault = checks.check_resource(qp, role, request)
    return Fault.OP_VALID if fault is Fault.NOT_READY and qp.type == QPType.XRC_TGT else fault


BUGS = (
    PlantedBug(
        "access-error-not-fatal",
        "after a Remote Access Error the queue pair stays usable",
        "IBA 9.9.3",
        with_reaction(Fault.RKEY, replace(RELIABLE[Fault.RKEY], fatal=False)),
    ),
    PlantedBug(
        "invalid-request-not-fatal",
        "after an invalid length the queue pair stays usable",
        "IBA 9.9.3",
        with_reaction(Fault.LENGTH, replace(RELIABLE[Fault.LENGTH], fatal=False)),
    ),
    PlantedBug(
        "access-error-as-invalid-request",
        "a refused key is answered with Invalid Request",
        "IBA 9.7.4.1.5",
        with_reaction(Fault.RKEY, replace(RELIABLE[Fault.RKEY], nak=Nak.INVALID_REQUEST)),
    ),
    PlantedBug(
        "misaligned-as-access-error",
        "a misaligned atomic is answered with Remote Access Error",
        "IBA 9.4.5",
        with_reaction(
            Fault.MISALIGNED, replace(RELIABLE[Fault.MISALIGNED], nak=Nak.REMOTE_ACCESS_ERROR)
        ),
    ),
    PlantedBug(
        "no-nak-for-invalid-operation",
        "an operation that the queue pair does not allow has no answer",
        "IBA 9.7.4.1.4",
        with_reaction(Fault.OP_VALID, replace(RELIABLE[Fault.OP_VALID], nak=None)),
    ),
    PlantedBug(
        "nak-for-invalidation",
        "a key that cannot be invalidated is answered with a NAK",
        "IBA 9.9.3",
        with_reaction(
            Fault.INVALIDATE,
            replace(RELIABLE[Fault.INVALIDATE], acknowledged=False, nak=Nak.REMOTE_ACCESS_ERROR),
        ),
    ),
    PlantedBug(
        "msn-always-zero",
        "the MSN of ACKs is 0",
        "IBA 9.7.7.1",
        STANDARD.with_header(AETH, _aeth(msn=0)),
    ),
    PlantedBug(
        "msn-of-one-bit",
        "the MSN has one bit",
        "IBA 9.7.7.1",
        STANDARD.with_header(AETH, _msn_at_most(1)),
    ),
    PlantedBug(
        "credits-never-limited",
        "ACKs say that credits are not used",
        "IBA 9.7.7.2",
        STANDARD.with_header(AETH, _aeth(value=31)),
    ),
    PlantedBug(
        "write-not-counted",
        "a WRITE is not counted in the MSN",
        "IBA 9.7.7.1",
        before(execute.finish, _not_counted),
    ),
    PlantedBug(
        "each-packet-counted",
        "first and middle packets are counted in the MSN",
        "IBA 9.7.7.1",
        before(execute.advance, _counted),
    ),
    PlantedBug(
        "read-not-counted",
        "a READ is not counted in the MSN",
        "IBA 9.7.7.1",
        after(execute.queue_read, _read_not_counted),
    ),
    PlantedBug(
        "acks-unasked-sends",
        "a SEND of one packet is acknowledged without AckReq",
        "IBA 9.7.5.1.1",
        after(execute.finish_whole, _always_acks),
    ),
    PlantedBug(
        "no-acks-in-a-message",
        "first and middle packets with AckReq are not acknowledged",
        "IBA 9.7.5.1.1",
        after(execute.advance, _acks_ends_alone),
    ),
    PlantedBug(
        "ack-of-next-psn",
        "the ACK of a message of several packets has the PSN that is expected next",
        "IBA 9.7.5.1.1",
        after(execute.finish, _ack_of_next),
    ),
    PlantedBug(
        "completed-twice",
        "the receive of a SEND completes twice",
        "IBA 10.8.5",
        with_step(execute.finish_whole, _two_completions),
    ),
    PlantedBug(
        "completion-lost",
        "the receive of a SEND of several packets never completes",
        "IBA 10.8.5",
        with_step(execute.finish, _no_completion),
    ),
    PlantedBug(
        "immediate-lost",
        "the completion of a message of several packets lacks its immediate",
        "IBA 9.4.1",
        with_step(execute.finish, _no_immediate),
    ),
    PlantedBug(
        "length-of-last-packet",
        "the completion has the length of the last packet, not that of the message",
        "IBA 11.4.2.1",
        before(execute.finish, _length_of_last),
    ),
    PlantedBug(
        "length-with-pad",
        "the length in the completion of a SEND of one packet includes the pad",
        "IBA 11.4.2.1",
        with_step(execute.finish_whole, _length_with_pad),
    ),
    PlantedBug(
        "any-qkey",
        "the Q_Key of datagrams is not compared",
        "IBA 9.6.1.4.1",
        with_step(checks.check_qkey, no_check),
        "ud",
    ),
    PlantedBug(
        "qkey-of-16-bits",
        "the upper half of Q_Keys is not compared",
        "IBA 9.6.1.4.1",
        with_step(checks.check_qkey, _qkey_of_16_bits),
        "ud",
    ),
    PlantedBug(
        "no-space-for-grh",
        "a datagram is written to the start of its receive, without 40 bytes for the GRH",
        "IBA 11.4.1.2",
        with_step(execute.place_datagram, _no_grh_space),
        "ud",
    ),
    PlantedBug(
        "uc-ignores-gaps",
        "UC continues a message although a packet of it is missing",
        "IBA 9.8.2.2.2",
        with_step(checks.check_psn_gap, no_check),
        "uc",
    ),
    PlantedBug(
        "uc-first-inside-message",
        "UC drops a first packet while another message is in progress",
        "IBA 9.8.2.2.1",
        with_step(checks.check_op_seq, _follows_anything),
        "uc",
    ),
    PlantedBug(
        "xrc-any-srq",
        "XRC takes the SRQ of another domain, or another one inside a message",
        "IBA A14",
        with_step(checks.check_xrcsrq, _any_srq),
        "xrc",
    ),
    PlantedBug(
        "xrc-empty-srq-is-fatal",
        "XRC answers a request for an empty SRQ with Invalid Request, not with RNR",
        "IBA A14",
        with_step(checks.check_resource, _xrc_resource),
        "xrc",
    ),
)
