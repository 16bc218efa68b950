"""The GPUs of a host as NCCL sees them: their adapters, and the paths between them."""

from typing import Final, NamedTuple, Self

from rdmawire.errors import CollectiveError
from rdmawire.topology import (
    Device,
    DeviceKind,
    Level,
    Machine,
    PeerStatus,
    memory_route,
    nearest,
    nvlink_route,
    peer_route,
    peer_status,
)
from rdmawire.topology.advice import DIRECT_LEVEL
from rdmawire.topology.cost import latency, route_rate
from rdmawire.topology.relation import pcie_level

P2P_LEVEL: Final = Level.PXB
"""The farthest level at which NCCL lets GPUs access one another (``NCCL_P2P_LEVEL``)."""


class LocalPath(NamedTuple):
    """How GPUs of one host send to one another: bytes per second of each, and latency in ns."""

    rate: float
    latency: int
    name: str = "NVL"


LOCAL_PATHS: Final[dict[str, LocalPath]] = {
    "nvlink": LocalPath(370.8e9, 1000),
    "host": LocalPath(36e9, 1000, "SHM"),
    "tcp": LocalPath(3.2e9, 8000, "TCP"),
}
"""NCCL between GPUs of a host: over NVLink, through host memory, and over TCP on loopback.

The first rate is what NCCL reckons with for H200 and NVSwitch, the others were measured there with
``NCCL_P2P_DISABLE=1``, and with ``NCCL_SHM_DISABLE=1`` too, as the latencies were.
"""


class HostLayout(NamedTuple):
    """``adapters`` has the number of each GPU's adapter, ``paths`` the path between each two GPUs.

    ``rates`` are the bytes per second between each adapter and its GPUs, ``None`` if the network is
    the limit. ``direct`` says of each GPU whether its adapter accesses its memory.
    """

    adapters: tuple[int, ...]
    paths: tuple[tuple[LocalPath, ...], ...]
    rates: tuple[float | None, ...]
    direct: tuple[bool, ...]

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return len(self.adapters)

    @classmethod
    def alike(cls, gpus: int, path: LocalPath) -> Self:
        """Return a layout of GPUs with an adapter each and this path between any two."""
        row = (path,) * gpus
        return cls(tuple(range(gpus)), (row,) * gpus, (None,) * gpus, (True,) * gpus)

    @classmethod
    def of(cls, machine: Machine) -> Self:
        """Return what NCCL would choose on this host.

        Each GPU has the nearest adapter, and of equally near ones that which has the fewest GPUs.
        GPUs reach one another over NVLink; else by peer-to-peer, up to a PCIe host bridge; else
        through host memory. :class:`~rdmawire.errors.CollectiveError` without GPU or adapter.
        """
        gpus, adapters = machine.gpus, machine.adapters
        if not gpus or not adapters:
            missing = "RDMA adapter" if gpus else "GPU"
            raise CollectiveError(f"the host has no {missing}")
        chosen = _chosen_adapters(machine)
        used = [adapter for adapter in adapters if adapter in chosen]
        rates = tuple(_adapter_rate(machine, adapter, chosen) for adapter in used)
        pairs = list(zip(chosen, gpus, strict=True))
        return cls(
            tuple(used.index(adapter) for adapter in chosen),
            tuple(tuple(_local_path(machine, one, other) for other in gpus) for one in gpus),
            rates,
            tuple(_is_direct(machine, adapter, gpu) for adapter, gpu in pairs),
        )


def _chosen_adapters(machine: Machine) -> list[Device]:
    """Return the adapter of each GPU."""
    chosen: list[Device] = []
    for gpu in machine.gpus:
        near = nearest(machine, gpu, DeviceKind.ADAPTER)
        chosen.append(min(near, key=chosen.count))
    return chosen


def _is_direct(machine: Machine, adapter: Device, gpu: Device) -> bool:
    """Return whether NCCL lets the adapter access the GPU (``NCCL_NET_GDR_LEVEL``)."""
    is_near = gpu.coherent or pcie_level(machine, adapter, gpu) <= DIRECT_LEVEL
    return is_near and peer_status(machine, adapter, gpu) is PeerStatus.OK


def _adapter_rate(machine: Machine, adapter: Device, chosen: list[Device]) -> float | None:
    """Return the bytes per second between an adapter and the slowest of its GPUs."""
    rates = []
    for mine, gpu in zip(chosen, machine.gpus, strict=True):
        if mine is not adapter:
            continue
        direct = [peer_route(machine, adapter, gpu)]
        node = machine.bridge_of(gpu).node
        bounce = [memory_route(machine, device, node) for device in (adapter, gpu)]
        routes = direct if _is_direct(machine, adapter, gpu) else bounce
        rates += [rate for route in routes if (rate := route_rate(route)) is not None]
    return min(rates, default=None)


def _local_path(machine: Machine, one: Device, other: Device) -> LocalPath:
    """Return the path between two GPUs of a host; that from a GPU to itself is not used."""
    if one is other:
        return LOCAL_PATHS["nvlink"]
    nvlink = nvlink_route(machine, one, other)
    if nvlink.steps:
        found = LOCAL_PATHS["nvlink"]
        return found._replace(rate=min(route_rate(nvlink) or found.rate, found.rate))
    is_near = pcie_level(machine, one, other) <= P2P_LEVEL
    if is_near and peer_status(machine, one, other) is PeerStatus.OK:
        peer = peer_route(machine, one, other)
        rate = route_rate(peer) or LOCAL_PATHS["host"].rate
        return LocalPath(rate, LOCAL_PATHS["nvlink"].latency + round(latency(machine, peer)), "P2P")
    return LOCAL_PATHS["host"]
