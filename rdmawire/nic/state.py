"""States and types of queue pairs, with libibverbs' numbers. IBA 10.3.1."""

from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class QPState(IntEnum):
    """What a queue pair does with work and packets: the numbers of ibv_qp_state."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class Answers(Enum):
    """Which answers of a responder may leave: ACKs, NAKs, responses and CNPs."""

    NONE = "none"
    FINAL = "the NAK that ended the queue pair, and what stands before it"
    ALL = "all"


class Conduct(NamedTuple):
    """What may enter and leave a queue pair in some state, and what may be posted. IBA 10.3.1.

    ``post_recv`` and ``post_send`` say that work may be posted; ``flush_recv`` and ``flush_send``
    that it completes at once with a flush error, as does what was queued before. ``packets`` says
    that requests, responses and CNPs of the peer are accepted. ``answers`` says which answers are
    sent. ``begin`` says that posted sends are begun, ``send`` that those begun before go on and are
    retransmitted.
    """

    post_recv: bool = False
    post_send: bool = False
    flush_recv: bool = False
    flush_send: bool = False
    packets: bool = False
    answers: Answers = Answers.NONE
    begin: bool = False
    send: bool = False


class QPType(IntEnum):
    """The transport service: the numbers of ibv_qp_type, where XRC_INI is called XRC_SEND."""

    RC = 2
    UC = 3
    UD = 4
    RAW_PACKET = 8
    XRC_INI = 9
    XRC_TGT = 10


class MigrationState(IntEnum):
    """Whether the alternate path is in use, or may be: the numbers of ibv_mig_state. IBA 17.2.8."""

    MIGRATED = 0
    REARM = 1
    ARMED = 2


_ALL: Final = Answers.ALL
CONDUCT: Final = MappingProxyType(
    {
        QPState.RESET: Conduct(),
        QPState.INIT: Conduct(post_recv=True),
        QPState.RTR: Conduct(post_recv=True, packets=True, answers=_ALL),
        QPState.RTS: Conduct(
            post_recv=True, post_send=True, packets=True, answers=_ALL, begin=True, send=True
        ),
        QPState.SQD: Conduct(post_recv=True, post_send=True, packets=True, answers=_ALL, send=True),
        QPState.SQE: Conduct(
            post_recv=True, post_send=True, flush_send=True, packets=True, answers=_ALL
        ),
        QPState.ERR: Conduct(
            post_recv=True,
            post_send=True,
            flush_recv=True,
            flush_send=True,
            answers=Answers.FINAL,
        ),
    }
)
"""What a queue pair does in each state."""
