"""Transport services as rows: how reliable connection, unreliable datagram and the others differ.

No other module tests the type of a queue pair. IBA 9.7 (reliable), 9.8 (unreliable), A14 (XRC).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

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

    __hash__ = object.__hash__  # that of Enum is a function in Python: tables need many

    DUPLICATE = "PSN before the expected one"
    SEQUENCE = "PSN after the expected one"
    OP_SEQUENCE = "an operation that cannot follow the previous one"
    OP_VALID = "an operation that the queue pair does not allow"
    RESOURCES = "more outstanding READs and atomics than max_dest_rd_atomic"
    NOT_READY = "no receive posted"
    PAGE_FAULT = "pages of an on-demand region that are not present yet"
    LENGTH = "a payload length that the operation or the path MTU does not allow"
    TOO_LONG = "a message longer than the posted receive"
    MISALIGNED = "an atomic whose address is not a multiple of eight"
    RKEY = "a key that does not allow the access"
    LOCAL = "a receive whose memory cannot be accessed"
    OPERATIONAL = "memory that is revoked during the access"
    OWNER_GONE = "memory of a process that has ended"
    INVALIDATE = "a key that cannot be invalidated"
    QKEY = "a Q_Key other than the queue pair's"


@dataclass(frozen=True, slots=True)
class Reaction:
    """The reaction to a fault.

    ``nak``, a :class:`~rdmawire.wire.ib.Nak` or another code of five bits, is sent; with
    ``acknowledged`` an ACK is sent all the same. ``status`` completes the receive in use, or
    ``notice`` is reported if there is none. ``fatal`` moves the queue pair to its error state.
    ``drop`` is the reason counted where nothing is sent.
    """

    nak: int | None = None
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
    """Complete the receive with ``status`` and fail the queue pair; nothing is sent."""
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
    # Its queue pairs are about to be destroyed: they answer nothing, as if they were already.
    Fault.OWNER_GONE: Reaction(fatal=True),
    # Class J of IBA 9.9.3: the message is placed, so the requester learns nothing.
    Fault.INVALIDATE: Reaction(
        acknowledged=True, status=WCStatus.REM_INV_REQ_ERR, notice=InvalidRequest, fatal=True
    ),
}
"""Reactions of services that acknowledge. IBA 9.7.4, 9.7.5.2, 9.9.3."""

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
    Fault.OWNER_GONE: _drop(Drop.ACCESS),
    Fault.QKEY: _drop(Drop.QKEY),
}
"""Reactions of other services: a fault drops the rest of its message. IBA 9.8, 9.9.3."""

DATAGRAM: dict[Fault, Reaction] = UNRELIABLE | {Fault.TOO_LONG: _drop(Drop.LENGTH)}
"""UD: any sender may cause a fault, so none is fatal; the receive waits for the next. IBA 9.8.3."""


@dataclass(frozen=True, slots=True)
class Outbound:
    """The opcodes of a send operation's packets, and the headers after their BTH.

    ``headers`` are those of a one-packet message.
    """

    only: int
    first: int
    middle: int
    last: int
    layouts: Mapping[int, Layout]
    headers: tuple[type[Header], ...]

    __deepcopy__ = shared

    def at(self, index: int, last: int) -> int:
        """The opcode of packet ``index`` of a message; ``last`` is the index of the last packet."""
        if not last:
            return self.only
        if not index:
            return self.first
        return self.last if index == last else self.middle


@dataclass(frozen=True, slots=True)
class ServiceType:
    """The properties of a queue pair type.

    ``wire`` is the service of its packets, whose opcodes begin at ``base`` (``None`` for raw
    frames). ``reliable`` types acknowledge and retry; ``connected`` types have one peer; ``sends``
    and ``receives`` say which work may be posted. ``grh`` bytes precede a received payload;
    ``frame`` is the longest frame in bytes where there is no path MTU. A local error of a send
    leads to ``send_error`` (IBA 10.3.1).
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
    verbs: frozenset[int]
    reactions: Mapping[Fault, Reaction]
    outbound: Mapping[int, Outbound]

    __deepcopy__ = shared

    def with_verb(self, opcode: int, verb: Verb, opcodes: OpcodeTable) -> Self:
        """Return a copy with one more send operation, whose packets have layouts of ``opcodes``."""
        if self.wire is None:
            raise ValueError("raw packet queue pairs have no opcodes")
        outbound = {**self.outbound, opcode: _outbound(self.wire, verb, opcodes)}
        return replace(self, verbs=self.verbs | {opcode}, outbound=outbound)


_LOCAL = {SendOpcode.LOCAL_INV, SendOpcode.BIND_MW, SendOpcode.REG_MR}


def _verbs(wire: Service, *, local: set[SendOpcode]) -> frozenset[int]:
    """Operations whose packets the service has, and those without packets."""
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
"""An operation that has no such packet in a service."""


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
"""Properties by queue pair type."""
