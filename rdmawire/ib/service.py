"""Transport services as rows: what reliable connection, unreliable datagram and the rest differ in.

Nothing else asks a queue pair for its type. IBA 9.7 (reliable), 9.8 (unreliable), A14 (XRC).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self, cast

from rdmawire.ib.rx_parser import Drop
from rdmawire.snapshot import shared
from rdmawire.verbs.async_event import AccessViolation, InvalidRequest
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.wr import VERBS, SendOpcode, Verb
from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH, Nak
from rdmawire.wire.opcode import OPERATIONS, Service
from rdmawire.wire.packet import LAYOUTS, Layout, OpcodeTable


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


@dataclass(frozen=True, slots=True)
class Outbound:
    """The opcodes of one kind of work's packets, and the headers behind their BTH.

    ``headers`` are those of the only packet.
    """

    only: int
    first: int
    middle: int
    last: int
    layouts: Mapping[int, Layout]
    headers: tuple[type[Header], ...]

    __deepcopy__ = shared

    def at(self, index: int, last: int) -> int:
        """The opcode of a packet by its place in the message."""
        if not last:
            return self.only
        if not index:
            return self.first
        return self.last if index == last else self.middle


@dataclass(frozen=True, slots=True)
class ServiceType:
    """What a queue pair type does.

    ``wire`` is the service of its packets (``None``: frames as they are), whose opcodes begin at
    ``base``; ``reliable`` ones acknowledge and retry; ``connected`` ones have one peer; ``sends``
    and ``receives`` say which work may be posted; ``grh`` is how many bytes stand before a
    received payload, ``frame`` the longest frame in bytes where no path MTU counts. An error of
    the sender's own leads to ``send_error`` (IBA 10.3.1).
    """

    wire: Service | None
    base: int
    reliable: bool
    connected: bool
    sends: bool
    receives: bool
    grh: int
    frame: int
    send_error: QPState
    verbs: frozenset[SendOpcode]
    reactions: Mapping[Fault, Reaction]
    outbound: Mapping[SendOpcode, Outbound]

    __deepcopy__ = shared

    def with_verb(self, opcode: int, verb: Verb, opcodes: OpcodeTable) -> Self:
        """Return a copy with one more kind of work; its packets have layouts of ``opcodes``."""
        if self.wire is None:
            raise ValueError("raw packet queue pairs have no opcodes")
        own = cast(SendOpcode, opcode)
        outbound = {**self.outbound, own: _outbound(self.wire, verb, opcodes)}
        return replace(self, verbs=self.verbs | {own}, outbound=outbound)


_LOCAL = {SendOpcode.LOCAL_INV, SendOpcode.BIND_MW, SendOpcode.REG_MR}


def _verbs(wire: Service, *, local: set[SendOpcode]) -> frozenset[SendOpcode]:
    """Work whose packets the service has, and work that needs no packets."""
    operations = OPERATIONS[wire]
    return frozenset(op for op, verb in VERBS.items() if verb.only in operations) | local


def _outbound(wire: Service, verb: Verb, opcodes: OpcodeTable = LAYOUTS) -> Outbound:
    only, first, middle, last = (
        _opcode(wire, operation, opcodes)
        for operation in (verb.only, verb.first, verb.middle, verb.last)
    )
    layouts = {opcode: opcodes[opcode] for opcode in (only, first, middle, last) if opcode >= 0}
    return Outbound(only, first, middle, last, layouts, layouts[only].headers)


NO_OPCODE = -1
"""Where a kind of work, in a service, has no such packet."""


def _opcode(wire: Service, operation: int | None, opcodes: OpcodeTable) -> int:
    if operation is None or wire << 5 | operation not in opcodes:
        return NO_OPCODE
    return wire << 5 | operation


def _transport(
    wire: Service,
    *,
    reliable: bool,
    connected: bool = True,
    sends: bool = True,
    receives: bool = True,
    grh: int = 0,
    reactions: Mapping[Fault, Reaction] = RELIABLE,
) -> ServiceType:
    verbs = _verbs(wire, local=_LOCAL if connected else set())
    return ServiceType(
        wire=wire,
        base=wire << 5,
        reliable=reliable,
        connected=connected,
        sends=sends,
        receives=receives,
        grh=grh,
        frame=0,
        send_error=QPState.ERR if reliable else QPState.SQE,
        verbs=verbs,
        reactions=reactions,
        outbound={op: _outbound(wire, VERBS[op]) for op in verbs if VERBS[op].only is not None},
    )


LONGEST_FRAME = 9_018
"""Bytes of a jumbo frame, without its FCS."""

_RAW = ServiceType(
    wire=None,
    base=NO_OPCODE,
    reliable=False,
    connected=False,
    sends=True,
    receives=True,
    grh=0,
    frame=LONGEST_FRAME,
    send_error=QPState.SQE,
    verbs=frozenset({SendOpcode.SEND}),
    reactions=UNRELIABLE,
    outbound={},
)

SERVICES: dict[QPType, ServiceType] = {
    QPType.RC: _transport(Service.RC, reliable=True),
    QPType.UC: _transport(Service.UC, reliable=False, reactions=UNRELIABLE),
    QPType.UD: _transport(
        Service.UD, reliable=False, connected=False, grh=GRH.SIZE, reactions=DATAGRAM
    ),
    QPType.RAW_PACKET: _RAW,
    QPType.XRC_INI: _transport(Service.XRC, reliable=True, receives=False),
    QPType.XRC_TGT: _transport(Service.XRC, reliable=True, sends=False, receives=False),
}
"""Queue pair type to what it does."""
