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
from rdmawire.verbs.ah import GIDType
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
        "Local ACK Timeout: 4.096 us times two to the power of this; 0 for no timeout.",
        "IBA 9.7.6.1.3",
    ),
    "retry_cnt": ("Maximum retransmissions of a request without a response.", "IBA 9.7.6.1.3"),
    "rnr_retry": (
        "Maximum retransmissions of a request after RNR NAKs; 7 for no limit.",
        "IBA 9.7.5.2.8",
    ),
    "min_rnr_timer": ("Timer code in the RNR NAKs that the end sends.", "IBA 9.7.5.2.8"),
    "max_rd_atomic": ("Maximum outstanding READs and atomics as requester.", "IBA 9.4.4"),
    "max_dest_rd_atomic": ("Maximum outstanding READs and atomics as responder.", "IBA 9.4.4"),
    "qkey": ("Q_Key of UD queue pairs.", "IBA 10.2.5"),
    "qp_access_flags": ("Access rights of the peer.", "IBA 10.6.3.1"),
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
_LINE_RATE: Final = (
    "Initial and maximum rate of a flow; by default that of the link, if it has one."
)
_MIN_RATE: Final = "Minimum rate of a flow."

SCHEMES: Final[dict[str, DcqcnParameters | TimelyParameters]] = {
    "dcqcn": DcqcnParameters(),
    "timely": TimelyParameters(),
}
"""Schemes of congestion control, with their default parameters."""

_PARAMETERS: Final[dict[str, dict[str, tuple[ValueType, str]]]] = {
    "dcqcn": {
        "line_rate": (Rate(), _LINE_RATE),
        "min_rate": (Rate(), _MIN_RATE),
        "g": (_SHARE, "Weight of a new CNP in alpha."),
        "alpha_timer": (_MOMENT, "Time without a CNP after which alpha decreases."),
        "rate_timer": (_MOMENT, "Time after which the rate increases."),
        "byte_counter": (Size(1, 1 << 40), "Bytes sent after which the rate increases."),
        "fast_recovery": (
            _COUNT,
            "Steps of fast recovery, each half the distance to the target rate.",
        ),
        "additive": (Rate(), "Additive increase of the target rate."),
        "hyper": (Rate(), "Hyper increase of the target rate, after a long time without a CNP."),
    },
    "timely": {
        "line_rate": (Rate(), _LINE_RATE),
        "min_rate": (Rate(), _MIN_RATE),
        "min_rtt": (_MOMENT, "Round trip time of an empty network."),
        "t_low": (_MOMENT, "Round trip time below which the rate always increases."),
        "t_high": (_MOMENT, "Round trip time above which the rate always decreases."),
        "alpha": (_SHARE, "Weight of the newest difference between two round trip times."),
        "beta": (_SHARE, "Factor by which a gradient reduces the rate."),
        "delta": (Rate(), "Additive increase of the rate."),
        "hyper_after": (
            _COUNT,
            "Consecutive round trips without a rise after which the rate increases faster.",
        ),
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

    at: Annotated[End, END, key("End of a connection that posts them.")]
    into: Annotated[
        tuple[Span, ...],
        Many(SPAN, alone=True),
        key("Memory for the message; by default none."),
    ] = ()
    count: Annotated[int, Number(1, _MAX_RECEIVES), key("Number of receives.")] = 1

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

    ``gid_type`` is a name of :class:`rdmawire.verbs.ah.GIDType`.
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
        tuple[str, str],
        _BETWEEN,
        key("The two hosts; for XRC, the first one is the initiator.", "between"),
    ]
    type: Annotated[str, Word(TYPES), key("Transport service.")] = "RC"
    count: Annotated[int, Number(1, MAX_PAIRS), key("Number of queue pairs at each end.")] = 1
    mtu: Annotated[int, OneOf(PATH_MTUS), key("Path MTU in bytes.")] = 1024
    psn: Annotated[
        tuple[int, int],
        _numbers(0, MODULUS - 1, "a PSN"),
        key("Starting PSN of both ends, or of each end."),
    ] = (100, 100)
    gid_type: Annotated[
        str,
        Word(GIDType.__members__, "the type of a GID"),
        Clause("IBA A17"),
        key("Encapsulation: ROCE_V2, or ROCE_V1 for a GRH on Ethernet.", "gid type"),
    ] = GIDType.ROCE_V2.name
    dscp: Annotated[int, Number(0, 63), key("DSCP of the frames.")] = 0
    ecn: Annotated[Flag, key("Whether frames are ECN-capable, so that switches may mark them.")] = (
        False
    )
    attributes: Annotated[
        Mapping[str, int], ATTRIBUTES, key("Attributes of the queue pairs at both ends.")
    ] = {}
    connect: Annotated[
        str,
        Word(CONNECTS),
        key(
            "How the queue pairs are connected: at once, before the run, or by the connection "
            "manager (cm), which derives `timeout` from the path unless it is an attribute."
        ),
    ] = "at once"
    reject: Annotated[
        str | None,
        Word(RejectReason.__members__, "a reason of a rejection"),
        Clause("IBA 12.6.7.2"),
        key("Reason with which the second host rejects the connection; by default it accepts."),
    ] = None
    alternate: Annotated[
        Flag,
        Clause("IBA 17.2.8"),
        key("Whether there is an alternate path, for the verb `migrate`."),
    ] = False
    packets_in_flight: Annotated[
        int | None,
        Number(1, MAX_IN_FLIGHT),
        Clause("IBA 9.7.1"),
        key(
            "Maximum unacknowledged request packets of a queue pair; by default 128 with profile "
            "`ibta`, 129 with `rxe`.",
            "packets in flight",
        ),
    ] = None
    congestion: Annotated[str | None, CONGESTION, key("Congestion control; by default none.")] = (
        None
    )
    cnp_interval: Annotated[
        int | None,
        Time(),
        key("Minimum time between two CNPs; 50 us by default with DCQCN.", "cnp interval"),
    ] = None
    cnp_dscp: Annotated[
        int | None,
        Number(0, 63),
        key("DSCP of CNPs; by default that of the connection.", "cnp dscp"),
    ] = None
    srq: Annotated[
        Mapping[str, str],
        SHARED_RECEIVES,
        key("Shared receive queue of a host, for its queue pairs.", "shared receives"),
    ] = NOTHING
    receives: Annotated[
        tuple[ReceivePlan, ...],
        Many(OneSection(ReceivePlan), alone=True, partly=True),
        key("Receives that are posted before any step."),
    ] = ()
    of_end: Annotated[
        Mapping[str, Mapping[str, int]],
        ATTRIBUTES,
        key("Attributes of the queue pairs at one host only."),
    ] = NOTHING
    parameters: Given[Mapping[str, float]] = NOTHING

    def finish(self, found: Found, context: ParseContext) -> Any:
        plan = self
        if self.congestion is not None:
            named: Any = self.congestion
            given = dict(zip(("congestion", "parameters"), named, strict=True))
            plan = self.model_copy(update=given)
        return context.rules[ConnectionPlan](plan, found, context)
