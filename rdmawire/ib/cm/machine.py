"""Connection state changes: steps of the table, their actions, and timers.

:mod:`~rdmawire.ib.cm.receive` finds the input that a message is, and calls ``step``.
"""

from collections import Counter, deque
from collections.abc import Callable, Container, Mapping
from enum import IntEnum
from errno import EINVAL
from typing import NamedTuple, Self, TypeVar

from rdmawire.errors import VerbsError
from rdmawire.ib.cm import event
from rdmawire.ib.cm import messages as compose
from rdmawire.ib.cm.connection import (
    CMSettings,
    Connection,
    OwnersQP,
    Registry,
    ack_timeout,
    duration,
)
from rdmawire.ib.cm.event import CMEvent, CMEventType
from rdmawire.ib.cm.gsi import GeneralServices
from rdmawire.ib.cm.messages import Asked, ReceivedMad
from rdmawire.ib.cm.state_machine import WAITS, CMAction, CMState, Input, NextState, Wait
from rdmawire.ib.engine import Nic
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.verbs import Verbs
from rdmawire.identifier import Drawn, Randomness, Source
from rdmawire.memory.key import Access
from rdmawire.validate import check_methods, check_time, check_type
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.qp_attr import QP_TRANSITIONS, QPAttributes, QPAttrMask, check_values
from rdmawire.verbs.timers import Timers
from rdmawire.wire.cm import MRA, REJ, REP, REQ, SIDRREP, RejectReason, SIDRStatus
from rdmawire.wire.management import MTU

DEFAULTS = CMSettings()

_PENDING = frozenset({CMState.REQ_RCVD, CMState.MRA_REQ_SENT, CMState.SIDR_REQ_RCVD})
_UNCONFIRMED = frozenset({CMState.REP_SENT, CMState.MRA_REP_RCVD})

Neighbours = Callable[[bytes], bytes | None]
"""The Ethernet address (six bytes) of the next hop to a GID, if there is one."""


class Listener(NamedTuple):
    """A listener for requests of a service, with at most ``backlog`` unanswered ones."""

    service_id: int
    datagrams: bool
    backlog: int


Refusal = Callable[["StateMachine", REQ, Asked], bool]
"""Whether a REQ has a property for which it is refused."""
Find = Callable[["StateMachine", ReceivedMad], Connection | None]


class CMRules(NamedTuple):
    """The rules of a connection manager. A copy with one row replaced has a quirk.

    - ``transitions``: next state and actions, by state and input.
    - ``refusals``: reasons to refuse a REQ and their conditions, in order of checking.
    - ``find``: finds the connection that a message is about.
    - ``moves_qps``: whether the manager moves queue pairs. Otherwise their owner does, by the
      attributes that the manager has for it, as with rdma_init_qp_attr(3).
    """

    transitions: Mapping[tuple[CMState, Input], NextState]
    refusals: tuple[tuple[RejectReason, Refusal], ...]
    find: Find
    moves_qps: bool = True

    def with_transition(self, state: CMState, what: Input, row: NextState | None) -> Self:
        """Return these rules with another row for a state and an input; ``None`` removes it."""
        rows = {key: found for key, found in self.transitions.items() if key != (state, what)}
        return self._replace(transitions=rows if row is None else rows | {(state, what): row})

    def without_refusal(self, reason: RejectReason) -> Self:
        """Return these rules without the conditions to refuse a REQ for a reason."""
        return self._replace(refusals=tuple(row for row in self.refusals if row[0] != reason))


class StateMachine:
    """All connections of one NIC, and their datagrams. Times are ns.

    ``unconfirmed`` are connections that wait for an RTU, by queue pair number. ``pending`` are
    requests that wait for the owner, oldest first: by service id and whether they are for
    datagrams (SIDR), then by communication id.
    """

    def __init__(
        self,
        nic: Nic,
        neighbours: Neighbours,
        random: Randomness,
        settings: CMSettings,
        rules: CMRules,
    ) -> None:
        check_type("nic", nic, Nic)
        check_methods("neighbours", neighbours, "__call__")
        check_methods("random", random, "getrandbits")
        check_type("settings", settings, CMSettings)
        check_type("rules", rules, CMRules)
        settings.check()
        self.rules = rules
        self.nic = nic
        self.neighbours = neighbours
        self.random: Randomness = Source(random)
        self.settings = settings
        self.registry = Registry(settings.max_connections)
        self.listeners: dict[tuple[int, bool], Listener] = {}
        self.unconfirmed: dict[int, Connection] = {}
        self.gsi = GeneralServices(nic)
        self.now = 0
        self.pending: dict[tuple[int, bool], dict[int, Connection]] = {}
        self.timers: Timers[Connection] = Timers()
        self._events: deque[CMEvent] = deque()

    @property
    def answer_time(self) -> int:
        """Maximum time for an answer (ns): the peer's response time plus the round trip."""
        settings = self.settings
        return duration(settings.response_timeout) + 2 * duration(settings.packet_life)

    def knows(self, conn: Connection, what: Input) -> bool:
        """Whether the table has a row for this state and input."""
        return (conn.state, what) in self.rules.transitions

    def step(self, conn: Connection, what: Input, received: ReceivedMad | None = None) -> None:
        """Execute the table's row for this input, if any."""
        row = self.rules.transitions[conn.state, what]
        for do in row.does:
            ACTIONS[do](self, conn, received)
        if row.to is not conn.state:
            self.enter(conn, row.to)

    def enter(self, conn: Connection, state: CMState) -> None:
        """Enter a state, and start its timer."""
        conn.state = state
        self._note_pending(conn)
        self._wait(conn, WAITS.get(state, Wait.NOTHING))
        self._note_unconfirmed(conn)
        if state is CMState.CLOSED:
            self.registry.remove(conn)

    def _wait(self, conn: Connection, wait: Wait) -> None:
        if wait is Wait.NOTHING:
            self.timers.disarm(conn)
        elif wait is Wait.END:
            self.timers.arm(conn, self.now + conn.timewait)
        elif wait is Wait.OWNER:
            self.timers.arm(conn, self.now + conn.owner_timeout + self._extension(conn))
        else:
            self.timers.arm(conn, conn.answer_due)

    def _extension(self, conn: Connection) -> int:
        """Extra time for the owner (ns) that this side's MRA announced. IBA 12.6.6."""
        extended = conn.state is CMState.MRA_REQ_SENT
        return duration(self.settings.mra_timeout) if extended else 0

    def _note_unconfirmed(self, conn: Connection) -> None:
        if conn.state in _UNCONFIRMED:
            self.unconfirmed[conn.qpn] = conn
        elif self.unconfirmed.get(conn.qpn) is conn:
            del self.unconfirmed[conn.qpn]

    def _note_pending(self, conn: Connection) -> None:
        waiting = self.pending.setdefault((conn.service_id, conn.datagrams), {})
        if conn.state in _PENDING:
            waiting[conn.id] = conn
        else:
            waiting.pop(conn.id, None)

    def send(self, conn: Connection, message: bytes) -> None:
        """Send a datagram to the peer's manager, in the connection's partition."""
        self.gsi.send(conn.path, message, conn.pkey_index)

    def reply(self, received: ReceivedMad, message: bytes) -> None:
        """Answer a datagram that belongs to no connection, in its partition."""
        self.gsi.send(self.path_to(received), message, received.pkey_index)

    def report(self, conn: Connection, what: CMEvent) -> None:
        """Report an event to the owner, unless the connection is silent."""
        if not conn.silent:
            self._events.append(what)

    def keep(self, conn: Connection) -> None:
        """Add a new connection."""
        self.registry.add(conn)
        if conn.state in _PENDING:
            self.enter(conn, conn.state)

    def new_connection(self, path: AddressHandle, service: int) -> Connection:
        """Make a connection with an unused id."""
        number = Drawn(self.random, 32, 1, 1 << 32).unused(self.registry.__contains__)
        return Connection(number, self.random.getrandbits(64), path, service)

    def path_to(self, received: ReceivedMad) -> AddressHandle:
        """The path to a sender, which ``poll`` made sure exists.

        VLAN, priority, traffic class and RoCE's version are those of the datagram, as with Linux's
        ib_init_ah_attr_from_wc.
        """
        mac = self.neighbours(received.source) or b""
        path = AddressHandle(mac, received.source, received.destination)
        back = received.back or path
        return path._replace(
            traffic_class=back.traffic_class, sl=back.sl, vlan=back.vlan, gid_type=back.gid_type
        )

    def listener(self, service: int, *, datagrams: bool) -> Listener | None:
        """Return the listener of a service."""
        return self.listeners.get((service, datagrams))

    def has_room_for(self, service: int, source: bytes, *, datagrams: bool) -> bool:
        """Whether the backlog accepts one more request of peer ``source`` (a GID)."""
        key = (service, datagrams)
        return not self._is_full(key) or self._displaced_by(key, source) is not None

    def make_room_for(self, service: int, source: bytes, *, datagrams: bool) -> None:
        """If the backlog is full, refuse the request that one of ``source`` (a GID) replaces."""
        key = (service, datagrams)
        displaced = self._displaced_by(key, source) if self._is_full(key) else None
        if displaced is not None:
            self.step(displaced, Input.DISPLACED)

    def _is_full(self, key: tuple[int, bool]) -> bool:
        waiting = self.pending.get(key, ())
        return self.registry.full or len(waiting) >= self.listeners[key].backlog

    def _displaced_by(self, key: tuple[int, bool], source: bytes) -> Connection | None:
        """Return the unanswered request that one of ``source`` (a GID) replaces, if any.

        It is the oldest request of the peer with the most. It is replaced if that peer would have
        more than ``source``, or if it is older than the answer time: so one peer cannot block the
        others, and many peers cannot for long.
        """
        waiting = self.pending.get(key, {})
        counts = Counter(conn.remote for conn in waiting.values())
        most = max(counts.values(), default=0)
        oldest = next((conn for conn in waiting.values() if counts[conn.remote] == most), None)
        if oldest is None:
            return None
        expired = self.now - oldest.since >= self.answer_time
        return oldest if expired or counts[source] + 1 < most else None

    def withdraw_request(self, conn: Connection) -> bool:
        """Remove the event of a peer's request; ``False`` if the owner has already taken it."""
        return self.drop_events(conn.id, {CMEventType.CONNECT_REQUEST})

    def drop_events(
        self, number: int, types: Container[CMEventType] = frozenset(CMEventType)
    ) -> bool:
        """Remove the events of a connection id that have these types; return if there were any."""
        before = len(self._events)
        kept = (each for each in self._events if each.id != number or each.TYPE not in types)
        self._events = deque(kept)
        return len(self._events) < before

    def next_timer(self) -> int | None:
        """When ``handle_timer`` is due (ns); ``None`` if never. Changes nothing."""
        return self.timers.next()

    def handle_timer(self, now: int) -> None:
        """Resend unanswered messages, time out, and remove ended connections."""
        check_time(now)
        self.now = now
        for conn in self.timers.due(now):
            if WAITS[conn.state] is not Wait.ANSWER:
                self.step(conn, Input.EXPIRED)
            elif conn.tries:
                conn.tries -= 1
                self.timers.arm(conn, now + conn.period)
                self.send(conn, conn.last_message)
            else:
                self.step(conn, Input.RETRIES_EXCEEDED)

    def next_event(self) -> CMEvent | None:
        """Take the oldest event."""
        return self._events.popleft() if self._events else None


# Actions of state changes: one function for each row of :class:`CMAction`.


_M = QPAttrMask
_READS = Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.FLUSH_GLOBAL | Access.FLUSH_PERSISTENT
CONNECTING = (QPType.RC, QPType.UC, QPType.XRC_INI)
"""Types of queue pairs that request connections."""
_AT_REST = (QPState.RESET, QPState.INIT)


def check_fit(qp: QueuePair | OwnersQP, *types: QPType, at_rest: bool = True) -> None:
    """Raise ``VerbsError`` EINVAL for a queue pair of another type.

    ``at_rest``: it must also be in RESET or INIT, unless it is for datagrams.
    """
    if qp.type not in types:
        names = " or ".join(kind.name for kind in types)
        raise VerbsError(f"QP {qp.qp_num:#x} is of type {qp.type.name}, not {names}", EINVAL)
    if isinstance(qp, OwnersQP):
        return
    if at_rest and qp.type is not QPType.UD and qp.state not in _AT_REST:
        reason = f"QP {qp.qp_num:#x} is in {qp.state.name}: connections begin in RESET or INIT"
        raise VerbsError(reason, EINVAL)


def move_to_rts(nic: Verbs, conn: Connection) -> None:
    """Move the queue pair to RTS with the agreed terms; ``VerbsError``, unchanged, if invalid."""
    qp = conn.qp
    if qp is None:
        raise VerbsError("the connection has no queue pair", EINVAL)
    check_fit(qp, conn.qp_type)
    attributes = agreed_attributes(conn)
    _move_through_init(nic, qp, attributes)


def move_ud_to_rts(nic: Verbs, qp: QueuePair, qkey: int) -> None:
    """Move to RTS with this Q_Key, in the present partition, unless the owner did already."""
    if qp.state in _AT_REST:
        _move_through_init(nic, qp, QPAttributes(qkey=qkey, pkey_index=qp.attributes.pkey_index))


def move_to_err(nic: Verbs, conn: Connection) -> None:
    """Move to ERR, which ends its work; skip a queue pair that its owner reset or destroyed."""
    qp = conn.qp
    if qp is not None and nic.device.qps.get(qp.qp_num) is qp and qp.state is not QPState.RESET:
        nic.modify_qp(qp, QPAttributes(qp_state=QPState.ERR), _M.STATE)


def _move_through_init(nic: Verbs, qp: QueuePair, attributes: QPAttributes) -> None:
    """Move through INIT again, as access rights and keys are known only now."""
    first = QP_TRANSITIONS[qp.type, QPState.RESET, QPState.INIT].required
    ready = QP_TRANSITIONS[qp.type, QPState.INIT, QPState.RTR].required
    sending = QP_TRANSITIONS[qp.type, QPState.RTR, QPState.RTS].required
    check_values(attributes, first | ready | sending, nic.device.profile)
    steps = ((QPState.INIT, first), (QPState.RTR, ready), (QPState.RTS, sending))
    for state, mask in steps:
        nic.modify_qp(qp, attributes._replace(qp_state=state), mask | _M.STATE)


def agreed_attributes(conn: Connection) -> QPAttributes:
    """The attributes of this side's queue pair up to RTS."""
    terms, timeout = conn.terms, conn.offer.timeout
    access = Access.REMOTE_WRITE | (_READS if terms.responder_resources else 0)
    return QPAttributes(
        path_mtu=MTU(terms.path_mtu),
        rq_psn=terms.rq_psn,
        sq_psn=terms.sq_psn,
        dest_qp_num=terms.remote_qpn,
        pkey_index=conn.pkey_index,
        qp_access_flags=access,
        ah=conn.path,
        max_rd_atomic=terms.initiator_depth,
        max_dest_rd_atomic=terms.responder_resources,
        timeout=terms.timeout if timeout is None else timeout,
        retry_cnt=terms.retry_count,
        rnr_retry=terms.rnr_retry_count,
    )


def peer_has_sent(conn: Connection) -> bool:
    """Whether an in-sequence packet arrived, which shows that the peer is connected."""
    qp = conn.qp
    return qp is not None and (qp.established or qp.inbound.epsn != conn.terms.rq_psn)


Code = TypeVar("Code", bound=IntEnum)
ActionFunction = Callable[[StateMachine, Connection, ReceivedMad | None], None]


def _send_req(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    message = compose.req(conn, machine.nic.device, machine.settings)
    machine.send(conn, conn.expect_answer(message, machine.now))


def _send_sidr_req(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.send(conn, conn.expect_answer(compose.sidr_req(conn, machine.nic.device), machine.now))


def _send_rep(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.send(conn, conn.expect_answer(compose.rep(conn, machine.nic.device), machine.now))


def _send_rtu(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.send(conn, compose.rtu(conn))


def _send_mra(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.send(conn, compose.mra(conn, machine.settings))


def _send_dreq(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.send(conn, conn.expect_answer(compose.dreq(conn), machine.now))


def _send_drep(machine: StateMachine, conn: Connection, received: ReceivedMad | None) -> None:
    """Answer with the ids of the DREQ: this side may not have stored the peer's. IBA 12.6.11."""
    message = compose.drep(conn) if received is None else compose.drep_of(received)
    machine.send(conn, message)


def _send_sidr_rep(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    conn.last_message = compose.sidr_rep(conn)
    machine.send(conn, conn.last_message)


def _resend(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.send(conn, conn.last_message)


def _send_rej(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    message = compose.rej(conn, conn.reason, machine.nic.device, conn.reject_data)
    machine.send(conn, message)


def _send_rej_late(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.send(conn, compose.rej(conn, RejectReason.TIMEOUT, machine.nic.device))


def _send_rej_stale(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.send(conn, compose.rej(conn, RejectReason.STALE_CONNECTION, machine.nic.device))


def _send_rej_full(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.send(conn, compose.rej(conn, RejectReason.NO_RESOURCES, machine.nic.device))


def _store_rep(machine: StateMachine, conn: Connection, received: ReceivedMad | None) -> None:
    """Take the peer's depths exchanged, limited to those requested. IBA 12.7.29."""
    if received is None or not isinstance(received.message, REP):
        return
    rep, terms = received.message, conn.terms
    conn.peer_id = rep.local_comm_id
    conn.received_data = rep.private_data
    conn.terms = terms._replace(
        remote_qpn=compose.qpn_in(rep, conn),
        sq_psn=rep.starting_psn,
        responder_resources=min(terms.responder_resources, rep.initiator_depth),
        initiator_depth=min(terms.initiator_depth, rep.responder_resources),
        timeout=ack_timeout(machine.settings.packet_life, rep.target_ack_delay),
        rnr_retry_count=rep.rnr_retry_count,
    )
    conn.timewait = duration(conn.terms.timeout)
    machine.registry.claim_peer(conn)
    if conn.by_hand:
        machine.report(conn, _connect_response(conn))


def _connect_response(conn: Connection) -> event.ConnectResponse:
    return event.ConnectResponse(
        id=conn.id,
        responder_resources=conn.terms.responder_resources,
        initiator_depth=conn.terms.initiator_depth,
        remote_qpn=conn.terms.remote_qpn,
        private_data=conn.received_data,
    )


def _extend_timeout(machine: StateMachine, conn: Connection, received: ReceivedMad | None) -> None:
    if received is not None and isinstance(received.message, MRA):
        wait = duration(received.message.service_timeout)
        conn.answer_due = machine.now + wait + conn.period


def _move_to_rts(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    if machine.rules.moves_qps:
        move_to_rts(machine.nic, conn)
    elif conn.qp is not None:
        check_fit(conn.qp, conn.qp_type, at_rest=False)


def _move_to_err(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    if machine.rules.moves_qps:
        move_to_err(machine.nic, conn)


def _stop_events(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.drop_events(conn.id)
    conn.silent = True
    conn.qp = None


def _report_established(
    machine: StateMachine, conn: Connection, received: ReceivedMad | None
) -> None:
    data = conn.received_data if conn.active or received is None else received.private_data
    machine.report(conn, event.Established(conn.id, data))


def _report_resolved(machine: StateMachine, conn: Connection, received: ReceivedMad | None) -> None:
    if received is not None and isinstance(received.message, SIDRREP):
        found = received.message
        resolved = event.Resolved(
            id=conn.id,
            path=conn.path,
            remote_qpn=found.qpn,
            remote_qkey=found.q_key,
            private_data=found.private_data,
        )
        machine.report(conn, resolved)


def _report_unresolved(
    machine: StateMachine, conn: Connection, received: ReceivedMad | None
) -> None:
    if received is not None and isinstance(received.message, SIDRREP):
        status = _named(SIDRStatus, received.message.status)
        machine.report(conn, event.Unresolved(conn.id, status, received.message.private_data))


def _report_unreachable(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.report(conn, event.Unreachable(conn.id))


def _report_unanswered(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    if not machine.withdraw_request(conn):
        machine.report(conn, event.Unreachable(conn.id))


def _report_rejected(machine: StateMachine, conn: Connection, received: ReceivedMad | None) -> None:
    if received is not None and isinstance(received.message, REJ):
        reason = _named(RejectReason, received.message.reason)
        machine.report(conn, event.Rejected(conn.id, reason, received.message.private_data))


def _named(codes: type[Code], number: int) -> Code | int:
    """Return a wire code as an enum member, if the standard names it."""
    return codes(number) if number in {*codes} else number


def _report_disconnected(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.report(conn, event.Disconnected(conn.id))


def _report_disconnect_timeout(
    machine: StateMachine, conn: Connection, _: ReceivedMad | None
) -> None:
    machine.report(conn, event.Disconnected(conn.id, timed_out=True))


def _report_timewait_exit(machine: StateMachine, conn: Connection, _: ReceivedMad | None) -> None:
    machine.report(conn, event.TimewaitExit(conn.id))


ACTIONS: dict[CMAction, ActionFunction] = {
    CMAction.SEND_REQ: _send_req,
    CMAction.SEND_SIDR_REQ: _send_sidr_req,
    CMAction.SEND_REP: _send_rep,
    CMAction.SEND_RTU: _send_rtu,
    CMAction.SEND_MRA: _send_mra,
    CMAction.SEND_DREQ: _send_dreq,
    CMAction.SEND_DREP: _send_drep,
    CMAction.SEND_SIDR_REP: _send_sidr_rep,
    CMAction.RESEND: _resend,
    CMAction.SEND_REJ: _send_rej,
    CMAction.SEND_REJ_LATE: _send_rej_late,
    CMAction.SEND_REJ_STALE: _send_rej_stale,
    CMAction.SEND_REJ_FULL: _send_rej_full,
    CMAction.STORE_REP: _store_rep,
    CMAction.EXTEND_TIMEOUT: _extend_timeout,
    CMAction.MOVE_TO_RTS: _move_to_rts,
    CMAction.MOVE_TO_ERR: _move_to_err,
    CMAction.STOP_EVENTS: _stop_events,
    CMAction.REPORT_ESTABLISHED: _report_established,
    CMAction.REPORT_RESOLVED: _report_resolved,
    CMAction.REPORT_UNRESOLVED: _report_unresolved,
    CMAction.REPORT_UNREACHABLE: _report_unreachable,
    CMAction.REPORT_UNANSWERED: _report_unanswered,
    CMAction.REPORT_REJECTED: _report_rejected,
    CMAction.REPORT_DISCONNECTED: _report_disconnected,
    CMAction.REPORT_DISCONNECT_TIMEOUT: _report_disconnect_timeout,
    CMAction.REPORT_TIMEWAIT_EXIT: _report_timewait_exit,
}
