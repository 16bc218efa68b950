"""What each message is to the manager: which connection it is about, or what it is answered with.

Nothing here raises, whatever a peer sends; what is not understood is counted.
"""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from rdmawire.errors import VerbsError
from rdmawire.nic.cm import compose, event, request
from rdmawire.nic.cm.connection import Connection
from rdmawire.nic.cm.message import CLASS_VERSION, Heard
from rdmawire.nic.cm.state import CMState, Input
from rdmawire.wire.cm import DREP, DREQ, MRA, REJ, REP, RTU, SIDRREP
from rdmawire.wire.cm_code import Message, RejectReason, SIDRStatus
from rdmawire.wire.cm_request import REQ, SIDRREQ
from rdmawire.wire.header import Header

if TYPE_CHECKING:
    from rdmawire.nic.cm.machine import Machine


class Ignored(Enum):
    """Why a datagram changed nothing."""

    MALFORMED = "no message of communication management"
    NO_NEIGHBOUR = "from an address that nobody can send to"
    VERSION = "of another version of the class"
    UNSUPPORTED = "a message that is not for here"
    UNKNOWN = "about a connection that is not there"
    OUT_OF_STATE = "not expected in the state found"


def hear(machine: "Machine", heard: Heard) -> Ignored | None:
    """Do what a message asks for; say why, if that is nothing."""
    handler = _HANDLERS.get(type(heard.message), _unsupported)
    return handler(machine, heard)


def _unsupported(_: "Machine", __: Heard) -> Ignored:
    return Ignored.UNSUPPORTED


def _step(machine: "Machine", conn: Connection, what: Input, heard: Heard) -> Ignored | None:
    if not machine.knows(conn, what):
        return Ignored.OUT_OF_STATE
    conn.answered = heard.tid
    machine.step(conn, what, heard)
    return None


# Requests.


def _on_req(machine: "Machine", heard: Heard) -> Ignored | None:
    req = heard.message
    assert isinstance(req, REQ)
    known = machine.registry.requested(heard.source, req.local_comm_id, datagrams=False)
    if known is not None:
        return _step(machine, known, Input.REQ, heard)
    what = request.asked(heard)
    reason = request.refusal(machine, req, what) or _stale(machine, heard, req.local_qpn)
    if reason is not None:
        machine.reply(heard, compose.rej_of(heard, reason))
        return None
    machine.make_room_for(what.service_id, heard.source, datagrams=False)
    conn = request.connection_for(machine, req, what)
    machine.keep(conn)
    machine.registry.claim_peer(conn)
    machine.tell(conn, request.connect_request(conn, req, heard))
    return None


def _stale(machine: "Machine", heard: Heard, qpn: int) -> RejectReason | None:
    """A queue pair that is connected here begins anew: the old connection is dead. IBA 12.9.8.3."""
    old = machine.registry.with_peer(heard.source, qpn)
    if old is None:
        return None
    if machine.knows(old, Input.DISCONNECT):
        machine.step(old, Input.DISCONNECT)
    return RejectReason.STALE_CONNECTION


def _on_sidr_req(machine: "Machine", heard: Heard) -> Ignored | None:
    req = heard.message
    assert isinstance(req, SIDRREQ)
    known = machine.registry.requested(heard.source, req.request_id, datagrams=True)
    if known is not None:
        return _step(machine, known, Input.SIDR_REQ, heard)
    what = request.asked(heard)
    status = request.sidr_refusal(machine, what)
    if status is not None:
        answer = compose.sidr_rep_of(heard, what.service_id, status)
        machine.reply(heard, answer)
        return None
    machine.make_room_for(what.service_id, heard.source, datagrams=True)
    conn = request.look_for(machine, req, what)
    machine.keep(conn)
    machine.tell(conn, request.datagram_request(conn, heard))
    return None


# Answers, and whatever else is about a connection.


def _on_rep(machine: "Machine", heard: Heard) -> Ignored | None:
    rep = heard.message
    assert isinstance(rep, REP)
    conn = _known(machine, heard)
    if conn is None or not conn.active:
        reason = RejectReason.INVALID_COMM_ID
        machine.reply(heard, compose.rej_of(heard, reason))
        return Ignored.UNKNOWN
    if machine.registry.with_peer(heard.source, rep.local_qpn) not in (None, conn):
        reason = RejectReason.STALE_CONNECTION
        machine.reply(heard, compose.rej_of(heard, reason))
        return Ignored.OUT_OF_STATE
    ignored = _step(machine, conn, Input.REP, heard)
    if conn.state is CMState.REP_RCVD and not conn.by_hand:
        _go_on(machine, conn)
    return ignored


def _go_on(machine: "Machine", conn: Connection) -> None:
    """Let the connection stand, or refuse it where the queue pair cannot do what the peer says."""
    try:
        machine.step(conn, Input.ESTABLISH)
    except VerbsError as error:
        machine.step(conn, Input.REJECT)
        machine.tell(conn, event.ConnectError(conn.id, str(error)))


def _on_dreq(machine: "Machine", heard: Heard) -> Ignored | None:
    """The end of a connection that is forgotten is answered too: the first DREP was lost."""
    dreq = heard.message
    assert isinstance(dreq, DREQ)
    conn = _known(machine, heard)
    if conn is None:
        machine.reply(heard, compose.drep_of(heard))
        return Ignored.UNKNOWN
    if dreq.remote_qpn_eecn != conn.qpn:
        return Ignored.OUT_OF_STATE
    return _step(machine, conn, Input.DREQ, heard)


def _on_rej(machine: "Machine", heard: Heard) -> Ignored | None:
    """Who gave up before an answer came knows no id of ours: IBA 12.6.7.2, timeout."""
    rej = heard.message
    assert isinstance(rej, REJ)
    mine, peers = heard.ids
    conn = _known(machine, heard)
    if conn is None and not mine:
        conn = machine.registry.requested(heard.source, peers, datagrams=False)
    if conn is None:
        return Ignored.UNKNOWN
    stale = rej.reason == RejectReason.STALE_CONNECTION
    return _step(machine, conn, Input.REJ_STALE if stale else Input.REJ, heard)


_MRA_OF: dict[int, Input] = {Message.REQ: Input.MRA_OF_REQ, Message.REP: Input.MRA_OF_REP}

_OTHERS: dict[type[Header], Input] = {RTU: Input.RTU, DREP: Input.DREP}


def _input_of(message: Header) -> Input | None:
    """What a message is to the connection that it is about."""
    if isinstance(message, MRA):
        return _MRA_OF.get(message.message_mraed)
    if isinstance(message, SIDRREP):
        granted = message.status == SIDRStatus.SUCCESS
        return Input.SIDR_REP if granted else Input.SIDR_REFUSED
    return _OTHERS.get(type(message))


def _on_others(machine: "Machine", heard: Heard) -> Ignored | None:
    conn, what = _known(machine, heard), _input_of(heard.message)
    if conn is None:
        return Ignored.UNKNOWN
    if what is None:
        return Ignored.UNSUPPORTED
    return _step(machine, conn, what, heard)


def _known(machine: "Machine", heard: Heard) -> Connection | None:
    """The connection that a message is about: this side's id, and the peer's GID and id fit."""
    mine, peers = heard.ids
    conn = machine.registry.get(mine)
    if conn is None or conn.remote != heard.source:
        return None
    return conn if conn.peer_id in (0, peers) or not peers else None


_HANDLERS: dict[type[Header], Callable[["Machine", Heard], Ignored | None]] = {
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


def is_understood(heard: Heard) -> bool:
    """Whether it is of our version of the class; requests are, as their refusal says why."""
    requests = isinstance(heard.message, REQ | SIDRREQ)
    return requests or heard.mad.class_version == CLASS_VERSION
