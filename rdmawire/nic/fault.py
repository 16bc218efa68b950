"""What may be wrong with a packet, and what the receiving side does about it.

A check returns a :class:`Fault`; the service's table says what follows, so that a reply needs no
second look-up. IBA 9.9.3 has the classes of errors that these tables write out: RC and XRC answer
with a NAK, UC and UD drop, and what harms the connection moves the queue pair to its error state.
"""

from dataclasses import dataclass
from enum import Enum

from rdmawire.nic.completion import WCStatus
from rdmawire.nic.event import AccessViolation, InvalidRequest
from rdmawire.nic.unseal import Drop
from rdmawire.wire.ib import Nak


class Fault(Enum):
    """What a check found."""

    DUPLICATE = "PSN behind the one expected"
    SEQUENCE = "PSN ahead of the one expected"
    OP_SEQUENCE = "an operation that cannot follow the one before"
    OP_VALID = "an operation that the queue pair does not allow"
    RESOURCES = "more READs and atomics than agreed upon"
    NOT_READY = "no receive posted"
    PAGE_FAULT = "pages of an on-demand region that are being brought in"
    LENGTH = "a payload that the operation or the path does not allow"
    TOO_LONG = "a message longer than the receive posted for it"
    MISALIGNED = "an atomic whose address is no multiple of eight"
    RKEY = "a key that does not allow the access"
    LOCAL = "a receive whose own memory cannot be reached"
    OPERATIONAL = "memory that went away while it was used"
    INVALIDATE = "a key that cannot be invalidated"
    QKEY = "a Q_Key other than the queue pair's"


@dataclass(frozen=True, slots=True)
class Reaction:
    """What follows from a fault.

    ``nak`` is answered, or an ACK to a request that is ``acknowledged`` all the same; ``status``
    completes the receive in use, if there is one, and ``notice`` is raised if there is none;
    ``fatal`` moves the queue pair to its error state; ``drop`` is what is counted where nothing
    is answered.
    """

    nak: Nak | None = None
    acknowledged: bool = False
    rnr: bool = False
    replay: bool = False
    once: bool = False
    status: WCStatus | None = None
    notice: type[InvalidRequest | AccessViolation] | None = None
    fatal: bool = False
    drop: Drop | None = None


_INVALID = Reaction(
    nak=Nak.INVALID_REQUEST,
    status=WCStatus.REM_INV_REQ_ERR,
    notice=InvalidRequest,
    fatal=True,
)

_ACCESS = Reaction(
    nak=Nak.REMOTE_ACCESS_ERROR,
    status=WCStatus.REM_ACCESS_ERR,
    notice=AccessViolation,
    fatal=True,
)
_OPERATIONAL = Reaction(
    nak=Nak.REMOTE_OPERATIONAL_ERROR,
    status=WCStatus.LOC_QP_OP_ERR,
    notice=InvalidRequest,
    fatal=True,
)


def _drop(reason: Drop) -> Reaction:
    return Reaction(drop=reason)


def _ends(status: WCStatus) -> Reaction:
    """The receive ends with this status, and the queue pair with it; nothing is answered."""
    return Reaction(status=status, notice=InvalidRequest, fatal=True)


RELIABLE: dict[Fault, Reaction] = {
    Fault.DUPLICATE: Reaction(replay=True),
    Fault.SEQUENCE: Reaction(nak=Nak.PSN_SEQUENCE_ERROR, once=True),
    Fault.OP_SEQUENCE: _INVALID,
    Fault.OP_VALID: _INVALID,
    Fault.RESOURCES: _INVALID,
    Fault.NOT_READY: Reaction(rnr=True),
    Fault.PAGE_FAULT: Reaction(rnr=True),
    Fault.LENGTH: _INVALID,
    Fault.TOO_LONG: Reaction(nak=Nak.INVALID_REQUEST, status=WCStatus.LOC_LEN_ERR, fatal=True),
    Fault.MISALIGNED: _INVALID,
    Fault.RKEY: _ACCESS,
    Fault.LOCAL: Reaction(
        nak=Nak.REMOTE_OPERATIONAL_ERROR, status=WCStatus.LOC_PROT_ERR, fatal=True
    ),
    Fault.OPERATIONAL: _OPERATIONAL,
    # Class J of IBA 9.9.3: the message is placed, so the requester learns nothing.
    Fault.INVALIDATE: Reaction(
        acknowledged=True, status=WCStatus.REM_INV_REQ_ERR, notice=InvalidRequest, fatal=True
    ),
}
"""Services that acknowledge: what is wrong is answered. IBA 9.7.4, 9.7.5.2, 9.9.3."""

UNRELIABLE: dict[Fault, Reaction] = {
    Fault.SEQUENCE: _drop(Drop.SEQUENCE),
    Fault.OP_SEQUENCE: _drop(Drop.SEQUENCE),
    Fault.OP_VALID: _drop(Drop.OPCODE),
    Fault.NOT_READY: _drop(Drop.NO_WQE),
    Fault.PAGE_FAULT: _drop(Drop.PAGE_FAULT),
    Fault.LENGTH: _drop(Drop.LENGTH),
    Fault.TOO_LONG: _ends(WCStatus.LOC_LEN_ERR),
    Fault.RKEY: _drop(Drop.ACCESS),
    Fault.LOCAL: _ends(WCStatus.LOC_PROT_ERR),
    Fault.OPERATIONAL: _drop(Drop.ACCESS),
    Fault.QKEY: _drop(Drop.QKEY),
}
"""Services that do not: what is wrong is dropped, with the rest of its message. IBA 9.8, 9.9.3."""

DATAGRAM: dict[Fault, Reaction] = UNRELIABLE | {Fault.TOO_LONG: _drop(Drop.LENGTH)}
"""UD: anybody may send to it, so no datagram ends it; the receive waits for the next. IBA 9.8.3."""
