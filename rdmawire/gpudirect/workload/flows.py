"""Messages as flows: each gets its max-min fair share of the links that it takes.

Rates change when a flow begins or ends. Messages between two ranks are sent one after the other, as
by a queue pair. There are no packets, no losses and no other queues. Fractions of a nanosecond are
rounded up.
"""

from collections import deque
from collections.abc import Iterable
from functools import partial
from math import ceil
from typing import Final, NamedTuple

from rdmawire.fabric import Simulator
from rdmawire.fabric.link import wire_time
from rdmawire.fabric.scheduler import ScheduledCall
from rdmawire.gpudirect.message_time import EFFICIENCY, FIRST_HEADERS, HEADERS, MTU, wire_volume
from rdmawire.gpudirect.workload.placement import LinkId, MessageRoute, Placement
from rdmawire.gpudirect.workload.replay import Done, RankMessage, Replay
from rdmawire.topology.cost import max_min_rates
from rdmawire.units import SECOND

MAX_SHARED: Final = 1024
"""Flows that share links, also by way of others, of which all rates are computed anew."""
_OFTEN: Final = 8
"""Of more flows, all rates are computed anew after as many changes as an eighth of the flows."""
_LEAST: Final = 1e-6
"""Bytes of a flow that count as none, for rounding."""


class _Link:
    """A link: bytes per second, those that flows have of them, and the flows that take it."""

    __slots__ = ("capacity", "flows", "used")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.used = 0.0
        self.flows: dict[_Flow, None] = {}


class _Flow:
    """A message on its way: bytes that are left at ``since`` (ns), and its rate from then on."""

    __slots__ = ("call", "left", "message", "path", "rate", "since")

    def __init__(self, message: RankMessage, path: "_Path", left: float) -> None:
        self.message = message
        self.path = path
        self.left = left
        self.rate = 0.0
        self.since = 0
        self.call: ScheduledCall | None = None


class _Path(NamedTuple):
    """The limited links between two ranks, times (ns), and the rate of the wire, 0 for none.

    ``limit`` is the rate of the slowest link (bytes per second), ``trip`` the latency of data,
    ``empty`` the time of a message without data. ``queue`` has the messages that are sent, of which
    the first one is a flow: a queue pair sends them in order.
    """

    links: list[_Link]
    limit: float
    trip: int
    empty: int
    wire: int
    queue: deque[_Flow]

    def volume(self, size: int) -> float:
        """Return the bytes that a message takes from the rates of links."""
        return wire_volume(size) if self.wire else float(size)

    def tail(self, size: int) -> int:
        """Return the time (ns) after the last byte of a message: its last packet goes on."""
        if not size:
            return self.empty
        last = size % MTU or min(size, MTU)
        return self.trip + (wire_time(last + HEADERS, self.wire) if self.wire else 0)


class FlowCarrier:
    """Moves the messages of a :class:`Replay` as flows."""

    def __init__(self, replay: Replay, placement: Placement) -> None:
        self._replay = replay
        self._placement = placement
        self._simulator: Simulator = replay.simulator
        self._links: dict[LinkId, _Link] = {}
        self._paths: dict[tuple[int, int, int], _Path] = {}
        self._changed: set[_Link] = set()
        self._is_due = False
        self._partial = self._active = 0

    # Messages.

    def send(self, message: RankMessage) -> None:
        """Begin a flow; a message over no limited link has only its latency."""
        path = self._path(message)
        flow = _Flow(message, path, path.volume(message.size))
        if not path.links or not flow.left:
            self._deliver(flow)
            return
        path.queue.append(flow)
        if len(path.queue) == 1:
            self._begin(flow)

    def _begin(self, flow: _Flow) -> None:
        flow.since = self._simulator.now
        self._active += 1
        for link in flow.path.links:
            link.flows[flow] = None
        self._change(flow.path.links)

    def announce(self, message: RankMessage) -> None:
        """Let the target know of a message."""
        self._control(message, self._replay.arrived)

    def clear(self, message: RankMessage) -> None:
        """Let the source know that the target is ready."""
        self._control(message, self._replay.cleared)

    def finish(self) -> None:
        """Do nothing: no flow is lost."""

    def _control(self, message: RankMessage, done: Done) -> None:
        end = self._simulator.now + self._path(message).empty
        self._simulator.call_at(end, partial(done, message))

    def _path(self, message: RankMessage) -> _Path:
        key = message.source, message.target, message.nic
        if key not in self._paths:
            self._paths[key] = self._new_path(self._placement.message_route(*key))
        return self._paths[key]

    def _new_path(self, route: MessageRoute) -> _Path:
        links = [link for one in route.links if (link := self._link(one)) is not None]
        limit = min((link.capacity for link in links), default=0.0)
        trip, empty = ceil(route.dma + route.cables), ceil(route.cables)
        if not route.wired:
            return _Path(links, limit, trip, empty, 0, deque())
        wire = min(self._placement.port_rate(one) for one in route.links if one.host < 0)
        empty += 2 * wire_time(HEADERS + FIRST_HEADERS, wire)
        return _Path(links, limit, trip, empty, wire, deque())

    def _link(self, link: LinkId) -> _Link | None:
        """Return a link, if its rate is limited."""
        if link not in self._links:
            if link.host < 0:
                capacity = self._placement.port_rate(link) / 8 * EFFICIENCY
            elif (known := self._placement.capacity(link)) is not None:
                capacity = known
            else:
                return None
            self._links[link] = _Link(capacity)
        return self._links[link]

    # Rates.

    def _change(self, links: Iterable[_Link]) -> None:
        """Compute rates anew, when all that happens at this time has happened."""
        self._changed.update(links)
        if not self._is_due:
            self._is_due = True
            self._simulator.call_at(self._simulator.now, self._share)

    def _share(self) -> None:
        self._is_due = False
        self._free()
        flows = self._concerned()
        self._changed.clear()
        if not flows:
            return
        paths = {flow: flow.path.links for flow in flows}
        capacities = _rooms(flows)
        for flow, rate in max_min_rates(paths, capacities).items():
            self._set_rate(flow, rate)

    def _free(self) -> None:
        """Give the flows that share none of their links the rate of the slowest one."""
        for link in list(self._changed):
            if link not in self._changed or len(link.flows) > 1:
                continue
            for flow in link.flows:
                links = flow.path.links
                if sum([len(one.flows) for one in links]) == len(links):
                    self._changed.difference_update(links)
                    self._set_rate(flow, flow.path.limit)
            if not link.flows:
                self._changed.discard(link)

    def _concerned(self) -> dict[_Flow, None]:
        """Return the flows that share links, also by way of others, with what has changed.

        Of more than :data:`MAX_SHARED` flows, return for a while only those on the links that have
        changed: until as many changes as an eighth of them.
        """
        if self._partial and self._active > MAX_SHARED:
            self._partial -= 1
            return {flow: None for link in self._changed for flow in link.flows}
        waiting, seen = list(self._changed), set(self._changed)
        found: dict[_Flow, None] = {}
        while waiting:
            for flow in waiting.pop().flows:
                if flow in found:
                    continue
                found[flow] = None
                new = [link for link in flow.path.links if link not in seen]
                seen.update(new)
                waiting += new
        if len(found) > MAX_SHARED:
            self._partial = len(found) // _OFTEN
        return found

    def _set_rate(self, flow: _Flow, rate: float) -> None:
        if rate == flow.rate:
            return
        now = self._simulator.now
        flow.left = max(flow.left - flow.rate * (now - flow.since) / SECOND, 0.0)
        for link in flow.path.links:
            link.used += rate - flow.rate
        flow.rate, flow.since = rate, now
        if flow.call is not None:
            flow.call.cancel()
        end = now + ceil((flow.left - _LEAST) / rate * SECOND)
        flow.call = self._simulator.call_at(end, partial(self._finish, flow))

    def _finish(self, flow: _Flow) -> None:
        self._active -= 1
        for link in flow.path.links:
            del link.flows[flow]
            link.used -= flow.rate
        self._change(flow.path.links)
        queue = flow.path.queue
        queue.popleft()
        if queue:
            self._begin(queue[0])
        self._deliver(flow)

    def _deliver(self, flow: _Flow) -> None:
        """Let a message arrive, and its acknowledgment."""
        message, path = flow.message, flow.path
        end = self._simulator.now + path.tail(message.size)
        self._simulator.call_at(end, partial(self._replay.arrived, message))
        if self._replay.awaits_acknowledgment(message):
            self._simulator.call_at(end + path.empty, partial(self._replay.acknowledged, message))


def _rooms(flows: Iterable[_Flow]) -> dict[_Link, float]:
    """Return what other flows leave of the links of these."""
    rates: dict[_Link, list[float]] = {}
    for flow in flows:
        for link in flow.path.links:
            rates.setdefault(link, []).append(flow.rate)
    return {
        link: link.capacity
        if len(found) == len(link.flows)
        else max(link.capacity - link.used + sum(found), _LEAST)
        for link, found in rates.items()
    }
