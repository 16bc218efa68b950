"""Kinds of values that name something else in the file: hosts, memory, ends, steps, counters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.kind import Definitions, Json, parsed, text_of
from rdmawire.traffic.scenario.form.mistake import Misread, listed
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.source import Node, described
from rdmawire.traffic.scenario.model import End, MemoryPlan, Span

Known = Callable[[Reading], Sequence[str]]


def check_known(node: Node, word: str, what: str, known: Sequence[str]) -> None:
    """:class:`Misread` for a word of a node that is no name of what it should be."""
    if word not in known:
        expected = f"{what}: {listed(known) if known else 'there is none'}"
        raise Misread(node.mark, described(node), expected, word=word, known=known)


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of something. ``what`` says of what, ``known`` has all of them."""

    what: str
    known: Known
    samples: tuple[str, ...]

    @property
    def said(self) -> str:
        return f"the name of {self.what}"

    def read(self, node: Node, reading: Reading) -> str:
        text = text_of(node, self.said)
        check_known(node, text, self.said, self.known(reading))
        return text

    def show(self, value: str) -> str:
        return value

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "string", "description": self.said}


HOST: Final = Reference("a host", lambda reading: reading.names.hosts, ("client",))
NODE: Final = Reference(
    "a host or a switch",
    lambda reading: reading.names.hosts + reading.names.switches,
    ("client", "leaf"),
)
GPU: Final = Reference(
    "a GPU of this host", lambda reading: reading.names.of(reading.scope[0], "gpus"), ("gpu0",)
)


def links_of(reading: Reading) -> tuple[str, ...]:
    """Those that the file has, or the one between two hosts."""
    names = reading.names
    if names.links or names.switches or len(names.hosts) != 2:
        return names.links
    return ("-".join(names.hosts),)


LINK: Final = Reference("a link", links_of, ("client-leaf",))


def _steps_before(reading: Reading) -> tuple[str, ...]:
    return tuple(name for name in reading.names.steps[: reading.step] if name)


STEP: Final = Reference("a step before this one", _steps_before, ("w1",))


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
            what, known = f"memory or a window of {span.host}", names.memory(span.host)
        else:
            what, known = f"memory of {span.host}", names.of(span.host, "memory")
        check_known(node, span.memory, what, known)
        if self.fits:
            check_fit(node, span, reading)
        return span

    def show(self, value: Span) -> str:
        return f"{value.host}.{value.memory}"

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "string", "description": self.said}


SPAN: Final = Spans()


def memory_of(span: Span, reading: Reading) -> MemoryPlan | None:
    """The memory that is named, if it could be read, and is no window."""
    host = reading.hosts.get(span.host)
    plans = () if host is None else host.memory
    return next((plan for plan in plans if plan.name == span.memory), None)


def check_fit(node: Node, span: Span, reading: Reading) -> None:
    """:class:`Misread` for octets that are not all in the memory."""
    plan = memory_of(span, reading)
    if plan is not None and span.offset + (span.length or 1) > plan.size:
        expected = f"a span within its {plan.size} octets"
        raise Misread(node.mark, described(node), expected)


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

    def show(self, value: End) -> str:
        return f"{value.host}/{value.connection}"

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "string", "description": self.said}


END: Final = Ends()


def check_count(node: Node, end: End, count: int) -> None:
    """:class:`Misread` for a queue pair that a connection does not have."""
    if end.number is not None and end.number > count:
        expected = f"one of its {count} queue pairs" if count > 1 else "its only queue pair, #1"
        raise Misread(node.mark, described(node), expected)
