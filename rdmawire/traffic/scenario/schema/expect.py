"""Expectations: what must be so in the end."""

from collections.abc import Iterable
from itertools import chain
from typing import Final, NamedTuple, get_args

from rdmawire.ib.cm.event import CMEvent
from rdmawire.screen import quoted
from rdmawire.traffic.scenario.counters import COUNTERS, Of
from rdmawire.traffic.scenario.document import Node, NodeError
from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.kind import (
    TRUTH,
    Definitions,
    Json,
    Many,
    ranged,
    text_of,
)
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.record import Key, Keyed, Record
from rdmawire.traffic.scenario.form.reference import END, HOST, LINK, SPAN, check_known
from rdmawire.traffic.scenario.form.wanted import WHERE
from rdmawire.traffic.scenario.model import (
    Content,
    CounterExpectation,
    End,
    EventExpectation,
    Expectation,
    Mark,
    MemoryExpectation,
    PacketExpectation,
    Range,
    Span,
    StateExpectation,
    TimeExpectation,
)
from rdmawire.traffic.scenario.schema.content import SAME
from rdmawire.traffic.scenario.schema.words import STATE
from rdmawire.traffic.scenario.tables import REASONS
from rdmawire.verbs.async_event import AsyncEvent

COUNT: Final = ranged(units.number, ("3", "3..5", "1..", "..9"))
AMOUNT: Final = ranged(units.amount, ("3", "1..", "64 KiB", "..1 ms"))
TIME: Final = ranged(units.time, ("..1 ms", "10 us..20 us"))


class Named(NamedTuple):
    """Something of which there is much, and one of what it has."""

    of: str
    what: str


class CounterName:
    """A counter by what has it: ``client.retransmits``, ``leaf:server.marks``."""

    said = "a counter such as client.retransmits or leaf:server.marks"
    samples = ("client.retransmits", "client-leaf.lost", "'leaf:server.marks'", "leaf.stranded")

    def read(self, node: Node, reading: Reading) -> Named:
        of, dot, counter = text_of(node, self.said).rpartition(".")
        if not dot:
            raise NodeError(node.mark, quoted(counter), self.said)
        of, have = reading.names.link(of), reading.once(subjects)
        check_known(node, of, "something that counts", have)
        what = f"a counter of the {have[of].value} {of}"
        check_known(node, counter, what, COUNTERS[have[of]])
        return Named(of, counter)

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "string", "description": self.said}


def subjects(reading: Reading) -> dict[str, Of]:
    """Everything of the file that counts, by name."""
    names, found = reading.names, dict.fromkeys(reading.names.hosts, Of.HOST)
    found |= dict.fromkeys(names.switches, Of.SWITCH)
    for link in names.links:
        found[link] = Of.LINK
        one, _, other = link.partition("-")
        ports = ((one, other), (other, one))
        found |= {f"{a}:{b}": Of.PORT for a, b in ports if a in names.switches}
    return found


EVENTS: Final = tuple(event.__name__ for event in (*get_args(AsyncEvent), *get_args(CMEvent)))


def _reasons(event: str) -> tuple[str, ...]:
    """The words with which an event says why it came; none if it does not."""
    return tuple(REASONS[event].__members__) if event in REASONS else ()


class EventName:
    """An event of a host: ``server.AccessViolation``, ``client.Rejected.CONSUMER_REJECT``."""

    said = "an event of a host such as server.AccessViolation"
    samples = ("server.AccessViolation", "client.QPFatal", "client.Rejected.CONSUMER_REJECT")

    def read(self, node: Node, reading: Reading) -> Named:
        host, dot, event = text_of(node, self.said).partition(".")
        if not dot:
            raise NodeError(node.mark, quoted(host), self.said)
        check_known(node, host, HOST.said, reading.names.hosts)
        name, dot, reason = event.partition(".")
        check_known(node, name, "an event", EVENTS)
        if dot:
            check_known(node, reason, f"why {name} may come", _reasons(name))
        return Named(host, event)

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "string", "description": self.said}


def _memory(span: Span, wanted: Span | Content, mark: Mark) -> MemoryExpectation:
    if isinstance(wanted, Span):
        return MemoryExpectation(span=span, same_as=wanted, mark=mark)
    return MemoryExpectation(span=span, content=wanted, mark=mark)


def _counter(name: Named, range_: Range, mark: Mark) -> CounterExpectation:
    return CounterExpectation(of=name.of, counter=name.what, range=range_, mark=mark)


def _state(end: End, state: str, mark: Mark) -> StateExpectation:
    return StateExpectation(end=end, state=state, mark=mark)


def _event(name: Named, range_: Range, mark: Mark) -> EventExpectation:
    return EventExpectation(host=name.of, event=name.what, range=range_, mark=mark)


PACKETS: Final = Record(
    called="packets",
    plan=PacketExpectation,
    keys={
        "where": Key(kind=WHERE, needed=True, help="The fields that they have."),
        "count": Key(kind=COUNT, into=("range",), needed=True, help="How many there are."),
        "on": Key(
            kind=LINK,
            into=("link",),
            help="The link on which they are put, by hosts or by switches: pauses (PFC) and what "
            "switches marked are among them. Left out, frames count that hosts send.",
        ),
        "arrived": Key(
            kind=TRUTH,
            help="Whether they count where they arrive, at an end of the link or at a host, as "
            "faults left them: marked, changed, twice, or not at all.",
        ),
        "sent by": Key(kind=HOST, help="The host that sends them; any if left out."),
    },
)


class Rest:
    """When all is at rest, with its place."""

    said = TIME.said
    samples = TIME.samples

    def read(self, node: Node, reading: Reading) -> tuple[TimeExpectation]:
        return (TimeExpectation(range=TIME.read(node, reading), mark=node.mark),)

    def json(self, known: Definitions) -> Json:
        return TIME.json(known)


def _all(mark: Mark, **kinds: Iterable[Expectation]) -> tuple[Expectation, ...]:
    """All of them, one kind after the other."""
    del mark
    return tuple(chain.from_iterable(kinds.values()))


EXPECT: Final = Record(
    called="expectations",
    plan=_all,
    keys={
        "memory": Key(
            kind=Keyed(key=SPAN, value=SAME, make=_memory, called="memory with what it must hold"),
            help="What memory must hold: that of other memory in the end, or octets.",
        ),
        "counters": Key(
            kind=Keyed(
                key=CounterName(), value=AMOUNT, make=_counter, called="counters with their ranges"
            ),
            help="What counters must say.",
        ),
        "packets": Key(
            kind=Many(PACKETS, alone=True, lenient=True),
            help="How many frames of a kind there must be.",
        ),
        "states": Key(
            kind=Keyed(key=END, value=STATE, make=_state, called="ends with their states"),
            clause="IBA 10.3.1",
            help="The state in which queue pairs must be.",
        ),
        "events": Key(
            kind=Keyed(key=EventName(), value=COUNT, make=_event, called="events with how many"),
            clause="IBA 11.6.3",
            help="How many asynchronous events hosts must be told of.",
        ),
        "time": Key(
            kind=Rest(), help="When the last frame must have arrived, and all work be done."
        ),
    },
)
