"""The links of a host in use: when a DMA ends, and what has gone over each link.

Times are ns, sizes bytes. Each link carries what is given to it in order, at its rate
(:mod:`rdmawire.topology.cost`); accesses that take a link at once share it, if each is given in
small pieces, as the packets of an adapter are.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rdmawire.topology.cost import (
    H200_COSTS,
    Costs,
    latency,
    ordering_root,
    rate_of,
    translating_root,
)
from rdmawire.topology.iommu import (
    IOMMU_LIMITS,
    DeviceAccess,
    IommuLimits,
    RemappingUnit,
    TranslationCounts,
)
from rdmawire.topology.machine import Machine
from rdmawire.topology.route import PCIE, Route, Step
from rdmawire.units import SECOND

MAX_PAYLOAD: Final = 256
"""Bytes of data in a memory write or a completion (MPS) that hosts set by default."""
MAX_READ: Final = 512
"""Bytes that a read request asks for (MRRS): Linux's default."""
MAX_REQUESTS: Final = 256
"""Read requests of a device in progress: the tags of PCIe Base 6.0, 2.2.6.2, 8 bits."""


class LinkEnds(NamedTuple):
    """A link in one direction: from where to where."""

    source: str
    target: str


class LinkUse:
    """What a link has carried in one direction: bytes of data, and TLPs with data or requests.

    ``transactions`` of a link that is no PCIe link are the accesses that took it. ``busy_ns`` is
    the time in which it carried data.
    """

    __slots__ = ("busy_ns", "bytes", "free_at", "is_pcie", "rate", "transactions")

    def __init__(self, step: Step, costs: Costs) -> None:
        self.rate = rate_of(step, costs)
        self.is_pcie = step.link.startswith(PCIE)
        self.bytes = 0
        self.transactions = 0
        self.busy_ns = 0.0
        self.free_at = 0.0

    def carry(self, size: int, now: float, max_payload: int) -> float:
        """Carry ``size`` bytes after what was given before; return when the last has gone."""
        self.bytes += size
        self.transactions += -(-size // max_payload) if self.is_pcie else 1
        if not self.rate:
            return now
        time = size / self.rate * SECOND
        self.busy_ns += time
        self.free_at = max(now, self.free_at) + time
        return self.free_at


class BusRoute:
    """A route from a device to memory, in use: :meth:`write` and :meth:`read` are its DMA.

    ``latency`` is that of the links, without translations. An access without an address is taken as
    the one after the last one.
    """

    def __init__(self, bus: "Bus", route: Route) -> None:
        self.route = route
        self.latency = latency(bus.machine, route, bus.costs)
        root = translating_root(bus.machine, route)
        self._unit = None if root is None else bus.remapping_unit(root)
        if self._unit is not None:
            self.latency -= bus.costs.translation_latency
        self._source = route.steps[0].source if route.steps else ""
        self._by_ats = self._unit is not None and bus.machine.has_ats(self._source)
        self._next = 0
        self._bus = bus
        self._there = [bus.link(step) for step in route.steps]
        ordering = ordering_root(bus.machine, route)
        self._ordered = None if ordering is None else bus.ordered_writes(ordering)
        self._back = [bus.link(step) for step in route.reversed().steps]
        self._pending: deque[tuple[float, int]] = deque()
        self._pending_bytes = 0

    @property
    def is_translated(self) -> bool:
        """Whether an IOMMU translates the addresses of its accesses."""
        return self._unit is not None

    def write(self, size: int, now: float, address: int | None = None) -> float:
        """Write ``size`` bytes to the memory from ``now`` on; return when all are there."""
        payload = self._bus.max_payload
        translated = self._translated(address, size, payload, now)
        ends = [link.carry(size, now, payload) for link in self._there]
        if self._ordered is not None:
            ends.append(self._ordered.carry(size, now, payload))
        return max(*ends, translated, now) + self.latency

    def read(self, size: int, now: float, address: int | None = None) -> float:
        """Read ``size`` bytes from the memory from ``now`` on; return when all have come.

        At most :attr:`Bus.max_requests` requests of :attr:`Bus.max_read` bytes are in progress.
        """
        end = now
        for piece in self._pieces(size):
            end = self._read_piece(piece, now, address)
            address = None
        return end

    def _translated(self, address: int | None, size: int, part: int, now: float) -> float:
        """Return when the requests of ``part`` bytes of an access are translated."""
        unit, start = self._unit, self._next if address is None else address
        self._next = start + size
        if unit is None:
            return now
        access = DeviceAccess(self._source, start, size, -(-size // part))
        if self._by_ats:
            end = unit.translate_by_ats(access, now, 2 * self.latency)
        else:
            end = unit.translate(access, now)
        unit.waited += end - now
        return end

    def _pieces(self, size: int) -> Iterator[int]:
        most = max(self._bus.max_reading // 2, 1)
        while size > 0:
            yield min(size, most)
            size -= most

    def _read_piece(self, size: int, now: float, address: int | None) -> float:
        start, pending = now, self._pending
        while pending and (
            pending[0][0] <= now or self._pending_bytes + size > self._bus.max_reading
        ):
            end, done = pending.popleft()
            self._pending_bytes -= done
            start = max(start, end)
        requests = -(-size // self._bus.max_read)
        for link in self._there:
            link.transactions += requests if link.is_pcie else 1
        asked = self._translated(address, size, self._bus.max_read, start) + self.latency
        payload = self._bus.max_payload
        ends = [link.carry(size, asked, payload) for link in self._back]
        end = max(ends, default=asked) + self.latency
        pending.append((end, size))
        self._pending_bytes += size
        return end


class Bus:
    """The links of a host, shared by all that uses them; ``links`` has the use of each direction.

    ``max_payload`` and ``max_read`` are the MPS and the MRRS in bytes, ``max_requests`` the read
    requests that one route may have in progress. ``limits`` are those of the IOMMU.
    """

    def __init__(
        self,
        machine: Machine,
        costs: Costs = H200_COSTS,
        *,
        max_payload: int = MAX_PAYLOAD,
        max_read: int = MAX_READ,
        max_requests: int = MAX_REQUESTS,
        limits: IommuLimits = IOMMU_LIMITS,
    ) -> None:
        self.machine = machine
        self.costs = costs
        self.max_payload = max_payload
        self.max_read = max_read
        self.max_requests = max_requests
        self.limits = limits
        self._links: dict[LinkEnds, LinkUse] = {}
        self._units: dict[str, RemappingUnit] = {}
        self._ordered: dict[str, LinkUse] = {}

    @property
    def links(self) -> Mapping[LinkEnds, LinkUse]:
        """The use of each link that was used, by its ends."""
        return {ends: use for ends, use in self._links.items() if use.transactions}

    @property
    def max_reading(self) -> int:
        """Bytes that a route may have asked for and not received."""
        return self.max_read * self.max_requests

    @property
    def translations(self) -> TranslationCounts:
        """What the IOMMUs of all roots have translated."""
        total = TranslationCounts()
        for unit in self._units.values():
            total = total.plus(unit.counts)
        return total

    def remapping_unit(self, root: str) -> RemappingUnit:
        """Return the IOMMU of a root."""
        if root not in self._units:
            page = self.machine.settings.iommu_page
            self._units[root] = RemappingUnit(page, self.limits, self.costs)
        return self._units[root]

    def ordered_writes(self, root: str) -> LinkUse:
        """Return the use of a root by writes of adapters that it keeps in order."""
        if root not in self._ordered:
            step = Step(root, root, "", self.costs.ordered_write_rate)
            self._ordered[root] = LinkUse(step, self.costs)
        return self._ordered[root]

    def link(self, step: Step) -> LinkUse:
        """Return the use of the link of a step, in its direction."""
        ends = LinkEnds(step.source, step.target)
        if ends not in self._links:
            self._links[ends] = LinkUse(step, self.costs)
        return self._links[ends]

    def route(self, route: Route) -> BusRoute:
        """Return a route of this host for use; DMA over several routes shares their links."""
        return BusRoute(self, route)
