"""Expectations: conditions on the final state and the observed frames."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Annotated, Any, ClassVar, Final, NamedTuple, get_args

from rdmawire.ib.cm.event import CMEvent, Rejected, Unresolved
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.counters import COUNTERS, Of, current_name
from rdmawire.traffic.scenario.document import Mark, Node, NodeError
from rdmawire.traffic.scenario.model.connection import STATE
from rdmawire.traffic.scenario.model.host import SAME
from rdmawire.traffic.scenario.model.packet import PAYLOAD, Payload
from rdmawire.traffic.scenario.references import (
    END,
    HOST,
    LINK,
    SPAN,
    WHERE,
    check_host,
    check_known,
)
from rdmawire.traffic.scenario.section import Clause, Found, Keyed, OneSection, Section, key
from rdmawire.traffic.scenario.types import (
    Content,
    Custom,
    End,
    Fill,
    Flag,
    Many,
    Range,
    RangeOf,
    Span,
    parse_amount,
    parse_number,
    parse_time,
    text_of,
)
from rdmawire.verbs.async_event import AsyncEvent
from rdmawire.wire.cm import RejectReason, SIDRStatus

REASONS: Final[dict[str, type[IntEnum]]] = {
    Rejected.__name__: RejectReason,
    Unresolved.__name__: SIDRStatus,
}
"""Events with a reason, and the enumeration of their reasons."""


def reason_of(event: Rejected | Unresolved) -> str:
    """Return the standard's name of the reason of a rejection, or its number without one."""
    number = event.reason if isinstance(event, Rejected) else event.status
    words = REASONS[type(event).__name__]
    return next((word.name for word in words if word == number), str(number))


COUNT: Final = RangeOf(parse_number, "3", "3..5", "1..", "..9")
AMOUNT: Final = RangeOf(parse_amount, "3", "1..", "64 KiB", "..1 ms")
TIME: Final = RangeOf(parse_time, "..1 ms", "10 us..20 us")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryExpectation:
    """Expected final content of memory: the final content of ``same_as``, or ``content``."""

    span: Span
    mark: Mark
    same_as: Span | None = None
    content: Content | None = None

    def __post_init__(self) -> None:
        if self.same_as is None and self.content is None:
            raise ValueError("memory that must hold nothing: neither 'same_as' nor 'content'")

    @property
    def is_unchanged(self) -> bool:
        """Whether the expected content is that at the beginning of the run."""
        return self.content is not None and self.content.fill is Fill.UNCHANGED


class CounterExpectation(NamedTuple):
    """A counter by name, ``client.retransmits`` or ``leaf:server.marks``, and its range.

    Names are those of :data:`rdmawire.traffic.scenario.counters.COUNTERS`.
    """

    of: str
    counter: str
    range: Range
    mark: Mark


class PacketExpectation(Section):
    """Expected number of frames with these fields, from one host or from all.

    With ``link``, frames put on that link are counted, from any sender; without it, frames sent by
    hosts. With ``arrived``, frames are counted at arrival instead: at an end of the link, or at a
    host.
    """

    called: ClassVar = "packets"

    where: Annotated[Mapping[str, object], WHERE, key("Fields of the frames.")]
    range: Annotated[Range, COUNT, key("Expected number.", "count")]
    link: Annotated[
        str | None,
        LINK,
        key(
            "Link on which frames are counted, sent by hosts and switches, including pauses (PFC) "
            "and frames that switches marked. By default, frames are counted that hosts send.",
            "on",
        ),
    ] = None
    arrived: Annotated[
        Flag,
        key(
            "Whether frames are counted when they arrive, at an end of the link or at a host: "
            "after faults of the link, without lost frames."
        ),
    ] = False
    sent_by: Annotated[
        str | None, HOST, key("Host that sends them; by default any.", "sent by")
    ] = None
    payload: Annotated[
        Payload | None, PAYLOAD, key("Payload of the frames, without pad; by default any.")
    ] = None

    def finish(self, found: Found, context: ParseContext) -> "PacketExpectation":  # noqa: ARG002
        if self.payload is not None and self.payload.content.fill is Fill.RANDOM:
            raise NodeError(found.at("payload"), "random bytes", PAYLOAD.description)
        return self


class StateExpectation(NamedTuple):
    """The expected final state of an end's queue pairs."""

    end: End
    state: str
    mark: Mark


class EventExpectation(NamedTuple):
    """The expected number of asynchronous events of a host, by class name."""

    host: str
    event: str
    range: Range
    mark: Mark


class TimeExpectation(NamedTuple):
    """Time at which the last frame has arrived and all work is done (ns of virtual time)."""

    range: Range
    mark: Mark


Expectation = (
    MemoryExpectation
    | CounterExpectation
    | PacketExpectation
    | StateExpectation
    | EventExpectation
    | TimeExpectation
)


class Subject(NamedTuple):
    """A counter or an event, and its owner."""

    of: str
    what: str


def _read_counter(node: Node, context: ParseContext) -> Subject:
    of, dot, counter = text_of(node, COUNTER.description).rpartition(".")
    if not dot:
        raise NodeError(node.mark, quote(counter), COUNTER.description)
    counter = current_name(counter)
    of, have = context.names.link(of), context.once(subjects)
    if of not in have and not context.names.hosts_known:
        return Subject(of, counter)
    check_known(node, of, "something that has counters", have)
    check_known(node, counter, f"a counter of the {have[of].value} {of}", COUNTERS[have[of]])
    return Subject(of, counter)


COUNTER: Final = Custom(
    "a counter such as client.retransmits or leaf:server.marks",
    ("client.retransmits", "client-leaf.lost", "'leaf:server.marks'", "leaf.stranded"),
    _read_counter,
)


def subjects(context: ParseContext) -> dict[str, Of]:
    """Return all parts of the file that have counters, by name."""
    names, found = context.names, dict.fromkeys(context.names.hosts, Of.HOST)
    found |= dict.fromkeys(names.switches, Of.SWITCH)
    for link in names.links:
        found[link] = Of.LINK
        one, _, other = link.partition("-")
        ports = ((one, other), (other, one))
        found |= {f"{a}:{b}": Of.PORT for a, b in ports if a in names.switches}
    return found


EVENTS: Final = tuple(event.__name__ for event in (*get_args(AsyncEvent), *get_args(CMEvent)))


def _read_event(node: Node, context: ParseContext) -> Subject:
    host, dot, event = text_of(node, EVENT.description).partition(".")
    if not dot:
        raise NodeError(node.mark, quote(host), EVENT.description)
    check_host(node, host, context.names)
    name, dot, reason = event.partition(".")
    check_known(node, name, "an event", EVENTS)
    if dot:
        reasons = REASONS[name].__members__ if name in REASONS else ()
        check_known(node, reason, f"a reason of {name}", tuple(reasons))
    return Subject(host, event)


EVENT: Final = Custom(
    "an event of a host such as server.AccessViolation",
    ("server.AccessViolation", "client.QPFatal", "client.Rejected.CONSUMER_REJECT"),
    _read_event,
)


def _memory(span: Span, wanted: Span | Content, mark: Mark) -> MemoryExpectation:
    if isinstance(wanted, Span):
        return MemoryExpectation(span=span, same_as=wanted, mark=mark)
    return MemoryExpectation(span=span, content=wanted, mark=mark)


REST: Final = Custom(
    TIME.description,
    TIME.examples,
    lambda node, context: (TimeExpectation(range=TIME.read(node, context), mark=node.mark),),
    schema=TIME.json,
)
"""The time at which the run ends, with its position."""


class Expectations(Section):
    """All expectations of a scenario."""

    called: ClassVar = "expectations"

    memory: Annotated[
        tuple[MemoryExpectation, ...],
        Keyed(SPAN, SAME, _memory, "memory with its expected content"),
        key(
            "Expected content of memory: that of other memory at the end, unchanged since the "
            "beginning, or given bytes."
        ),
    ] = ()
    counters: Annotated[
        tuple[CounterExpectation, ...],
        Keyed(
            COUNTER,
            AMOUNT,
            lambda subject, *more: CounterExpectation(*subject, *more),
            "counters with their expected values or ranges",
        ),
        key("Expected values of counters."),
    ] = ()
    packets: Annotated[
        tuple[PacketExpectation, ...],
        Many(OneSection(PacketExpectation), alone=True, partly=True),
        key("Expected numbers of frames."),
    ] = ()
    states: Annotated[
        tuple[StateExpectation, ...],
        Keyed(END, STATE, StateExpectation, "ends with their states"),
        Clause("IBA 10.3.1"),
        key("Expected states of queue pairs."),
    ] = ()
    events: Annotated[
        tuple[EventExpectation, ...],
        Keyed(
            EVENT,
            COUNT,
            lambda subject, *more: EventExpectation(*subject, *more),
            "events with their expected numbers",
        ),
        Clause("IBA 11.6.3"),
        key("Expected numbers of asynchronous events of hosts."),
    ] = ()
    time: Annotated[
        tuple[TimeExpectation, ...],
        REST,
        key("Expected time at which the last frame has arrived and all work is complete."),
    ] = ()

    def finish(self, found: Found, context: ParseContext) -> Any:
        """Return all of them, grouped by type."""
        each = (getattr(self, name) for name in self.keys() if name in found.nodes)
        context.expectations = tuple(chain.from_iterable(each))
        return context.expectations
