"""The way of a transfer's bytes through a host, link by link, and the rate of each link.

An access to the memory of a device goes up to the first switch that both are below, or through the
root. A switch whose ports have ACS sends it through the root in any case. Memory of the host is
behind the root of its NUMA node.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rdmawire.topology.machine import Device, HostBridge, Iommu, Machine, Switch
from rdmawire.topology.pcie import PcieLink
from rdmawire.topology.relation import redirecting

SOCKET_RATES: Final = {
    "QPI": 6e9,
    "UPI": 10e9,
    "UPI 16 GT/s": 22e9,
    "UPI 20 GT/s": 40e9,
    "Infinity Fabric": 16e9,
    "X-Bus": 32e9,
    "Arm": 6e9,
}
"""Bytes per second between two sockets, in one direction: the figures that NCCL 2.28 reckons with.

In the order of its ``src/graph/topo.h``: Intel Broadwell, Skylake, Sapphire Rapids and Emerald
Rapids, AMD, IBM POWER9, and Arm.
"""
NVLINK_RATES: Final = {
    "A100": 20e9,
    "H100": 20.6e9,
    "H200": 20.6e9,
    "GH200": 20.6e9,
    "B200": 40.1e9,
}
"""Bytes per second of one NVLink in one direction, by the model of the GPU: NCCL's ``topo.h``."""
UALINK_RATES: Final = {"200G": 93e9, "128G": 59.5e9}
"""Bytes per second of data of a UALink of four lanes in one direction, by generation.

UALink 200G 1.0: 200 Gbit/s a lane, of which 93% are for data; 128G: 128 Gbit/s a lane, on the
physical layer of PCI Express 7.0, for which the same share is assumed.
"""
C2C_RATE: Final = 450e9
"""Bytes per second of NVLink-C2C in one direction: NVIDIA GH200 data sheet, 900 GB/s in both."""


PCIE: Final = "PCIe"
NVLINKS: Final = "NVLinks"
UALINKS: Final = "UALinks"
SOCKETS: Final = "link between sockets"
UNKNOWN: Final = (PCIE, NVLINKS, SOCKETS)
"""Links whose generation, model or kind is not known."""


class Step(NamedTuple):
    """A step of a route: from where to where, over what, and bytes per second of data, if known."""

    source: str
    target: str
    link: str
    rate: float | None

    def reversed(self) -> "Step":
        """Return the step back."""
        return self._replace(source=self.target, target=self.source)

    def __str__(self) -> str:
        rate = "" if self.rate is None else f", {self.rate / 1e9:.1f} GB/s"
        return f"{self.source} -> {self.target}: {self.link}{rate}"


class Route(NamedTuple):
    """The steps of a transfer; ``remarks`` say what makes the way longer or slower."""

    steps: list[Step]
    remarks: list[str]

    def reversed(self) -> "Route":
        """Return the way back."""
        return Route([step.reversed() for step in reversed(self.steps)], self.remarks)

    @property
    def slowest(self) -> Step | None:
        """The step with the lowest rate that is known."""
        known = [step for step in self.steps if step.rate is not None]
        return min(known, key=lambda step: step.rate or 0.0, default=None)


def nvlink_route(machine: Machine, source: Device, target: Device) -> Route:
    """Return the route between two GPUs over their NVLinks; without steps if there are none."""
    count = machine.nvlinks_between(source, target)
    if not count:
        return Route([], [])
    rate = NVLINK_RATES.get(source.model.split()[0] if source.model else "")
    total = None if rate is None else rate * count
    link = NVLINKS if total is None else f"{count} NVLinks"
    return Route([Step(source.name, target.name, link, total)], [])


def ualink_route(machine: Machine, source: Device, target: Device) -> Route:
    """Return the route between two GPUs over their UALinks; without steps if there are none."""
    count = machine.ualinks_between(source, target)
    if not count:
        return Route([], [])
    generation = machine.settings.ualink
    rate = UALINK_RATES.get(generation)
    total = None if rate is None else rate * count
    return Route([Step(source.name, target.name, f"{count} {UALINKS} {generation}", total)], [])


def scale_up_route(machine: Machine, source: Device, target: Device) -> Route:
    """Return the route between two GPUs over their NVLinks or UALinks, if there are any."""
    direct = nvlink_route(machine, source, target)
    return direct if direct.steps else ualink_route(machine, source, target)


def peer_route(machine: Machine, source: Device, target: Device, max_payload: int = 256) -> Route:
    """Return the route of a peer-to-peer access over PCI Express, as if it were allowed.

    ``max_payload`` is the maximum payload size of the links, in bytes.
    """
    redirects = redirecting(machine, source, target)
    up, down = _chain(machine, source), _chain(machine, target)
    shared = {parent.name for parent in down.parents}
    common = next((parent.name for parent in up.parents if parent.name in shared), None)
    remarks = [f"{name} has ACS and sends requests to the root" for name in redirects]
    if redirects:
        common = machine.bridge_of(source).name
    steps = [
        *up.steps(common, max_payload),
        *_between_roots(machine, up.root, down.root, remarks),
        *(step.reversed() for step in reversed(list(down.steps(common, max_payload)))),
    ]
    through_root = common is None or common in (up.root.name, down.root.name)
    if through_root and machine.settings.iommu is Iommu.TRANSLATED:
        remarks.append("the IOMMU translates each address")
    return Route(steps, remarks)


def memory_route(machine: Machine, device: Device, node: int, max_payload: int = 256) -> Route:
    """Return the route of a device's access to host memory of a NUMA node."""
    chain = _chain(machine, device)
    remarks: list[str] = []
    steps = list(chain.steps(None, max_payload))
    if chain.root.node != node:
        steps.append(_socket_step(machine, chain.root.name, f"memory of node {node}"))
        remarks.append("the path crosses the link between sockets")
    else:
        steps.append(Step(chain.root.name, f"memory of node {node}", "memory controller", None))
    return Route(steps, remarks)


class _Chain(NamedTuple):
    """A device, and the switches and the root above it."""

    device: Device
    parents: list[Switch | HostBridge]
    root: HostBridge

    def steps(self, common: str | None, max_payload: int) -> Iterator[Step]:
        """Yield the steps up to the parent ``common``, without it to the root."""
        below, link = self.device.name, self.device.link
        if self.device.coherent:
            yield Step(below, self.root.name, "NVLink-C2C", C2C_RATE)
            return
        for parent in self.parents:
            yield _pcie_step(below, parent.name, link, max_payload)
            if parent.name == common or isinstance(parent, HostBridge):
                return
            below, link = parent.name, parent.link


def _chain(machine: Machine, device: Device) -> _Chain:
    root = machine.bridge_of(device)
    return _Chain(device, [*machine.above(device), root], root)


def _pcie_step(source: str, target: str, link: PcieLink | None, max_payload: int) -> Step:
    if link is None:
        return Step(source, target, PCIE, None)
    return Step(source, target, f"PCIe {link}", link.data_rate(max_payload))


def _between_roots(
    machine: Machine, first: HostBridge, second: HostBridge, remarks: list[str]
) -> Iterator[Step]:
    if first.name == second.name:
        return
    if first.node != second.node:
        remarks.append("the path crosses the link between sockets")
        yield _socket_step(machine, first.name, second.name)
    else:
        yield Step(first.name, second.name, "interconnect of the processor", None)


def _socket_step(machine: Machine, source: str, target: str) -> Step:
    link = machine.settings.socket_link
    return Step(source, target, link or SOCKETS, SOCKET_RATES.get(link))
