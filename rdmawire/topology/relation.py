"""How near two devices are, in the words of ``nvidia-smi topo``, and whether peers may talk."""

from enum import Enum
from functools import total_ordering
from typing import Final, NamedTuple

from rdmawire.topology.machine import Device, DeviceKind, Machine


@total_ordering
class Level(Enum):
    """The part of the host that a path between two devices crosses, the nearest one first.

    The words and their meanings are those of ``nvidia-smi topo -m``, but that of UALinks.
    """

    SELF = "X"
    NVLINK = "NV"
    UALINK = "UA"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"

    def __lt__(self, other: "Level") -> bool:
        return _ORDER[self] < _ORDER[other]

    @property
    def meaning(self) -> str:
        """What a path of this level crosses."""
        return _MEANINGS[self]


_ORDER: Final = {level: index for index, level in enumerate(Level)}
_MEANINGS: Final = {
    Level.SELF: "the device itself",
    Level.NVLINK: "a number of bonded NVLinks",
    Level.UALINK: "a number of bonded UALinks",
    Level.PIX: "at most one PCIe bridge",
    Level.PXB: "several PCIe bridges, but no host bridge",
    Level.PHB: "a PCIe host bridge (typically the CPU)",
    Level.NODE: "the interconnect between host bridges within a NUMA node",
    Level.SYS: "the interconnect between NUMA nodes (such as UPI)",
}


class Relation(NamedTuple):
    """A level, and the number of NVLinks or UALinks if they are the path."""

    level: Level
    links: int = 0

    def __str__(self) -> str:
        return f"{self.level.value}{self.links or ''}"


def relation(machine: Machine, first: Device, second: Device) -> Relation:
    """Return how near two devices are; GPUs with links between them are related by these."""
    if first.name == second.name:
        return Relation(Level.SELF)
    if nvlinks := machine.nvlinks_between(first, second):
        return Relation(Level.NVLINK, nvlinks)
    if ualinks := machine.ualinks_between(first, second):
        return Relation(Level.UALINK, ualinks)
    return Relation(pcie_level(machine, first, second))


def pcie_level(machine: Machine, first: Device, second: Device) -> Level:
    """Return how near two devices are on PCI Express."""
    if first.parent == second.parent:
        return Level.PIX if any(machine.above(first)) else Level.PHB
    theirs = {switch.name for switch in machine.above(second)}
    if any(switch.name in theirs for switch in machine.above(first)):
        return Level.PXB
    roots = machine.bridge_of(first), machine.bridge_of(second)
    if roots[0].name == roots[1].name:
        return Level.PHB
    return Level.NODE if roots[0].node == roots[1].node else Level.SYS


class PeerStatus(Enum):
    """Whether two devices may access each other, in the words of ``nvidia-smi topo -p2p``."""

    SELF = "X"
    OK = "OK"
    CHIPSET = "CNS"
    GPU = "GNS"
    TOPOLOGY = "TNS"
    NOT_SUPPORTED = "NS"

    @property
    def meaning(self) -> str:
        """Why, in words."""
        return _REASONS[self]


_REASONS: Final = {
    PeerStatus.SELF: "the device itself",
    PeerStatus.OK: "peer-to-peer transfers are allowed",
    PeerStatus.CHIPSET: "the root does not forward requests between devices",
    PeerStatus.GPU: "a GPU does not take part in peer-to-peer transfers",
    PeerStatus.TOPOLOGY: "the path crosses the link between sockets",
    PeerStatus.NOT_SUPPORTED: "there is no such link between the two",
}


class Capability(Enum):
    """The capability that a matrix of ``nvidia-smi topo -p2p`` shows, by its letter."""

    READ = "r"
    WRITE = "w"
    NVLINK = "n"
    ATOMICS = "a"
    PCIE = "p"


def peer_status(
    machine: Machine, first: Device, second: Device, capability: Capability = Capability.READ
) -> PeerStatus:
    """Return whether a device may access the memory of another one, and why not.

    Over NVLink and UALink everything is allowed. On PCI Express, requests below one switch need
    nothing else, unless ACS sends them to the root; requests through the root need its permission,
    and none pass the link between sockets. There are no atomics between devices through a root,
    which needs AtomicOp routing (PCIe Base 6.0, 6.15).
    """
    if first.name == second.name:
        return PeerStatus.SELF
    by_nvlink = machine.nvlinks_between(first, second) > 0
    if capability is Capability.NVLINK:
        return PeerStatus.OK if by_nvlink else PeerStatus.NOT_SUPPORTED
    if by_nvlink or machine.ualinks_between(first, second):
        if capability is Capability.PCIE:
            return _pcie_status(machine, first, second)
        return PeerStatus.OK
    status = _pcie_status(machine, first, second)
    if status is PeerStatus.OK and capability is Capability.ATOMICS:
        return PeerStatus.NOT_SUPPORTED if through_root(machine, first, second) else status
    return status


def _pcie_status(machine: Machine, first: Device, second: Device) -> PeerStatus:
    if not (first.peer_to_peer and second.peer_to_peer):
        return PeerStatus.GPU
    if pcie_level(machine, first, second) is Level.SYS:
        return PeerStatus.TOPOLOGY
    forwards = machine.settings.peer_to_peer and not machine.settings.virtual
    if through_root(machine, first, second) and not forwards:
        return PeerStatus.CHIPSET
    return PeerStatus.OK


def through_root(machine: Machine, first: Device, second: Device) -> bool:
    """Return whether requests between two devices pass a host bridge."""
    if pcie_level(machine, first, second) > Level.PXB:
        return True
    return bool(redirecting(machine, first, second))


def redirecting(machine: Machine, first: Device, second: Device) -> list[str]:
    """Return the switches between two devices that send requests to the root: those with ACS."""
    ours, theirs = list(machine.above(first)), list(machine.above(second))
    common = [switch for switch in ours if switch in theirs]
    if not common:
        return []
    path = [*ours[: ours.index(common[0]) + 1], *theirs[: theirs.index(common[0])]]
    return [switch.name for switch in path if switch.acs]


def nearest(machine: Machine, device: Device, kind: DeviceKind) -> list[Device]:
    """Return the devices of a kind that are nearest to a device on PCI Express."""
    others = [other for other in machine.of_kind(kind) if other.name != device.name]
    if not others:
        return []
    best = min(pcie_level(machine, device, other) for other in others)
    return [other for other in others if pcie_level(machine, device, other) is best]
