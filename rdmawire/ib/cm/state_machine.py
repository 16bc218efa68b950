"""States of a connection and its transitions. IBA 12.9.5, 12.9.6, 12.11."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple


class CMState(Enum):
    """States by the standard's names. A CLOSED connection is removed."""

    IDLE = auto()
    REQ_SENT = auto()
    REQ_RCVD = auto()
    MRA_REQ_SENT = auto()
    MRA_REQ_RCVD = auto()
    REP_SENT = auto()
    REP_RCVD = auto()
    MRA_REP_SENT = auto()
    MRA_REP_RCVD = auto()
    ESTABLISHED = auto()
    DREQ_SENT = auto()
    DREQ_RCVD = auto()
    TIMEWAIT = auto()
    SIDR_REQ_SENT = auto()
    SIDR_REQ_RCVD = auto()
    SIDR_REP_SENT = auto()
    CLOSED = auto()


class Input(Enum):
    """Inputs: messages of the peer, its data, timers, and calls of the owner."""

    REQ = auto()
    """A repetition of the request that created this connection."""
    MRA_OF_REQ = auto()
    MRA_OF_REP = auto()
    REJ = auto()
    REJ_STALE = auto()
    """A REJ because the peer considers the connection stale."""
    REP = auto()
    RTU = auto()
    DREQ = auto()
    DREP = auto()
    SIDR_REQ = auto()
    SIDR_REP = auto()
    SIDR_REFUSED = auto()
    """A SIDR_REP with another status than success."""

    DATA = auto()
    """The queue pair received the peer's first packet."""
    RETRIES_EXCEEDED = auto()
    """No answer was received after all retries."""
    EXPIRED = auto()
    """A waiting time is over."""
    DISPLACED = auto()
    """The backlog is full, and a request of another peer replaces this one."""

    CONNECT = auto()
    RESOLVE = auto()
    ACCEPT = auto()
    REJECT = auto()
    ESTABLISH = auto()
    DISCONNECT = auto()
    DESTROY = auto()


CALLS = frozenset(
    {
        Input.CONNECT,
        Input.RESOLVE,
        Input.ACCEPT,
        Input.REJECT,
        Input.ESTABLISH,
        Input.DISCONNECT,
        Input.DESTROY,
    }
)
"""Calls of the owner: refused without a row. Other inputs without a row are ignored."""


class Wait(Enum):
    """What the timer of a state waits for."""

    NOTHING = auto()
    ANSWER = auto()
    """The peer's answer; the message is resent up to the maximum number of tries."""
    END = auto()
    """The end of timewait: all packets in flight have arrived or are lost."""
    OWNER = auto()
    """The owner's answer, until the peer times out."""


WAITS: dict[CMState, Wait] = {
    CMState.REQ_SENT: Wait.ANSWER,
    CMState.MRA_REQ_RCVD: Wait.ANSWER,
    CMState.REP_SENT: Wait.ANSWER,
    CMState.MRA_REP_RCVD: Wait.ANSWER,
    CMState.DREQ_SENT: Wait.ANSWER,
    CMState.SIDR_REQ_SENT: Wait.ANSWER,
    CMState.REQ_RCVD: Wait.OWNER,
    CMState.MRA_REQ_SENT: Wait.OWNER,
    CMState.SIDR_REQ_RCVD: Wait.OWNER,
    CMState.TIMEWAIT: Wait.END,
    CMState.SIDR_REP_SENT: Wait.END,
}
"""All other states have no timer."""


class CMAction(Enum):
    """Actions of a transition."""

    SEND_REQ = auto()
    SEND_SIDR_REQ = auto()
    SEND_REP = auto()
    SEND_RTU = auto()
    SEND_MRA = auto()
    SEND_DREQ = auto()
    SEND_DREP = auto()
    SEND_SIDR_REP = auto()
    RESEND = auto()
    """Resend the last message."""
    SEND_REJ = auto()
    """REJ, with the owner's reason."""
    SEND_REJ_LATE = auto()
    """REJ: no answer in time."""
    SEND_REJ_STALE = auto()
    """REJ: this connection is over."""
    SEND_REJ_FULL = auto()
    """REJ: too many requests wait for an answer."""

    STORE_REP = auto()
    """Store the peer's parameters, and report them if the owner confirms by hand."""
    EXTEND_TIMEOUT = auto()
    """Wait for the time that an MRA specifies."""
    MOVE_TO_RTS = auto()
    """Move the queue pair to RTS."""
    MOVE_TO_ERR = auto()
    """Move the queue pair to ERR."""
    STOP_EVENTS = auto()
    """Report no more events of the connection, and drop those that were not taken."""

    REPORT_ESTABLISHED = auto()
    REPORT_RESOLVED = auto()
    REPORT_UNRESOLVED = auto()
    REPORT_UNREACHABLE = auto()
    REPORT_UNANSWERED = auto()
    """Unreachable, or remove the request's event if the owner has not taken it."""
    REPORT_REJECTED = auto()
    REPORT_DISCONNECTED = auto()
    REPORT_DISCONNECT_TIMEOUT = auto()
    REPORT_TIMEWAIT_EXIT = auto()


class NextState(NamedTuple):
    """The next state of a row, and its actions."""

    to: CMState
    does: tuple[CMAction, ...] = ()


class Transition(NamedTuple):
    """A transition; without ``to`` the state stays."""

    states: tuple[CMState, ...]
    inputs: tuple[Input, ...]
    to: CMState | None
    does: tuple[CMAction, ...] = ()


_S, _I, _A = CMState, Input, CMAction

_IDLE = (_S.IDLE,)
_ASKING = (_S.REQ_SENT, _S.MRA_REQ_RCVD)
_ASKED = (_S.REQ_RCVD, _S.MRA_REQ_SENT)
_ANSWERING = (_S.REP_SENT, _S.MRA_REP_RCVD)
_ANSWERED = (_S.REP_RCVD, _S.MRA_REP_SENT)
_UP = (_S.ESTABLISHED,)
_LEAVING = (_S.DREQ_SENT,)
_LEFT = (_S.DREQ_RCVD,)
_OVER = (_S.TIMEWAIT,)
_REJECTED = (_I.REJ, _I.REJ_STALE)

_ROWS = (
    # Active side. IBA 12.9.5.
    Transition(_IDLE, (_I.CONNECT,), _S.REQ_SENT, (_A.SEND_REQ,)),
    Transition((_S.REQ_SENT,), (_I.MRA_OF_REQ,), _S.MRA_REQ_RCVD, (_A.EXTEND_TIMEOUT,)),
    Transition(_ASKING, (_I.REP,), _S.REP_RCVD, (_A.STORE_REP,)),
    Transition(_ASKING, (_I.REJ,), _S.CLOSED, (_A.REPORT_REJECTED,)),
    Transition(_ASKING, (_I.REJ_STALE,), _S.TIMEWAIT, (_A.REPORT_REJECTED,)),
    Transition(
        _ASKING, (_I.RETRIES_EXCEEDED,), _S.CLOSED, (_A.SEND_REJ_LATE, _A.REPORT_UNREACHABLE)
    ),
    Transition(_ASKING, (_I.DESTROY,), _S.CLOSED, (_A.SEND_REJ_LATE,)),
    Transition(_ANSWERED, (_I.REP,), _S.MRA_REP_SENT, (_A.SEND_MRA,)),
    Transition(
        _ANSWERED,
        (_I.ESTABLISH,),
        _S.ESTABLISHED,
        (_A.MOVE_TO_RTS, _A.SEND_RTU, _A.REPORT_ESTABLISHED),
    ),
    Transition(_ANSWERED, (_I.REJ,), _S.CLOSED, (_A.REPORT_REJECTED,)),
    Transition(_ANSWERED, (_I.REJ_STALE,), _S.TIMEWAIT, (_A.REPORT_REJECTED,)),
    Transition(_ANSWERED, (_I.REJECT, _I.DESTROY), _S.TIMEWAIT, (_A.MOVE_TO_ERR, _A.SEND_REJ)),
    # Passive side. IBA 12.9.6.
    Transition(_ASKED, (_I.REQ,), _S.MRA_REQ_SENT, (_A.SEND_MRA,)),
    Transition(_ASKED, (_I.ACCEPT,), _S.REP_SENT, (_A.MOVE_TO_RTS, _A.SEND_REP)),
    Transition(_ASKED, (_I.REJECT, _I.DESTROY), _S.CLOSED, (_A.SEND_REJ,)),
    Transition(_ASKED, _REJECTED, _S.CLOSED, (_A.REPORT_REJECTED,)),
    Transition(_ASKED, (_I.EXPIRED,), _S.CLOSED, (_A.SEND_REJ_LATE, _A.REPORT_UNANSWERED)),
    Transition(_ASKED, (_I.DISPLACED,), _S.CLOSED, (_A.SEND_REJ_FULL, _A.REPORT_UNANSWERED)),
    Transition((_S.REP_SENT,), (_I.MRA_OF_REP,), _S.MRA_REP_RCVD, (_A.EXTEND_TIMEOUT,)),
    Transition(_ANSWERING, (_I.REQ,), None, (_A.RESEND,)),
    Transition(_ANSWERING, (_I.RTU, _I.DATA), _S.ESTABLISHED, (_A.REPORT_ESTABLISHED,)),
    Transition(_ANSWERING, (_I.DREQ,), _S.DREQ_RCVD, (_A.REPORT_DISCONNECTED,)),
    Transition(_ANSWERING, _REJECTED, _S.TIMEWAIT, (_A.MOVE_TO_ERR, _A.REPORT_REJECTED)),
    Transition(
        _ANSWERING,
        (_I.RETRIES_EXCEEDED,),
        _S.TIMEWAIT,
        (_A.MOVE_TO_ERR, _A.SEND_REJ_LATE, _A.REPORT_UNREACHABLE),
    ),
    Transition(_ANSWERING, (_I.REJECT, _I.DESTROY), _S.TIMEWAIT, (_A.MOVE_TO_ERR, _A.SEND_REJ)),
    # Both sides, from here on.
    Transition(_UP, (_I.REP,), None, (_A.SEND_RTU,)),
    Transition(_UP, (_I.DREQ,), _S.DREQ_RCVD, (_A.REPORT_DISCONNECTED,)),
    Transition(_UP, (_I.DISCONNECT, _I.DESTROY), _S.DREQ_SENT, (_A.MOVE_TO_ERR, _A.SEND_DREQ)),
    Transition(_UP, _REJECTED, _S.TIMEWAIT, (_A.MOVE_TO_ERR, _A.REPORT_REJECTED)),
    Transition(_LEFT, (_I.DISCONNECT, _I.DESTROY), _S.TIMEWAIT, (_A.MOVE_TO_ERR, _A.SEND_DREP)),
    Transition(_LEAVING, (_I.DREP, *_REJECTED), _S.TIMEWAIT, (_A.REPORT_DISCONNECTED,)),
    Transition(_LEAVING, (_I.DREQ,), _S.TIMEWAIT, (_A.SEND_DREP, _A.REPORT_DISCONNECTED)),
    Transition(_LEAVING, (_I.RETRIES_EXCEEDED,), _S.TIMEWAIT, (_A.REPORT_DISCONNECT_TIMEOUT,)),
    Transition(_LEAVING, (_I.DESTROY,), None),
    Transition(_OVER, (_I.DREQ,), None, (_A.SEND_DREP,)),
    Transition(_OVER, (_I.REQ,), None, (_A.SEND_REJ_STALE,)),
    Transition(_OVER, (_I.DESTROY,), None),
    Transition(_OVER, (_I.EXPIRED,), _S.CLOSED, (_A.REPORT_TIMEWAIT_EXIT,)),
    # Service ID resolution, for datagrams. IBA 12.11.
    Transition(_IDLE, (_I.RESOLVE,), _S.SIDR_REQ_SENT, (_A.SEND_SIDR_REQ,)),
    Transition((_S.SIDR_REQ_SENT,), (_I.SIDR_REP,), _S.CLOSED, (_A.REPORT_RESOLVED,)),
    Transition((_S.SIDR_REQ_SENT,), (_I.SIDR_REFUSED,), _S.CLOSED, (_A.REPORT_UNRESOLVED,)),
    Transition((_S.SIDR_REQ_SENT,), (_I.RETRIES_EXCEEDED,), _S.CLOSED, (_A.REPORT_UNREACHABLE,)),
    Transition((_S.SIDR_REQ_SENT,), (_I.DESTROY,), _S.CLOSED),
    Transition(
        (_S.SIDR_REQ_RCVD,),
        (_I.ACCEPT, _I.REJECT, _I.DESTROY),
        _S.SIDR_REP_SENT,
        (_A.SEND_SIDR_REP,),
    ),
    Transition((_S.SIDR_REQ_RCVD,), (_I.EXPIRED,), _S.CLOSED, (_A.REPORT_UNANSWERED,)),
    Transition(
        (_S.SIDR_REQ_RCVD,), (_I.DISPLACED,), _S.CLOSED, (_A.SEND_SIDR_REP, _A.REPORT_UNANSWERED)
    ),
    Transition((_S.SIDR_REP_SENT,), (_I.SIDR_REQ,), None, (_A.RESEND,)),
    Transition((_S.SIDR_REP_SENT,), (_I.DESTROY,), None),
    Transition((_S.SIDR_REP_SENT,), (_I.EXPIRED,), _S.CLOSED),
)


def _steps() -> Iterator[tuple[tuple[CMState, Input], NextState]]:
    for states, inputs, to, does in _ROWS:
        for state in states:
            for what in inputs:
                silence = (_A.STOP_EVENTS,) if what is _I.DESTROY else ()
                yield (state, what), NextState(to or state, does + silence)


CM_TRANSITIONS: dict[tuple[CMState, Input], NextState] = dict(_steps())
"""All transitions. Calls without a row are refused, other inputs are ignored."""
