"""Checks of connections and steps beyond their keys: types, ends, memory and how work may end."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from rdmawire.ib.service import SERVICES
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.consistency import MAX_PAIRS_TOGETHER, message_size
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Items, Mark, Node, NodeError, Pairs, listed
from rdmawire.traffic.scenario.model.collective import COLLECTIVES, DTYPES, load_of
from rdmawire.traffic.scenario.model.connection import TYPES, ConnectionPlan
from rdmawire.traffic.scenario.model.host import MAX_FILLED, HostPlan, MemoryPlan
from rdmawire.traffic.scenario.model.step import OF_PEER, REMOTE, SUCCESS, VERBS, StepPlan
from rdmawire.traffic.scenario.packet_rules import check_packet
from rdmawire.traffic.scenario.references import check_fit, length_of, which_of
from rdmawire.traffic.scenario.section import Found
from rdmawire.traffic.scenario.types import Span, ValueType, format_size
from rdmawire.verbs.profile import PROFILES
from rdmawire.verbs.qp_attr import BOUNDS
from rdmawire.verbs.wr import ATOMIC_SIZE, Local, SendFlags
from rdmawire.verbs.wr import VERBS as WORK


def check_connection(plan: ConnectionPlan, found: Found, context: ParseContext) -> ConnectionPlan:
    """Report all mistakes of a connection; register it in the context if there are none."""
    mistaken = [context.report(rule(plan, found, context)) for rule in _CONNECTION_RULES]
    if not any(mistaken):
        context.connections[plan.name] = plan
    return plan


ConnectionRule = Callable[[ConnectionPlan, Found, ParseContext], Iterator[NodeError]]


def _ends(plan: ConnectionPlan, found: Found, _: ParseContext) -> Iterator[NodeError]:
    """Ends are two hosts, and attributes of one host are of an end."""
    one, other = plan.ends
    if one == other:
        yield NodeError(found.at("between"), f"{one} twice", "two hosts")
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


def _type(plan: ConnectionPlan, found: Found, _: ParseContext) -> Iterator[NodeError]:
    service = SERVICES[TYPES[plan.type][0]]
    of = f"a connection of type {plan.type}"
    if plan.connect == "cm" and plan.type == "XRC":
        yield NodeError(found.at("connect"), "cm", f"at once, for {of}")
    for key in ("congestion", "cnp interval", "alternate"):
        if not service.connected and key in found.nodes:
            yield NodeError(found.at(key), f"{key!r} of {of}", "a connected type: RC, UC or XRC")
    if plan.packets_in_flight is not None and not service.reliable:  # others have no ACKs
        what = f"'packets in flight' of {of}"
        yield NodeError(found.at("packets in flight"), what, "a reliable type: RC or XRC")
    if plan.cnp_dscp is not None and plan.cnp_interval is None and plan.congestion != "dcqcn":
        yield NodeError(found.at("cnp dscp"), "'cnp dscp' without CNPs", "'cnp interval' besides")


def _alternate(plan: ConnectionPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """Both adapters migrate; connection managers do not set an alternate path."""
    if not plan.alternate:
        return
    if plan.connect == "cm":
        yield NodeError(found.at("alternate"), "'alternate' with cm", "connect: at once")
    for host in (context.hosts[end] for end in plan.ends if end in context.hosts):
        if not PROFILES[host.profile].migrates:
            which = f"{host.name} with the profile {host.profile}"
            yield NodeError(found.at("alternate"), which, "an adapter that migrates, such as ibta")


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


_CONNECTION_RULES: Final[tuple[ConnectionRule, ...]] = (
    _ends,
    _attributes,
    _queues,
    _type,
    _alternate,
    _reject,
    _receives,
)


# Steps.


def check_step(plan: StepPlan, found: Found, context: ParseContext) -> StepPlan:
    """Report all mistakes of a step; return it with the status that it has by default."""
    status = plan.status
    if "status" not in found.nodes:  # success, if there is a completion to say so
        completes = VERBS[plan.verb].work is not None and SendFlags.SIGNALED.name in plan.flags
        status = SUCCESS if completes and plan.refused is None else None
    step = plan.model_copy(update={"status": None if status == "none" else status})
    for rule in _STEP_RULES:
        context.report(rule(step, found, context))
    return step


StepRule = Callable[[StepPlan, Found, ParseContext], Iterator[NodeError]]


def _name_and_time(plan: StepPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    if plan.name and context.names.steps[plan.name] < context.step:
        yield NodeError(found.at("name"), f"name {quote(plan.name)} again", "one step of a name")
    if plan.at is not None and plan.after:
        yield NodeError(found.at("at"), "'at' besides 'after'", "one of the two")
    if plan.depth is not None and plan.depth > plan.times:
        yield NodeError(
            found.at("depth"), f"depth {plan.depth}", f"no more than times, {plan.times}"
        )


def _status(plan: StepPlan, found: Found, _: ParseContext) -> Iterator[NodeError]:
    """Work that is not to complete has no success; what is refused does not complete."""
    if "status" not in found.nodes:
        return
    if plan.refused is not None and plan.status is not None:
        yield NodeError(found.at("status"), "'status' besides 'refused'", "one of the two")
    if plan.status == SUCCESS and SendFlags.SIGNALED.name not in plan.flags:
        expected = "an error, none, or the flag SIGNALED"
        yield NodeError(found.at("status"), f"{SUCCESS} of work that is not signaled", expected)


def _connection(plan: StepPlan, context: ParseContext) -> ConnectionPlan | None:
    """That of its end, if there is one and it is in order."""
    return None if plan.end is None else context.connections.get(plan.end.connection)


def _host(plan: StepPlan, context: ParseContext) -> HostPlan | None:
    """The host of its end, if it has one that is in order."""
    return None if plan.end is None else context.hosts.get(plan.end.host)


def _verb(plan: StepPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """The connection's type has such work; its end sends, or receives."""
    connection, work = _connection(plan, context), VERBS[plan.verb].work
    if connection is None or plan.end is None or plan.refused is not None:
        return
    service = SERVICES[TYPES[connection.type][connection.ends.index(plan.end.host)]]
    if work is not None and work not in service.verbs:
        able = listed(name for name, (one, _) in TYPES.items() if work in SERVICES[one].verbs)
        what = f"{plan.verb} on a connection of type {connection.type}"
        yield NodeError(found.mark, what, f"a type that has it: {able}")
    elif work is not None and not service.sends:
        first = f"{connection.ends[0]}/{connection.name}"
        yield NodeError(found.at("on"), f"{plan.verb} at the end of XRC that receives", first)
    elif plan.verb == "receive":
        reason = no_receives(connection, plan.end.host)
        if reason is not None:
            yield NodeError(found.at("on"), f"receives at {plan.end.host}", reason)


def _management(plan: StepPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """Connections that can be ended, and that can migrate; changes that change something."""
    connection = _connection(plan, context)
    if connection is not None and plan.verb == "disconnect" and connection.connect != "cm":
        yield NodeError(found.mark, "disconnect", f"'connect: cm' of connection {connection.name}")
    if connection is not None and plan.verb == "migrate" and not connection.alternate:
        yield NodeError(found.mark, "migrate", f"'alternate: true' of connection {connection.name}")
    if plan.verb == "modify" and not plan.values:
        yield NodeError(found.mark, "modify with nothing to change", "state or attributes")
    if plan.verb == "fill" and "content" not in plan.values:
        yield NodeError(found.mark, "fill with nothing", "one of fill, text, hex")


def _changed_attributes(plan: StepPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    given: Mapping[str, Any] = plan.values
    several = (context.hosts.get(name) for name in given.get("among", ()))
    for host in (_host(plan, context), *several):
        if host is not None:
            yield from out_of_bounds(host, given.get("attributes", {}), found, "attributes")


def _collective(plan: StepPlan, found: Found, _: ParseContext) -> Iterator[NodeError]:
    """The values of a collective can be divided among its hosts, one of which is the root."""
    values: Mapping[str, Any] = plan.values
    if plan.verb not in COLLECTIVES:
        return
    hosts, size = values["among"], values["size"]
    unit = len(hosts) * DTYPES[values.get("dtype", next(iter(DTYPES)))]
    if size % unit:
        expected = f"a multiple of {unit}: whole values for each of {len(hosts)} hosts"
        yield NodeError(found.at("size"), f"{size} bytes", expected)
    if (root := values.get("root", hosts[0])) not in hosts:
        yield NodeError(
            found.at("root"),
            f"root {quote(root)}",
            f"one of {listed(hosts)}",
            word=root,
            known=hosts,
        )
    pairs = load_of(plan.verb, values).connections * values.get("qps", 1)
    if pairs > MAX_PAIRS_TOGETHER:
        expected = f"{MAX_PAIRS_TOGETHER} at most: fewer hosts, channels or qps"
        yield NodeError(found.mark, f"{pairs} queue pairs at each end", expected)


# Memory.


class _Named(NamedTuple):
    """A span that a step names, with its key."""

    key: str
    type: ValueType
    span: Span
    node: Node

    def wrong(self, found: str, expected: str) -> NodeError:
        return NodeError(self.node.mark, found, expected)

    @property
    def memory(self) -> str:
        return f"{self.span.host}.{self.span.memory}"


def _named(plan: StepPlan, found: Found) -> Iterator[_Named]:
    for key, row in VERBS[plan.verb].parameters.items():
        if key in found.nodes:
            node = found.nodes[key]
            value = getattr(plan, row.into) if row.into else plan.values.get(key)
            spans = (value,) if isinstance(value, Span) else value
            for place, span in enumerate(spans if isinstance(spans, tuple) else ()):
                if isinstance(span, Span):
                    own = node.items[place] if isinstance(node, Items) else node
                    yield _Named(key, row.type, span, own)


def _sides(plan: StepPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """What is local is of the end's host, what is remote of the other's."""
    connection = _connection(plan, context)
    if connection is None or plan.end is None:
        return
    one, other = connection.ends
    peer = other if plan.end.host == one else one
    for named in _named(plan, found):
        host = peer if named.type in OF_PEER else plan.end.host
        if named.span.host != host:
            yield named.wrong(f"memory of {named.span.host}", f"memory of {host}")


def _fits(plan: StepPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """What is to succeed stays within memory."""
    if plan.status != SUCCESS:
        return
    for named in _named(plan, found):
        if named.type is REMOTE:
            try:
                check_fit(named.node, named.span, context)
            except NodeError as error:
                yield error


def _kinds(plan: StepPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """Memory of the kind that the verb is for, and all of it where that must be."""
    for named in _named(plan, found):
        window = named.span.memory in context.names.of(named.span.host, "windows")
        memory = context.memory.get((named.span.host, named.span.memory))
        if demand := _DEMANDS.get((plan.verb, named.key)):
            if (window or memory is not None) and not demand.meets(window, memory):
                yield named.wrong(named.memory, demand.expected)
            elif demand.whole and (named.span.offset or named.span.length is not None):
                yield named.wrong(f"part of {named.memory}", f"all of it: {named.memory}")


class _Demand(NamedTuple):
    """What memory must be: ``meets`` gets whether it is a window, or else the memory."""

    expected: str
    meets: Callable[[bool, MemoryPlan | None], bool] = lambda _, __: True
    whole: bool = True


def _invalidated(window: bool, memory: MemoryPlan | None) -> bool:
    return window or (memory is not None and memory.fast)


_TO_INVALIDATE: Final = _Demand("a window, or memory that is 'fast'", _invalidated)
_DEMANDS: Final = {
    ("bind_mw", "what"): _Demand("a window", lambda window, _: window),
    ("reg_mr", "what"): _Demand(
        "memory that is 'fast'", lambda _, memory: bool(memory and memory.fast)
    ),
    ("local_inv", "what"): _TO_INVALIDATE,
    ("send_inv", "key"): _TO_INVALIDATE,
    ("free", "what"): _Demand("memory of a GPU", lambda _, it: bool(it and it.gpu)),
    ("register", "what"): _Demand("memory"),
    ("deregister", "what"): _Demand("memory"),
}
"""Requirements of verbs on memory."""


def _bytes(plan: StepPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """The verb takes memory or inline bytes, and of a size that it allows."""
    if plan.inline is not None and plan.local:
        yield NodeError(found.at("inline"), "'inline' besides 'from'", "one of the two")
    host = _host(plan, context)
    if plan.refused is not None or host is None:
        return
    most = PROFILES[host.profile].max_inline_data
    if plan.inline is not None and len(plan.inline) > most:
        found_ = f"{len(plan.inline)} bytes inline"
        yield NodeError(
            found.at("inline"), found_, f"{most} at most: {host.name} is {host.profile}"
        )
    work = VERBS[plan.verb].work
    length = message_size(plan, context)
    if work in OF_EIGHT and length not in (None, ATOMIC_SIZE):
        key = next((key for key in ("into", "from", "inline") if key in found.nodes), "on")
        yield NodeError(found.at(key), f"{length} bytes", f"{ATOMIC_SIZE} for {plan.verb}")


OF_EIGHT: Final = tuple(
    work for work, how in WORK.items() if how.one_packet and how.local is not Local.NONE
)
"""Work on eight bytes. IBA 9.4.5, A19."""


def _fill(plan: StepPlan, found: Found, context: ParseContext) -> Iterator[NodeError]:
    """No more is filled at a time than may be."""
    span = plan.values.get("what")
    if plan.verb != "fill" or not isinstance(span, Span):
        return
    length = length_of(span, context)
    if length is not None and length > MAX_FILLED:
        most = format_size(MAX_FILLED)
        expected = f"{most} at most: a part of it, such as {span.host}.{span.memory}[0:{most}]"
        yield NodeError(found.at("what"), f"{length} bytes to fill", expected)


_STEP_RULES: Final[tuple[StepRule, ...]] = (
    _name_and_time,
    _status,
    _verb,
    _management,
    _changed_attributes,
    _collective,
    _sides,
    _fits,
    _kinds,
    _bytes,
    _fill,
    check_packet,
)
