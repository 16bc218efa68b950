"""Connections: their ends, queue pairs, attributes, congestion control and receives."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial, reduce
from operator import or_
from typing import Any, Final

from rdmawire.fabric.pair import ATTRIBUTES as USUAL_ATTRIBUTES
from rdmawire.memory.access import REGION_FLAGS, Access
from rdmawire.traffic.scenario.document import Node, NodeError, Scalar, TextError, listed
from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.kind import (
    TRUTH,
    Definitions,
    Json,
    Leaf,
    Many,
    Two,
    Word,
    fraction,
    number,
    pairs_of,
    rate,
    size,
    text_of,
    time,
)
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.record import Choice, Found, Key, Named, Record
from rdmawire.traffic.scenario.form.reference import END, HOST, SPAN, check_known
from rdmawire.traffic.scenario.model import ConnectionPlan, Mark, ReceivePlan
from rdmawire.traffic.scenario.rules.connection import check_connection
from rdmawire.traffic.scenario.schema.words import ACCESS, TYPE
from rdmawire.traffic.scenario.tables import CONNECTS, SCHEMES
from rdmawire.verbs.profile import PROFILES
from rdmawire.verbs.qp_attr import BOUNDS
from rdmawire.wire.cm_code import RejectReason
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.psn import MAX_IN_FLIGHT, MODULUS

MOST_PAIRS: Final = 1 << 12
"""Queue pairs of one connection at each end."""
_MOST_RECEIVES: Final = min(profile.max_qp_wr for profile in PROFILES.values())


def _mtu(text: str) -> int:
    found = units.number(text)
    if found not in PATH_MTUS:
        raise TextError
    return found


class Rights:
    """Rights by their names, as one number."""

    said = ACCESS.said
    samples = ACCESS.samples

    def read(self, node: Node, reading: Reading) -> int:
        return reduce(or_, (Access[name].value for name in ACCESS.read(node, reading)), 0)

    def show(self, value: int) -> str:
        return f"[{listed(flag.name or '' for flag in Access(value & REGION_FLAGS))}]"

    def json(self, known: Definitions) -> Json:
        return ACCESS.json(known)


def _highest(name: str) -> int:
    """The highest number that some device has for an attribute."""
    return max(int(BOUNDS[name].high(profile)) for profile in PROFILES.values())


def _attribute(name: str, help_: str, clause: str = "") -> dict[str, Key]:
    kind = number(int(BOUNDS[name].low), _highest(name))
    return {name: Key(kind=kind, help=help_, clause=clause)}


ATTRIBUTE_KEYS: Final = {
    **_attribute("timeout", "4.096 us times two to it, unanswered; 0 for never.", "IBA 9.7.6.1.3"),
    **_attribute("retry_cnt", "How often work is tried again without an answer.", "IBA 9.7.6.1.3"),
    **_attribute("rnr_retry", "How often after an RNR NAK; 7 for ever.", "IBA 9.7.5.2.8"),
    **_attribute("min_rnr_timer", "The timer that RNR NAKs ask for.", "IBA 9.7.5.2.8"),
    **_attribute("max_rd_atomic", "READs and atomics under way as requester.", "IBA 9.4.4"),
    **_attribute("max_dest_rd_atomic", "READs and atomics under way as responder.", "IBA 9.4.4"),
    **_attribute("qkey", "The Q_Key of datagrams.", "IBA 10.2.5"),
    "qp_access_flags": Key(kind=Rights(), clause="IBA 10.6.3.1", help="What peers may do."),
}  # fmt: skip
"""Attributes of queue pairs that a scenario may set; it knows the others itself."""


def mapping(mark: Mark, **values: Any) -> dict[str, Any]:
    """Values by their keys."""
    del mark
    return values


ATTRIBUTES: Final = Record(
    called="attributes of queue pairs",
    plan=mapping,
    keys=ATTRIBUTE_KEYS,
    usual={name: getattr(USUAL_ATTRIBUTES, name) for name in ATTRIBUTE_KEYS},
)

_COUNT: Final = number(1, 1 << 16)
_MOMENT: Final = time(1)
_SHARE: Final = fraction(0, 1)
_LINE_RATE: Final = Key(
    kind=rate(), help="The rate to begin with, never exceeded; that of the link, if it has one."
)
PARAMETER_KEYS: Final[dict[str, dict[str, Key]]] = {
    "dcqcn": {
        "line_rate": _LINE_RATE,
        "min_rate": Key(kind=rate(), help="The rate below which no flow is cut."),
        "g": Key(kind=_SHARE, help="The weight of a new sign of congestion in alpha."),
        "alpha_timer": Key(
            kind=_MOMENT, help="The time without a CNP after which alpha goes down."
        ),
        "rate_timer": Key(kind=_MOMENT, help="The time after which the rate goes up."),
        "byte_counter": Key(kind=size(1, 1 << 40), help="The octets after which it goes up."),
        "fast_recovery": Key(kind=_COUNT, help="Halvings towards the target before that goes up."),
        "additive": Key(kind=rate(), help="By what the target goes up."),
        "hyper": Key(kind=rate(), help="By what it goes up after long without a CNP."),
    },
    "timely": {
        "line_rate": _LINE_RATE,
        "min_rate": Key(kind=rate(), help="The rate below which no flow is cut."),
        "min_rtt": Key(kind=_MOMENT, help="The round trip of an empty network."),
        "t_low": Key(kind=_MOMENT, help="Round trips below raise the rate."),
        "t_high": Key(kind=_MOMENT, help="Round trips above cut it."),
        "alpha": Key(kind=_SHARE, help="The weight of the newest difference of round trips."),
        "beta": Key(kind=_SHARE, help="How strongly a gradient cuts."),
        "delta": Key(kind=rate(), help="By what the rate goes up."),
        "hyper_after": Key(kind=_COUNT, help="Round trips in a row after which it goes up faster."),
    },
}
"""The parameters of each scheme of congestion control."""


def _scheme(mark: Mark, scheme: str, **parameters: float) -> tuple[str, dict[str, float]]:
    del mark
    return scheme, parameters


CONGESTION: Final = Choice(
    records={
        scheme: Record(
            called=f"the scheme {scheme}", plan=_scheme, keys=keys, usual=asdict(SCHEMES[scheme])
        )
        for scheme, keys in PARAMETER_KEYS.items()
    },
    called="a scheme",
    into="scheme",
)


def _check_receives(plan: ReceivePlan, found: Found, reading: Reading) -> ReceivePlan:
    del reading
    if any(span.host != plan.at.host for span in plan.into):
        raise NodeError(found.at("into"), "memory of another host", f"memory of {plan.at.host}")
    return plan


RECEIVE: Final = Record(
    called="receives",
    plan=ReceivePlan,
    finish=_check_receives,
    keys={
        "at": Key(kind=END, needed=True, help="The end that posts them."),
        "into": Key(
            kind=Many(SPAN, alone=True), help="Where a message is placed; nowhere if left out."
        ),
        "count": Key(kind=number(1, _MOST_RECEIVES), help="How many there are."),
    },
)


class SharedReceives:
    """Which ends receive from which shared queue of their host."""

    said = "hosts with their shared receive queues, such as {server: pool}"
    samples = ("{server: pool}",)

    def read(self, node: Node, reading: Reading) -> Mapping[str, str]:
        pairs = pairs_of(node, self.said)
        return dict(reading.every(partial(self._read, *pair, reading) for pair in pairs))

    def _read(self, key: Scalar, node: Node, reading: Reading) -> tuple[str, str]:
        host = HOST.read(key, reading)
        what = f"a shared receive queue of {host}"
        queue = text_of(node, what)
        check_known(node, queue, what, reading.names.of(host, "shared receives"))
        return host, queue

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": "object", "additionalProperties": {"type": "string"}}


def _numbers(low: int, high: int, what: str) -> Two[int]:
    both = f"{what} from {low} to {high}, or two: {low}, {low + 1}; in braces [{low}, {low + 1}]"
    samples = (str(low), f"'{low + 1}, {low + 100}'", f"[{low}, {high}]")
    return Two(number(low, high, what), both, samples, same=True)


_BETWEEN: Final = Two(
    HOST,
    "two hosts: client, server; in braces [client, server]",
    ("'client, server'", "[client, server]"),
)
_MTU: Final = Leaf(
    said=f"one of {listed(map(str, PATH_MTUS))}",
    parse=_mtu,
    samples=("1024", "4096"),
    types=("integer",),
)

CONNECTION: Final = Record(
    called="a connection",
    plan=ConnectionPlan,
    short="between",
    finish=check_connection,
    keys={
        "between": Key(
            kind=_BETWEEN,
            into=("ends",),
            needed=True,
            help="Its two ends; for XRC, the first one sends.",
        ),
        "type": Key(kind=TYPE, help="The transport service."),
        "count": Key(kind=number(1, MOST_PAIRS), help="How many queue pairs each end has for it."),
        "mtu": Key(
            kind=_MTU,
            help="Its path MTU, in octets.",
        ),
        "psn": Key(
            kind=_numbers(0, MODULUS - 1, "a PSN"),
            help="The first PSN of what both ends request, or of each end's.",
        ),
        "dscp": Key(kind=number(0, 63), help="The DSCP of its frames."),
        "ecn": Key(kind=TRUTH, help="Whether its frames may be marked."),
        "attributes": Key(kind=ATTRIBUTES, help="Attributes of its queue pairs."),
        "connect": Key(
            kind=Word(CONNECTS),
            help="How the ends find each other: at once, or by the connection manager, which works "
            "`timeout` out of the path unless an attribute says it.",
        ),
        "reject": Key(
            kind=Word(tuple(RejectReason.__members__), "why it is refused"),
            clause="IBA 12.6.7.2",
            help="Has the second end refuse the connection, for this reason; it agrees if left "
            "out.",
        ),
        "alternate": Key(
            kind=TRUTH,
            clause="IBA 17.2.8",
            help="Whether it has an alternate path, for the verb `migrate`.",
        ),
        "packets in flight": Key(
            kind=number(1, MAX_IN_FLIGHT),
            clause="IBA 9.7.1",
            help="How many request packets a queue pair leaves unacknowledged: if left out, 128 "
            "with `ibta`, 129 with `rxe`.",
        ),
        "congestion": Key(
            kind=CONGESTION,
            into=("congestion", "parameters"),
            help="What congestion control it has; none if left out.",
        ),
        "cnp interval": Key(kind=time(), help="How seldom marks are told; 50 us with DCQCN."),
        "cnp dscp": Key(
            kind=number(0, 63), help="The DSCP of CNPs; that of the connection if left out."
        ),
        "shared receives": Key(
            kind=SharedReceives(), into=("srq",), help="Which ends receive from which shared queue."
        ),
        "receives": Key(
            kind=Many(RECEIVE, alone=True, lenient=True),
            help="Receives that are posted before all work.",
        ),
    },
    prefixes={
        "attributes of": Key(
            kind=ATTRIBUTES, within="of_end", help="More attributes, of one host's queue pairs."
        )
    },
)  # fmt: skip
CONNECTIONS: Final = Named(record=CONNECTION, called="connections by name", example="a")
