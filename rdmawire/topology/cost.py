"""How long transfers take: constants with their sources, and what they give for a route.

Times are ns, rates bytes per second. A transfer takes the latencies of its steps, and its bytes at
the rate of the slowest one, since switches forward packets before they have all of them.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, NamedTuple, TypeVar

from rdmawire.topology.machine import Device, DeviceKind, Iommu, Machine
from rdmawire.topology.route import PCIE, UNKNOWN, Route, Step, memory_route, scale_up_route
from rdmawire.units import SECOND

_H200: Final = "measured on a server with four H200"
_PUBLISHED: Final = "published range"
_UCX: Final = "UCX, defaults of its InfiniBand transport"
_UMEM: Final = "Linux commit RDMA/umem: batch page unpin, 1 GiB of huge pages"
_GDRCOPY: Final = "GDRCopy: pinning takes 10 us to 1 ms"
_ASSUMED: Final = "assumed, no figure is published"
_PERFTEST: Final = "perftest"
_PAPER: Final = "Neugebauer et al., Understanding PCIe performance, SIGCOMM 2018"


class Sourced(NamedTuple):
    """The unit of a constant, and where its value is from."""

    unit: str
    source: str


SOURCES: Final = {
    "link_efficiency": Sourced("1", f"{_H200}: 55.4 of 57.6 GB/s, the rest is flow control"),
    "switch_latency": Sourced("ns", "PEX89144 data sheet, 115 ns; PEX88000: 105 ns"),
    "root_latency": Sourced("ns", f"{_PAPER}: half of a read of 64 bytes, 547 ns"),
    "socket_latency": Sourced("ns", f"{_PAPER}: section 6.4"),
    "translation_latency": Sourced("ns", f"{_PAPER}: section 6.5, a miss of the IO-TLB"),
    "translation_hit": Sourced("ns", f"{_PAPER}: section 6.5, no difference was measured"),
    "ordered_write_rate": Sourced("bytes/s", "UCX pull request 10955, Xeon: 16 instead of 40 GB/s"),
    "copy_launch": Sourced("ns", f"{_H200}: copies of 8 bytes, 3.6 to 7.1 us"),
    "copy_sync": Sourced("ns", f"{_H200}: a copy and a synchronisation, 10.0 us"),
    "pageable_launch": Sourced("ns", f"{_H200}: pageable copies of 8 bytes, 8.7 and 11.7 us"),
    "peer_launch": Sourced("ns", f"{_H200}: copies of 8 bytes to another GPU, 11.0 and 13.7 us"),
    "device_launch": Sourced("ns", f"{_H200}: copies of 8 bytes within a GPU, 6.7 us"),
    "staging_rate": Sourced("bytes/s", f"{_H200}: pageable copies, 12.7 to 17.5 GB/s in all"),
    "memcpy_rate": Sourced("bytes/s", f"{_H200}: copies through pageable memory"),
    "device_rate": Sourced("bytes/s", f"{_H200}: copies within a GPU of 1 GiB"),
    "post_time": Sourced(
        "ns", f"{_PERFTEST}, ib_write_bw of 8 bytes: 4 to 6 M messages/s and core"
    ),
    "adapter_latency": Sourced("ns", f"{_PUBLISHED}, RDMA of 8 bytes with GPUDirect: 2 to 5 us"),
    "max_inline": Sourced("bytes", f"{_PERFTEST}: inline data of latency tests of RDMA WRITE"),
    "ib_switch_latency": Sourced("ns", "data sheets: SB7800 (EDR) 90 ns, QM8700 (HDR) 130 ns"),
    "tcp_latency": Sourced("ns", f"{_PUBLISHED}, TCP of 8 bytes between GPUs: 50 to 100 us"),
    "tcp_rate": Sourced("bytes/s", f"{_PUBLISHED}, TCP on 100 Gbit/s: 60 to 70 Gbit/s"),
    "reg_launch": Sourced("ns", f"{_UCX}: MEM_REG_OVERHEAD, 16 us"),
    "pin_page": Sourced("ns", f"{_UCX}: MEM_REG_GROWTH, 0.06 ns a byte, less the entry"),
    "pin_huge_page": Sourced("ns", f"{_UMEM}: 1861 us for both, 512 pages"),
    "pin_gpu": Sourced("ns", f"{_GDRCOPY}: the lower end"),
    "pin_gpu_page": Sourced("ns", f"{_GDRCOPY}: the upper end, taken as 256 MiB of BAR1"),
    "export_dmabuf": Sourced("ns", f"{_ASSUMED}: one call of the GPU driver"),
    "mtt_entry": Sourced("ns", f"{_ASSUMED}: one entry of 8 bytes, written and fetched"),
    "dereg_launch": Sourced("ns", f"{_ASSUMED}: half of a registration, one command less"),
    "unpin_page": Sourced("ns", f"{_UMEM}: 6.6 ms less for 262,144 pages that are not unpinned"),
    "unpin_huge_page": Sourced("ns", f"{_UMEM}: one operation for all parts of a page"),
    "cache_lookup": Sourced("ns", f"{_UCX}: RCACHE_OVERHEAD, 180 ns"),
}
"""The units and sources of :class:`Costs`, by field."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The constants of the model; :data:`SOURCES` says where each is from.

    ``link_efficiency`` is the share of a link's data rate that flow control leaves. Each switch,
    the root and the link between sockets add latency, and so does a translation of the IOMMU, by
    whether it is in its cache. A root that keeps the writes of adapters in order takes them at
    ``ordered_write_rate``. The ``launch`` constants are the times of small copies that software
    starts; ``copy_sync`` is the time until software knows that a copy is done. Pageable memory is
    copied to pinned memory at ``staging_rate`` by the driver, and at ``memcpy_rate`` by an
    application. ``post_time`` is the time of a processor to post a work request,
    ``adapter_latency`` what an adapter adds to a packet in either direction. Up to ``max_inline``
    bytes of host memory are in the work request itself. A switch of InfiniBand adds
    ``ib_switch_latency``. A TCP stack adds ``tcp_latency`` at either end, with system call and
    interrupt, and copies at ``tcp_rate``.

    A registration takes ``reg_launch``, and for each page the time to pin it and to write its
    ``mtt_entry``; a GPU's driver adds ``pin_gpu`` for a region, and ``export_dmabuf`` for a file
    descriptor. A deregistration takes ``dereg_launch`` and the time to unpin the pages, which for a
    GPU is that of pinning. A registration cache takes ``cache_lookup``.
    """

    link_efficiency: float = 0.962
    switch_latency: float = 115
    root_latency: float = 270
    socket_latency: float = 100
    translation_latency: float = 330
    translation_hit: float = 0
    ordered_write_rate: float = 16e9
    copy_launch: float = 5250
    copy_sync: float = 4350
    pageable_launch: float = 10_200
    peer_launch: float = 12_300
    device_launch: float = 6600
    staging_rate: float = 17.9e9
    memcpy_rate: float = 10.1e9
    device_rate: float = 2.13e12
    post_time: float = 200
    adapter_latency: float = 250
    max_inline: float = 220
    ib_switch_latency: float = 130
    tcp_latency: float = 20_000
    tcp_rate: float = 8.1e9
    reg_launch: float = 16_000
    pin_page: float = 240
    pin_huge_page: float = 3500
    pin_gpu: float = 10_000
    pin_gpu_page: float = 240
    export_dmabuf: float = 5000
    mtt_entry: float = 6
    dereg_launch: float = 8000
    unpin_page: float = 25
    unpin_huge_page: float = 100
    cache_lookup: float = 180


H200_COSTS: Final = Costs()
"""Constants that give the times measured on a server with four H200."""


def rate_of(step: Step, costs: Costs = H200_COSTS) -> float | None:
    """Return the rate of data over a step, if it is known."""
    if step.rate is None:
        return None
    return step.rate * costs.link_efficiency if step.link.startswith(PCIE) else step.rate


def route_rate(route: Route, costs: Costs = H200_COSTS) -> float | None:
    """Return the rate of the slowest step; ``None`` if that of a link is not known.

    The insides of a processor, whose rates are never known, are taken as faster than its links.
    """
    if any(step.rate is None and step.link in UNKNOWN for step in route.steps):
        return None
    rates = [rate for step in route.steps if (rate := rate_of(step, costs)) is not None]
    return min(rates, default=None)


def latency(machine: Machine, route: Route, costs: Costs = H200_COSTS) -> float:
    """Return the time (ns) that the first bytes of a write need over a route."""
    switches = {switch.name for switch in machine.switches}
    roots = {bridge.name for bridge in machine.bridges}
    total = 0.0
    for step in route.steps[1:]:
        total += costs.switch_latency * (step.source in switches)
        total += costs.root_latency * (step.source in roots)
    crosses = any(step.link == machine.settings.socket_link for step in route.steps)
    total += costs.socket_latency * crosses
    if translating_root(machine, route) is not None:
        total += costs.translation_latency
    return total


def translating_root(machine: Machine, route: Route) -> str | None:
    """Return the first root on a route whose IOMMU translates addresses, if there is one."""
    return _first_root(machine, route) if machine.settings.iommu is Iommu.TRANSLATED else None


def ordering_root(machine: Machine, route: Route) -> str | None:
    """Return the first root on an adapter's route if the host keeps its writes in order.

    Relaxed ordering is then off in the firmware, whatever memory regions allow.
    """
    if machine.settings.relaxed_ordering or not route.steps:
        return None
    adapters = {adapter.name for adapter in machine.of_kind(DeviceKind.ADAPTER)}
    return _first_root(machine, route) if route.steps[0].source in adapters else None


def _first_root(machine: Machine, route: Route) -> str | None:
    roots = {bridge.name for bridge in machine.bridges}
    passed = (name for step in route.steps for name in (step.source, step.target))
    return next((name for name in passed if name in roots), None)


def write_time(machine: Machine, route: Route, size: int, costs: Costs = H200_COSTS) -> float:
    """Return the time (ns) until ``size`` bytes of a DMA write are at their target.

    If the rate of the route is not known (:func:`route_rate`), this is the latency alone.
    """
    ordered = ordering_root(machine, route) is not None
    least = size / costs.ordered_write_rate * SECOND if ordered else 0.0
    return latency(machine, route, costs) + max(_transfer(route, size, costs), least)


def read_time(
    machine: Machine,
    route: Route,
    size: int,
    costs: Costs = H200_COSTS,
    *,
    max_read: int = 512,
    max_requests: int = 256,
) -> float:
    """Return the time (ns) of a DMA read of ``size`` bytes over a route.

    A device has at most ``max_requests`` requests of ``max_read`` bytes (MRRS) in progress, so its
    rate is limited by the time of a round trip as well.
    """
    there_and_back = 2 * latency(machine, route, costs)
    rate = route_rate(route, costs)
    if rate is None:
        return there_and_back
    if there_and_back:
        rate = min(rate, max_requests * max_read / there_and_back * SECOND)
    return there_and_back + size / rate * SECOND


class CopyKind(Enum):
    """Copies that software starts, as ``cudaMemcpyAsync`` does.

    ``BOUNCE`` is a copy to pinned memory of the host and on to the other GPU, with a wait after
    each; ``BOUNCE_PAGEABLE`` has a copy within the host's memory between them, and no waits.
    """

    PINNED = "pinned"
    PINNED_AND_SYNC = "pinned, with a wait"
    PAGEABLE = "pageable"
    DEVICE = "within the GPU"
    PEER = "to another GPU by NVLink or UALink"
    BOUNCE = "to another GPU through the host"
    BOUNCE_PAGEABLE = "through pageable memory of the host"


def copy_time(
    machine: Machine,
    kind: CopyKind,
    size: int,
    gpu: Device,
    peer: Device | None = None,
    *,
    costs: Costs = H200_COSTS,
) -> float:
    """Return the time (ns) of a copy of ``size`` bytes between a GPU and the host, or a peer.

    The host's memory is that of the GPU's NUMA node. A ``peer`` without NVLinks or UALinks to the
    GPU is reached through the host.
    """
    node = machine.bridge_of(gpu).node
    once = _transfer(memory_route(machine, gpu, node), size, costs)
    if kind is CopyKind.DEVICE:
        return costs.device_launch + size / costs.device_rate * SECOND
    if kind is CopyKind.PAGEABLE:
        return costs.pageable_launch + once + size / costs.staging_rate * SECOND
    if kind is CopyKind.PEER and peer is not None:
        direct = scale_up_route(machine, gpu, peer)
        if direct.steps:
            return costs.peer_launch + _transfer(direct, size, costs)
        kind = CopyKind.BOUNCE
    waits = costs.copy_sync if kind in (CopyKind.PINNED_AND_SYNC, CopyKind.BOUNCE) else 0.0
    one = costs.copy_launch + once + waits
    if kind in (CopyKind.PINNED, CopyKind.PINNED_AND_SYNC):
        return one
    back = memory_route(machine, peer, node) if peer is not None else None
    other = one if back is None else costs.copy_launch + _transfer(back, size, costs) + waits
    within = size / costs.memcpy_rate * SECOND if kind is CopyKind.BOUNCE_PAGEABLE else 0.0
    return one + within + other


def _transfer(route: Route, size: int, costs: Costs) -> float:
    rate = route_rate(route, costs)
    return size / rate * SECOND if rate else 0.0


class Flow(NamedTuple):
    """Bytes that take a route from a time (ns) on."""

    route: Route
    size: int
    start: float = 0.0


F = TypeVar("F", bound=Hashable)
L = TypeVar("L", bound=Hashable)
_Link = tuple[str, str]
"""A link in one direction: from where to where."""


def fair_rates(routes: Sequence[Route], costs: Costs = H200_COSTS) -> list[float]:
    """Return the rate of each route when all are used at once: max-min fair shares of each link.

    A route without a known rate gets infinity.
    """
    capacities: dict[_Link, float] = {}
    paths: dict[int, list[_Link]] = {}
    for index, route in enumerate(routes):
        known = {(step.source, step.target): rate_of(step, costs) for step in route.steps}
        limited = {link: rate for link, rate in known.items() if rate is not None}
        capacities |= limited
        paths[index] = list(limited)
    rates = max_min_rates(paths, capacities)
    return [rates.get(index, inf) for index in range(len(routes))]


def max_min_rates(paths: Mapping[F, Sequence[L]], capacities: Mapping[L, float]) -> dict[F, float]:
    """Return max-min fair rates of flows, by the links of each; both in bytes per second.

    All flows grow alike until a link is full; its flows then have their rates, and the others go on
    (Bertsekas and Gallager, Data Networks, 6.5.2). Flows without links have no rate.
    """
    users = _users(paths)
    room = {link: capacities[link] for link in users}
    count = {link: len(flows) for link, flows in users.items()}
    heap = [(room[link] / count[link], place, link) for place, link in enumerate(users)]
    heapify(heap)
    rates: dict[F, float] = {}
    while heap:
        share, place, link = heappop(heap)
        if not count[link]:
            continue
        now = room[link] / count[link]
        if now > share * _SAME:
            heappush(heap, (now, place, link))
            continue
        for flow in [one for one in users[link] if one not in rates]:
            rates[flow] = now
            for other in paths[flow]:
                room[other] = max(room[other] - now, 0.0)
                count[other] -= 1
    return rates


def _users(paths: Mapping[F, Sequence[L]]) -> dict[L, list[F]]:
    """Return the flows of each link."""
    users: dict[L, list[F]] = {}
    for flow, links in paths.items():
        for link in links:
            users.setdefault(link, []).append(flow)
    return users


_SAME: Final = 1 + 1e-12
"""Shares that differ by less are the same, for rounding."""


def finish_times(machine: Machine, flows: Sequence[Flow], costs: Costs = H200_COSTS) -> list[float]:
    """Return when (ns) each flow ends, if they share links fairly at every time."""
    left = [float(flow.size) for flow in flows]
    ends = [0.0] * len(flows)
    running: list[int] = []
    waiting = sorted(range(len(flows)), key=lambda index: flows[index].start)
    now = 0.0
    while running or waiting:
        if not running:
            now = max(now, flows[waiting[0]].start)
        while waiting and flows[waiting[0]].start <= now:
            running.append(waiting.pop(0))
        rates = fair_rates([flows[index].route for index in running], costs)
        spent = [left[index] / rate * SECOND for index, rate in zip(running, rates, strict=True)]
        until = now + min(spent)
        if waiting:
            until = min(until, flows[waiting[0]].start)
        for index, rate, needed in zip(running, rates, spent, strict=True):
            done = now + needed <= until
            left[index] = 0.0 if done else left[index] - (until - now) * rate / SECOND
            if done:
                ends[index] = until + latency(machine, flows[index].route, costs)
        running = [index for index in running if left[index] > 0.0]
        now = until
    return ends
