"""A host that transfers data of a GPU: its memory, its adapter, its bus, and what it has spent."""

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cached_property
from math import ceil
from typing import Final

from rdmawire.errors import FabricError, TransferError
from rdmawire.fabric import (
    ALL_ACCESS,
    Cable,
    DmaPort,
    Envelope,
    Host,
    Network,
    NotifyingPort,
    Place,
    Registered,
    adapter_routes,
    packet_rate,
    place_of,
    star,
)
from rdmawire.fabric.host import Memory
from rdmawire.fabric.network import AnyCable, InfiniBandCable, NetworkHost
from rdmawire.memory.address_space import HostMemory
from rdmawire.memory.gpu import GpuDriver, GpuProfile, Peermem
from rdmawire.memory.page import Path
from rdmawire.topology import (
    Bus,
    BusRoute,
    Costs,
    Device,
    DeviceKind,
    LinkUse,
    Machine,
    PeerStatus,
    Route,
    memory_route,
    nearest,
    peer_status,
)
from rdmawire.units import us
from rdmawire.wire.roce import Medium

_BLOCK: Final = 1 << 21
_DEFAULT_BAR1: Final = 1 << 38
DEFAULT_RATE: Final = 100_000_000_000
_CAPABILITIES: Final[Mapping[str, tuple[int, int]]] = {
    "V100": (7, 0), "T4": (7, 5), "A100": (8, 0), "A40": (8, 6), "L40": (8, 9), "L4": (8, 9),
    "H100": (9, 0), "H200": (9, 0), "GH200": (9, 0), "B200": (10, 0),
}  # fmt: skip
"""Compute capabilities by model: CUDA's list of GPUs. Another model is taken as 8.0."""


class LinkLayer(Enum):
    """What joins two hosts, by the word of ibstat and ibv_devinfo."""

    ETHERNET = "ethernet"
    INFINIBAND = "infiniband"

    @property
    def medium(self) -> Medium:
        """What frames of the link begin with."""
        return _MEDIA[self]

    @property
    def latency(self) -> int:
        """Latency (ns) of each of the two cables to the switch, if none is given."""
        return _LATENCIES[self]


_MEDIA: Final = {LinkLayer.ETHERNET: Medium.ETHERNET, LinkLayer.INFINIBAND: Medium.INFINIBAND}
_LATENCIES: Final = {LinkLayer.ETHERNET: 300, LinkLayer.INFINIBAND: 25}
"""Half of the latency of an Ethernet switch is in that of a cable: Spectrum has 300 ns, most have
400 to 800 ns. A switch of InfiniBand has its own (:class:`Costs`); 25 ns are 5 m."""


class TransferHost:
    """A host with a GPU, the adapter nearest to it, and pinned memory of the GPU's NUMA node.

    ``number`` makes its addresses. With a ``peer``, data goes to that GPU of the same host, by a
    ``link``. Regions of GPU memory keep its pages after it was freed, unless ``persistent`` is
    false. ``layer`` is the link layer of the adapter.
    ``routes`` are those of a copy engine: ``out`` of the GPU and ``in``, and to the ``peer``.
    ``copies`` and ``cpu`` (ns) count what was spent.
    """

    def __init__(  # noqa: PLR0917
        self,
        name: str,
        number: int,
        machine: Machine,
        device: Device,
        costs: Costs,
        peer: Device | None = None,
        link: Route | None = None,
        *,
        persistent: bool = True,
        layer: LinkLayer = LinkLayer.ETHERNET,
    ) -> None:
        self.name = name
        self.machine = machine
        self.device = device
        self.costs = costs
        self.bus = Bus(machine, costs)
        self.node = machine.bridge_of(device).node
        self.place: Place = place_of(number)
        self.mac = self.place.mac
        self.host = Host(number, place=self.place, medium=layer.medium)
        self.copies = 0
        self.cpu = 0.0
        self._driver = GpuDriver(self.host.space)
        self.host.nic.memory.clients.append(Peermem(self._driver, persistent=persistent))
        self.gpu = self._driver.add(_profile(device))
        self._first: Memory = self.gpu
        self._peer = None if peer is None else self._driver.add(_profile(peer))
        self._last: Memory = self._peer or self.gpu
        self._address = self._last_address = self._size = 0
        self.routes = self._routes(link)
        self.application = NotifyingPort(self.host.nic)

    def _routes(self, link: Route | None) -> dict[str, BusRoute]:
        memory = self.bus.route(memory_route(self.machine, self.device, self.node))
        routes = {"out": memory, "in": memory}
        return routes if link is None else routes | {"peer": self.bus.route(link)}

    @cached_property
    def adapter(self) -> Device:
        """The adapter nearest to the GPU; :class:`TransferError` if there is none."""
        adapters = nearest(self.machine, self.device, DeviceKind.ADAPTER)
        if not adapters:
            raise TransferError("the host has no RDMA adapter")
        return adapters[0]

    @cached_property
    def nic(self) -> DmaPort:
        """The adapter, whose DMA takes the time of the bus."""
        return DmaPort(self.application, self.host.nic, self.adapter_routes)

    @cached_property
    def adapter_routes(self) -> dict[Path, BusRoute]:
        """The routes of the adapter, to pinned memory and to the GPU."""
        return adapter_routes(self.bus, self.adapter, self.device, self.node)

    @property
    def lids(self) -> range:
        """The LIDs of the adapter; none on Ethernet."""
        return self.host.lids

    def post_delay(self) -> float:
        """Return the time (ns) until the adapter has a WQE that a processor posts now.

        The WQE is written to the adapter with the doorbell (BlueFlame).
        """
        self.cpu += self.costs.post_time
        return self.costs.post_time + self.completion_delay()

    def completion_delay(self) -> float:
        """Return the time (ns) from a completion until software sees it."""
        return self.costs.adapter_latency + self.adapter_routes[Path.HOST].latency

    # Memory of the data.

    def allocate(self, size: int) -> None:
        """Allocate memory for the data, on the GPU and its peer."""
        self._size = size
        self._address = self.gpu.allocate(size).address
        self._last_address = self._peer.allocate(size).address if self._peer else self._address

    def allocate_pinned(self, size: int) -> None:
        """Allocate pinned memory of the host for the data, which is then not on the GPU."""
        self._size = size
        memory = self.host.space.allocate(size)
        self._first = self._last = memory
        self._address = self._last_address = memory.base

    def registered(self) -> Registered:
        """Register the data with the adapter, on the GPU as :meth:`register` does."""
        if isinstance(self._first, HostMemory):
            region = self.host.pd.reg_mr(self._address, self._size, ALL_ACCESS)
            return Registered(self._first, region)
        return self.register(self._address, self._size)

    def register(self, address: int, size: int) -> Registered:
        """Register memory of the GPU with the adapter.

        :class:`TransferError` if the adapter may not access it, or if BAR1 is too small.
        """
        status = peer_status(self.machine, self.adapter, self.device)
        if status is not PeerStatus.OK:
            raise TransferError(
                f"{self.adapter.name} may not access {self.device.name}: {status.meaning}"
            )
        room = self.gpu.profile.bar1 - self.gpu.profile.bar1_reserved
        if size > room:
            raise TransferError(
                f"{size} bytes cannot be registered: BAR1 of {self.device.name} has room for {room}"
            )
        return Registered(self.gpu, self.host.pd.reg_mr(address, size, ALL_ACCESS))

    @property
    def address(self) -> int:
        """Address of the memory that the adapter accesses."""
        return self._address

    def fill(self, data: bytes, offset: int = 0) -> None:
        """Write the data to its memory, as a kernel or the processor does."""
        self._first.write(self._address + offset, data)

    def store(self, offset: int, data: bytes) -> None:
        """Write a part of the data to where it is to arrive."""
        self._last.write(self._last_address + offset, data)

    def result(self, size: int, offset: int = 0) -> bytes:
        """Return the data that has arrived, as a kernel or the processor reads it."""
        return self._last.read(self._last_address + offset, size)


class Traffic:
    """A tap that counts frames and their bytes."""

    def __init__(self) -> None:
        self.frames = self.bytes = 0

    def __call__(self, frame: Envelope, _: int) -> None:
        """Count a frame."""
        self.frames += 1
        self.bytes += len(frame.data)


def cable_of(host: TransferHost, rate: int, latency: int) -> Cable:
    """Return a cable of a host: of its adapter's rate without a ``rate`` (bits per second)."""
    return Cable(latency, rate or host.adapter.rate or DEFAULT_RATE)


def link_cable(host: TransferHost, layer: LinkLayer, rate: int, latency: int | None) -> AnyCable:
    """Return a cable of a link layer, as :func:`cable_of`; without a latency it is the layer's.

    :class:`TransferError` for a rate that no InfiniBand link has.
    """
    ethernet = cable_of(host, rate, layer.latency if latency is None else latency)
    if layer is LinkLayer.ETHERNET:
        return ethernet
    try:
        packet_rate(ethernet.rate or DEFAULT_RATE)
    except FabricError as error:
        raise TransferError(str(error)) from error
    switch = ceil(host.costs.ib_switch_latency)
    return InfiniBandCable(ethernet.latency, ethernet.rate, switch)


def join(network: Network, ports: Mapping[str, NetworkHost], cable: AnyCable) -> Traffic:
    """Join hosts by a switch; return what counts the frames that they send."""
    star(network, ports, cable)
    traffic = Traffic()
    for name in ports:
        network.tap(name, traffic)
    return traffic


def link_uses(hosts: Sequence[TransferHost]) -> dict[tuple[str, str, str], LinkUse]:
    """Return the use of the links of hosts, by the names of host, source and target."""
    return {
        (host.name, *ends): use
        for host in hosts
        for ends, use in host.bus.links.items()
        if use.bytes
    }


def _profile(device: Device) -> GpuProfile:
    """Return a profile of a GPU, with memory for any transfer."""
    model = device.model.split()[0] if device.model else "GPU"
    bar1 = device.bar1 or _DEFAULT_BAR1
    capability = _CAPABILITIES.get(model, (8, 0))
    memory = max(bar1, _DEFAULT_BAR1)
    return GpuProfile(model, memory - memory % _BLOCK, bar1, capability, max_visible_ns=us(5))
