"""Kinds of values that name something else in the file: hosts, memory, ends, steps, counters."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from rdmawire.traffic.scenario.document import Node, NodeError, described, listed
from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.kind import Definitions, Json, parsed, text_of
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.model import End, MemoryPlan, Span

Known = Callable[[Reading], Collection[str]]


def check_known(node: Node, word: str, what: str, known: Collection[str]) -> None:
    """:class:`NodeError` for a word of a node that is no name of what it should be."""
    if word not in known:
        raise unknown(node, word, what, known)


def unknown(node: Node, word: str, what: str, known: Collection[str]) -> NodeError:
    """That a word is none of those that are known."""
    expected = f"{what}: {listed(known) if known else 'there is none'}"
    return NodeError(node.mark, described(node), expected, word=word, known=known)


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of something. ``what`` says of what, ``known`` has all of them.

    ``usual`` is the one of its names that the file gives to what a word stands for.
    """

    what: str
    known: Known
    samples: tuple[str, ...]
    usual: Callable[[Reading, str], str] = lambda _, word: word

    @property
    def said(self) -> str:
        return f"the name of {self.what}"

    def read(self, node: Node, reading: Reading) -> str:
        text = self.usual(reading, text_of(node, self.said))
        check_known(node, text, self.said, self.known(reading))
        return text

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "string", "description": self.said}


HOST: Final = Reference("a host", lambda reading: reading.names.hosts, ("client",))
NODE: Final = Reference(
    "a host or a switch", lambda reading: reading.names.nodes, ("client", "leaf")
)
GPU: Final = Reference(
    "a GPU of this host", lambda reading: reading.names.of(reading.scope[0], "gpus"), ("gpu0",)
)
LINK: Final = Reference(
    "a link",
    lambda reading: reading.names.links,
    ("client-leaf",),
    lambda reading, word: reading.names.link(word),
)


class StepName:
    """The name of a step that comes before the one that is read."""

    said = "the name of a step before this one"
    samples = ("w1",)

    def read(self, node: Node, reading: Reading) -> str:
        text, steps = text_of(node, self.said), reading.names.steps
        if steps.get(text, reading.step) >= reading.step or not text:
            before = [name for name, place in steps.items() if name and place < reading.step]
            raise unknown(node, text, self.said, before)
        return text

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "string", "description": self.said}


STEP: Final = StepName()


_ALL: Final = "memory or windows"


@dataclass(frozen=True, slots=True)
class Spans:
    """Octets of named memory: ``host.memory[0:8]``.

    ``windows``: a memory window will do. ``fits``: none of it may be outside.
    """

    windows: bool = False
    fits: bool = True

    @property
    def said(self) -> str:
        windows = " or a memory window" if self.windows else ""
        return f"memory{windows} such as client.source or client.source[0:64]"

    @property
    def samples(self) -> tuple[str, ...]:
        return ("client.source", "'client.source[0:4 KiB]'")

    def read(self, node: Node, reading: Reading) -> Span:
        span = parsed(node, self.said, units.span)
        check_known(node, span.host, HOST.said, reading.names.hosts)
        names = reading.names
        if self.windows:
            what, known = f"memory or a window of {span.host}", names.of(span.host, _ALL)
        else:
            what, known = f"memory of {span.host}", names.of(span.host, "memory")
        check_known(node, span.memory, what, known)
        if self.fits:
            check_fit(node, span, reading)
        return span

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "string", "description": self.said}


SPAN: Final = Spans()


def memory_of(span: Span, reading: Reading) -> MemoryPlan | None:
    """The memory that is named, if it could be read, and is no window."""
    return reading.memory.get((span.host, span.memory))


def length_of(span: Span, reading: Reading) -> int | None:
    """The octets of a span, if they are known."""
    memory = memory_of(span, reading)
    if span.length is not None or memory is None:
        return span.length
    return memory.size - span.offset


def check_fit(node: Node, span: Span, reading: Reading) -> None:
    """:class:`NodeError` for octets that are not all in the memory."""
    plan = memory_of(span, reading)
    if plan is not None and span.offset + (span.length or 1) > plan.size:
        expected = f"a span within its {plan.size} octets"
        raise NodeError(node.mark, described(node), expected)


@dataclass(frozen=True, slots=True)
class Ends:
    """One end of a connection: ``client/a``, or ``client/a#2`` for one of its queue pairs."""

    said: str = "an end of a connection such as client/a or client/a#2"
    samples: tuple[str, ...] = ("client/a", "client/a#2")

    def read(self, node: Node, reading: Reading) -> End:
        end = parsed(node, self.said, units.end)
        names = reading.names
        check_known(node, end.host, HOST.said, names.hosts)
        check_known(node, end.connection, "the name of a connection", names.connections)
        plan = reading.connections.get(end.connection)
        if plan is not None:
            check_known(node, end.host, f"an end of {plan.name}", plan.ends)
            check_count(node, end, plan.count)
        return end

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "string", "description": self.said}


END: Final = Ends()


def check_count(node: Node, end: End, count: int) -> None:
    """:class:`NodeError` for a queue pair that a connection does not have."""
    if end.number is not None and end.number > count:
        raise NodeError(node.mark, described(node), which_of(count))


def which_of(count: int) -> str:
    """How the queue pairs of an end are numbered."""
    return f"one of its {count} queue pairs, from #1 on" if count > 1 else "its only queue pair, #1"
