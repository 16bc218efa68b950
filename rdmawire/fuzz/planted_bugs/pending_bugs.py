"""Planted bugs of responses that are pending: only a responder that transmits later shows them."""

from rdmawire.fuzz.planted_bugs.bug import IGNORE, PlantedBug, before, with_quiet_step, with_step
from rdmawire.ib import checks, execute
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import Acknowledge
from rdmawire.ib.rules import REQUEST, RequestRule, Rules, Step
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import Fault


def _without_copies(step: Step) -> Rules:
    """Return rules in which a step changes memory that a pending READ has still to read."""

    def changed(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
        reads, qp.inbound.reads = qp.inbound.reads, 0
        fault = step(qp, role, request)
        qp.inbound.reads += reads
        return fault

    return with_step(step, changed)


def _ack_after_response(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Send the ACK that is due after the response of a READ, with the PSN of the READ."""
    due, qp.inbound.ack_due = qp.inbound.ack_due, False
    fault = execute.queue_read(qp, role, request)
    qp.inbound.ack_due = due
    return fault


def _refuses_second(qp: QueuePair, _: RequestRule, __: Arrival) -> Fault | None:
    """Allow one READ or atomic less than was agreed, but at least one."""
    most = max(qp.max_dest_rd_atomic - 1, min(qp.max_dest_rd_atomic, 1))
    return None if qp.inbound.owes_fewer(most) else Fault.RESOURCES


def _silent_while_pending(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Drop duplicates of SENDs and WRITEs while another reply is pending."""
    fault = checks.check_psn_and_op_seq(qp, role, request)
    drops = fault is Fault.DUPLICATE and role.family is not REQUEST and bool(qp.inbound.pending)
    return IGNORE if drops else fault


def _drops_responses(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """Discard pending responses when a key is refused."""
    fault = checks.check_rkey(qp, role, request)
    if fault is not None:
        qp.inbound.pending.clear()
        qp.inbound.reads = 0
    return fault


def _drops_acks(qp: QueuePair, _: RequestRule, __: Arrival) -> None:
    """Discard pending ACKs and NAKs when a receive is needed."""
    acks = [one for one in qp.inbound.pending if isinstance(one, Acknowledge)]
    for one in acks:
        qp.inbound.pending.remove(one)


BUGS = (
    PlantedBug(
        "write-changes-pending-read",
        "a READ whose response is pending returns what a later WRITE wrote",
        "IBA 9.5",
        _without_copies(execute.place),
    ),
    PlantedBug(
        "atomic-changes-pending-read",
        "a READ whose response is pending returns what a later FETCH ADD wrote",
        "IBA 9.5",
        _without_copies(execute.fetch_add),
    ),
    PlantedBug(
        "ack-behind-read-response",
        "the ACK of a SEND or WRITE follows the response of a later READ, with its PSN",
        "IBA 9.7.5.1.2",
        with_step(execute.queue_read, _ack_after_response),
    ),
    PlantedBug(
        "one-read-too-few",
        "one READ or atomic less than max_dest_rd_atomic may be pending",
        "IBA 9.7.4.1.5",
        with_step(checks.check_rd_atomic, _refuses_second),
    ),
    PlantedBug(
        "duplicate-dropped-while-busy",
        "a duplicate has no answer while another reply is pending",
        "IBA 9.7.5.1.2",
        with_quiet_step(checks.check_psn_and_op_seq, _silent_while_pending),
    ),
    PlantedBug(
        "refused-key-drops-responses",
        "responses that are pending are discarded when a later request has a wrong key",
        "IBA 9.7.5.2",
        with_step(checks.check_rkey, _drops_responses),
    ),
    PlantedBug(
        "receive-drops-acks",
        "ACKs that are pending are discarded when a later request needs a receive",
        "IBA 9.7.5.1.2",
        before(checks.check_resource, _drops_acks),
    ),
)
