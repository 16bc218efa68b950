"""What must hold of a connection: its ends, their attributes, and what its type allows."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from rdmawire.ib.service import SERVICES
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import NodeError, Pairs, listed
from rdmawire.traffic.scenario.model import ConnectionPlan, HostPlan, Mark
from rdmawire.traffic.scenario.references import which_of
from rdmawire.traffic.scenario.section import Found
from rdmawire.traffic.scenario.tables import TYPES
from rdmawire.verbs.profile import PROFILES
from rdmawire.verbs.qp_attr import BOUNDS


def check_connection(plan: ConnectionPlan, found: Found, context: ParseContext) -> ConnectionPlan:
    """Report all mistakes of a connection; register it in the context if there are none."""
    mistaken = [context.report(rule(plan, found, context)) for rule in _RULES]
    if not any(mistaken):
        context.connections[plan.name] = plan
    return plan


Rule = Callable[[ConnectionPlan, Found, ParseContext], Iterator[NodeError]]


def _ends(plan: ConnectionPlan, found: Found, _: ParseContext) -> Iterator[NodeError]:
    """Two hosts."""
    one, other = plan.ends
    if one == other:
        yield NodeError(found.at("between"), f"{one} twice", "two hosts")


def _of_end(plan: ConnectionPlan, found: Found, _: ParseContext) -> Iterator[NodeError]:
    """Attributes of one end are of an end."""
    for host in plan.of_end:
        if host not in plan.ends:
            mark, expected = found.at(f"attributes of {host}"), f"one of {listed(plan.ends)}"
            yield NodeError(
                mark, f"attributes of {quote(host)}", expected, word=host, known=plan.ends
            )


def _attributes(plan: ConnectionPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """Numbers that the adapters of the ends have."""
    for host in (context.hosts[end] for end in plan.ends if end in context.hosts):
        both = {"attributes": plan.attributes}
        both[f"attributes of {host.name}"] = plan.of_end.get(host.name, {})
        for key, values in both.items():
            yield from out_of_bounds(host, values, found, key)


def out_of_bounds(
    host: HostPlan, values: Mapping[str, int], found: Found, key: str
) -> Iterator[NodeError]:
    """The mistakes of attributes that the adapter of a host does not take."""
    for name, value in values.items():
        high = int(BOUNDS[name].high(PROFILES[host.profile]))
        if value > high:
            expected = f"{high} at most: {host.name} is {host.profile}"
            yield NodeError(_at(found, key, name), f"{name} {value}", expected)


def _at(found: Found, key: str, name: str) -> Mark:
    """The place of a value in the mapping of a key."""
    node = found.nodes[key]
    inner = node.get(name) if isinstance(node, Pairs) else None
    return node.mark if inner is None else inner.mark


def _queues(plan: ConnectionPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """Shared receive queues are of ends that receive, and are for XRC if the connection is."""
    for host, queue in plan.srq.items():
        mark = _at(found, "shared receives", host)
        if host not in plan.ends:
            yield NodeError(mark, f"host {quote(host)}", f"one of {listed(plan.ends)}")
        elif _is_xrc(host, queue, context) not in (None, plan.type == "XRC"):
            kind = "is" if plan.type == "XRC" else "is not"
            yield NodeError(mark, f"queue {quote(queue)}", f"one that {kind} for XRC ('xrc: true')")
        elif plan.type == "XRC" and host == plan.ends[0]:
            yield NodeError(mark, f"a queue of {host}", f"one of {plan.ends[1]}, which receives")


def _is_xrc(host: str, queue: str, context: ParseContext) -> bool | None:
    """Whether a queue is for XRC, if it could be read."""
    plans = context.hosts[host].srqs if host in context.hosts else ()
    return next((srq.xrc for srq in plans if srq.name == queue), None)


def _type(plan: ConnectionPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """What only some types have."""
    connected = SERVICES[TYPES[plan.type][0]].connected
    of = f"a connection of type {plan.type}"
    if plan.connect == "cm" and plan.type == "XRC":
        yield NodeError(found.at("connect"), "cm", f"at once, for {of}")
    for key in ("congestion", "cnp interval", "alternate"):
        if not connected and key in found.nodes:
            yield NodeError(found.at(key), f"{key!r} of {of}", "a connected type: RC, UC or XRC")
    if plan.cnp_dscp is not None and plan.cnp_interval is None and plan.congestion != "dcqcn":
        yield NodeError(found.at("cnp dscp"), "'cnp dscp' without CNPs", "'cnp interval' besides")
    if plan.alternate and plan.connect == "cm":
        yield NodeError(found.at("alternate"), "'alternate' with cm", "connect: at once")
    for host in (context.hosts[end] for end in plan.ends if end in context.hosts):
        if plan.alternate and not PROFILES[host.profile].migrates:
            which = f"{host.name} with the profile {host.profile}"
            yield NodeError(found.at("alternate"), which, "an adapter that migrates, such as ibta")


def _window(plan: ConnectionPlan, found: Found, _: ParseContext) -> Iterator[NodeError]:
    """A window is for reliable types: others have no ACKs."""
    if plan.packets_in_flight is not None and not SERVICES[TYPES[plan.type][0]].reliable:
        what = f"'packets in flight' of a connection of type {plan.type}"
        yield NodeError(found.at("packets in flight"), what, "a reliable type: RC or XRC")


def _reject(plan: ConnectionPlan, found: Found, _: ParseContext) -> Iterator[NodeError]:
    """Only what is asked for by a REQ is refused by a REJ, which says why."""
    if plan.reject is None:
        return
    if not SERVICES[TYPES[plan.type][0]].connected:
        expected = "a connected type: RC or UC"
        yield NodeError(
            found.at("reject"), f"'reject' of a connection of type {plan.type}", expected
        )
    elif plan.connect != "cm":
        expected = "'connect: cm' besides"
        yield NodeError(found.at("reject"), "'reject' without a connection manager", expected)


def _receives(plan: ConnectionPlan, _: Found, __: ParseContext) -> Iterator[NodeError]:
    """Receives are of this connection's ends, those that take receives."""
    for receive in plan.receives:
        end, mark = receive.at, receive.mark
        named = f"{end.host}/{end.connection}"
        if end.connection != plan.name or end.host not in plan.ends:
            expected = listed(f"{host}/{plan.name}" for host in plan.ends)
            yield NodeError(mark, f"receives at {named}", f"an end of this connection: {expected}")
        elif end.number is not None and end.number > plan.count:
            yield NodeError(mark, f"{named}#{end.number}", which_of(plan.count))
        elif (reason := no_receives(plan, end.host)) is not None:
            yield NodeError(mark, f"receives at {named}", reason)


def no_receives(plan: ConnectionPlan, host: str) -> str | None:
    """What an end needs to take receives, if it does not."""
    service = SERVICES[TYPES[plan.type][plan.ends.index(host)]]
    if service.receives or host in plan.srq:
        return None
    if host == plan.ends[0]:
        return f"an end that receives: {plan.ends[1]}/{plan.name}"
    return f"'shared receives' of {plan.name} for {host}: XRC receives there alone"


_RULES: Final[tuple[Rule, ...]] = (
    _ends,
    _of_end,
    _attributes,
    _queues,
    _type,
    _window,
    _reject,
    _receives,
)
