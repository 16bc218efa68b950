"""The place of each device of a host in the PCI hierarchy, as a path below ``/sys/devices``.

A host bridge has a domain of its own, from :data:`FIRST_DOMAIN` on, so that no address is one of
the real machine. Below it each switch or device has a root port; a switch is an upstream port with
a downstream port for each of what is below it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from rdmawire.errors import TopologyError
from rdmawire.topology import Device, DeviceKind, HostBridge, Machine, NumaNode, Switch
from rdmawire.topology.pcie import PcieLink

FIRST_DOMAIN: Final = 0xF0
_BUSES: Final = 256
_PORTS: Final = 256
_FUNCTIONS: Final = 8
_ADDRESS: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LINK: Final = PcieLink(5, 16)


class PciFunction(NamedTuple):
    """A port or device: its path, its link, its NUMA node, and the device unless it is a port."""

    path: PurePosixPath
    link: PcieLink
    node: NumaNode
    device: Device | None = None


def plain_host(names: Sequence[str]) -> Machine:
    """A host with these adapters below one host bridge, and no NUMA node."""
    adapters = (Device(name, DeviceKind.ADAPTER, "root") for name in names)
    return Machine("host", (NumaNode(-1),), (HostBridge("root", -1),), devices=tuple(adapters))


def functions_of(machine: Machine) -> Iterator[PciFunction]:
    """Yield the ports and devices of a host. ``TopologyError`` if a hierarchy has too many."""
    for index, bridge in enumerate(machine.bridges):
        yield from _Hierarchy(machine, bridge, FIRST_DOMAIN + index).functions()


class _Hierarchy:
    """What is below a host bridge. Buses are numbered in the order in which they are found."""

    def __init__(self, machine: Machine, bridge: HostBridge, domain: int) -> None:
        self._machine = machine
        self._bridge = bridge
        self._domain = domain
        self._node = next(node for node in machine.nodes if node.number == bridge.node)
        self._buses = 0

    def functions(self) -> Iterator[PciFunction]:
        root = PurePosixPath(f"pci{self._domain:04x}:00")
        yield from self._below(self._bridge.name, root, self._new_bus())

    def _new_bus(self) -> int:
        bus, self._buses = self._buses, self._buses + 1
        if bus >= _BUSES:
            raise TopologyError(f"{self._bridge.name}: more than {_BUSES} PCI buses below it")
        return bus

    def _below(self, parent: str, path: PurePosixPath, bus: int) -> Iterator[PciFunction]:
        """Yield a port for each switch and device below ``parent``, and what it leads to."""
        machine = self._machine
        below: list[Switch | Device] = [*machine.switches, *machine.devices]
        children = [child for child in below if child.parent == parent]
        if len(children) > _PORTS:
            raise TopologyError(f"{parent}: {len(children)} PCI functions on one bus")
        for number, child in enumerate(children):
            slot, function = divmod(number, _FUNCTIONS)
            port = path / f"{self._domain:04x}:{bus:02x}:{slot:02x}.{function}"
            yield PciFunction(port, child.link or _LINK, self._node)
            yield from self._behind(child, port, self._new_bus())

    def _behind(
        self, child: Switch | Device, port: PurePosixPath, bus: int
    ) -> Iterator[PciFunction]:
        address = f"{self._domain:04x}:{bus:02x}:00.0"
        link = child.link or _LINK
        if isinstance(child, Switch):
            yield PciFunction(port / address, link, self._node)
            yield from self._below(child.name, port / address, self._new_bus())
            return
        own = child.address.lower()
        yield PciFunction(
            port / (own if _ADDRESS.fullmatch(own) else address), link, self._node, child
        )
