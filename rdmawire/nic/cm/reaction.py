"""What is done on the way from state to state: one function for each row of :class:`Do`."""

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from rdmawire.nic.cm import compose, event
from rdmawire.nic.cm.connection import Connection
from rdmawire.nic.cm.endpoint import bring_up, take_down
from rdmawire.nic.cm.message import Heard
from rdmawire.nic.cm.settings import ack_timeout, duration
from rdmawire.nic.cm.transition import Do
from rdmawire.wire.cm import MRA, REJ, REP, SIDRREP
from rdmawire.wire.cm_code import RejectReason, SIDRStatus

if TYPE_CHECKING:
    from rdmawire.nic.cm.machine import Machine

Code = TypeVar("Code", bound=IntEnum)
Reaction = Callable[["Machine", Connection, Heard | None], None]


def _send_req(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    message = compose.req(conn, machine.nic.device, machine.settings)
    machine.send(conn, conn.ask(message, machine.now))


def _send_sidr_req(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.send(conn, conn.ask(compose.sidr_req(conn, machine.nic.device), machine.now))


def _send_rep(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.send(conn, conn.ask(compose.rep(conn, machine.nic.device), machine.now))


def _send_rtu(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.send(conn, compose.rtu(conn))


def _send_mra(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.send(conn, compose.mra(conn, machine.settings))


def _send_dreq(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.send(conn, conn.ask(compose.dreq(conn), machine.now))


def _send_drep(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.send(conn, compose.drep(conn))


def _send_sidr_rep(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    conn.again = compose.sidr_rep(conn)
    machine.send(conn, conn.again)


def _send_again(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.send(conn, conn.again)


def _refuse(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    message = compose.rej(conn, conn.reason, machine.nic.device, conn.last_words)
    machine.send(conn, message)


def _refuse_late(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.send(conn, compose.rej(conn, RejectReason.TIMEOUT, machine.nic.device))


def _refuse_stale(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.send(conn, compose.rej(conn, RejectReason.STALE_CONNECTION, machine.nic.device))


def _refuse_full(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.send(conn, compose.rej(conn, RejectReason.NO_RESOURCES, machine.nic.device))


def _take_rep(machine: "Machine", conn: Connection, heard: Heard | None) -> None:
    """The peer's depths are ours exchanged, and never more than was asked for. IBA 12.7.29."""
    if heard is None or not isinstance(heard.message, REP):
        return
    rep, terms = heard.message, conn.terms
    conn.peer_id = rep.local_comm_id
    conn.heard_data = rep.private_data
    conn.terms = terms._replace(
        remote_qpn=rep.local_qpn,
        sq_psn=rep.starting_psn,
        responder_resources=min(terms.responder_resources, rep.initiator_depth),
        initiator_depth=min(terms.initiator_depth, rep.responder_resources),
        timeout=ack_timeout(machine.settings.packet_life, rep.target_ack_delay),
        rnr_retry_count=rep.rnr_retry_count,
    )
    conn.timewait = duration(conn.terms.timeout)
    machine.registry.claim_peer(conn)
    if conn.by_hand:
        machine.tell(conn, _connect_response(conn))


def _connect_response(conn: Connection) -> event.ConnectResponse:
    return event.ConnectResponse(
        id=conn.id,
        responder_resources=conn.terms.responder_resources,
        initiator_depth=conn.terms.initiator_depth,
        remote_qpn=conn.terms.remote_qpn,
        private_data=conn.heard_data,
    )


def _put_off(machine: "Machine", conn: Connection, heard: Heard | None) -> None:
    if heard is not None and isinstance(heard.message, MRA):
        wait = duration(heard.message.service_timeout)
        conn.answer_due = machine.now + wait + conn.period


def _bring_up(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    bring_up(machine.nic, conn)


def _take_down(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    take_down(machine.nic, conn)


def _fall_silent(_: "Machine", conn: Connection, __: Heard | None) -> None:
    conn.silent = True
    conn.qp = None


def _tell_established(machine: "Machine", conn: Connection, heard: Heard | None) -> None:
    data = conn.heard_data if conn.active or heard is None else heard.private_data
    machine.tell(conn, event.Established(conn.id, data))


def _tell_resolved(machine: "Machine", conn: Connection, heard: Heard | None) -> None:
    if heard is not None and isinstance(heard.message, SIDRREP):
        found = heard.message
        resolved = event.Resolved(
            id=conn.id,
            path=conn.path,
            remote_qpn=found.qpn,
            remote_qkey=found.q_key,
            private_data=found.private_data,
        )
        machine.tell(conn, resolved)


def _tell_unresolved(machine: "Machine", conn: Connection, heard: Heard | None) -> None:
    if heard is not None and isinstance(heard.message, SIDRREP):
        status = _named(SIDRStatus, heard.message.status)
        machine.tell(conn, event.Unresolved(conn.id, status, heard.message.private_data))


def _tell_unreachable(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.tell(conn, event.Unreachable(conn.id))


def _tell_unanswered(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    if not machine.withdraw_request(conn):
        machine.tell(conn, event.Unreachable(conn.id))


def _tell_rejected(machine: "Machine", conn: Connection, heard: Heard | None) -> None:
    if heard is not None and isinstance(heard.message, REJ):
        reason = _named(RejectReason, heard.message.reason)
        machine.tell(conn, event.Rejected(conn.id, reason, heard.message.private_data))


def _named(codes: type[Code], number: int) -> Code | int:
    """A code of the wire by the standard's name, if it has one."""
    return codes(number) if number in {*codes} else number


def _tell_disconnected(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.tell(conn, event.Disconnected(conn.id))


def _tell_cut_off(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.tell(conn, event.Disconnected(conn.id, timed_out=True))


def _tell_timewait_exit(machine: "Machine", conn: Connection, _: Heard | None) -> None:
    machine.tell(conn, event.TimewaitExit(conn.id))


REACTIONS: dict[Do, Reaction] = {
    Do.SEND_REQ: _send_req,
    Do.SEND_SIDR_REQ: _send_sidr_req,
    Do.SEND_REP: _send_rep,
    Do.SEND_RTU: _send_rtu,
    Do.SEND_MRA: _send_mra,
    Do.SEND_DREQ: _send_dreq,
    Do.SEND_DREP: _send_drep,
    Do.SEND_SIDR_REP: _send_sidr_rep,
    Do.SEND_AGAIN: _send_again,
    Do.REFUSE: _refuse,
    Do.REFUSE_LATE: _refuse_late,
    Do.REFUSE_STALE: _refuse_stale,
    Do.REFUSE_FULL: _refuse_full,
    Do.TAKE_REP: _take_rep,
    Do.PUT_OFF: _put_off,
    Do.BRING_UP: _bring_up,
    Do.TAKE_DOWN: _take_down,
    Do.FALL_SILENT: _fall_silent,
    Do.TELL_ESTABLISHED: _tell_established,
    Do.TELL_RESOLVED: _tell_resolved,
    Do.TELL_UNRESOLVED: _tell_unresolved,
    Do.TELL_UNREACHABLE: _tell_unreachable,
    Do.TELL_UNANSWERED: _tell_unanswered,
    Do.TELL_REJECTED: _tell_rejected,
    Do.TELL_DISCONNECTED: _tell_disconnected,
    Do.TELL_CUT_OFF: _tell_cut_off,
    Do.TELL_TIMEWAIT_EXIT: _tell_timewait_exit,
}
