"""Planted bugs of order: PSNs, duplicates, gaps, the sequence of opcodes, receives and READs."""

from dataclasses import replace

from rdmawire.fuzz.planted_bugs.bug import (
    IGNORE,
    PlantedBug,
    after,
    no_check,
    with_quiet_step,
    with_reaction,
    with_step,
)
from rdmawire.ib import checks, execute
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import (
    NO_MESSAGE,
    NO_RECEIVE,
    Acknowledge,
    AtomicResponse,
    ReadResponse,
)
from rdmawire.ib.rules import REQUEST, RequestRule, Rules
from rdmawire.ib.rx_parser import Arrival, Drop
from rdmawire.ib.service import RELIABLE, Fault, Reaction
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.memory.key import KeyFault
from rdmawire.verbs.enums import QPType
from rdmawire.wire import serial
from rdmawire.wire.ib import Ack
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.serial import MODULUS

_HALF = MODULUS // 2
_ATOMICS = (Opcode.RC_CMP_SWAP, Opcode.RC_FETCH_ADD)


def _psn_without_wrap(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Compare PSNs as numbers."""
    if request.psn != qp.inbound.epsn:
        return Fault.DUPLICATE if request.psn < qp.inbound.epsn else Fault.SEQUENCE
    return checks.check_psn_and_op_seq(qp, role, request)


def _duplicates_off_by_one(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Take the PSN half the space before the expected one as one after it."""
    if (qp.inbound.epsn - request.psn) % MODULUS == _HALF:
        return Fault.SEQUENCE
    return checks.check_psn_and_op_seq(qp, role, request)


def _gap_of_one(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Take a packet one ahead of the expected one as the expected one."""
    if request.psn == serial.add(qp.inbound.epsn, 1):
        qp.inbound.epsn = request.psn
    return checks.check_psn_and_op_seq(qp, role, request)


def _ack_for_gap(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Acknowledge a packet after a gap, and drop it."""
    fault = checks.check_psn_and_op_seq(qp, role, request)
    if fault is not Fault.SEQUENCE:
        return fault
    qp.inbound.pending.append(Acknowledge(request.psn, qp.inbound.msn))
    qp.wake()
    return IGNORE


def _begins_anywhere(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """A message may begin while another is in progress, which is forgotten."""
    fault = checks.check_psn_and_op_seq(qp, role, request)
    if fault is Fault.OP_SEQUENCE and role.begins:
        qp.inbound.incoming, fault = NO_MESSAGE, None
    return fault


def _continues_as_any(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """A message may continue with packets of another operation."""
    fault = checks.check_psn_and_op_seq(qp, role, request)
    going_on = qp.inbound.incoming is not NO_MESSAGE
    return None if fault is Fault.OP_SEQUENCE and going_on and not role.begins else fault


def _atomic_twice(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Execute a duplicate atomic again; it gets the first response."""
    fault = checks.check_psn_and_op_seq(qp, role, request)
    if fault is Fault.DUPLICATE and request.flow.bth.opcode == Opcode.RC_FETCH_ADD:
        eth = request.extended[-1]
        found = qp.device.keys.check(eth.rkey, qp.pd, eth.va, 8, role.access, qp.qp_num)
        if not isinstance(found, KeyFault) and not eth.va % 8:
            found.fetch_add(eth.va, eth.swapdt)
    return fault


def _no_read_again(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Ignore duplicate READs."""
    fault = checks.check_psn_and_op_seq(qp, role, request)
    is_read = request.flow.bth.opcode == Opcode.RC_RDMA_READ_REQUEST
    return IGNORE if fault is Fault.DUPLICATE and is_read else fault


def _no_atomic_again(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Ignore duplicate atomics."""
    fault = checks.check_psn_and_op_seq(qp, role, request)
    is_atomic = request.flow.bth.opcode in _ATOMICS
    return IGNORE if fault is Fault.DUPLICATE and is_atomic else fault


def _acks_duplicate_itself(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Acknowledge a duplicate SEND or WRITE with its own PSN."""
    fault = checks.check_psn_and_op_seq(qp, role, request)
    if fault is not Fault.DUPLICATE or role.family is REQUEST:
        return fault
    qp.inbound.pending.append(Acknowledge(request.psn, qp.inbound.msn))
    qp.wake()
    return IGNORE


def _other_rnr_timer(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Send the RNR timer code that follows the one that was set."""
    fault = checks.check_resource(qp, role, request)
    if fault is None:
        return None
    qp.inbound.refuse(Ack.RNR_NAK, (qp.min_rnr_timer + 1) % 32)
    qp.inbound.refused = True
    qp.wake()
    return IGNORE


def _executes_unready(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Expect the next packet after an RNR NAK."""
    fault = checks.check_resource(qp, role, request)
    if fault is Fault.NOT_READY:
        qp.inbound.refuse(Ack.RNR_NAK, qp.min_rnr_timer)
        qp.inbound.epsn = serial.add(qp.inbound.epsn, 1)
        qp.wake()
        return IGNORE
    return fault


def _psn_of_one_packet(qp: QueuePair, _: RequestRule, request: Arrival) -> None:
    """A READ takes one PSN, however many responses it has."""
    answer = qp.inbound.pending[-1]
    if isinstance(answer, ReadResponse) and answer.packets > 1:
        qp.inbound.epsn = serial.add(request.psn, 1)


def _one_response_more(qp: QueuePair, _: RequestRule, __: Arrival) -> None:
    """A READ of full packets gets an empty response at its end."""
    answer = qp.inbound.pending[-1]
    if isinstance(answer, ReadResponse) and answer.target.length == answer.packets * qp.mtu:
        answer.packets += 1


def _never_wraps(qp: QueuePair, _: RequestRule, __: Arrival) -> None:
    """After the last PSN expect 1, not 0."""
    if qp.inbound.epsn == 0:
        qp.inbound.epsn = 1


def _remembers_one(qp: QueuePair, _: RequestRule, __: Arrival) -> None:
    """Remember the last READ or atomic alone."""
    while len(qp.inbound.resources) > 1:
        qp.inbound.resources.popleft()


def _forgets_value(qp: QueuePair, _: RequestRule, __: Arrival) -> None:
    """A duplicate atomic gets the value 0."""
    last = qp.inbound.resources[-1] if qp.inbound.resources else None
    if last is not None and isinstance(qp.inbound.pending[-1], AtomicResponse):
        qp.inbound.resources[-1] = last._replace(original=0)


def _keeps_receive(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Do not consume the receive of a WRITE with immediate."""
    recv = qp.inbound.recv
    fault = execute.finish(qp, role, request)
    if fault is None and recv is not NO_RECEIVE and role.access:
        qp.rq.appendleft(recv)
    return fault


def _silent_reserved(rules: Rules) -> Rules:
    """Drop reserved opcodes and malformed requests."""
    step = checks.check_psn_and_op_seq

    def drops(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
        return step(qp, role, request) or IGNORE

    row = replace(rules.malformed, steps=(drops,))
    return replace(rules, malformed=row).with_reaction(QPType.RC, IGNORE, Reaction())


_SEQUENCE_NAK = RELIABLE[Fault.SEQUENCE]
_PSN = checks.check_psn_and_op_seq

BUGS = (
    PlantedBug(
        "psn-without-wrap",
        "PSNs are compared as numbers, without wrap",
        "IBA 9.7.4.1.2",
        with_step(_PSN, _psn_without_wrap),
    ),
    PlantedBug(
        "duplicate-window-off-by-one",
        "the PSN 2**23 before the expected one is taken as one after it",
        "IBA 9.7.4.1.2",
        with_step(_PSN, _duplicates_off_by_one),
    ),
    PlantedBug(
        "gap-of-one",
        "a packet is accepted though the one before it is missing",
        "IBA 9.7.4.1.2",
        with_step(_PSN, _gap_of_one),
    ),
    PlantedBug(
        "ack-for-a-gap",
        "a packet after a gap is acknowledged and dropped",
        "IBA 9.7.4.1.2",
        with_quiet_step(_PSN, _ack_for_gap),
    ),
    PlantedBug(
        "nak-for-each-packet-after-a-gap",
        "each packet after a gap causes a NAK, not the first alone",
        "IBA 9.7.4.1.2, 9.7.5.2",
        with_reaction(Fault.SEQUENCE, replace(_SEQUENCE_NAK, once=False)),
    ),
    PlantedBug(
        "no-nak-for-a-gap",
        "a gap causes no NAK: the requester waits for its time-out",
        "IBA 9.7.4.1.2, 9.7.5.2",
        with_reaction(Fault.SEQUENCE, Reaction()),
    ),
    PlantedBug(
        "skips-a-gap",
        "after a gap the packets that follow it are accepted",
        "IBA 9.7.4.1.2",
        with_reaction(Fault.SEQUENCE, Reaction(drop=Drop.SEQUENCE)),
    ),
    PlantedBug(
        "begins-in-a-message",
        "a message may begin while another is in progress",
        "IBA 9.7.4.1.3",
        with_step(_PSN, _begins_anywhere),
    ),
    PlantedBug(
        "continues-as-another",
        "a SEND may continue with packets of a WRITE, and a WRITE with packets of a SEND",
        "IBA 9.7.4.1.3",
        with_step(_PSN, _continues_as_any),
    ),
    PlantedBug(
        "atomic-executed-twice",
        "a duplicate FETCH ADD is executed again",
        "IBA 9.7.5.1.4",
        with_step(_PSN, _atomic_twice),
    ),
    PlantedBug(
        "no-answer-to-duplicate-read",
        "a duplicate READ has no answer",
        "IBA 9.7.5.1.3",
        with_quiet_step(_PSN, _no_read_again),
    ),
    PlantedBug(
        "no-answer-to-duplicate-atomic",
        "a duplicate atomic has no answer",
        "IBA 9.7.5.1.4",
        with_quiet_step(_PSN, _no_atomic_again),
    ),
    PlantedBug(
        "no-answer-to-duplicates",
        "no duplicate has an answer",
        "IBA 9.7.5.1.2",
        with_reaction(Fault.DUPLICATE, Reaction()),
    ),
    PlantedBug(
        "ack-with-psn-of-duplicate",
        "a duplicate is acknowledged with its own PSN, not with the newest",
        "IBA 9.7.5.1.2",
        with_quiet_step(_PSN, _acks_duplicate_itself),
    ),
    PlantedBug(
        "other-rnr-timer",
        "an RNR NAK has another timer than the queue pair",
        "IBA 9.7.5.2.8",
        with_quiet_step(checks.check_resource, _other_rnr_timer),
    ),
    PlantedBug(
        "psn-counts-after-rnr",
        "a packet that causes an RNR NAK is counted as received",
        "IBA 9.7.5.2.8",
        with_quiet_step(checks.check_resource, _executes_unready),
    ),
    PlantedBug(
        "receive-used-twice",
        "a WRITE with immediate completes its receive, and leaves it posted",
        "IBA 9.7.5.1.1",
        with_step(execute.finish, _keeps_receive),
    ),
    PlantedBug(
        "no-limit-of-reads",
        "READs and atomics are not limited to max_dest_rd_atomic",
        "IBA 9.7.4.1.5",
        with_step(checks.check_rd_atomic, no_check),
    ),
    PlantedBug(
        "read-takes-one-psn",
        "after a READ of several responses the PSN after its first is expected",
        "IBA 9.7.3.1",
        after(execute.queue_read, _psn_of_one_packet),
    ),
    PlantedBug(
        "one-response-too-many",
        "a READ of full packets gets an empty response at its end",
        "IBA 9.7.5.1.3",
        after(execute.queue_read, _one_response_more),
    ),
    PlantedBug(
        "psn-zero-skipped",
        "after PSN 0xffffff, 1 is expected",
        "IBA 9.7.1",
        after(execute.finish, _never_wraps),
    ),
    PlantedBug(
        "one-atomic-remembered",
        "the last READ or atomic alone is remembered for duplicates",
        "IBA 9.7.5.1.4",
        after(execute.fetch_add, _remembers_one),
    ),
    PlantedBug(
        "duplicate-atomic-returns-zero",
        "a duplicate COMPARE SWAP returns 0, not the original value",
        "IBA 9.7.5.1.4",
        after(execute.compare_swap, _forgets_value),
    ),
    PlantedBug(
        "reserved-opcodes-dropped",
        "requests with a reserved opcode or a payload that may not be there have no answer",
        "IBA 9.7.4.1.4",
        _silent_reserved(STANDARD),
    ),
)
