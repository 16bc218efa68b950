"""Advice about a host: which adapter serves a GPU, by which way, and what would be better."""

from collections.abc import Iterator
from typing import NamedTuple

from rdmawire.topology.machine import Device, DeviceKind, Iommu, Machine
from rdmawire.topology.relation import (
    Level,
    PeerStatus,
    nearest,
    pcie_level,
    peer_status,
    redirecting,
)
from rdmawire.topology.route import Route, memory_route, peer_route

DIRECT_LEVEL = Level.PXB
"""The farthest level at which NCCL uses GPUDirect RDMA by default (``NCCL_NET_GDR_LEVEL``).

For a coherent GPU, the way through its processor is near enough.
"""


class GpuAdvice(NamedTuple):
    """What is to be said of a GPU.

    ``adapters`` are the nearest ones, at this ``level``; ``status`` says whether the first of them
    may access the GPU. ``route`` is that of its writes to the GPU, ``remedies`` say what to change.
    """

    gpu: Device
    adapters: list[Device]
    level: Level | None
    status: PeerStatus | None
    route: Route | None
    remedies: list[str]

    @property
    def is_direct(self) -> bool:
        """Whether GPUDirect RDMA is possible, and near enough to be used by default."""
        is_near = self.gpu.coherent or (self.level is not None and self.level <= DIRECT_LEVEL)
        return self.status is PeerStatus.OK and is_near


def gpu_advice(machine: Machine, gpu: Device) -> GpuAdvice:
    """Return the adapters that serve a GPU best, and what would serve it better."""
    adapters = nearest(machine, gpu, DeviceKind.ADAPTER)
    if not adapters:
        return GpuAdvice(gpu, [], None, None, None, ["the host has no RDMA adapter"])
    adapter = adapters[0]
    level = pcie_level(machine, adapter, gpu)
    status = peer_status(machine, adapter, gpu)
    remedies = list(_remedies(machine, adapter, gpu, level, status))
    return GpuAdvice(gpu, adapters, level, status, peer_route(machine, adapter, gpu), remedies)


def _remedies(
    machine: Machine, adapter: Device, gpu: Device, level: Level, status: PeerStatus
) -> Iterator[str]:
    if adapter.rate and adapter.link and adapter.link.data_rate() < adapter.rate / 8:
        yield f"a wider slot for {adapter.name}: {adapter.link} is slower than its port"
    for switch in redirecting(machine, adapter, gpu):
        yield f"turn ACS off at {switch}: writes would stay below the switch"
    if status is PeerStatus.CHIPSET and machine.settings.virtual:
        yield "pass the devices through with a switch that both are below, and ATS"
    elif status is PeerStatus.CHIPSET:
        yield "allow peer-to-peer in the firmware: the root forwards no requests now"
    if status is PeerStatus.GPU:
        return
    if machine.settings.iommu is Iommu.TRANSLATED and level in (Level.PHB, Level.NODE, Level.SYS):
        yield "set the IOMMU to passthrough (iommu=pt): each address is translated now"
    if level > DIRECT_LEVEL and not gpu.coherent:
        yield from _better_slot(machine, gpu, level)


def _better_slot(machine: Machine, gpu: Device, level: Level) -> Iterator[str]:
    switch = next(machine.above(gpu), None)
    if switch is not None:
        yield f"an adapter in a slot below {switch.name} would be at PIX"
    elif level is Level.PHB:
        yield "NCCL_NET_GDR_LEVEL=PHB, if the root is fast enough: no switch is above the GPU"
    else:
        bridge = machine.bridge_of(gpu)
        where = f"{bridge.name} (NUMA node {machine.node_of(gpu).shown})"
        yield f"an adapter in a slot of {where} would be at PHB, with NCCL_NET_GDR_LEVEL=PHB"


def bounce_routes(machine: Machine, source: Device, target: Device) -> tuple[Route, Route]:
    """Return the routes of a transfer through host memory: to the memory, and on to the target.

    The memory is that of a GPU's NUMA node, where a pinned buffer is allocated by default.
    """
    gpu = source if source.kind is DeviceKind.GPU else target
    node = machine.bridge_of(gpu).node
    return memory_route(machine, source, node), memory_route(machine, target, node).reversed()
