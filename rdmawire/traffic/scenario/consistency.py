"""Checks of a scenario as a whole: names, addresses, paths, limits; its derived defaults; hints.

Derived are the addresses of hosts that give none, and the headroom of switches. Hints are about
valid input that is probably not intended.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from math import prod
from typing import Any, Final, NamedTuple

from rdmawire.fabric.fault import MAX_COPIES, copies_by
from rdmawire.fabric.host import Place
from rdmawire.fabric.network import place_of
from rdmawire.fabric.pfc import headroom
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Hint, Mark, NodeError
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.collective import COLLECTIVE_MTU, COLLECTIVES, load_of
from rdmawire.traffic.scenario.model.connection import QUEUE, ConnectionPlan
from rdmawire.traffic.scenario.model.expectation import MemoryExpectation, PacketExpectation
from rdmawire.traffic.scenario.model.host import MAX_FILLED, HostPlan
from rdmawire.traffic.scenario.model.network import LinkPlan
from rdmawire.traffic.scenario.model.step import VERBS, StepPlan
from rdmawire.traffic.scenario.references import length_of
from rdmawire.traffic.scenario.types import End, Fill, Span, format_size
from rdmawire.verbs.ah import is_ipv4
from rdmawire.wire.ib import BTH, ICRC, RETH, XRCETH, ImmDt
from rdmawire.wire.inet import ECN, UDP, Ethernet, IPv6

_IPV4_BYTES: Final = 4


def places_of(hosts: Sequence[HostPlan]) -> list[Place]:
    """Return the addresses of hosts, from 10.0.0.1 on, or fd00::1 on if some host has IPv6."""
    ipv6 = any(":" in (host.address or "") for host in hosts)
    places = []
    for number, host in enumerate(hosts, 1):
        usual = place_of(number)
        address = f"fd00::{number:x}" if ipv6 else str(IPv4Address(usual.gid[-_IPV4_BYTES:]))
        places.append(Place.of(host.mac or usual.mac.hex(":"), host.address or address))
    return places


_AROUND: Final = sum(
    header.SIZE for header in (Ethernet, IPv6, UDP, BTH, XRCETH, RETH, ImmDt, ICRC)
)
"""Largest size of all headers and checksums of a frame. IBA 9.2, A17."""


def longest_frame(connections: Iterable[ConnectionPlan], steps: Iterable[StepPlan] = ()) -> int:
    """Return the size of the longest frame that connections and collectives send (bytes)."""
    mtus = [plan.mtu for plan in connections]
    mtus += [_mtu_of(step.values) for step in steps if step.verb in COLLECTIVES]
    return _AROUND + max(mtus, default=0)


def _mtu_of(values: Mapping[str, Any]) -> int:
    return int(values.get("mtu", COLLECTIVE_MTU))


def headroom_of(
    switch: str,
    links: Iterable[LinkPlan],
    connections: Iterable[ConnectionPlan],
    steps: Iterable[StepPlan] = (),
) -> int:
    """Return the headroom beyond ``xoff`` that each port of a switch needs (bytes)."""
    frame = longest_frame(connections, steps)
    needed = (
        headroom(link.rate, link.latency, frame)
        for link in links
        if switch in link.ends and link.rate is not None
    )
    return max(needed, default=0)


# Limits: the time and the memory that a run takes are bounded.

MAX_FILLED_TOGETHER: Final = 1 << 30
MAX_MESSAGES: Final = 10**7
MAX_SENT: Final = 1 << 34
MAX_POSTED: Final = 1 << 30
"""Bytes that may be posted at once. Links without a rate take all of them at once, and a frame
in flight is in memory."""


class Volume(NamedTuple):
    """The messages and bytes of a part of a scenario. ``posted`` may be outstanding at once."""

    mark: Mark
    messages: int = 0
    bytes: int = 0
    posted: int = 0
    filled: int = 0


class _Limit(NamedTuple):
    """The limit of a sum, and what to do if it is exceeded."""

    of: str
    most: int
    said: str
    instead: str

    def wrong(self, mark: Mark, total: int) -> NodeError:
        most = self._text(self.most)
        found = f"{self._text(total)} {self.said}, all together up to here"
        return NodeError(mark, found, f"{most} at most: {self.instead}")

    def _text(self, value: int) -> str:
        if self.of == "messages":
            return str(value)
        text = format_size(value)
        return f"{text} bytes" if text.isdigit() else text


_LIMITS: Final = (
    _Limit("messages", MAX_MESSAGES, "messages", "fewer times, or fewer queue pairs"),
    _Limit("bytes", MAX_SENT, "to send", "fewer times, or shorter messages"),
    _Limit("filled", MAX_FILLED_TOGETHER, "to fill", "zeros, or less memory"),
    _Limit("posted", MAX_POSTED, "to send at once", "less at a time, or a rate of each link"),
)


def _all_work(context: ParseContext) -> Iterator[NodeError]:
    """Each limit is exceeded at one part; links with rates bound what is posted at once."""
    amounts = [*_amounts(context)]
    paced = all(link.rate is not None for link in links_of(context))
    for limit in _LIMITS[:-1] if paced else _LIMITS:
        total = 0
        for amount in amounts:
            total += getattr(amount, limit.of)
            if total > limit.most:
                yield limit.wrong(amount.mark, total)
                break


def _amounts(context: ParseContext) -> Iterator[Volume]:
    """Yield the volume of each part that could be read."""
    for memory in context.memory.values():
        if memory.content.fill is not Fill.ZEROS:
            yield Volume(memory.mark, filled=memory.size)
    for plan in context.connections.values():
        for receive in plan.receives:
            yield Volume(receive.mark, messages=receive.count * plan.count)
    for step in context.steps:
        yield _of_step(step, context)
    for expectation in context.expectations:
        if isinstance(expectation, MemoryExpectation) and expectation.is_unchanged:
            yield Volume(expectation.mark, filled=length_of(expectation.span, context) or 0)


def _of_step(step: StepPlan, context: ParseContext) -> Volume:
    if step.verb == "fill":
        span = step.values.get("what")
        length = length_of(span, context) if isinstance(span, Span) else None
        return Volume(step.mark, filled=min(length or 0, MAX_FILLED))
    if step.verb in COLLECTIVES:
        load = load_of(step.verb, step.values)
        filled: Any = step.values["size"]
        return Volume(step.mark, load.messages, load.bytes, load.bytes, filled)
    times = step.times * _pairs(step.end, context)
    if VERBS[step.verb].work is None:
        return Volume(step.mark, messages=times)
    data = message_size(step, context) or 0
    at_once = min(step.times, step.depth or QUEUE) * _pairs(step.end, context)
    return Volume(step.mark, messages=times, bytes=times * data, posted=at_once * data)


def _pairs(end: End | None, context: ParseContext) -> int:
    """Count the queue pairs that an end names."""
    plan = None if end is None else context.connections.get(end.connection)
    return 1 if plan is None or end is None or end.number is not None else plan.count


def message_size(plan: StepPlan, context: ParseContext) -> int | None:
    """Return the bytes of local memory, or inline, if all sizes are known."""
    if plan.inline is not None:
        return len(plan.inline)
    total = 0
    for span in plan.local:
        length = length_of(span, context)
        if length is None:
            return None
        total += length
    return total


# Checks.

MAX_PAIRS_TOGETHER: Final = 1 << 14
"""Queue pairs of all connections together, at each end."""
MAX_COMPARED: Final = 1 << 28
"""Bytes that an expectation compares."""


def links_of(context: ParseContext) -> tuple[LinkPlan, ...]:
    """Return the links of a file; two hosts without links get one between them."""
    links: tuple[LinkPlan, ...] = tuple(context.links.values())
    if not context.names.implied:
        return links
    one, other = context.names.hosts
    return (LinkPlan(ends=(one, other), mark=context.at("hosts")),)


def _names(context: ParseContext) -> Iterator[NodeError]:
    """No switch has the name of a host."""
    for name, switch in context.switches.items():
        if name in context.names.hosts:
            yield NodeError(switch.mark, f"switch {quote(name)}", "a name that no host has")


def _places(context: ParseContext) -> Iterator[NodeError]:
    """Addresses are unique, and those of a host are all IPv4 or all IPv6."""
    if len(context.hosts) < len(context.names.hosts):
        return
    seen: dict[bytes, str] = {}
    for host, place in _placed(context):
        gids = (place.gid, *(Place.of(_ANY_MAC, other).gid for other in host.further))
        for what, address in (("mac", place.mac), *(("address", gid) for gid in gids)):
            if seen.setdefault(address, host.name) != host.name:
                expected = f"another than that of {seen[address]}"
                yield NodeError(host.mark, f"the {what} of {host.name}", expected)
        if len(set(gids)) < len(gids):
            yield NodeError(host.mark, f"an address of {host.name} twice", "each address once")
        if len(set(map(is_ipv4, gids))) > 1:
            yield NodeError(host.mark, f"IPv4 and IPv6 at {host.name}", "addresses of one kind")


_ANY_MAC: Final = "02:00:00:00:00:01"


def _connections(context: ParseContext) -> Iterator[NodeError]:
    """Ends have a path and the same IP version; the number of queue pairs is limited."""
    paths = _Paths(links_of(context), context.names.switches)
    kinds = {host.name: place.gid for host, place in _placed(context)}
    complete = context.once(_all_links)
    for name, mark, ends in _joined(context):
        one, *others = ends
        far = next((other for other in others if not paths.exists(one, other)), None)
        if complete and far is not None:
            found_ = f"no path from {one} to {far}"
            yield NodeError(mark, found_, "links that join them, by switches if need be")
        if len({is_ipv4(kinds[end]) for end in ends if end in kinds}) > 1:
            found_ = f"IPv4 and IPv6 at the ends of {name}"
            yield NodeError(mark, found_, "addresses of one kind")
    pairs = sum(plan.count for plan in context.connections.values())
    if pairs > MAX_PAIRS_TOGETHER:
        found_ = f"{pairs} queue pairs at each end"
        yield NodeError(
            context.at("connections"), found_, f"{MAX_PAIRS_TOGETHER} at most, all together"
        )


def _joined(context: ParseContext) -> Iterator[tuple[str, Mark, tuple[str, ...]]]:
    """Yield connections and collectives: name, place and hosts."""
    for plan in context.connections.values():
        yield plan.name, plan.mark, plan.ends
    for step in context.steps:
        if step.verb in COLLECTIVES:
            yield step.verb, step.mark, step.values["among"]


def _all_links(context: ParseContext) -> bool:
    """Whether all links could be read, so that a path that is not there is missing.

    In a file with other mistakes and without links, the number of hosts may be the mistake.
    """
    names = context.names
    if not names.hosts_known or (not names.links and context.diagnostics):
        return False
    return names.implied or len(context.links) == len(names.links)


def _placed(context: ParseContext) -> Iterator[tuple[HostPlan, Place]]:
    hosts = list(context.hosts.values())
    return zip(hosts, places_of(hosts), strict=True)


class _Paths:
    """Which hosts have a path between them. Hosts do not forward.

    Connected switches are one island, identified by one of them (union-find).
    """

    def __init__(self, links: Iterable[LinkPlan], switches: Collection[str]) -> None:
        self._above = {switch: switch for switch in switches}
        self._on: dict[str, str] = {}
        for one, other in (link.ends for link in links):
            if one in self._above and other in self._above:
                self._above[self._island(one)] = self._island(other)
            self._on.setdefault(one, other)
            self._on.setdefault(other, one)

    def _island(self, switch: str) -> str:
        while (above := self._above[switch]) != switch:
            self._above[switch] = switch = self._above[above]
        return switch

    def exists(self, one: str, other: str) -> bool:
        """Whether there is a path between two hosts, each of which has one link."""
        near, far = self._on.get(one), self._on.get(other)
        if near in self._above and far in self._above:
            return self._island(near) == self._island(far)
        return near == other


def _links(context: ParseContext) -> Iterator[NodeError]:
    """Every host is on a link; links of switches that pause have a rate."""
    links = links_of(context)
    joined = {end for link in links for end in link.ends}
    for host in context.hosts.values() if context.once(_all_links) else ():
        if host.name not in joined:
            yield NodeError(
                host.mark, f"host {quote(host.name)} on no link", "a link for each host"
            )
    pause = {
        name
        for name, switch in context.switches.items()
        if any(queue.xoff is not None for queue in switch.queues)
    }
    for link in links:
        pausing = [end for end in link.ends if end in pause]
        if link.rate is None and pausing:
            expected = f"a rate: {pausing[0]} pauses, and pauses count in bit times"
            yield NodeError(link.mark, f"link {quote(link.name)} without 'rate'", expected)


def _copies(context: ParseContext) -> Iterator[NodeError]:
    """The number of copies that the faults of a link make of a frame is limited."""
    for link in links_of(context):
        copies = prod(copies_by(fault.do, fault.options) for fault in link.faults)
        if copies > MAX_COPIES:
            yield NodeError(link.mark, f"{copies} copies of a frame", f"{MAX_COPIES} at most")


def _pauses_in_time(context: ParseContext) -> Iterator[NodeError]:
    """The headroom of a queue holds at least the frame that makes it pause."""
    frame = longest_frame(context.connections.values(), context.steps)
    for switch in context.switches.values():
        for queue in switch.queues:
            if queue.xoff is not None and queue.headroom is not None and queue.headroom < frame:
                found = f"headroom {queue.headroom} of queue {queue.priority}"
                expected = f"a frame at least, {frame}; left out, it is as much as the links need"
                yield NodeError(queue.mark, found, expected)


def _expectations(context: ParseContext) -> Iterator[NodeError]:
    """Compared spans have the same length, up to a limit."""
    for plan in context.expectations:
        if not isinstance(plan, MemoryExpectation):
            continue
        length = length_of(plan.span, context)
        other = length if plan.same_as is None else length_of(plan.same_as, context)
        if length is not None and other is not None and length != other:
            yield NodeError(plan.mark, f"{length} bytes and {other} bytes", "as many of both")
        if length is not None and length > MAX_COMPARED:
            yield NodeError(plan.mark, f"{length} bytes", f"{MAX_COMPARED} to compare, at most")


_SCENARIO_RULES: Final = (
    _names,
    _places,
    _connections,
    _links,
    _copies,
    _pauses_in_time,
    _expectations,
    _all_work,
)


def check_whole(context: ParseContext) -> None:
    """Report all mistakes of a scenario as a whole."""
    for rule in _SCENARIO_RULES:
        context.report(rule(context))


# Hints.

SENDS_CNPS = "dcqcn"
"""The congestion control whose receivers send CNPs at a default interval."""


def hints(scenario: Scenario) -> Iterator[Hint]:
    """Yield all hints, in the order of the file's sections."""
    yield from _unheard(scenario)
    for plan in scenario.expectations:
        if isinstance(plan, PacketExpectation) and not plan.arrived:
            said = _unseen_by(scenario, plan)
            if said:
                yield Hint(plan.mark, said)


# Marks without CNPs.


def _unheard(scenario: Scenario) -> Iterator[Hint]:
    notified = {
        plan.name
        for plan in scenario.connections
        if plan.cnp_interval is not None or plan.congestion == SENDS_CNPS
    }
    notified |= {name for name, scheme in _marked_collectives(scenario) if scheme == SENDS_CNPS}
    collectives = {name for name, _ in _marked_collectives(scenario)}
    for mark, connections in _marks(scenario):
        if not connections or notified & connections:
            continue
        which = ", ".join(sorted(connections - collectives))
        instead = f"give a 'cnp interval' to connection {which}"
        if not which:
            instead = f"give 'congestion: {SENDS_CNPS}' to {', '.join(sorted(connections))}"
        yield Hint(mark, f"no CNP reports these marks; {instead}")


def _marked_collectives(scenario: Scenario) -> Iterator[tuple[str, str | None]]:
    """Yield the ECN-capable collectives: the verb, and the scheme of congestion control."""
    for step in scenario.steps:
        values: Mapping[str, Any] = step.values
        if step.verb in COLLECTIVES and values.get("ecn"):
            yield step.verb, values.get("congestion", (None,))[0]


def _marks(scenario: Scenario) -> Iterator[tuple[Mark, set[str]]]:
    """Yield where frames are marked, and the ECN-capable connections they may belong to."""
    every = {plan.name for plan in scenario.connections if plan.ecn}
    every |= {name for name, _ in _marked_collectives(scenario)}
    for switch in scenario.switches:
        for queue in switch.queues:
            if queue.kmin is not None:
                yield queue.mark, every
    for link in scenario.links:
        for fault in link.faults:
            if fault.do == "mark":
                end = fault.sent_by
                yield fault.mark, every if end is None else every & {end.connection}


# Frames that do not pass the point at which they are counted.

_OF_PAUSES: Final = ("macc", "pause", "pfc")
_ECN_FIELDS: Final = ("ip.ecn", "ipv6.ecn")

_NO_PAUSES = "hosts send no pauses; say 'on' which link they are counted"
_NO_MARKS = "hosts send no frame with CE; say 'on' which link after the mark, or 'arrived: true'"
_NO_MARKS_YET = "this link marks what is put on it, so CE is seen with 'arrived: true'"


def _unseen_by(scenario: Scenario, plan: PacketExpectation) -> str:
    """Say why no such frame can be at the point of an expectation; empty if one can."""
    if plan.link is None and any(name.partition(".")[0] in _OF_PAUSES for name in plan.where):
        return _NO_PAUSES
    wanted = [plan.where[name] for name in _ECN_FIELDS if name in plan.where]
    values = [value if isinstance(value, tuple | range) else (value,) for value in wanted]
    if not any(len(one) == 1 and ECN.CE in one for one in values):
        return ""
    if plan.link is None:
        return _NO_MARKS
    return _NO_MARKS_YET if _markers(scenario) == {plan.link} else ""


def _markers(scenario: Scenario) -> set[str]:
    links = {link.name for link in scenario.links for fault in link.faults if fault.do == "mark"}
    switches = {
        switch.name
        for switch in scenario.switches
        for queue in switch.queues
        if queue.kmin is not None
    }
    return links | switches
