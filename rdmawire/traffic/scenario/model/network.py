"""Switches, links and the faults of links."""

from collections.abc import Mapping
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Final

from rdmawire.fabric.classify import PRIORITIES
from rdmawire.fabric.fault import ACTIONS, OPTIONS
from rdmawire.fabric.port_queue import SCHEDULERS
from rdmawire.fabric.switch_config import BALANCINGS
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Items, Node, NodeError, Pairs, Scalar, TextError
from rdmawire.traffic.scenario.references import END, FIELD, NODE, WHERE, value_of
from rdmawire.traffic.scenario.section import (
    NOTHING,
    Clause,
    Found,
    Given,
    Named,
    OneKey,
    Section,
    key,
    made_section,
    read_section,
)
from rdmawire.traffic.scenario.types import (
    FLAG,
    NAME,
    Custom,
    Definitions,
    End,
    Fraction,
    Json,
    Many,
    Number,
    Rate,
    Size,
    Time,
    ValueType,
    Word,
    parse_number,
    parse_range,
    parsed,
    text_of,
)
from rdmawire.wire.serial import MODULUS


def Numbers(low: int, high: int) -> Custom:  # noqa: N802 - a type
    """Integers: one, a range, or a list of both; without duplicates."""
    description = f"a number from {low} to {high}, a range such as 2..4, or a list of them"

    def numbers(text: str) -> range:
        least, most = parse_range(text, parse_number)
        last = high if most is None else most
        if least < low or last > high:
            raise TextError
        return range(least, last + 1)

    def read(node: Node, context: ParseContext) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for item in node.items if isinstance(node, Items) else (node,):
            values = parsed(item, description, numbers)
            context.spend(len(values), item)
            found.update(dict.fromkeys(values))
        return tuple(found)

    one: Json = {"type": ["integer", "string"]}
    schema = {"anyOf": [one, {"type": "array", "items": one}], "description": description}
    examples = (str(low), f"{low}..{low + 3}", f"[{low}, {low + 2}..{low + 3}]")
    return Custom(description, examples, read, schema=schema)


# Switches.

TRUSTS: Final = ("dscp", "pcp")
"""What gives a frame its priority at a switch."""
MAX_BUFFER: Final = 1 << 34
_BUFFER: Final = Size(0, MAX_BUFFER)


class QueuePlan(Section):
    """A priority of a switch, with optional marks (``kmin``, ``kmax``, ``pmax``) and pauses.

    Without ``headroom``, :func:`rdmawire.traffic.scenario.consistency.headroom_of` gives it.
    """

    called: ClassVar = "a queue"
    named: ClassVar = "priority"

    priority: Annotated[int, Number(0, PRIORITIES - 1, "a priority")]
    dscp: Annotated[
        tuple[int, ...], Numbers(0, 63), key("DSCPs of the frames with this priority.")
    ] = ()
    kmin: Annotated[
        int | None,
        _BUFFER,
        key("Queue length in bytes above which some frames are marked (ECN)."),
    ] = None
    kmax: Annotated[
        int | None, _BUFFER, key("Queue length in bytes from which on all frames are marked.")
    ] = None
    pmax: Annotated[
        float, Fraction(0, 1), key("Share of frames that are marked just below kmax.")
    ] = 1.0
    xoff: Annotated[int | None, _BUFFER, key("Bytes above which the sender is paused.")] = None
    xon: Annotated[int | None, _BUFFER, key("Bytes at which the sender is resumed.")] = None
    headroom: Annotated[
        int | None,
        _BUFFER,
        Clause("IEEE 802.1Q, annex N"),
        key(
            "Bytes above xoff that are still accepted; by default enough for what is in flight: "
            "three frames, a pause, and twice what the longest link holds."
        ),
    ] = None

    def finish(self, found: Found, context: ParseContext) -> "QueuePlan":  # noqa: ARG002
        for name, needed in _NEEDS:
            if name in found.nodes and needed not in found.nodes:
                what = f"{name!r} of queue {self.priority}"
                raise NodeError(found.at(name), what, f"{needed!r} besides")
        for low, high in (("kmin", "kmax"), ("xon", "xoff")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and least > most:
                raise NodeError(found.at(low), f"{low} {least}", f"no more than {high}, {most}")
        return self


_NEEDS: Final = (
    *(("pmax", "kmin"), ("kmin", "kmax"), ("kmax", "kmin")),
    *(("headroom", "xoff"), ("xoff", "xon"), ("xon", "xoff")),
)
"""Keys of a queue that require another key."""


class SwitchPlan(Section):
    """A switch, with the bytes of its buffer and of one queue."""

    called: ClassVar = "a switch"

    name: Annotated[str, NAME]
    buffer: Annotated[
        int, Size(1, MAX_BUFFER), key("Buffer in bytes, shared by all queues of all ports.")
    ] = 16 << 20
    queue: Annotated[
        int, Size(1, MAX_BUFFER), key("Maximum bytes of a queue that does not pause.")
    ] = 1 << 20
    scheduling: Annotated[
        str,
        Word(SCHEDULERS),
        key("Order in which a port serves its queues: by priority, or in turn."),
    ] = "strict"
    balancing: Annotated[
        str,
        Word(BALANCINGS),
        key(
            "What chooses one of several equal paths: a hash of each flow; for each packet, the "
            "paths in turn (packet), or the one with the shortest queue (adaptive)."
        ),
    ] = "flow"
    trust: Annotated[
        str,
        Word(TRUSTS),
        Clause("IEEE 802.1Q, 6.9.3"),
        key(
            "What gives a frame its priority: its DSCP, or only the PCP of its VLAN tag (pcp), so "
            "that frames without a tag have priority 0."
        ),
    ] = "dscp"
    queues: Annotated[
        tuple[QueuePlan, ...],
        Named(QueuePlan, "queues by priority", "3"),
        key("Settings of single priorities."),
    ] = ()

    def finish(self, found: Found, context: ParseContext) -> "SwitchPlan":
        """Check that each DSCP has one priority, and that queues with ``xoff`` can pause."""
        seen: dict[int, int] = {}
        for queue in self.queues:
            if queue.xoff is not None:
                self._check_pauses(queue, queue.xoff, found)
        for queue in self.queues:
            for dscp in queue.dscp:
                if seen.setdefault(dscp, queue.priority) != queue.priority:
                    expected = f"a DSCP that queue {seen[dscp]} does not have"
                    raise NodeError(queue.mark, f"DSCP {dscp} in queue {queue.priority}", expected)
        context.switches[self.name] = self
        return self

    def _check_pauses(self, queue: QueuePlan, xoff: int, found: Found) -> None:
        """Check that frames use the queue, and that its buffer exceeds the pause threshold."""
        which = f"queue {queue.priority}"
        if not queue.dscp and queue.priority:
            expected = "'dscp' besides: without, no frame has its priority"
            raise NodeError(queue.mark, f"'xoff' of {which}", expected)
        if self.buffer <= xoff:
            mark = found.at("buffer") if "buffer" in found.nodes else queue.mark
            expected = f"more than xoff of {which}, {xoff}, or it never pauses"
            raise NodeError(mark, f"buffer {self.buffer}", expected)


# Faults.

MAX_WAIT: Final = 10**12
_WAIT: Final = Time(0, MAX_WAIT)
_NUMBERS: Final = Numbers(1, MODULUS)


class PacketRow(Section):
    """The same packet in each of several messages."""

    called: ClassVar = "equally spaced packets"

    first: Annotated[int, Number(1, MODULUS), key("First packet, counted from 1.")]
    every: Annotated[int, Number(1, MODULUS), key("Distance to the next packet.")]
    times: Annotated[int, Number(1, MODULUS), key("Number of packets.")]

    def finish(self, found: Found, context: ParseContext) -> Any:  # noqa: ARG002
        return range(self.first, self.first + self.every * self.times, self.every)


def _read_packets(node: Node, context: ParseContext) -> tuple[int, ...]:
    if not isinstance(node, Pairs):
        numbers: tuple[int, ...] = _NUMBERS.read(node, context)
        return numbers
    row: range = read_section(PacketRow, node, context)
    if row[-1] > MODULUS:
        raise NodeError(node.mark, f"packet {row[-1]}", f"packets from 1 to {MODULUS}")
    context.spend(len(row), node)
    return tuple(row)


def _packets_schema(definitions: Definitions) -> Json:
    both = [_NUMBERS.json(definitions), PacketRow.json_schema(definitions)]
    return {"anyOf": both, "description": PACKETS.description}


_IN_STEPS: Final = "{first: 5, every: 10, times: 3}"
PACKETS: Final = Custom(
    f"{_NUMBERS.description}; or {_IN_STEPS} for 5, 15 and 25",
    (*_NUMBERS.examples, _IN_STEPS),
    _read_packets,
    schema=_packets_schema,
)
"""Packets by their numbers, or the same packet in each of several messages."""

RAW: Final = Custom(
    "a value of the field", ("1",), lambda node, _: node, schema={"type": ["integer", "string"]}
)
"""A value that is parsed after its field is known."""


class FaultPlan(Section):
    """A fault of a link, and the frames that it applies to.

    ``do`` and ``options`` are those of :mod:`rdmawire.fabric.fault`, ``where`` fields by the names
    of the wire's tables. ``sent_by`` selects frames sent by one end of a connection; ``packet``
    selects one packet by its index in that end's requests, from 1: its PSN is the connection's
    initial one plus ``packet - 1``. ``nth`` selects an occurrence, counted for each PSN if
    ``packet`` is given, so that 2 is the first retransmission.
    """

    called: ClassVar = "a fault"
    named: ClassVar = "do"
    former: ClassVar = {"octet": "byte"}

    do: Given[str]
    where: Annotated[Mapping[str, object], WHERE, key("Fields of the frames that it affects.")] = (
        NOTHING
    )
    sent_by: Annotated[End | None, END, key("End of a connection that sends them.", "sent by")] = (
        None
    )
    packet: Annotated[
        tuple[int, ...],
        PACKETS,
        key(
            "Request packet of that end, counted from 1: its PSN is the starting PSN plus "
            "`packet` - 1. With `first`, `every` and `times`, one packet of each message."
        ),
    ] = ()
    nth: Annotated[
        tuple[int, ...],
        Numbers(1, 1 << 32),
        key(
            "Occurrence that it affects, counted from 1; with `packet`, counted for each packet "
            "separately, so that 2 is the first retransmission."
        ),
    ] = ()
    chance: Annotated[float, Fraction(0, 1), key("Share of these frames that it affects.")] = 1.0
    options: Given[Mapping[str, object]] = NOTHING

    def finish(self, found: Found, context: ParseContext) -> "FaultPlan":  # noqa: ARG002
        word: Any = self.do
        if self.packet and self.sent_by is None:
            expected = "the end that sends it"
            raise NodeError(found.at("packet"), "'packet' without 'sent by'", expected)
        options = {
            name: getattr(self, f"{name}_")
            for name in FAULT_OPTIONS[word.text]
            if name in found.nodes
        }
        if "value" in options:
            options["value"] = value_of(str(options["field"]), options["value"])
        common = {row.field: getattr(self, row.field) for row in FaultPlan.keys().values()}
        return FaultPlan(do=word.text, mark=found.mark, options=options, **common)


_SEAL: Final = (FLAG, "Whether lengths, checksums and the ICRC are recomputed.")

FAULT_OPTIONS: Final[dict[str, dict[str, tuple[ValueType, str]]]] = {
    "drop": {},
    "duplicate": {
        "times": (Number(1, 64), "Number of additional copies."),
        "wait": (_WAIT, "Time between two copies."),
    },
    "delay": {
        "by": (_WAIT, "Delay of the frame."),
        "most": (_WAIT, "If greater than `by`: maximum of a random delay."),
    },
    "reorder": {
        "behind": (Number(1, 1 << 16), "Number of frames that overtake it."),
        "most": (_WAIT, "Maximum time that it waits for them."),
    },
    "corrupt": {
        "byte": (
            Number(-(1 << 16), 1 << 16),
            "Byte to change: 0 is the first of the BTH, -1 the last before the ICRC.",
        ),
        "bit": (Number(0, 7), "Bit of the byte, 0 is the lowest."),
        "anywhere": (FLAG, "Whether byte and bit are random."),
        "seal": _SEAL,
    },
    "truncate": {"by": (Size(1, 1 << 16), "Number of bytes that are cut off."), "seal": _SEAL},
    "mark": {},
    "set": {
        "field": (FIELD, "Field to set."),
        "value": (RAW, "New value."),
        "seal": _SEAL,
    },
}
"""The options of each fault; the actions of the fabric define their defaults."""


@cache
def fault_section(do: str) -> type[FaultPlan]:
    """Return the section of a fault: the keys of all faults, and its options."""
    fields: dict[str, Any] = {}
    for name, (kind, help_) in FAULT_OPTIONS[do].items():
        default = OPTIONS[do][name].default
        needed = default is OPTIONS[do][name].empty
        fields[f"{name}_"] = (Annotated[Any, kind, key(help_, name)], ... if needed else default)
    return made_section(FaultPlan, f"the fault {do}", fields)


FAULT_LIST: Final = Many(OneKey(ACTIONS, fault_section, "a fault"), alone=True, partly=True)


# Links.


def _read_link_name(node: Node, context: ParseContext) -> tuple[str, str]:
    text = text_of(node, LINK_NAME.description)
    names = text.split("-")
    if len(names) != 2 or names[0] == names[1]:
        raise NodeError(node.mark, quote(text), LINK_NAME.description)
    ends = context.every(partial(NODE.read, Scalar(name, node.mark), context) for name in names)
    return ends[0], ends[1]


LINK_NAME: Final = Custom(
    "two hosts or switches, such as client-leaf", ("client-leaf", "leaf-server"), _read_link_name
)


MAX_LATENCY: Final = 10**12


class LinkPlan(Section):
    """A link between two hosts or switches, called ``one-other``."""

    called: ClassVar = "a link"
    named: ClassVar = "ends"

    ends: Annotated[tuple[str, str], LINK_NAME]
    latency: Annotated[int, Time(0, MAX_LATENCY), key("Propagation delay, one way.")] = 1_000
    rate: Annotated[int | None, Rate(), key("Rate; by default, transmission takes no time.")] = None
    mtu: Annotated[
        int | None,
        Number(64, 1 << 16, "bytes"),
        key("Maximum bytes after the Ethernet header; longer frames are lost."),
    ] = None
    faults: Annotated[tuple[FaultPlan, ...], FAULT_LIST, key("Faults, applied in this order.")] = ()

    @property
    def name(self) -> str:
        return "-".join(self.ends)

    def finish(self, found: Found, context: ParseContext) -> "LinkPlan":
        """Check that two nodes have one link at most, and that a host has one link."""
        ends = frozenset(self.ends)
        if ends in context.links:
            raise NodeError(found.mark, f"link {quote(self.name)}", "one link between each two")
        for end in self.ends:
            if end in context.names.hosts and end in context.linked:
                what = f"one more link of host {quote(end)}"
                raise NodeError(found.mark, what, "one for each host")
        context.links[ends] = self
        context.linked.update(self.ends)
        return self
