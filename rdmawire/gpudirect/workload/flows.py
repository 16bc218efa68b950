"""Messages as flows: each gets its max-min fair share of the links that it takes.

All flows grow alike until a link is full; its flows then have their rates, and the others go on
(Bertsekas and Gallager, Data Networks, 6.5.2). Rates change when a flow begins or ends. There are
no packets, no losses and no queues. Fractions of a nanosecond are rounded up.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from math import ceil
from typing import Final

from rdmawire.fabric import Simulator
from rdmawire.fabric.link import bit_times, wire_time
from rdmawire.fabric.scheduler import ScheduledCall
from rdmawire.gpudirect.workload.placement import Link, Placement, Way
from rdmawire.gpudirect.workload.replay import Done, Message, Replay
from rdmawire.units import SECOND

MTU: Final = 4096
HEADERS: Final = 14 + 20 + 8 + 12 + 4
"""Bytes of a frame beside the payload, without FCS: Ethernet, IPv4, UDP, BTH, ICRC."""
FIRST: Final = 16 + 4
"""Bytes of RETH and immediate data, once in a message."""
_EFFICIENCY: Final = MTU * 8 / bit_times(MTU + HEADERS)
"""Share of the rate of a wire that full packets leave for data."""
_LEAST: Final = 1e-6
"""Bytes of a flow that count as none, for rounding."""


@lru_cache(4096)
def wire_volume(size: int) -> float:
    """Return the bytes of data that would take as long on a wire as a message of ``size`` bytes."""
    full, rest = divmod(size, MTU)
    bits = full * bit_times(MTU + HEADERS)
    if rest or not full:
        bits += bit_times(rest + HEADERS)
    return (bits + FIRST * 8) / 8 * _EFFICIENCY


class _Link:
    """A link: bytes per second, and the flows that take it."""

    __slots__ = ("capacity", "flows")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.flows: dict[_Flow, None] = {}


class _Flow:
    """A message on its way: bytes that are left at ``since`` (ns), and its rate from then on."""

    __slots__ = ("call", "left", "links", "message", "rate", "since", "tail")

    def __init__(self, message: Message, links: list[_Link], left: float, tail: int) -> None:
        self.message = message
        self.links = links
        self.left = left
        self.tail = tail
        self.rate = 0.0
        self.since = 0
        self.call: ScheduledCall | None = None


class FlowCarrier:
    """Moves the messages of a :class:`Replay` as flows."""

    def __init__(self, replay: Replay, placement: Placement) -> None:
        self._replay = replay
        self._placement = placement
        self._simulator: Simulator = replay.simulator
        self._links: dict[Link, _Link | None] = {}
        self._changed: set[_Link] = set()
        self._is_due = False

    # Messages.

    def send(self, message: Message) -> None:
        """Begin a flow; a message over no limited link has only its latency."""
        way = self._way(message)
        links = [link for one in way.links if (link := self._link(one)) is not None]
        tail = ceil(way.dma + way.cables) + (self._last_packet(message, way) if way.wired else 0)
        volume = wire_volume(message.size) if way.wired else float(message.size)
        flow = _Flow(message, links, volume, tail)
        if not links or not volume:
            self._deliver(flow)
            return
        flow.since = self._simulator.now
        for link in links:
            link.flows[flow] = None
        self._change(links)

    def announce(self, message: Message) -> None:
        """Let the target know of a message."""
        self._control(message, self._replay.arrived)

    def clear(self, message: Message) -> None:
        """Let the source know that the target is ready."""
        self._control(message, self._replay.cleared)

    def finish(self) -> None:
        """Do nothing: no flow is lost."""

    def _control(self, message: Message, done: Done) -> None:
        way = self._way(message)
        self._simulator.call_at(self._simulator.now + self._empty(way), partial(done, message))

    def _way(self, message: Message) -> Way:
        return self._placement.way(message.source, message.target, message.nic)

    def _wire_rate(self, way: Way) -> int:
        return next(self._placement.port_rate(one) for one in way.links if one.host < 0)

    def _empty(self, way: Way) -> int:
        """Return the time (ns) of a message without data, which crosses two wires."""
        wires = 2 * wire_time(HEADERS + FIRST, self._wire_rate(way)) if way.wired else 0
        return ceil(way.cables) + wires

    def _last_packet(self, message: Message, way: Way) -> int:
        """Return the time (ns) of the last packet on the second wire."""
        last = message.size % MTU or min(message.size, MTU)
        return wire_time(last + HEADERS, self._wire_rate(way))

    def _link(self, link: Link) -> _Link | None:
        if link not in self._links:
            self._links[link] = self._new_link(link)
        return self._links[link]

    def _new_link(self, link: Link) -> _Link | None:
        if link.host < 0:
            return _Link(self._placement.port_rate(link) / 8 * _EFFICIENCY)
        capacity = self._placement.capacity(link)
        return None if capacity is None else _Link(capacity)

    # Rates.

    def _change(self, links: Iterable[_Link]) -> None:
        """Compute rates anew, when all that happens at this time has happened."""
        self._changed.update(links)
        if not self._is_due:
            self._is_due = True
            self._simulator.call_at(self._simulator.now, self._share)

    def _share(self) -> None:
        self._is_due = False
        flows = self._concerned()
        self._changed.clear()
        for flow, rate in _fair_rates(flows).items():
            self._set_rate(flow, rate)

    def _concerned(self) -> dict[_Flow, None]:
        """Return the flows that share links, also by way of others, with what has changed."""
        waiting, seen = list(self._changed), set(self._changed)
        found: dict[_Flow, None] = {}
        while waiting:
            for flow in waiting.pop().flows:
                if flow in found:
                    continue
                found[flow] = None
                new = [link for link in flow.links if link not in seen]
                seen.update(new)
                waiting += new
        return found

    def _set_rate(self, flow: _Flow, rate: float) -> None:
        if rate == flow.rate:
            return
        now = self._simulator.now
        flow.left = max(flow.left - flow.rate * (now - flow.since) / SECOND, 0.0)
        flow.rate, flow.since = rate, now
        if flow.call is not None:
            flow.call.cancel()
        end = now + ceil((flow.left - _LEAST) / rate * SECOND)
        flow.call = self._simulator.call_at(end, partial(self._finish, flow))

    def _finish(self, flow: _Flow) -> None:
        for link in flow.links:
            del link.flows[flow]
        self._change(flow.links)
        self._deliver(flow)

    def _deliver(self, flow: _Flow) -> None:
        """Let a message arrive, and its acknowledgment."""
        message, now = flow.message, self._simulator.now
        back = self._empty(self._way(message))
        self._simulator.call_at(now + flow.tail, partial(self._replay.arrived, message))
        end = now + flow.tail + back
        self._simulator.call_at(end, partial(self._replay.acknowledged, message))


def _fair_rates(flows: dict[_Flow, None]) -> dict[_Flow, float]:
    """Return max-min fair rates (bytes per second): the fullest link first decides its flows."""
    rates: dict[_Flow, float] = {}
    room: dict[_Link, float] = {}
    count: Counter[_Link] = Counter()
    for flow in flows:
        count.update(flow.links)
        room.update((link, link.capacity) for link in flow.links)
    heap = [(room[link] / count[link], place, link) for place, link in enumerate(room)]
    heapify(heap)
    while heap:
        share, place, link = heappop(heap)
        if not count[link]:
            continue
        now = room[link] / count[link]
        if now > share * _SAME:
            heappush(heap, (now, place, link))
            continue
        for flow in [one for one in link.flows if one not in rates]:
            rates[flow] = now
            for other in flow.links:
                room[other] = max(room[other] - now, 0.0)
                count[other] -= 1
    return rates


_SAME: Final = 1 + 1e-12
"""Shares that differ by less are the same, for rounding."""
