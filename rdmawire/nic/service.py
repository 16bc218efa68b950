"""Transport services as rows: what reliable connection, unreliable datagram and the rest differ in.

Nothing else asks a queue pair for its type. IBA 9.7 (reliable), 9.8 (unreliable), A14 (XRC).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rdmawire.nic.fault import DATAGRAM, RELIABLE, UNRELIABLE, Fault, Reaction
from rdmawire.nic.state import QPState, QPType
from rdmawire.nic.work import VERBS, SendOpcode
from rdmawire.snapshot import shared
from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH
from rdmawire.wire.opcode import OPERATIONS, Operation, Service
from rdmawire.wire.packet import LAYOUTS, Layout


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
    and ``receives`` say which work may be posted; ``grh`` is how many octets stand before a
    received payload, ``frame`` the longest frame in octets where no path MTU counts. An error of
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


_LOCAL = {SendOpcode.LOCAL_INV, SendOpcode.BIND_MW, SendOpcode.REG_MR}


def _verbs(wire: Service, *, local: set[SendOpcode]) -> frozenset[SendOpcode]:
    """Work whose packets the service has, and work that needs no packets."""
    operations = OPERATIONS[wire]
    return frozenset(op for op, verb in VERBS.items() if verb.only in operations) | local


def _outbound(wire: Service, verbs: frozenset[SendOpcode]) -> dict[SendOpcode, Outbound]:
    return {op: _opcodes(wire, op) for op in verbs if VERBS[op].only is not None}


def _opcodes(wire: Service, op: SendOpcode) -> Outbound:
    verb = VERBS[op]
    only, first, middle, last = (
        _opcode(wire, operation) for operation in (verb.only, verb.first, verb.middle, verb.last)
    )
    layouts = {opcode: LAYOUTS[opcode] for opcode in (only, first, middle, last) if opcode >= 0}
    return Outbound(only, first, middle, last, layouts, layouts[only].headers)


NO_OPCODE = -1
"""Where a kind of work, in a service, has no such packet."""


def _opcode(wire: Service, operation: Operation | None) -> int:
    if operation is None or operation not in OPERATIONS[wire]:
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
        outbound=_outbound(wire, verbs),
    )


LONGEST_FRAME = 9_018
"""Octets of a jumbo frame, without its FCS."""

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
