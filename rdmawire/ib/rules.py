"""The rules of an adapter, which belong to its device: a copy with one row replaced is a quirk.

:class:`Rules` holds all of them; adapters use :data:`rdmawire.ib.standard_rules.STANDARD` by
default. :class:`RequestRule` is the row of a request opcode.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple, Self, TypeVar

from rdmawire.ib.rx_parser import Arrival, Drop, Flow, FrameCheck
from rdmawire.ib.send_queue import Wqe
from rdmawire.ib.service import Fault, Reaction, ServiceType
from rdmawire.snapshot import shared
from rdmawire.verbs.enums import QPType, WCOpcode
from rdmawire.verbs.wr import SendWR, Verb
from rdmawire.wire.header import Header
from rdmawire.wire.ib import DETH, IETH, ImmDt
from rdmawire.wire.packet import OpcodeTable

# The first argument is the QueuePair: queue pairs have rules, so its class is defined above.
Step = Callable[[Any, "RequestRule", Arrival], Fault | None]
Response = Callable[[Any, Arrival], None]
Refusal = Callable[[Any, int], None]
PostCheck = Callable[[Any, SendWR], None]
HeaderMaker = Callable[[Any, Any], Header]
PacketCheck = Callable[[Any, Flow], bool]
"""Called with the queue pair; returns whether packets of the flow are dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class ExtendedHeader:
    """How one extended transport header is filled: a row of ``Rules.headers``.

    ``make`` returns the header. It is called with the queue pair and, for a header of requests, the
    :class:`~rdmawire.ib.send_queue.Wqe`, whose ``wr`` is the work request; for one of responses,
    the pending response of :mod:`rdmawire.ib.responder_state`. ``widths`` are the fields of the
    work request that it uses, each with its size in bits: values that do not fit are refused when
    work is posted.
    """

    make: HeaderMaker
    widths: Mapping[str, int]

    __deepcopy__ = shared

    @classmethod
    def of(cls, table: type[Header], **sources: str) -> Self:
        """Return the row of a header whose fields are copied from the work request.

        ``sources`` names, for each field of ``table``, the field of the work request:
        ``ExtendedHeader.of(ImmDt, immdt="imm_data")``. Fields that are not named are 0. Raises
        ``TypeError`` for a name that ``table`` or :class:`SendWR` does not have.
        """
        _check_sources(table, sources)
        widths = {row.name: row.width for row in table.rows}
        reads = {name: attrgetter(field) for name, field in sources.items()}

        def make(_: object, wqe: Wqe) -> Header:
            return table(**{name: read(wqe.wr) for name, read in reads.items()})

        return cls(make, {field: widths[name] for name, field in sources.items()})


def _check_sources(table: type[Header], sources: Mapping[str, str]) -> None:
    """``TypeError`` for a row that the header lacks, or a field that work requests lack."""
    rows = [row.name for row in table.rows]
    for name, source in sources.items():
        if name not in rows:
            raise TypeError(f"{table.__name__} has no row {name!r}; it has {', '.join(rows)}")
        if source not in SendWR._fields:
            raise TypeError(f"{name}={source!r}: SendWR has no field of this name")


class MessageKind(NamedTuple):
    """Packets that may follow one another in a message.

    ``too_long`` is the fault of bytes beyond the message's limit; an ``exact`` message must have as
    many as its first packet announced.
    """

    name: str
    too_long: Fault
    exact: bool

    def __deepcopy__(self, _: object) -> Self:
        return self


IDLE = MessageKind("no message", Fault.OP_SEQUENCE, exact=False)
SEND = MessageKind("SEND", Fault.TOO_LONG, exact=False)
WRITE = MessageKind("RDMA WRITE", Fault.LENGTH, exact=True)
REQUEST = MessageKind("a request of one packet", Fault.LENGTH, exact=True)


@dataclass(frozen=True, slots=True, eq=False)
class RequestRule:
    """One opcode of one service.

    ``begins`` and ``ends`` say whether it is the first and the last packet of its message: most
    operations have messages of one packet. ``access`` are the rights required of the queue pair and
    the key. ``receipt`` is the opcode of the receive's completion, ``None`` if it uses no receive.
    ``again`` are the steps of a duplicate that has bytes read again. ``headers`` are the extended
    transport headers of the opcode, and ``places`` their indices: a step reads the RETH of a
    request by ``request.extended[role.places[RETH]]``. ``follows`` is the required family of the
    message in progress, :data:`IDLE` for an opcode that begins one. ``plain`` says that no header
    adds to the completion of a receive.
    """

    family: MessageKind
    steps: tuple[Step, ...]
    begins: bool = True
    ends: bool = True
    access: int = 0
    receipt: WCOpcode | None = None
    again: tuple[Step, ...] = ()
    headers: tuple[type[Header], ...] = ()
    places: Mapping[type[Header], int] = field(init=False)
    follows: MessageKind = field(init=False)
    plain: bool = field(init=False)

    __deepcopy__ = shared

    def __post_init__(self) -> None:
        object.__setattr__(self, "follows", IDLE if self.begins else self.family)
        places = {header: index for index, header in enumerate(self.headers)}
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "plain", places.keys().isdisjoint((ImmDt, IETH, DETH)))


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The behaviour of an adapter for posted work, requests and responses. Immutable.

    - ``services``: the transport service of each type of queue pair, with its reactions to faults.
    - ``requests``: the :class:`RequestRule` of each request opcode, by type of queue pair. Requests
      without one are dropped. ``malformed`` is used for reserved opcodes and for payloads that
      the operation does not allow (IBA 9.7.4.1.4, 9.7.4.1.6), ``cnp`` for CNPs (IBA A17.9).
    - ``responses``: the function for each response opcode; ``refusals`` the one for each AETH
      syndrome other than ACK, called with the syndrome's value (IBA 9.7.5.2).
    - ``post_checks``: the checks of posted work, in order, by type of queue pair and opcode of the
      work request. Work without an entry is refused.
    - ``verbs``: how each type of work is done, by the opcode of the work request.
    - ``headers``: the :class:`ExtendedHeader` of each extended transport header.
    - ``opcodes``: the layouts of packets by opcode. Opcodes without one are reserved.
    - ``frame_checks``: reasons to drop a frame before its queue pair is known, each with its test;
      ``packet_checks``: reasons why packets are not for a queue pair, each with its test. Both are
      in the order of the standard, and run once for packets with equal heads.
    """

    services: Mapping[QPType, ServiceType]
    requests: Mapping[QPType, Mapping[int, RequestRule]]
    malformed: RequestRule
    cnp: RequestRule
    responses: Mapping[int, Response]
    refusals: Mapping[int, Refusal]
    post_checks: Mapping[QPType, Mapping[int, tuple[PostCheck, ...]]]
    verbs: Mapping[int, Verb]
    headers: Mapping[type[Header], ExtendedHeader]
    opcodes: OpcodeTable
    frame_checks: tuple[tuple[Drop, FrameCheck], ...]
    packet_checks: tuple[tuple[Drop, PacketCheck], ...]

    __deepcopy__ = shared

    def __repr__(self) -> str:
        opcodes = sum(len(roles) for roles in self.requests.values())
        return f"<Rules: {len(self.verbs)} types of work, {opcodes} request opcodes>"

    def with_step(self, step: Step, new: Step) -> Self:
        """Return a copy in which ``new`` replaces ``step`` in all requests.

        ``ValueError`` if no request has it.
        """
        requests = {
            kind: {opcode: _with_step(role, step, new) for opcode, role in roles.items()}
            for kind, roles in self.requests.items()
        }
        malformed = _with_step(self.malformed, step, new)
        cnp = _with_step(self.cnp, step, new)
        if requests == self.requests and malformed is self.malformed and cnp is self.cnp:
            raise ValueError(f"no request has the step {step.__name__}")
        return replace(self, requests=requests, malformed=malformed, cnp=cnp)

    def with_request(self, qp_type: QPType, opcode: int, role: RequestRule) -> Self:
        """Return a copy in which queue pairs of ``qp_type`` process ``opcode`` by ``role``.

        The role gets the headers that the opcode has in ``opcodes``; ``WireError`` if there are
        none.
        """
        role = replace(role, headers=self.opcodes.layout(opcode).headers)
        roles = {**self.requests[qp_type], opcode: role}
        return replace(self, requests={**self.requests, qp_type: roles})

    def with_header(self, table: type[Header], row: ExtendedHeader) -> Self:
        """Return a copy that fills the extended transport header ``table`` by ``row``."""
        return replace(self, headers={**self.headers, table: row})

    def with_frame_check(self, check: FrameCheck, new: FrameCheck) -> Self:
        """Return a copy in which ``new`` replaces ``check``. ``ValueError`` if there is none."""
        return replace(self, frame_checks=_with_check(self.frame_checks, check, new))

    def with_packet_check(self, check: PacketCheck, new: PacketCheck) -> Self:
        """Return a copy in which ``new`` replaces ``check``. ``ValueError`` if there is none."""
        return replace(self, packet_checks=_with_check(self.packet_checks, check, new))

    def with_reaction(self, qp_type: QPType, fault: Fault, reaction: Reaction) -> Self:
        """Return a copy in which queue pairs of ``qp_type`` answer ``fault`` with ``reaction``."""
        service = self.services[qp_type]
        reactions = {**service.reactions, fault: reaction}
        service = replace(service, reactions=reactions)
        return replace(self, services={**self.services, qp_type: service})


C = TypeVar("C", bound=Callable[..., bool])


def _with_check(rows: tuple[tuple[Drop, C], ...], check: C, new: C) -> tuple[tuple[Drop, C], ...]:
    """Return the rows with ``new`` in place of ``check``."""
    if all(test is not check for _, test in rows):
        raise ValueError(f"there is no check {check.__name__}")
    return tuple((reason, new if test is check else test) for reason, test in rows)


def _with_step(role: RequestRule, step: Step, new: Step) -> RequestRule:
    """``role``, or a copy of it with ``new`` in place of ``step``."""
    if step not in role.steps and step not in role.again:
        return role
    steps = tuple(new if one is step else one for one in role.steps)
    again = tuple(new if one is step else one for one in role.again)
    return replace(role, steps=steps, again=again)
