"""Where a connection stands, and what moves it. IBA 12.9.5, 12.9.6, 12.11."""

from enum import Enum, auto


class CMState(Enum):
    """Names are the standard's. What is CLOSED is forgotten."""

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
    """Messages of the peer, what its data and the clock say, and calls of the owner."""

    REQ = auto()
    """The one that made this connection, once more."""
    MRA_OF_REQ = auto()
    MRA_OF_REP = auto()
    REJ = auto()
    REJ_STALE = auto()
    """A REJ for that the peer thinks it has this connection already."""
    REP = auto()
    RTU = auto()
    DREQ = auto()
    DREP = auto()
    SIDR_REQ = auto()
    SIDR_REP = auto()
    SIDR_REFUSED = auto()
    """A SIDR_REP with another status than success."""

    DATA = auto()
    """The peer's first packet came to the queue pair."""
    GIVEN_UP = auto()
    """No answer came, however often it was asked."""
    EXPIRED = auto()
    """What had to be waited for is over."""
    DISPLACED = auto()
    """The backlog is full, and a request of another peer takes its place."""

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
"""What the owner asks for: refused where no row has it. What else has no row is ignored."""


class Wait(Enum):
    """What a state waits for by the clock."""

    NOTHING = auto()
    ANSWER = auto()
    """The peer's, asked for again until that was done often enough."""
    END = auto()
    """Until everything on its way has arrived or is lost."""
    OWNER = auto()
    """The owner's answer, until the peer gives up."""


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
