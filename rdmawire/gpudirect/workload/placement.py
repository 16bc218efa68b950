"""Where ranks are: their hosts, GPUs and adapters, and the links between two of them.

Each rank has a GPU; hosts are filled one after the other. All adapters are on one switch. Within a
host data goes over NVLinks, or over PCI Express where GPUs have none between them.
"""

from functools import cache, lru_cache
from typing import Final, NamedTuple

from rdmawire.errors import WorkloadError
from rdmawire.fabric import Cable
from rdmawire.gpudirect.transfer.host import DEFAULT_RATE
from rdmawire.terminal import plural
from rdmawire.topology import (
    Bus,
    BusRoute,
    Device,
    DeviceKind,
    HostBridge,
    Machine,
    NumaNode,
    PcieLink,
    PeerStatus,
    Route,
    Switch,
    memory_route,
    nearest,
    nvlink_route,
    peer_route,
    peer_status,
)
from rdmawire.units import SECOND

MAX_ADAPTERS: Final = 16
"""Adapters of a GPU of a plain host."""
_NVLINKS: Final = 18
_MAX_ROUTES: Final = 1 << 16
"""Routes between ranks that are kept."""
SWITCH: Final = "switch"


class LinkId(NamedTuple):
    """A link in one direction; ``host`` is the number of the host, -1 for one to the switch."""

    host: int
    source: str
    target: str

    def __str__(self) -> str:
        where = "" if self.host < 0 else f"host{self.host}: "
        return f"{where}{self.source} -> {self.target}"


class RankPlace(NamedTuple):
    """Where a rank is: the number of its host, its GPU, and its first adapter, ``""`` for none."""

    host: int
    gpu: str
    adapter: str


class MessageRoute(NamedTuple):
    """The links of a message, and the time (ns) that its first bytes need: ``dma`` and ``cables``.

    A message without data needs no DMA. ``wired`` messages go from adapter to adapter.
    """

    links: tuple[LinkId, ...]
    dma: float
    cables: float
    wired: bool


def plain_machine(gpus: int, adapters: int = 1, rate: int = 400_000_000_000) -> Machine:
    """Return a host with this many H200, all joined by NVLinks, each with adapters of its own.

    GPU and adapters are below one PCIe switch, by links of PCIe 5.0 x16. ``rate`` is in bits per
    second.
    """
    link = PcieLink(5, 16)
    switches, devices = [], []
    for number in range(gpus):
        switch = f"sw{number}"
        switches.append(Switch(switch, "root", link))
        devices.append(Device(f"GPU{number}", DeviceKind.GPU, switch, link, model="H200"))
        devices += [
            Device(f"mlx5_{number * adapters + place}", DeviceKind.ADAPTER, switch, link, rate=rate)
            for place in range(adapters)
        ]
    names = [f"GPU{number}" for number in range(gpus)]
    nvlinks = {
        (one, other): _NVLINKS for place, one in enumerate(names) for other in names[place + 1 :]
    }
    return Machine(
        "plain host", (NumaNode(0),), (HostBridge("root", 0),), tuple(switches), tuple(devices),
        nvlinks,
    )  # fmt: skip


class Placement:
    """The places of ``ranks`` on hosts of one kind, ``gpus`` on each: the first ones of a machine.

    ``cable`` joins an adapter and the switch; without a rate it has that of the adapter's port.
    Raises :class:`WorkloadError` if a host has too few GPUs, or if an adapter may not access one.
    """

    def __init__(self, ranks: int, machine: Machine, gpus: int, cable: Cable) -> None:
        have = machine.gpus
        if not 0 < gpus <= len(have):
            raise WorkloadError(f"{gpus} ranks on a host with {len(have)} GPUs: {machine.name}")
        self.ranks = ranks
        self.machine = machine
        self.gpus = gpus
        self.hosts = -(-ranks // gpus)
        self.cable = cable
        self._devices = have[:gpus]
        self._bus = Bus(machine)
        self._rates: dict[tuple[str, str], float | None] = {}
        self._adapters = cache(self._find_adapter)
        self._local_routes = cache(self._find_local_route)
        self._adapter_routes = cache(self._find_adapter_route)
        self._local_message_routes = cache(self._find_local_message_route)
        self._halves = cache(self._find_half)
        self._message_routes = lru_cache(_MAX_ROUTES)(self._find_message_route)
        if self.hosts > 1:
            self._check_adapters()

    def _check_adapters(self) -> None:
        for number, device in enumerate(self._devices):
            adapters = nearest(self.machine, device, DeviceKind.ADAPTER)
            if not adapters:
                raise WorkloadError(f"{self.machine.name} has no RDMA adapter")
            status = peer_status(self.machine, adapters[0], device)
            if status is not PeerStatus.OK:
                advice = f"; at most {plural(number, 'rank')} on each host" if number else ""
                raise WorkloadError(
                    f"{adapters[0].name} may not access {device.name} of {self.machine.name}:"
                    f" {status.meaning}{advice}"
                )

    def place(self, rank: int) -> RankPlace:
        """Return the place of a rank."""
        gpu = self._devices[rank % self.gpus]
        has_adapter = bool(self.machine.adapters)
        adapter = self.adapter(rank, 0).name if has_adapter else ""
        return RankPlace(self.host(rank), gpu.name, adapter)

    def host(self, rank: int) -> int:
        """Return the number of the host of a rank."""
        return rank // self.gpus

    def adapter(self, rank: int, nic: int) -> Device:
        """Return the adapter of a rank with this number; beyond the last one it begins again."""
        return self._adapters(rank % self.gpus, nic)

    def _find_adapter(self, gpu: int, nic: int) -> Device:
        found = nearest(self.machine, self._devices[gpu], DeviceKind.ADAPTER)
        return found[nic % len(found)]

    def port(self, rank: int, nic: int) -> str:
        """Return the name of an adapter among those of all hosts."""
        return f"host{self.host(rank)}.{self.adapter(rank, nic).name}"

    def rate(self, adapter: Device) -> int:
        """Return the rate (bits per second) of the cable of an adapter."""
        return self.cable.rate or adapter.rate or DEFAULT_RATE

    # Links.

    def local_route(self, source: int, target: int) -> Route:
        """Return the route of a copy between the GPUs of two ranks of one host."""
        return self._local_routes(source % self.gpus, target % self.gpus)

    def _find_local_route(self, source: int, target: int) -> Route:
        if source == target:
            return Route([], [])
        one, other = self._devices[source], self._devices[target]
        direct = nvlink_route(self.machine, one, other)
        if direct.steps:
            return self._noted(direct)
        if peer_status(self.machine, one, other) is PeerStatus.OK:
            return self._noted(peer_route(self.machine, one, other))
        node = self.machine.bridge_of(one).node
        out = memory_route(self.machine, one, node)
        back = memory_route(self.machine, other, node).reversed()
        return self._noted(Route([*out.steps, *back.steps], [*out.remarks, *back.remarks]))

    def adapter_route(self, rank: int, nic: int) -> Route:
        """Return the route of an adapter's access to the GPU of a rank."""
        return self._adapter_routes(rank % self.gpus, nic)

    def _find_adapter_route(self, gpu: int, nic: int) -> Route:
        route = peer_route(self.machine, self._adapters(gpu, nic), self._devices[gpu])
        return self._noted(route)

    def _latency(self, route: Route) -> float:
        return BusRoute(self._bus, route).latency

    def message_route(self, source: int, target: int, nic: int) -> MessageRoute:
        """Return the route of a message between two ranks."""
        return self._message_routes(source, target, nic)

    def _find_message_route(self, source: int, target: int, nic: int) -> MessageRoute:
        host = self.host(source)
        if host == self.host(target):
            return _located(
                self._local_message_routes(source % self.gpus, target % self.gpus), host
            )
        there = self._halves(source % self.gpus, nic, True)
        back = self._halves(target % self.gpus, nic, False)
        out, into = self.port(source, nic), self.port(target, nic)
        links = (
            *_located(there, host).links,
            LinkId(-1, out, SWITCH),
            LinkId(-1, SWITCH, into),
            *_located(back, self.host(target)).links,
        )
        return MessageRoute(links, there.dma + back.dma, 2 * self.cable.latency, wired=True)

    def _find_local_message_route(self, source: int, target: int) -> MessageRoute:
        route = self._local_routes(source, target)
        return MessageRoute(_links(route), 0.0, self._latency(route), wired=False)

    def _find_half(self, gpu: int, nic: int, outward: bool) -> MessageRoute:
        """Return the route between a GPU and its adapter: a read there and back, or a write."""
        route = self._adapter_routes(gpu, nic)
        latency = self._latency(route)
        if outward:
            return MessageRoute(_links(route.reversed()), 2 * latency, 0.0, wired=True)
        return MessageRoute(_links(route), latency, 0.0, wired=True)

    def _noted(self, route: Route) -> Route:
        """Note the rates of the links of a route, in both directions."""
        for step in (*route.steps, *route.reversed().steps):
            self._rates[step.source, step.target] = self._bus.link(step).rate
        return route

    def capacity(self, link: LinkId) -> float | None:
        """Return the bytes per second of a link of a host, if they are limited."""
        return self._rates[link.source, link.target]

    def transfer_time(self, route: MessageRoute, size: float) -> float:
        """Return the time (ns) of ``size`` bytes at the rate of the slowest link of a route."""
        rates = [self.port_rate(one) / 8 for one in route.links if one.host < 0]
        rates += [rate for one in route.links if one.host >= 0 and (rate := self.capacity(one))]
        return size / min(rates) * SECOND if rates else 0.0

    def port_rate(self, link: LinkId) -> int:
        """Return the rate (bits per second) of a link between an adapter and the switch."""
        port = link.source if link.target == SWITCH else link.target
        return self.rate(self.machine.device(port.partition(".")[2]))


def _links(route: Route) -> tuple[LinkId, ...]:
    return tuple(LinkId(0, step.source, step.target) for step in route.steps)


def _located(route: MessageRoute, host: int) -> MessageRoute:
    return route._replace(links=tuple(LinkId(host, one.source, one.target) for one in route.links))
