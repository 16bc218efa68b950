"""A host as its PCI Express tree: NUMA nodes, host bridges, switches, GPUs, adapters, drives.

Devices stand below a switch or a host bridge; a host bridge belongs to a NUMA node. Where a link is
not known, as in the matrix of ``nvidia-smi topo -m``, it is ``None``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

from rdmawire.errors import TopologyError
from rdmawire.topology.pcie import PcieLink


class DeviceKind(Enum):
    """What a device is."""

    GPU = "GPU"
    ADAPTER = "adapter"
    NVME = "NVMe drive"


class Iommu(Enum):
    """How the IOMMU treats the addresses of devices."""

    OFF = "off"
    PASSTHROUGH = "passthrough"
    TRANSLATED = "translated"


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node: its number, and its processors as Linux lists them.

    ``affinity`` is the number that tools show, if it differs: some show devices of one node as if
    they were of several.
    """

    number: int
    cpus: str = ""
    affinity: int | None = None

    @property
    def shown(self) -> int:
        """The number that tools show."""
        return self.number if self.affinity is None else self.affinity


@dataclass(frozen=True, slots=True)
class HostBridge:
    """A host bridge, the root of a PCI Express hierarchy; ``node`` is a number of a NUMA node."""

    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Switch:
    """A PCI Express switch below ``parent``, a switch or host bridge, by its link upstream.

    With ``acs``, its ports send requests between devices below it up to the root (ACS P2P Request
    Redirect and Upstream Forwarding: PCIe Base 6.0, 6.12).
    """

    name: str
    parent: str
    link: PcieLink | None = None
    acs: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, adapter or drive below ``parent``.

    ``address`` is its PCI address, ``model`` its name, ``bar1`` the size of a GPU's BAR1 in bytes,
    ``numa_id`` the NUMA node of a GPU's own memory, if it is one. ``peer_to_peer`` says whether it
    takes part in peer-to-peer transfers: GPUs of some classes do not. A ``coherent`` GPU has a link
    to its processor such as NVLink-C2C. ``rate`` is that of an adapter's port in bits per second.
    A device with ``ats`` keeps translations of the IOMMU (Address Translation Services).
    """

    name: str
    kind: DeviceKind
    parent: str
    link: PcieLink | None = None
    address: str = ""
    model: str = ""
    bar1: int | None = None
    numa_id: int | None = None
    peer_to_peer: bool = True
    coherent: bool = False
    rate: int | None = None
    ats: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """What the firmware and the kernel decide.

    ``iommu`` is the mode of the IOMMU, ``iommu_page`` the page size of its table (bytes).
    ``peer_to_peer`` says whether the root forwards requests between devices, which a firmware can
    forbid. ``relaxed_ordering`` says whether it may reorder writes that allow it. ``virtual`` hosts
    are virtual machines, which do not see the real tree. ``socket_link`` is the name of the link
    between sockets, ``ualink`` the generation of the UALinks.
    """

    iommu: Iommu = Iommu.OFF
    peer_to_peer: bool = True
    relaxed_ordering: bool = True
    virtual: bool = False
    socket_link: str = "UPI"
    iommu_page: int = 4096
    ualink: str = "200G"


MAX_DEVICES: Final = 1024
"""Maximum devices and switches of a host."""


@dataclass(frozen=True)
class Machine:
    """A host. ``nvlinks`` are the NVLinks between two GPUs, by the pair of their names in order.

    ``ualinks`` are the UALinks of four lanes between two, directly or through UALink switches; a
    host has one kind.

    Raises :class:`TopologyError` for a parent that is not there, a cycle, or a name used twice.
    """

    name: str
    nodes: tuple[NumaNode, ...]
    bridges: tuple[HostBridge, ...]
    switches: tuple[Switch, ...] = ()
    devices: tuple[Device, ...] = ()
    nvlinks: Mapping[tuple[str, str], int] = field(default_factory=dict)
    settings: Settings = Settings()
    ualinks: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        things: list[HostBridge | Switch | Device] = [*self.bridges]
        below: list[Switch | Device] = [*self.switches, *self.devices]
        things += below
        if len(things) > MAX_DEVICES:
            raise TopologyError(f"{len(things)} devices; at most {MAX_DEVICES} are supported")
        _check_names(thing.name for thing in things)
        self._check_nodes()
        for thing in below:
            if thing.parent not in self._parents:
                raise TopologyError(
                    f"{thing.name} is below {thing.parent!r}, which is no host bridge or switch"
                )
        for switch in self.switches:
            self._check_chain(switch)
        self._check_nvlinks()
        page = self.settings.iommu_page
        if page < 1 << 12 or page & (page - 1):
            raise TopologyError(f"IOMMU pages of {page} bytes; a power of two from 4096 on is one")

    def _check_nodes(self) -> None:
        numbers = {node.number for node in self.nodes}
        for bridge in self.bridges:
            if bridge.node not in numbers:
                raise TopologyError(f"{bridge.name}: there is no NUMA node {bridge.node}")

    def _check_chain(self, switch: Switch) -> None:
        seen = {switch.name}
        parent = self._parents[switch.parent]
        while isinstance(parent, Switch):
            if parent.name in seen:
                raise TopologyError(f"switch {switch.name} is below itself")
            seen.add(parent.name)
            parent = self._parents[parent.parent]

    def _check_nvlinks(self) -> None:
        gpus = {gpu.name for gpu in self.gpus}
        for what, links in (("an NVLink", self.nvlinks), ("a UALink", self.ualinks)):
            for first, second in links:
                if first == second or not {first, second} <= gpus:
                    raise TopologyError(f"{what} between {first} and {second}: not two GPUs")
        if any(self.nvlinks.values()) and any(self.ualinks.values()):
            raise TopologyError("NVLinks and UALinks in one host: GPUs have one kind")

    @cached_property
    def _parents(self) -> dict[str, HostBridge | Switch]:
        things: list[HostBridge | Switch] = [*self.bridges, *self.switches]
        return {thing.name: thing for thing in things}

    @cached_property
    def _devices(self) -> dict[str, Device]:
        return {device.name: device for device in self.devices}

    def of_kind(self, kind: DeviceKind) -> list[Device]:
        """Return the devices of a kind, in order."""
        return [device for device in self.devices if device.kind is kind]

    @property
    def gpus(self) -> list[Device]:
        """The GPUs."""
        return self.of_kind(DeviceKind.GPU)

    @property
    def adapters(self) -> list[Device]:
        """The adapters."""
        return self.of_kind(DeviceKind.ADAPTER)

    def device(self, name: str) -> Device:
        """Return a device by its name; raise :class:`TopologyError` if there is none."""
        found = self._devices.get(name)
        if found is None:
            known = ", ".join(self._devices) or "none"
            raise TopologyError(f"no device is called {name!r}; there are {known}")
        return found

    def has_ats(self, name: str) -> bool:
        """Return whether a device of this name keeps translations of the IOMMU."""
        device = self._devices.get(name)
        return device is not None and device.ats

    def above(self, device: Device) -> Iterator[Switch]:
        """Yield the switches above a device, the nearest one first."""
        parent = self._parents[device.parent]
        while isinstance(parent, Switch):
            yield parent
            parent = self._parents[parent.parent]

    def bridge_of(self, device: Device) -> HostBridge:
        """Return the host bridge that a device is below."""
        parent = self._parents[device.parent]
        while isinstance(parent, Switch):
            parent = self._parents[parent.parent]
        return parent

    def node_of(self, device: Device) -> NumaNode:
        """Return the NUMA node of a device."""
        number = self.bridge_of(device).node
        return next(node for node in self.nodes if node.number == number)

    def nvlinks_between(self, first: Device, second: Device) -> int:
        """Return the number of NVLinks between two GPUs, directly or through NVSwitches."""
        return _between(self.nvlinks, first, second)

    def ualinks_between(self, first: Device, second: Device) -> int:
        """Return the number of UALinks of four lanes between two GPUs, also through switches."""
        return _between(self.ualinks, first, second)


def _between(links: Mapping[tuple[str, str], int], first: Device, second: Device) -> int:
    names = first.name, second.name
    return links.get(names, 0) or links.get(names[::-1], 0)


def _check_names(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TopologyError(f"{name!r} is the name of two devices")
        seen.add(name)
