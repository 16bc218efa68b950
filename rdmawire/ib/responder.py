"""The responder: request packets become memory accesses, completions and pending responses.

:data:`REQUESTS` has a row for every request opcode of every service: the steps that a packet goes
through, in the standard's order. A step returns a fault or ``None``, and the service's table gives
the reaction. Only when all steps passed does the expected PSN move. IBA 9.7.4, 9.8.
"""

from dataclasses import replace

from rdmawire.ib import checks, execute
from rdmawire.ib.hw_counters import BY_FAULT
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import NO_MESSAGE, NO_RECEIVE, Acknowledge
from rdmawire.ib.responses import replay
from rdmawire.ib.rules import REQUEST, SEND, WRITE, RequestRule, Step
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import Fault, Reaction
from rdmawire.memory.key import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from rdmawire.verbs.async_event import CommunicationEstablished
from rdmawire.verbs.enums import QPState, QPType, WCOpcode
from rdmawire.wire import serial
from rdmawire.wire.ib import Ack
from rdmawire.wire.opcode import OPERATIONS, RULES, Operation, Part, Service
from rdmawire.wire.packet import LAYOUTS


def respond(qp: QueuePair, role: RequestRule, request: Arrival) -> None:
    """Execute one request at once, even while responses to earlier READs are pending."""
    for step in role.steps:
        fault = step(qp, role, request)
        if fault is not None:
            _react(qp, role, request, fault)
            return


def establish(qp: QueuePair) -> None:
    """Report the first request that arrives in RTR: IBA 11.6.3.1."""
    if qp.state is QPState.RTR and not qp.established:
        qp.established = True
        qp.events.append(CommunicationEstablished(qp.qp_num))


def _react(qp: QueuePair, role: RequestRule, request: Arrival, fault: Fault) -> None:
    """Apply the service's reaction to a fault."""
    if fault in BY_FAULT:
        qp.counters.increment(BY_FAULT[fault])
    reaction = _reaction(qp, fault)
    if reaction.replay:
        replay(qp, role, request)
    elif reaction.drop is not None:
        qp.device.drops[reaction.drop] += 1
        qp.inbound.skip_to(serial.add(request.psn, 1))
    elif not (reaction.once and qp.inbound.refused):
        if reaction.rnr and role.begins:
            qp.inbound.incoming = NO_MESSAGE  # the retransmitted packet begins it again
        _refuse(qp, request, fault, reaction)


def _reaction(qp: QueuePair, fault: Fault) -> Reaction:
    """The service's reaction; for ``TOO_LONG`` the device's profile sets NAK and status."""
    reaction = qp.service.reactions[fault]
    if fault is Fault.TOO_LONG and qp.service.reliable:
        device = qp.device.profile
        return replace(reaction, nak=device.too_long, status=device.too_long_status)
    return reaction


def _refuse(qp: QueuePair, request: Arrival, fault: Fault, reaction: Reaction) -> None:
    """Send the NAK of the reaction, if it has one, and end the queue pair if it is fatal."""
    inbound = qp.inbound
    if reaction.fatal:
        _end(qp, request, fault, reaction)
    if reaction.rnr:
        inbound.refuse(Ack.RNR_NAK, qp.min_rnr_timer)
    elif reaction.nak is not None:
        inbound.refuse(Ack.NAK, reaction.nak)
    elif reaction.acknowledged:
        inbound.settle()
        inbound.pending.append(Acknowledge(request.psn, inbound.msn))
    silent_after_rnr = reaction.rnr and not qp.device.profile.naks_gaps_after_rnr
    inbound.refused = reaction.once or silent_after_rnr
    qp.wake()


def _end(qp: QueuePair, request: Arrival, fault: Fault, reaction: Reaction) -> None:
    """Complete the receive in use with an error, or report an event; then end the queue pair.

    Responses to this request and to earlier ones are still sent.
    """
    qp.inbound.sends_last_responses = reaction.nak is not None or reaction.acknowledged
    recv, qp.inbound.recv = qp.inbound.recv, NO_RECEIVE
    if recv is not NO_RECEIVE and reaction.status is not None:
        qp.complete_receive(recv, reaction.status)
    elif reaction.notice is not None:
        qp.report_request(reaction.notice, request.psn, fault)
    qp.fail()


def _note_congestion(qp: QueuePair, _: RequestRule, __: Arrival) -> Fault | None:
    """Report a CNP to the rate control: the peer received marked packets. IBA A17.9."""
    if qp.governor is None:
        qp.counters.rp_cnp_ignored += 1
    else:
        qp.counters.rp_cnp_handled += 1
        qp.governor.notified()
    return None


CNP = RequestRule(REQUEST, (_note_congestion,))
"""A CNP, in any service."""

MALFORMED = RequestRule(REQUEST, (checks.check_psn_and_op_seq, checks.check_shape))
"""A reserved opcode, or a payload that the operation must not have. IBA 9.7.4.1.4, 9.7.4.1.6."""

_GOING_ON: tuple[Step, ...] = (checks.check_message_length, execute.place)
_STARTS = (Part.FIRST, Part.ONLY)
_ENDS = (Part.LAST, Part.ONLY)

_IN_ORDER: dict[bool, tuple[Step, ...]] = {
    True: (checks.check_psn_and_op_seq,),
    False: (checks.check_psn_gap, checks.check_op_seq),
}
"""The checks of the PSN and of the opcode's order, by whether the service is reliable."""

_RECEIPTS = {
    Operation.SEND_ONLY: WCOpcode.RECV,
    Operation.SEND_LAST: WCOpcode.RECV,
    Operation.SEND_ONLY_WITH_IMMEDIATE: WCOpcode.RECV,
    Operation.SEND_LAST_WITH_IMMEDIATE: WCOpcode.RECV,
    Operation.SEND_ONLY_WITH_INVALIDATE: WCOpcode.RECV,
    Operation.SEND_LAST_WITH_INVALIDATE: WCOpcode.RECV,
    Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE: WCOpcode.RECV_RDMA_WITH_IMM,
    Operation.RDMA_WRITE_LAST_WITH_IMMEDIATE: WCOpcode.RECV_RDMA_WITH_IMM,
}
"""The completion opcode of operations that use a receive."""


def _send(operation: Operation, reliable: bool) -> RequestRule:
    part = RULES[operation].part
    begins, ends = part in _STARTS, part in _ENDS
    invalidate = (execute.invalidate,) if "ieth" in RULES[operation].headers else ()
    steps = _IN_ORDER[reliable] + _SEND_STEPS[part] + invalidate
    last = _SEND_LAST_STEPS[part]
    return RequestRule(SEND, (*steps, last), begins, ends, receipt=_RECEIPTS.get(operation))


_SEND_STEPS: dict[Part, tuple[Step, ...]] = {
    Part.ONLY: (checks.check_resource, checks.check_length, execute.place_whole),
    Part.FIRST: (checks.check_resource, checks.check_length, execute.open_receive, *_GOING_ON),
    Part.MIDDLE: (checks.check_length, *_GOING_ON),
    Part.LAST: (checks.check_length, *_GOING_ON),
}
_SEND_LAST_STEPS: dict[Part, Step] = {
    Part.ONLY: execute.finish_whole,
    Part.FIRST: execute.advance,
    Part.MIDDLE: execute.advance,
    Part.LAST: execute.finish,
}


def _write(operation: Operation, reliable: bool) -> RequestRule:
    part = RULES[operation].part
    begins, ends = part in _STARTS, part in _ENDS
    opening = (checks.check_dmalen, checks.check_rkey, execute.open_target)
    steps = (
        *_IN_ORDER[reliable],
        *((checks.check_op_valid,) if begins else ()),
        *((checks.check_resource,) if operation in _RECEIPTS else ()),
        checks.check_length,
        *(opening if begins else ()),
        checks.check_message_length,
        execute.place,
        execute.finish if ends else execute.advance,
    )
    receipt = _RECEIPTS.get(operation)
    return RequestRule(WRITE, steps, begins, ends, access=REMOTE_WRITE, receipt=receipt)


def _request(access: int, *steps: Step) -> RequestRule:
    """A request of one packet whose response is more than an ACK."""
    first = (*_IN_ORDER[True], checks.check_op_valid, checks.check_rd_atomic)
    return RequestRule(REQUEST, first + steps, access=access)


_READ = _request(
    REMOTE_READ, checks.check_max_dmalen, checks.check_rkey, execute.page_in, execute.queue_read
)

_REQUESTS = {
    Operation.RDMA_READ_REQUEST: replace(_READ, again=(checks.check_rkey,)),
    Operation.CMP_SWAP: _request(REMOTE_ATOMIC, checks.check_atomic_rkey, execute.compare_swap),
    Operation.FETCH_ADD: _request(REMOTE_ATOMIC, checks.check_atomic_rkey, execute.fetch_add),
    Operation.ATOMIC_WRITE: _request(
        REMOTE_WRITE, checks.check_dmalen, checks.check_atomic_rkey, execute.atomic_write
    ),
    Operation.FLUSH: _request(0, checks.check_flush_rkey, execute.flush),
}

_DATAGRAM = RequestRule(
    SEND,
    (
        checks.check_qkey,
        checks.check_length,
        checks.check_resource,
        execute.open_receive,
        execute.place_datagram,
        execute.finish_datagram,
    ),
    receipt=WCOpcode.RECV,
)


def _role(operation: Operation, reliable: bool) -> RequestRule:
    if operation in _REQUESTS:
        return _REQUESTS[operation]
    make = _write if operation in _WRITES else _send
    return make(operation, reliable)


_WRITES = {
    operation for operation, rule in RULES.items() if operation.name.startswith("RDMA_WRITE")
}


def _roles(service: Service, *, reliable: bool) -> dict[int, RequestRule]:
    requests = (op for op in OPERATIONS[service] if not RULES[op].response)
    return {service << 5 | op: _placed(service, op, _role(op, reliable)) for op in requests}


def _placed(service: Service, operation: Operation, role: RequestRule) -> RequestRule:
    """Return the row with the headers that its opcode has in this service."""
    return replace(role, headers=LAYOUTS[service << 5 | operation].headers)


def _for_named_srq(role: RequestRule) -> RequestRule:
    """XRC: each packet selects its receive queue, once its PSN is checked, duplicates included."""
    ordered = _IN_ORDER[True]
    steps = (*ordered, checks.check_xrcsrq, *role.steps[len(ordered) :])
    return replace(role, steps=steps, again=(checks.check_xrcsrq, *role.again))


_RC = _roles(Service.RC, reliable=True)
_XRC = _roles(Service.XRC, reliable=True)

REQUESTS: dict[QPType, dict[int, RequestRule]] = {
    QPType.RC: _RC,
    QPType.UC: _roles(Service.UC, reliable=False),
    QPType.UD: {
        Service.UD << 5 | op: _placed(Service.UD, op, _DATAGRAM) for op in OPERATIONS[Service.UD]
    },
    QPType.XRC_TGT: {opcode: _for_named_srq(role) for opcode, role in _XRC.items()},
    QPType.XRC_INI: {},
    QPType.RAW_PACKET: {},
}
"""Rows of requests, by queue pair type and opcode. Other opcodes are dropped."""
