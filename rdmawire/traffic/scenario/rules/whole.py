"""What must hold of a scenario as a whole: ways between hosts, addresses, amounts."""

from collections.abc import Callable, Collection, Iterable, Iterator
from math import prod
from typing import Final

from rdmawire.fabric.fault import MAX_COPIES, copies_by
from rdmawire.fabric.host import Place
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.defaults import longest_frame, places_of
from rdmawire.traffic.scenario.document import NodeError
from rdmawire.traffic.scenario.model import (
    HostPlan,
    LinkPlan,
    MemoryExpectation,
)
from rdmawire.traffic.scenario.references import length_of
from rdmawire.traffic.scenario.rules.amount import check_amounts
from rdmawire.verbs.ah import is_ipv4

MAX_PAIRS_TOGETHER: Final = 1 << 14
"""Queue pairs of all connections together, at each end."""
MAX_COMPARED: Final = 1 << 28
"""Bytes that an expectation compares."""

Rule = Callable[[ParseContext], Iterator[NodeError]]


def links_of(context: ParseContext) -> tuple[LinkPlan, ...]:
    """The links of a file; two hosts alone get one between them."""
    links: tuple[LinkPlan, ...] = tuple(context.links.values())
    if not context.names.implied:
        return links
    one, other = context.names.hosts
    return (LinkPlan(ends=(one, other), mark=context.at("hosts")),)


def _names(context: ParseContext) -> Iterator[NodeError]:
    """No switch is called as a host is."""
    for name, switch in context.switches.items():
        if name in context.names.hosts:
            yield NodeError(switch.mark, f"switch {quote(name)}", "a name that no host has")


def _places(context: ParseContext) -> Iterator[NodeError]:
    """No two hosts have one address, and none has addresses of two kinds."""
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
    """Ends have addresses of one kind, and a way between them; there are not too many."""
    ways = _Ways(links_of(context), context.names.switches)
    kinds = {host.name: place.gid for host, place in _placed(context)}
    complete = context.once(_all_links)
    for plan in context.connections.values():
        one, other = plan.ends
        if complete and not ways.lead(one, other):
            found_ = f"no way from {one} to {other}"
            yield NodeError(plan.mark, found_, "links that join them, by switches if need be")
        if len({is_ipv4(kinds[end]) for end in plan.ends if end in kinds}) > 1:
            found_ = f"IPv4 and IPv6 at the ends of {plan.name}"
            yield NodeError(plan.mark, found_, "addresses of one kind")
    pairs = sum(plan.count for plan in context.connections.values())
    if pairs > MAX_PAIRS_TOGETHER:
        found_ = f"{pairs} queue pairs at each end"
        yield NodeError(
            context.at("connections"), found_, f"{MAX_PAIRS_TOGETHER} at most, all together"
        )


def _all_links(context: ParseContext) -> bool:
    """Whether all links are in order, so that what is not there is missing.

    A file with other mistakes and without links may be one whose hosts are not to be so many.
    """
    names = context.names
    if not names.hosts_known or (not names.links and context.diagnostics):
        return False
    return names.implied or len(context.links) == len(names.links)


def _placed(context: ParseContext) -> Iterator[tuple[HostPlan, Place]]:
    hosts = list(context.hosts.values())
    return zip(hosts, places_of(hosts), strict=True)


class _Ways:
    """Who is joined to whom. Hosts pass nothing on.

    Switches that are joined are one island, called by one of them.
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

    def lead(self, one: str, other: str) -> bool:
        """Whether there is a way between two hosts, each of which has one link."""
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
    for link in links:
        pausing = [end for end in link.ends if _pauses(end, context)]
        if link.rate is None and pausing:
            expected = f"a rate: {pausing[0]} pauses, and pauses count in bit times"
            yield NodeError(link.mark, f"link {quote(link.name)} without 'rate'", expected)


def _copies(context: ParseContext) -> Iterator[NodeError]:
    """The faults of a link together make so many copies of a frame, and no more."""
    for link in links_of(context):
        copies = prod(copies_by(fault.do, fault.options) for fault in link.faults)
        if copies > MAX_COPIES:
            yield NodeError(link.mark, f"{copies} copies of a frame", f"{MAX_COPIES} at most")


def _pauses(name: str, context: ParseContext) -> bool:
    switch = context.switches.get(name)
    return switch is not None and any(queue.xoff is not None for queue in switch.queues)


def _pauses_in_time(context: ParseContext) -> Iterator[NodeError]:
    """A queue that pauses takes in the frame that makes it pause."""
    frame = longest_frame(context.connections.values())
    for switch in context.switches.values():
        for queue in switch.queues:
            if queue.xoff is not None and queue.headroom is not None and queue.headroom < frame:
                found = f"headroom {queue.headroom} of queue {queue.priority}"
                expected = f"a frame at least, {frame}; left out, it is as much as the links need"
                yield NodeError(queue.mark, found, expected)


def _expectations(context: ParseContext) -> Iterator[NodeError]:
    """Memory is compared with as much memory, and with no more than can be."""
    for plan in context.expectations:
        if not isinstance(plan, MemoryExpectation):
            continue
        length = length_of(plan.span, context)
        other = length if plan.same_as is None else length_of(plan.same_as, context)
        if length is not None and other is not None and length != other:
            yield NodeError(plan.mark, f"{length} bytes and {other} bytes", "as many of both")
        if length is not None and length > MAX_COMPARED:
            yield NodeError(plan.mark, f"{length} bytes", f"{MAX_COMPARED} to compare, at most")


def _amounts(context: ParseContext) -> Iterator[NodeError]:
    """All work together is not too much."""
    return check_amounts(context, links_of(context))


_RULES: Final[tuple[Rule, ...]] = (
    _names,
    _places,
    _connections,
    _links,
    _copies,
    _pauses_in_time,
    _expectations,
    _amounts,
)


def check_whole(context: ParseContext) -> None:
    """Report all mistakes of a scenario as a whole."""
    for rule in _RULES:
        context.report(rule(context))
