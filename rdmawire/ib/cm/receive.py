"""Received messages: the connection and the input of each, or its immediate answer.

Nothing here raises, whatever a peer sends; invalid messages are counted.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.ib.cm import event
from rdmawire.ib.cm import messages as compose
from rdmawire.ib.cm.connection import (
    Connection,
    Terms,
    duration,
    endpoints_in,
    has_ip_header,
)
from rdmawire.ib.cm.machine import CMRules, Refusal, StateMachine
from rdmawire.ib.cm.messages import CLASS_VERSION, Asked, ReceivedMad
from rdmawire.ib.cm.state_machine import CM_TRANSITIONS, CMState, Input
from rdmawire.verbs.ah import LAST_PRIORITY, AddressHandle, is_ipv4, is_multicast
from rdmawire.verbs.enums import QPType
from rdmawire.wire.cm import (
    DREP,
    DREQ,
    MRA,
    REJ,
    REP,
    REQ,
    RTU,
    SIDRREP,
    SIDRREQ,
    ExtendedTransport,
    Message,
    RejectReason,
    SIDRStatus,
    TransportService,
)
from rdmawire.wire.header import Header
from rdmawire.wire.management import MTU

_TYPES = {
    (TransportService.RC, 0): QPType.RC,
    (TransportService.UC, 0): QPType.UC,
    (TransportService.EXTENDED, ExtendedTransport.XRC): QPType.XRC_TGT,
}
"""Type of the queue pair that serves a REQ, by its transport service and extended transport."""


def _type_for(req: REQ) -> QPType | None:
    service = req.transport_service_type
    extended = req.extended_transport_type if service == TransportService.EXTENDED else 0
    return _TYPES.get((TransportService(service), extended))


def asked(received: ReceivedMad) -> Asked:
    """Return a request with its IP header parsed."""
    header = received.ip_header
    return Asked(received, None if header is None else endpoints_in(header))


# Reasons to refuse a REQ.


def _other_version(_: StateMachine, __: REQ, what: Asked) -> bool:
    return what.received.mad.class_version != CLASS_VERSION


def _nobody_listens(machine: StateMachine, _: REQ, what: Asked) -> bool:
    return machine.listener(what.service_id, datagrams=False) is None


def _other_host(machine: StateMachine, _: REQ, what: Asked) -> bool:
    """The IP header's destination is not an address of this port, or not an address."""
    return not _is_for(machine, what)


def _other_transport(_: StateMachine, req: REQ, __: Asked) -> bool:
    return _type_for(req) is None


def _other_gid(machine: StateMachine, _: REQ, what: Asked) -> bool:
    return what.received.path.remote_gid not in machine.nic.gids


def _other_sender(_: StateMachine, __: REQ, what: Asked) -> bool:
    """The connection would be with another host than the sender."""
    local, remote = what.received.path.local_gid, what.received.path.remote_gid
    return local != what.received.source or is_multicast(local) or is_ipv4(local) != is_ipv4(remote)


def _no_hops(_: StateMachine, __: REQ, what: Asked) -> bool:
    return what.received.path.hop_limit == 0


def _other_priority(_: StateMachine, __: REQ, what: Asked) -> bool:
    """RoCE has eight service levels, the priorities of a VLAN tag."""
    return what.received.path.sl > LAST_PRIORITY


def _other_mtu(machine: StateMachine, req: REQ, _: Asked) -> bool:
    most = machine.nic.device.profile.max_mtu
    return not MTU.MTU_256 <= req.path_packet_payload_mtu <= most


def _other_partition(machine: StateMachine, req: REQ, _: Asked) -> bool:
    return machine.nic.device.pkey_index_of(req.p_key) is None


def _no_room(machine: StateMachine, _: REQ, what: Asked) -> bool:
    return not machine.has_room_for(what.service_id, what.received.source, datagrams=False)


_R = RejectReason

_REFUSALS: tuple[tuple[RejectReason, Refusal], ...] = (
    (_R.INVALID_CLASS_VERSION, _other_version),
    (_R.INVALID_SERVICE_ID, _nobody_listens),
    (_R.INVALID_SERVICE_ID, _other_host),
    (_R.INVALID_TRANSPORT_SERVICE_TYPE, _other_transport),
    (_R.PRIMARY_REMOTE_GID_REJECTED, _other_gid),
    (_R.UNSUPPORTED_REQUEST, _other_sender),
    (_R.INVALID_PRIMARY_HOP_LIMIT, _no_hops),
    (_R.INVALID_PRIMARY_SL, _other_priority),
    (_R.INVALID_PATH_MTU, _other_mtu),
    (_R.UNSUPPORTED_REQUEST, _other_partition),
    (_R.NO_RESOURCES, _no_room),
)
"""Reasons to refuse a REQ and their conditions, in order of checking. IBA 12.6.7.2."""


def refusal(machine: StateMachine, req: REQ, what: Asked) -> RejectReason | None:
    """Return the reason to refuse a REQ immediately, if any."""
    rows = machine.rules.refusals
    return next((reason for reason, broken in rows if broken(machine, req, what)), None)


def sidr_refusal(machine: StateMachine, what: Asked) -> SIDRStatus | None:
    """Return the status to refuse a SIDR_REQ immediately, if any."""
    if what.received.mad.class_version != CLASS_VERSION:
        return SIDRStatus.UNSUPPORTED_VERSION
    listened = machine.listener(what.service_id, datagrams=True) is not None
    if not listened or not _is_for(machine, what):
        return SIDRStatus.UNSUPPORTED_SERVICE_ID
    if not machine.has_room_for(what.service_id, what.received.source, datagrams=True):
        return SIDRStatus.REJECTED
    return None


def _is_for(machine: StateMachine, what: Asked) -> bool:
    if not has_ip_header(what.service_id):
        return True
    return what.endpoints is not None and what.endpoints.destination in machine.nic.gids


# Accepted requests.


def connection_for(machine: StateMachine, req: REQ, what: Asked) -> Connection:
    """Make the connection that a peer requests; the depths are exchanged."""
    path, profile = what.received.path, machine.nic.device.profile
    handle = machine.path_to(what.received)._replace(
        hop_limit=path.hop_limit,
        traffic_class=path.traffic_class,
        flow_label=path.flow_label,
        sl=path.sl,
    )
    conn = _passive(machine, what, handle)
    conn.peer_id = req.local_comm_id
    conn.pkey_index = machine.nic.device.pkey_index_of(req.p_key) or 0
    conn.qp_type = _type_for(req) or QPType.RC
    conn.has_alternate = what.received.has_alternate
    conn.psn = machine.random.getrandbits(24)
    conn.terms = Terms(
        remote_qpn=req.local_qpn,
        rq_psn=conn.psn,
        sq_psn=req.starting_psn,
        path_mtu=req.path_packet_payload_mtu,
        responder_resources=min(req.initiator_depth, profile.max_qp_rd_atom),
        initiator_depth=min(req.responder_resources, profile.max_qp_init_rd_atom),
        timeout=path.local_ack_timeout,
        retry_count=req.retry_count,
        rnr_retry_count=req.rnr_retry_count,
    )
    conn.period = duration(req.local_cm_response_timeout)
    conn.max_tries = req.max_cm_retries
    conn.owner_timeout = max(machine.answer_time, conn.period * (conn.max_tries + 1))
    conn.timewait = duration(path.local_ack_timeout)
    conn.state = CMState.REQ_RCVD
    return conn


def look_for(machine: StateMachine, req: SIDRREQ, what: Asked) -> Connection:
    """Make the connection of a peer that requests a datagram service."""
    conn = _passive(machine, what, machine.path_to(what.received))
    conn.peer_id = req.request_id
    conn.pkey_index = what.received.pkey_index
    conn.datagrams, conn.qp_type = True, QPType.UD
    conn.timewait = machine.answer_time * (machine.settings.max_cm_retries + 1)
    conn.owner_timeout = conn.timewait
    conn.state = CMState.SIDR_REQ_RCVD
    return conn


def _passive(machine: StateMachine, what: Asked, path: AddressHandle) -> Connection:
    conn = machine.new_connection(path, what.service_id)
    conn.active = False
    conn.since = machine.now
    conn.answered = what.received.tid
    conn.endpoints = what.endpoints
    return conn


def connect_request(conn: Connection, req: REQ, received: ReceivedMad) -> event.ConnectRequest:
    """Make the event that reports the request to the owner."""
    return event.ConnectRequest(
        id=conn.id,
        service_id=conn.service_id,
        qp_type=conn.qp_type,
        responder_resources=conn.terms.responder_resources,
        initiator_depth=conn.terms.initiator_depth,
        retry_count=req.retry_count,
        rnr_retry_count=req.rnr_retry_count,
        flow_control=bool(req.end_to_end_flow_control),
        srq=bool(req.srq),
        remote_qpn=req.local_qpn,
        path=conn.path,
        endpoints=conn.endpoints,
        private_data=received.private_data,
    )


def datagram_request(conn: Connection, received: ReceivedMad) -> event.DatagramRequest:
    """Make the event that reports the request to the owner."""
    return event.DatagramRequest(
        id=conn.id,
        service_id=conn.service_id,
        path=conn.path,
        endpoints=conn.endpoints,
        private_data=received.private_data,
    )


class Ignored(Enum):
    """Why a datagram had no effect."""

    MALFORMED = "no message of communication management"
    NO_NEIGHBOUR = "from an address to which no message can be sent"
    VERSION = "of another version of the class"
    UNSUPPORTED = "a message that is not for here"
    UNKNOWN = "about a connection that is not there"
    OUT_OF_STATE = "not expected in the state found"


def handle_mad(machine: StateMachine, received: ReceivedMad) -> Ignored | None:
    """Process a message; return the reason if it has no effect."""
    handler = _HANDLERS.get(type(received.message), _unsupported)
    return handler(machine, received)


def _unsupported(_: StateMachine, __: ReceivedMad) -> Ignored:
    return Ignored.UNSUPPORTED


def _step(
    machine: StateMachine, conn: Connection, what: Input, received: ReceivedMad
) -> Ignored | None:
    if not machine.knows(conn, what):
        return Ignored.OUT_OF_STATE
    conn.answered = received.tid
    machine.step(conn, what, received)
    return None


# Requests.


def _on_req(machine: StateMachine, received: ReceivedMad) -> Ignored | None:
    req = received.message
    assert isinstance(req, REQ)
    known = machine.registry.requested(received.source, req.local_comm_id, datagrams=False)
    if known is not None:
        return _step(machine, known, Input.REQ, received)
    what = asked(received)
    reason = refusal(machine, req, what) or _stale(machine, received, req.local_qpn)
    if reason is not None:
        machine.reply(received, compose.rej_of(received, reason))
        return None
    machine.make_room_for(what.service_id, received.source, datagrams=False)
    conn = connection_for(machine, req, what)
    machine.keep(conn)
    machine.registry.claim_peer(conn)
    machine.report(conn, connect_request(conn, req, received))
    return None


def _stale(machine: StateMachine, received: ReceivedMad, qpn: int) -> RejectReason | None:
    """End the old connection of a peer's queue pair that connects again. IBA 12.9.8.3."""
    old = machine.registry.with_peer(received.source, qpn)
    if old is None:
        return None
    if machine.knows(old, Input.DISCONNECT):
        machine.step(old, Input.DISCONNECT)
    return RejectReason.STALE_CONNECTION


def _on_sidr_req(machine: StateMachine, received: ReceivedMad) -> Ignored | None:
    req = received.message
    assert isinstance(req, SIDRREQ)
    known = machine.registry.requested(received.source, req.request_id, datagrams=True)
    if known is not None:
        return _step(machine, known, Input.SIDR_REQ, received)
    what = asked(received)
    status = sidr_refusal(machine, what)
    if status is not None:
        answer = compose.sidr_rep_of(received, what.service_id, status)
        machine.reply(received, answer)
        return None
    machine.make_room_for(what.service_id, received.source, datagrams=True)
    conn = look_for(machine, req, what)
    machine.keep(conn)
    machine.report(conn, datagram_request(conn, received))
    return None


# Replies, and other messages of a connection.


def _on_rep(machine: StateMachine, received: ReceivedMad) -> Ignored | None:
    rep = received.message
    assert isinstance(rep, REP)
    conn = machine.rules.find(machine, received)
    if conn is None or not conn.active:
        reason = RejectReason.INVALID_COMM_ID
        machine.reply(received, compose.rej_of(received, reason))
        return Ignored.UNKNOWN
    if machine.registry.with_peer(received.source, compose.qpn_in(rep, conn)) not in (None, conn):
        reason = RejectReason.STALE_CONNECTION
        machine.reply(received, compose.rej_of(received, reason))
        return Ignored.OUT_OF_STATE
    ignored = _step(machine, conn, Input.REP, received)
    if conn.state is CMState.REP_RCVD and not conn.by_hand:
        _go_on(machine, conn)
    return ignored


def _go_on(machine: StateMachine, conn: Connection) -> None:
    """Establish the connection, or refuse it if the queue pair does not support the reply."""
    try:
        machine.step(conn, Input.ESTABLISH)
    except VerbsError as error:
        machine.step(conn, Input.REJECT)
        machine.report(conn, event.ConnectError(conn.id, str(error)))


def _on_dreq(machine: StateMachine, received: ReceivedMad) -> Ignored | None:
    """Also answer a DREQ for a removed connection: the first DREP was lost."""
    dreq = received.message
    assert isinstance(dreq, DREQ)
    conn = machine.rules.find(machine, received)
    if conn is None:
        machine.reply(received, compose.drep_of(received))
        return Ignored.UNKNOWN
    if dreq.remote_qpn_eecn != conn.qpn:
        return Ignored.OUT_OF_STATE
    return _step(machine, conn, Input.DREQ, received)


def _on_rej(machine: StateMachine, received: ReceivedMad) -> Ignored | None:
    """A peer that timed out does not know this side's id: IBA 12.6.7.2, timeout."""
    rej = received.message
    assert isinstance(rej, REJ)
    mine, peers = received.ids
    conn = machine.rules.find(machine, received)
    if conn is None and not mine:
        conn = machine.registry.requested(received.source, peers, datagrams=False)
    if conn is None:
        return Ignored.UNKNOWN
    stale = rej.reason == RejectReason.STALE_CONNECTION
    return _step(machine, conn, Input.REJ_STALE if stale else Input.REJ, received)


_MRA_OF: dict[int, Input] = {Message.REQ: Input.MRA_OF_REQ, Message.REP: Input.MRA_OF_REP}

_OTHERS: dict[type[Header], Input] = {RTU: Input.RTU, DREP: Input.DREP}


def _input_of(message: Header) -> Input | None:
    """Return the input that a message is to its connection."""
    if isinstance(message, MRA):
        return _MRA_OF.get(message.message_mraed)
    if isinstance(message, SIDRREP):
        granted = message.status == SIDRStatus.SUCCESS
        return Input.SIDR_REP if granted else Input.SIDR_REFUSED
    return _OTHERS.get(type(message))


def _on_others(machine: StateMachine, received: ReceivedMad) -> Ignored | None:
    conn, what = machine.rules.find(machine, received), _input_of(received.message)
    if conn is None:
        return Ignored.UNKNOWN
    if what is None:
        return Ignored.UNSUPPORTED
    return _step(machine, conn, what, received)


def find_connection(machine: StateMachine, received: ReceivedMad) -> Connection | None:
    """Find the connection of a message: this side's id and the peer's GID and id match."""
    mine, peers = received.ids
    conn = machine.registry.get(mine)
    if conn is None or conn.remote != received.source:
        return None
    return conn if conn.peer_id in (0, peers) or not peers else None


_HANDLERS: dict[type[Header], Callable[[StateMachine, ReceivedMad], Ignored | None]] = {
    REQ: _on_req,
    SIDRREQ: _on_sidr_req,
    REP: _on_rep,
    DREQ: _on_dreq,
    REJ: _on_rej,
    MRA: _on_others,
    RTU: _on_others,
    DREP: _on_others,
    SIDRREP: _on_others,
}


STANDARD: Final = CMRules(CM_TRANSITIONS, _REFUSALS, find_connection)
"""The rules of the standard."""


def is_understood(received: ReceivedMad) -> bool:
    """Whether the class version is supported; true for requests: their refusal gives the reason."""
    requests = isinstance(received.message, REQ | SIDRREQ)
    return requests or received.mad.class_version == CLASS_VERSION
