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
    GIVEN_UP = auto()
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


class Do(Enum):
    """Actions of a transition."""

    SEND_REQ = auto()
    SEND_SIDR_REQ = auto()
    SEND_REP = auto()
    SEND_RTU = auto()
    SEND_MRA = auto()
    SEND_DREQ = auto()
    SEND_DREP = auto()
    SEND_SIDR_REP = auto()
    SEND_AGAIN = auto()
    """Resend the last message."""
    REFUSE = auto()
    """REJ, with the owner's reason."""
    REFUSE_LATE = auto()
    """REJ: no answer in time."""
    REFUSE_STALE = auto()
    """REJ: this connection is over."""
    REFUSE_FULL = auto()
    """REJ: too many requests wait for an answer."""

    TAKE_REP = auto()
    """Store the peer's parameters, and report them if the owner confirms by hand."""
    PUT_OFF = auto()
    """Wait for the time that an MRA specifies."""
    BRING_UP = auto()
    """Move the queue pair to RTS."""
    TAKE_DOWN = auto()
    """Move the queue pair to ERR."""
    FALL_SILENT = auto()
    """Report no more events of the connection."""

    TELL_ESTABLISHED = auto()
    TELL_RESOLVED = auto()
    TELL_UNRESOLVED = auto()
    TELL_UNREACHABLE = auto()
    TELL_UNANSWERED = auto()
    """Unreachable, or remove the request's event if the owner has not taken it."""
    TELL_REJECTED = auto()
    TELL_DISCONNECTED = auto()
    TELL_CUT_OFF = auto()
    TELL_TIMEWAIT_EXIT = auto()


class Step(NamedTuple):
    """The next state of a row, and its actions."""

    to: CMState
    does: tuple[Do, ...] = ()


class Row(NamedTuple):
    """A transition; without ``to`` the state stays."""

    states: tuple[CMState, ...]
    inputs: tuple[Input, ...]
    to: CMState | None
    does: tuple[Do, ...] = ()


_S, _I, _D = CMState, Input, Do

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
    Row(_IDLE, (_I.CONNECT,), _S.REQ_SENT, (_D.SEND_REQ,)),
    Row((_S.REQ_SENT,), (_I.MRA_OF_REQ,), _S.MRA_REQ_RCVD, (_D.PUT_OFF,)),
    Row(_ASKING, (_I.REP,), _S.REP_RCVD, (_D.TAKE_REP,)),
    Row(_ASKING, (_I.REJ,), _S.CLOSED, (_D.TELL_REJECTED,)),
    Row(_ASKING, (_I.REJ_STALE,), _S.TIMEWAIT, (_D.TELL_REJECTED,)),
    Row(_ASKING, (_I.GIVEN_UP,), _S.CLOSED, (_D.REFUSE_LATE, _D.TELL_UNREACHABLE)),
    Row(_ASKING, (_I.DESTROY,), _S.CLOSED, (_D.REFUSE_LATE,)),
    Row(_ANSWERED, (_I.REP,), _S.MRA_REP_SENT, (_D.SEND_MRA,)),
    Row(
        _ANSWERED,
        (_I.ESTABLISH,),
        _S.ESTABLISHED,
        (_D.BRING_UP, _D.SEND_RTU, _D.TELL_ESTABLISHED),
    ),
    Row(_ANSWERED, (_I.REJ,), _S.CLOSED, (_D.TELL_REJECTED,)),
    Row(_ANSWERED, (_I.REJ_STALE,), _S.TIMEWAIT, (_D.TELL_REJECTED,)),
    Row(_ANSWERED, (_I.REJECT, _I.DESTROY), _S.TIMEWAIT, (_D.TAKE_DOWN, _D.REFUSE)),
    # Passive side. IBA 12.9.6.
    Row(_ASKED, (_I.REQ,), _S.MRA_REQ_SENT, (_D.SEND_MRA,)),
    Row(_ASKED, (_I.ACCEPT,), _S.REP_SENT, (_D.BRING_UP, _D.SEND_REP)),
    Row(_ASKED, (_I.REJECT, _I.DESTROY), _S.CLOSED, (_D.REFUSE,)),
    Row(_ASKED, _REJECTED, _S.CLOSED, (_D.TELL_REJECTED,)),
    Row(_ASKED, (_I.EXPIRED,), _S.CLOSED, (_D.REFUSE_LATE, _D.TELL_UNANSWERED)),
    Row(_ASKED, (_I.DISPLACED,), _S.CLOSED, (_D.REFUSE_FULL, _D.TELL_UNANSWERED)),
    Row((_S.REP_SENT,), (_I.MRA_OF_REP,), _S.MRA_REP_RCVD, (_D.PUT_OFF,)),
    Row(_ANSWERING, (_I.REQ,), None, (_D.SEND_AGAIN,)),
    Row(_ANSWERING, (_I.RTU, _I.DATA), _S.ESTABLISHED, (_D.TELL_ESTABLISHED,)),
    Row(_ANSWERING, (_I.DREQ,), _S.DREQ_RCVD, (_D.TELL_DISCONNECTED,)),
    Row(_ANSWERING, _REJECTED, _S.TIMEWAIT, (_D.TAKE_DOWN, _D.TELL_REJECTED)),
    Row(
        _ANSWERING,
        (_I.GIVEN_UP,),
        _S.TIMEWAIT,
        (_D.TAKE_DOWN, _D.REFUSE_LATE, _D.TELL_UNREACHABLE),
    ),
    Row(_ANSWERING, (_I.REJECT, _I.DESTROY), _S.TIMEWAIT, (_D.TAKE_DOWN, _D.REFUSE)),
    # Both sides, from here on.
    Row(_UP, (_I.REP,), None, (_D.SEND_RTU,)),
    Row(_UP, (_I.DREQ,), _S.DREQ_RCVD, (_D.TELL_DISCONNECTED,)),
    Row(_UP, (_I.DISCONNECT, _I.DESTROY), _S.DREQ_SENT, (_D.TAKE_DOWN, _D.SEND_DREQ)),
    Row(_UP, _REJECTED, _S.TIMEWAIT, (_D.TAKE_DOWN, _D.TELL_REJECTED)),
    Row(_LEFT, (_I.DISCONNECT, _I.DESTROY), _S.TIMEWAIT, (_D.TAKE_DOWN, _D.SEND_DREP)),
    Row(_LEAVING, (_I.DREP, *_REJECTED), _S.TIMEWAIT, (_D.TELL_DISCONNECTED,)),
    Row(_LEAVING, (_I.DREQ,), _S.TIMEWAIT, (_D.SEND_DREP, _D.TELL_DISCONNECTED)),
    Row(_LEAVING, (_I.GIVEN_UP,), _S.TIMEWAIT, (_D.TELL_CUT_OFF,)),
    Row(_LEAVING, (_I.DESTROY,), None),
    Row(_OVER, (_I.DREQ,), None, (_D.SEND_DREP,)),
    Row(_OVER, (_I.REQ,), None, (_D.REFUSE_STALE,)),
    Row(_OVER, (_I.DESTROY,), None),
    Row(_OVER, (_I.EXPIRED,), _S.CLOSED, (_D.TELL_TIMEWAIT_EXIT,)),
    # Service ID resolution, for datagrams. IBA 12.11.
    Row(_IDLE, (_I.RESOLVE,), _S.SIDR_REQ_SENT, (_D.SEND_SIDR_REQ,)),
    Row((_S.SIDR_REQ_SENT,), (_I.SIDR_REP,), _S.CLOSED, (_D.TELL_RESOLVED,)),
    Row((_S.SIDR_REQ_SENT,), (_I.SIDR_REFUSED,), _S.CLOSED, (_D.TELL_UNRESOLVED,)),
    Row((_S.SIDR_REQ_SENT,), (_I.GIVEN_UP,), _S.CLOSED, (_D.TELL_UNREACHABLE,)),
    Row((_S.SIDR_REQ_SENT,), (_I.DESTROY,), _S.CLOSED),
    Row(
        (_S.SIDR_REQ_RCVD,),
        (_I.ACCEPT, _I.REJECT, _I.DESTROY),
        _S.SIDR_REP_SENT,
        (_D.SEND_SIDR_REP,),
    ),
    Row((_S.SIDR_REQ_RCVD,), (_I.EXPIRED,), _S.CLOSED, (_D.TELL_UNANSWERED,)),
    Row((_S.SIDR_REQ_RCVD,), (_I.DISPLACED,), _S.CLOSED, (_D.SEND_SIDR_REP, _D.TELL_UNANSWERED)),
    Row((_S.SIDR_REP_SENT,), (_I.SIDR_REQ,), None, (_D.SEND_AGAIN,)),
    Row((_S.SIDR_REP_SENT,), (_I.DESTROY,), None),
    Row((_S.SIDR_REP_SENT,), (_I.EXPIRED,), _S.CLOSED),
)


def _steps() -> Iterator[tuple[tuple[CMState, Input], Step]]:
    for states, inputs, to, does in _ROWS:
        for state in states:
            for what in inputs:
                silence = (_D.FALL_SILENT,) if what is _I.DESTROY else ()
                yield (state, what), Step(to or state, does + silence)


CM_TRANSITIONS: dict[tuple[CMState, Input], Step] = dict(_steps())
"""All transitions. Calls without a row are refused, other inputs are ignored."""
