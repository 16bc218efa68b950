"""Connections: their ends, queue pairs, attributes, congestion control and receives."""

from collections.abc import Iterator, Mapping
from functools import cache, partial, reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Final

from rdmawire.fabric.pair import ATTRIBUTES as USUAL
from rdmawire.ib.congestion.dcqcn import DcqcnParameters
from rdmawire.ib.congestion.timely import TimelyParameters
from rdmawire.memory.key import REGION_FLAGS, Access
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Items, Mark, Node, NodeError, Scalar, listed
from rdmawire.traffic.scenario.model.host import ACCESS
from rdmawire.traffic.scenario.references import END, HOST, SPAN, check_known
from rdmawire.traffic.scenario.section import (
    NOTHING,
    Clause,
    Found,
    Given,
    OneKey,
    OneSection,
    Section,
    key,
    made_section,
)
from rdmawire.traffic.scenario.types import (
    NAME,
    Custom,
    Definitions,
    End,
    Flag,
    Fraction,
    Json,
    Many,
    Number,
    OneOf,
    Rate,
    Size,
    Span,
    Time,
    ValueType,
    Word,
    invalid,
    pairs_of,
    text_of,
)
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.profile import PROFILES
from rdmawire.verbs.qp_attr import BOUNDS
from rdmawire.wire.cm import RejectReason
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.serial import MAX_IN_FLIGHT, MODULUS

TYPES: Final = {
    "RC": (QPType.RC, QPType.RC),
    "UC": (QPType.UC, QPType.UC),
    "UD": (QPType.UD, QPType.UD),
    "XRC": (QPType.XRC_INI, QPType.XRC_TGT),
}
"""Types of connections: the queue pair types at the first end and at the second."""
CONNECTS: Final = ("at once", "cm")
"""Methods of connecting the two ends of a connection."""
STATE: Final = Word(QPState.__members__)
QUEUE: Final = 1024
"""Work requests in each queue of a queue pair, unless a step needs more."""
MAX_PAIRS: Final = 1 << 12
"""Maximum queue pairs of one connection at each end."""
_MAX_RECEIVES: Final = min(profile.max_qp_wr for profile in PROFILES.values())


# Attributes.


def _format_rights(value: int) -> str:
    return f"[{listed(flag.name or '' for flag in Access(value & REGION_FLAGS))}]"


_RIGHTS: Final = Custom(
    ACCESS.description,
    ACCESS.examples,
    lambda node, context: reduce(or_, (Access[one].value for one in ACCESS.read(node, context)), 0),
    _format_rights,
    ACCESS.json,
)
"""Access rights by name, as one number."""


def _bounds(name: str) -> ValueType:
    """Return the range of an attribute that is valid for some device."""
    high = max(int(BOUNDS[name].high(profile)) for profile in PROFILES.values())
    return Number(int(BOUNDS[name].low), high)


class _Given(Section):
    """Keys whose section is read as a mapping: those that are given, with their values."""

    def finish(self, found: Found, context: ParseContext) -> Any:  # noqa: ARG002
        return {name: getattr(self, name) for name in found.nodes}


_ATTRIBUTES: Final = {
    "timeout": (
        "The retransmit timer: 4.096 us times two to the power of this; 0 for never.",
        "IBA 9.7.6.1.3",
    ),
    "retry_cnt": ("How often a request is retransmitted without a response.", "IBA 9.7.6.1.3"),
    "rnr_retry": (
        "How often a request is retransmitted after an RNR NAK; 7 for no limit.",
        "IBA 9.7.5.2.8",
    ),
    "min_rnr_timer": ("The timer that RNR NAKs ask for.", "IBA 9.7.5.2.8"),
    "max_rd_atomic": ("Outstanding READs and atomics as requester.", "IBA 9.4.4"),
    "max_dest_rd_atomic": ("Outstanding READs and atomics as responder.", "IBA 9.4.4"),
    "qkey": ("The Q_Key of datagrams.", "IBA 10.2.5"),
    "qp_access_flags": ("What peers may do.", "IBA 10.6.3.1"),
}
"""Attributes of queue pairs that a scenario may set; the runner sets the others."""

Attributes: Final = made_section(
    _Given,
    "attributes of queue pairs",
    {
        name: (
            Annotated[
                int,
                _RIGHTS if name == "qp_access_flags" else _bounds(name),
                Clause(clause),
                key(help_),
            ],
            getattr(USUAL, name),
        )
        for name, (help_, clause) in _ATTRIBUTES.items()
    },
)
ATTRIBUTES: Final = OneSection(Attributes)


# Congestion control.

_COUNT: Final = Number(1, 1 << 16)
_MOMENT: Final = Time(1)
_SHARE: Final = Fraction(0, 1)
_LINE_RATE: Final = "The rate to begin with, never exceeded; that of the link, if it has one."
_MIN_RATE: Final = "The rate below which no flow is cut."

SCHEMES: Final[dict[str, DcqcnParameters | TimelyParameters]] = {
    "dcqcn": DcqcnParameters(),
    "timely": TimelyParameters(),
}
"""Schemes of congestion control, with their default parameters."""

_PARAMETERS: Final[dict[str, dict[str, tuple[ValueType, str]]]] = {
    "dcqcn": {
        "line_rate": (Rate(), _LINE_RATE),
        "min_rate": (Rate(), _MIN_RATE),
        "g": (_SHARE, "The weight of a new sign of congestion in alpha."),
        "alpha_timer": (_MOMENT, "The time without a CNP after which alpha goes down."),
        "rate_timer": (_MOMENT, "The time after which the rate goes up."),
        "byte_counter": (Size(1, 1 << 40), "The bytes after which it goes up."),
        "fast_recovery": (_COUNT, "Halvings towards the target before that goes up."),
        "additive": (Rate(), "By what the target goes up."),
        "hyper": (Rate(), "By what it goes up after long without a CNP."),
    },
    "timely": {
        "line_rate": (Rate(), _LINE_RATE),
        "min_rate": (Rate(), _MIN_RATE),
        "min_rtt": (_MOMENT, "The round trip of an empty network."),
        "t_low": (_MOMENT, "Round trips below raise the rate."),
        "t_high": (_MOMENT, "Round trips above cut it."),
        "alpha": (_SHARE, "The weight of the newest difference of round trips."),
        "beta": (_SHARE, "How strongly a gradient cuts."),
        "delta": (Rate(), "By what the rate goes up."),
        "hyper_after": (_COUNT, "Round trips in a row after which it goes up faster."),
    },
}
"""The parameters of each scheme."""


class Scheme(_Given):
    """A scheme of congestion control with its parameters."""

    named: ClassVar = "scheme"

    scheme: Given[Any]

    def finish(self, found: Found, context: ParseContext) -> Any:
        return self.scheme.text, super().finish(found, context)


@cache
def scheme_section(name: str) -> type[Scheme]:
    """Return the section of a scheme: its parameters."""
    usual = SCHEMES[name]
    fields = {
        field: (Annotated[Any, type_, key(help_)], getattr(usual, field))
        for field, (type_, help_) in _PARAMETERS[name].items()
    }
    return made_section(Scheme, f"the scheme {name}", fields)


CONGESTION: Final = OneKey(SCHEMES, scheme_section, "a scheme")


# Receives.


class ReceivePlan(Section):
    """Receives at one end: ``count`` of them, each with all SGEs of ``into``."""

    called: ClassVar = "receives"

    at: Annotated[End, END, key("The end that posts them.")]
    into: Annotated[
        tuple[Span, ...],
        Many(SPAN, alone=True),
        key("Where a message is placed; nowhere if left out."),
    ] = ()
    count: Annotated[int, Number(1, _MAX_RECEIVES), key("How many there are.")] = 1

    def finish(self, found: Found, context: ParseContext) -> "ReceivePlan":  # noqa: ARG002
        if any(span.host != self.at.host for span in self.into):
            expected = f"memory of {self.at.host}"
            raise NodeError(found.at("into"), "memory of another host", expected)
        return self


def _read_shared(node: Node, context: ParseContext) -> Mapping[str, str]:
    pairs = pairs_of(node, SHARED_RECEIVES.description)
    return dict(context.every(partial(_read_shared_one, *pair, context) for pair in pairs))


def _read_shared_one(name: Scalar, node: Node, context: ParseContext) -> tuple[str, str]:
    host = HOST.read(name, context)
    what = f"a shared receive queue of {host}"
    queue = text_of(node, what)
    if context.names.hosts_known:
        check_known(node, queue, what, context.names.of(host, "shared receives"))
    return host, queue


SHARED_RECEIVES: Final = Custom(
    "hosts with their shared receive queues, such as {server: pool}",
    ("{server: pool}",),
    _read_shared,
    schema={"type": "object", "additionalProperties": {"type": "string"}},
)
"""Ends that use a shared receive queue of their host, with its name."""


# Connections.


def Two(  # noqa: N802 - a type
    item: ValueType, description: str, examples: tuple[str, ...], *, same: bool = False
) -> Custom:
    """Two values: ``a, b`` or ``[a, b]``. ``same``: a single value is used for both."""

    def read(node: Node, context: ParseContext) -> tuple[Any, Any]:
        parts = tuple(_parts(node))
        if len(parts) != 2 and not (len(parts) == 1 and same):
            raise invalid(node, description)
        found = context.every(partial(item.read, part, context) for part in parts)
        return found[0], found[-1]

    def schema(definitions: Definitions) -> Json:
        pair = {"type": "array", "items": item.json(definitions), "minItems": 2, "maxItems": 2}
        return {"anyOf": [{"type": ["string", "integer"]}, pair], "description": description}

    def formatted(value: Any) -> str:
        return listed(item.format(one) for one in value)

    return Custom(description, examples, read, formatted, schema)


def _parts(node: Node) -> Iterator[Node]:
    """Yield the items of a list, or of a text with commas."""
    if isinstance(node, Items):
        yield from node.items
    elif isinstance(node, Scalar) and node.text:
        column = node.mark.column
        for part in node.text.split(","):
            before = len(part) - len(part.lstrip())
            yield Scalar(part.strip(), Mark(node.mark.line, column + before), node.plain)
            column += len(part) + 1


def _numbers(low: int, high: int, what: str) -> ValueType:
    both = f"{what} from {low} to {high}, or two: {low}, {low + 1}; in braces [{low}, {low + 1}]"
    examples = (str(low), f"'{low + 1}, {low + 100}'", f"[{low}, {high}]")
    return Two(Number(low, high, what), both, examples, same=True)


_BETWEEN: Final = Two(
    HOST,
    "two hosts: client, server; in braces [client, server]",
    ("'client, server'", "[client, server]"),
)


class ConnectionPlan(Section):
    """Pairs of queue pairs between two hosts, ``count`` of them.

    ``type`` is RC, UC, UD or XRC; ``attributes`` are names of
    :class:`rdmawire.verbs.qp_attr.QPAttributes` for both ends, ``of_end`` additional ones for one
    host. ``psn`` is the initial PSN of each end's requests. ``connect`` is ``at once``, or ``cm``
    for the connection manager; with ``reject`` the second end rejects it, for this reason (a name
    of :class:`rdmawire.wire.cm.RejectReason`). ``packets_in_flight`` is the maximum of
    unacknowledged request packets of a queue pair, ``None`` for the limit of its adapter's profile.

    ``congestion`` is a scheme's name, with its ``parameters``; ``cnp_interval`` is the time between
    CNPs (ns), ``cnp_dscp`` their DSCP, ``None`` for the connection's. ``receives`` are posted
    first. ``alternate``: both ends use the same path as their alternate path, and are rearmed, for
    the verb ``migrate``.
    """

    called: ClassVar = "a connection"
    short: ClassVar = "between"
    prefixes: ClassVar = {"attributes of": "of_end"}

    name: Annotated[str, NAME]
    ends: Annotated[
        tuple[str, str], _BETWEEN, key("Its two ends; for XRC, the first one sends.", "between")
    ]
    type: Annotated[str, Word(TYPES), key("The transport service.")] = "RC"
    count: Annotated[
        int, Number(1, MAX_PAIRS), key("How many queue pairs each end has for it.")
    ] = 1
    mtu: Annotated[int, OneOf(PATH_MTUS), key("Its path MTU, in bytes.")] = 1024
    psn: Annotated[
        tuple[int, int],
        _numbers(0, MODULUS - 1, "a PSN"),
        key("The first PSN of what both ends request, or of each end's."),
    ] = (100, 100)
    dscp: Annotated[int, Number(0, 63), key("The DSCP of its frames.")] = 0
    ecn: Annotated[Flag, key("Whether its frames may be marked.")] = False
    attributes: Annotated[Mapping[str, int], ATTRIBUTES, key("Attributes of its queue pairs.")] = {}
    connect: Annotated[
        str,
        Word(CONNECTS),
        key(
            "How the ends are connected: at once, or by the connection manager, which derives "
            "`timeout` from the path unless an attribute gives it."
        ),
    ] = "at once"
    reject: Annotated[
        str | None,
        Word(RejectReason.__members__, "why it is refused"),
        Clause("IBA 12.6.7.2"),
        key("Has the second end refuse the connection, for this reason; it agrees if left out."),
    ] = None
    alternate: Annotated[
        Flag, Clause("IBA 17.2.8"), key("Whether it has an alternate path, for the verb `migrate`.")
    ] = False
    packets_in_flight: Annotated[
        int | None,
        Number(1, MAX_IN_FLIGHT),
        Clause("IBA 9.7.1"),
        key(
            "How many request packets a queue pair leaves unacknowledged: if left out, 128 with "
            "`ibta`, 129 with `rxe`.",
            "packets in flight",
        ),
    ] = None
    congestion: Annotated[
        str | None, CONGESTION, key("What congestion control it has; none if left out.")
    ] = None
    cnp_interval: Annotated[
        int | None,
        Time(),
        key("The shortest time between two CNPs; 50 us with DCQCN.", "cnp interval"),
    ] = None
    cnp_dscp: Annotated[
        int | None,
        Number(0, 63),
        key("The DSCP of CNPs; that of the connection if left out.", "cnp dscp"),
    ] = None
    srq: Annotated[
        Mapping[str, str],
        SHARED_RECEIVES,
        key("Which ends receive from which shared queue.", "shared receives"),
    ] = NOTHING
    receives: Annotated[
        tuple[ReceivePlan, ...],
        Many(OneSection(ReceivePlan), alone=True, partly=True),
        key("Receives that are posted before all work."),
    ] = ()
    of_end: Annotated[
        Mapping[str, Mapping[str, int]],
        ATTRIBUTES,
        key("More attributes, of one host's queue pairs."),
    ] = NOTHING
    parameters: Given[Mapping[str, float]] = NOTHING

    def finish(self, found: Found, context: ParseContext) -> Any:
        plan = self
        if self.congestion is not None:
            named: Any = self.congestion
            given = dict(zip(("congestion", "parameters"), named, strict=True))
            plan = self.model_copy(update=given)
        return context.rules[ConnectionPlan](plan, found, context)
