"""Planted bugs of connection managers: rows of transitions, refusals, and how ids are compared."""

from typing import Final

from rdmawire.fuzz.planted_bugs.bug import PlantedBug
from rdmawire.ib.cm import STANDARD, CMRules
from rdmawire.ib.cm.connection import Connection
from rdmawire.ib.cm.machine import StateMachine
from rdmawire.ib.cm.messages import ReceivedMad
from rdmawire.ib.cm.state_machine import CMAction, CMState, Input, NextState
from rdmawire.wire.cm import RejectReason

_S, _A = CMState, CMAction


def _by_own_id(machine: StateMachine, received: ReceivedMad) -> Connection | None:
    """Find a connection by this side's id alone."""
    conn = machine.registry.get(received.ids[0])
    return conn if conn is not None and conn.remote == received.source else None


def _by_peers_id(machine: StateMachine, received: ReceivedMad) -> Connection | None:
    """Find a connection by the peer's id alone."""
    mine, peers = received.ids
    known = [conn for conn in machine.registry if conn.remote == received.source]
    return next(
        (conn for conn in known if (peers and conn.peer_id == peers) or conn.id == mine), None
    )


def _row(state: CMState, what: Input, to: CMState | None = None, *does: CMAction) -> CMRules:
    return STANDARD.with_transition(state, what, None if to is None else NextState(to, does))


def _bug(name: str, about: str, clause: str, rules: CMRules, role: str = "passive") -> PlantedBug:
    return PlantedBug(name, about, clause, service=role, kind="cm", cm=rules)


def _accepts(name: str, what: str, reason: RejectReason) -> PlantedBug:
    about = f"a REQ with {what} is accepted"
    return _bug(name, about, "IBA 12.6.7.2", STANDARD.without_refusal(reason))


_R: Final = RejectReason
_BOTH: Final = "IBA 12.9.5, 12.9.6"

BUGS: Final = (
    _bug(
        "req-not-repeated", "a repeated REQ is not answered with the REP again", "IBA 12.9.6",
        _row(_S.REP_SENT, Input.REQ),
    ),
    _bug(
        "rep-not-repeated", "a repeated REP is not answered with an RTU again", "IBA 12.9.5",
        _row(_S.ESTABLISHED, Input.REP), "active",
    ),
    _bug(
        "data-does-not-establish", "the first packet does not establish the connection",
        "IBA 12.9.6", _row(_S.REP_SENT, Input.DATA, _S.REP_SENT),
    ),
    _bug(
        "two-dreqs-deadlock", "a DREQ that crosses the own DREQ is not answered", _BOTH,
        _row(_S.DREQ_SENT, Input.DREQ), "active",
    ),
    _bug(
        "no-drep-in-timewait", "a DREQ in timewait is not answered", _BOTH,
        _row(_S.TIMEWAIT, Input.DREQ), "active",
    ),
    _bug(
        "no-timewait", "a connection is forgotten with the DREP, without timewait", _BOTH,
        _row(_S.DREQ_SENT, Input.DREP, _S.CLOSED, _A.REPORT_DISCONNECTED), "active",
    ),
    _bug(
        "qp-stays-in-rts", "the queue pair is not moved to ERR by a disconnect", _BOTH,
        _row(_S.ESTABLISHED, Input.DISCONNECT, _S.DREQ_SENT, _A.SEND_DREQ), "active",
    ),
    _bug(
        "rep-for-ever", "a REP that is not answered is retransmitted without end", "IBA 12.9.6",
        _row(_S.REP_SENT, Input.RETRIES_EXCEEDED, _S.REP_SENT, _A.RESEND),
    ),
    _bug(
        "refused-is-resolved", "a refused resolution is reported as a success", "IBA 12.11.2",
        _row(_S.SIDR_REQ_SENT, Input.SIDR_REFUSED, _S.CLOSED, _A.REPORT_RESOLVED), "sidr-active",
    ),
    _bug(
        "sidr-not-repeated", "a repeated SIDR_REQ is not answered", "IBA 12.11.1",
        _row(_S.SIDR_REP_SENT, Input.SIDR_REQ), "sidr-passive",
    ),
    _bug(
        "peers-id-not-compared", "the communication id of the sender is not compared",
        "IBA 12.6", STANDARD._replace(find=_by_own_id),
    ),
    _bug(
        "own-id-not-compared", "a message to another communication id is accepted",
        "IBA 12.6", STANDARD._replace(find=_by_peers_id),
    ),
    _accepts("any-service-id", "a service id without a listener", _R.INVALID_SERVICE_ID),
    _accepts("any-remote-gid", "the GID of another host", _R.PRIMARY_REMOTE_GID_REJECTED),
    _accepts("any-sender", "another local GID than the sender's", _R.UNSUPPORTED_REQUEST),
    _accepts("no-hops-left", "a hop limit of 0", _R.INVALID_PRIMARY_HOP_LIMIT),
    _accepts("any-mtu", "an invalid path MTU", _R.INVALID_PATH_MTU),
    _accepts("any-class-version", "another class version", _R.INVALID_CLASS_VERSION),
)  # fmt: skip
"""Bugs of connection managers."""
