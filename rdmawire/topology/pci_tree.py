"""A host from what Linux says of PCI: ``/sys/bus/pci``, or the text of ``lspci -tv``.

Both show bridges: below a host bridge a root port, below that perhaps a switch, which is an
upstream port with a downstream port for each device. NVLinks are in neither.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from rdmawire.errors import TopologyError
from rdmawire.topology.machine import (
    MAX_DEVICES,
    Device,
    DeviceKind,
    HostBridge,
    Iommu,
    Machine,
    NumaNode,
    Settings,
    Switch,
)
from rdmawire.topology.pcie import WIDTHS, PcieLink, generation_of


class FoundMachine(NamedTuple):
    """A host, and in words what could not be found out about it."""

    machine: Machine
    notes: list[str]


class _Function(NamedTuple):
    """A PCI function: a device that is kept, and the bridges above it, the root port first."""

    device: Device
    root: str
    bridges: tuple[str, ...]
    node: int = 0
    cpus: str = ""


_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def _switches_of(bridges: tuple[str, ...], *, is_shared: bool) -> tuple[str, ...]:
    """Return the switches among bridges, by the addresses of their upstream ports.

    After the root port, bridges are upstream and downstream ports in turn. Functions of one card
    below a root port have that bridge alone in common: then it counts as a switch.
    """
    if len(bridges) == 1 and is_shared:
        return bridges
    return bridges[1::2]


class _Ports(NamedTuple):
    """What is known of bridges, by their addresses: links, and whether ACS redirects requests."""

    links: dict[str, PcieLink | None]
    redirect: dict[str, bool]


def _machine(name: str, functions: list[_Function], ports: _Ports, settings: Settings) -> Machine:
    """Build a host from the functions that are kept."""
    shared = Counter(function.bridges for function in functions)
    switches: dict[str, Switch] = {}
    devices: dict[tuple[DeviceKind, str], Device] = {}
    roots: dict[str, int] = {}
    cpus: dict[int, str] = {}
    for function in functions:
        roots.setdefault(function.root, function.node)
        cpus[function.node] = cpus.get(function.node) or function.cpus
        parent = function.root
        found = _switches_of(function.bridges, is_shared=shared[function.bridges] > 1)
        for upstream in found:
            acs = any(ports.redirect.get(bridge, False) for bridge in function.bridges)
            known = switches.get(upstream)
            acs = acs or (known is not None and known.acs)
            switches[upstream] = Switch(upstream, parent, ports.links.get(upstream), acs)
            parent = upstream
        device = function.device
        devices[device.kind, device.name] = replace(device, parent=parent)
    return Machine(
        name,
        tuple(NumaNode(number, cpus[number]) for number in sorted(cpus)),
        tuple(HostBridge(root, node) for root, node in roots.items()),
        tuple(switches.values()),
        tuple(devices.values()),
        settings=settings,
    )


# /sys/bus/pci.

_NVIDIA: Final = "0x10de"
_GPU_CLASSES: Final = ("0x0300", "0x0302", "0x0380", "0x1200")
"""VGA, 3D and other display controllers, and accelerators."""
_NVME_CLASS: Final = "0x0108"
_GPU_VENDORS: Final = {_NVIDIA: "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
_MAX_FILE: Final = 4096
_HYPERVISORS: Final = ("QEMU", "VMware, Inc.", "Xen", "innotek GmbH")


def _text(path: Path) -> str:
    """Return the text of a small file; empty if it is not there or cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE).decode("utf-8", "replace").strip()
    except OSError:  # a device that does not have this attribute
        return ""


def read_sysfs(path: str | os.PathLike[str]) -> FoundMachine:
    """Read a host from ``/sys``, ``/sys/bus/pci`` or a copy of it; raise :class:`TopologyError`.

    GPUs, adapters with RDMA devices and NVMe drives are kept.
    """
    base = Path(path)
    for folder in (base / "bus/pci/devices", base / "devices", base):
        entries = _entries(folder)
        if entries:
            break
    else:
        raise TopologyError(f"{base}: no PCI devices are there, as in /sys or /sys/bus/pci")
    functions = [function for entry in entries for function in _functions(entry)]
    if not functions:
        raise TopologyError(f"{base}: of {len(entries)} PCI devices, none is a GPU, RDMA or NVMe")
    notes = ["NVLinks are not in /sys: nvidia-smi topo -m shows them"]
    ports, could_read = _ports_of(functions, folder)
    if not could_read:
        notes.append("ACS of switches could not be read, which needs root")
    settings = Settings(
        iommu=_iommu_of(entries), virtual=_is_virtual(folder.parents[2]), socket_link=""
    )
    return FoundMachine(_machine(str(base), _numbered(functions), ports, settings), notes)


def _entries(folder: Path) -> list[Path]:
    """Return the PCI devices in a folder, in the order of their addresses."""
    try:
        names = sorted(name for name in os.listdir(folder) if _ADDRESS.fullmatch(name))
    except OSError:  # not a folder: another one is tried, or the caller says so
        return []
    if len(names) > MAX_DEVICES:
        raise TopologyError(f"{folder}: {len(names)} devices; at most {MAX_DEVICES} are supported")
    return [folder / name for name in names]


def _functions(entry: Path) -> Iterator[_Function]:
    """Yield a device that is kept; an adapter once for each of its RDMA devices."""
    class_ = _text(entry / "class")[:6]
    parts = Path(os.path.realpath(entry)).parts
    root = next((part for part in parts if _ROOT.fullmatch(part)), "pci0000:00")
    chain = tuple(part for part in parts if _ADDRESS.fullmatch(part))[:-1]
    node = _text(entry / "numa_node")
    rest = chain, max(int(node), 0) if re.fullmatch(r"-?\d{1,4}", node) else 0
    cpus = _text(entry / "local_cpulist")
    for device in _devices_of(entry, class_):
        yield _Function(device, root, *rest, cpus)


def _devices_of(entry: Path, class_: str) -> Iterator[Device]:
    """Yield the devices of a PCI function that are kept."""
    vendor, address = _text(entry / "vendor"), entry.name
    link = _link_of(entry)
    if class_ in _GPU_CLASSES and vendor in _GPU_VENDORS:
        model = f"{_GPU_VENDORS[vendor]} {_text(entry / 'device')}"
        bar1 = _bar_size(entry, 1)
        yield Device("", DeviceKind.GPU, "", link, address, model, bar1)
    elif class_ == _NVME_CLASS:
        yield Device("", DeviceKind.NVME, "", link, address)
    for name in _names_in(entry / "infiniband"):
        yield Device(name, DeviceKind.ADAPTER, "", link, address)


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # the device has no RDMA device
        return []


def _link_of(entry: Path) -> PcieLink | None:
    """Return the link of a device as it can be: power saving lowers the present one."""
    for when in ("max", "current"):
        speed = re.match(r"(\d{1,3}(?:\.\d)?) GT/s", _text(entry / f"{when}_link_speed"))
        width = _text(entry / f"{when}_link_width")
        if speed and width.isdigit() and int(width) in WIDTHS:
            return PcieLink(generation_of(float(speed[1])), int(width))
    return None


def _bar_size(entry: Path, index: int) -> int | None:
    """Return the size of a BAR in bytes, from the lines ``start end flags`` of ``resource``."""
    lines = _text(entry / "resource").splitlines()
    words = lines[index].split() if index < len(lines) else []
    if len(words) < 2 or not all(re.fullmatch(r"0x[0-9a-f]{1,16}", word) for word in words[:2]):
        return None
    start, end = (int(word, 16) for word in words[:2])
    return end - start + 1 if end > start else None


def _ports_of(functions: list[_Function], folder: Path) -> tuple[_Ports, bool]:
    """Return what is known of the bridges, and whether the ACS of switches could be read."""
    chains = {function.bridges for function in functions}
    links = {bridge: _link_of(folder / bridge) for chain in chains for bridge in chain}
    ports = {bridge for chain in chains if len(chain) > 1 for bridge in chain}
    redirects = {bridge: _redirects(folder / bridge / "config") for bridge in sorted(ports)}
    known = {bridge: bool(redirect) for bridge, redirect in redirects.items()}
    return _Ports(links, known), None not in redirects.values()


_EXTENDED: Final = 0x100
"""Where the extended capabilities of the configuration space begin."""
_ACS: Final = 0x000D
_REQUEST_REDIRECT: Final = 1 << 2


def _redirects(config: Path) -> bool | None:
    """Return whether ACS redirects requests at a port: PCIe Base 6.0, 7.7.11.

    ``None`` if the extended configuration cannot be read.
    """
    try:
        with config.open("rb") as file:
            data = file.read(_MAX_FILE)
    except OSError:  # not there, or not for this user
        return None
    if len(data) < _MAX_FILE:
        return None
    at, seen = _EXTENDED, set[int]()
    while at >= _EXTENDED and at + 8 <= len(data) and at not in seen:
        seen.add(at)
        header = int.from_bytes(data[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            return bool(int.from_bytes(data[at + 6 : at + 8], "little") & _REQUEST_REDIRECT)
        at = header >> 20
    return False


def _iommu_of(entries: Iterable[Path]) -> Iommu:
    types = {_text(entry / "iommu_group" / "type") for entry in entries}
    if types & {"DMA", "DMA-FQ"}:
        return Iommu.TRANSLATED
    return Iommu.PASSTHROUGH if "identity" in types else Iommu.OFF


def _is_virtual(system: Path) -> bool:
    return _text(system / "class/dmi/id/sys_vendor") in _HYPERVISORS


def _numbered(functions: list[_Function]) -> list[_Function]:
    """Name the devices that have no name: GPUs and drives, in the order of their addresses."""
    counts: Counter[DeviceKind] = Counter()
    words = {DeviceKind.GPU: "GPU", DeviceKind.NVME: "nvme", DeviceKind.ADAPTER: "NIC"}
    named = []
    for function in functions:
        device = function.device
        name = device.name or f"{words[device.kind]}{counts[device.kind]}"
        counts[device.kind] += 1
        named.append(function._replace(device=replace(device, name=name)))
    return named


# lspci -tv.

_BUS: Final = re.compile(r"\[([0-9a-f]{4,8}):([0-9a-f]{2})(?:-[0-9a-f]{2})?\]")
_PORT: Final = re.compile(r"([0-9a-f]{2}\.[0-7])(?:-\[([0-9a-f]{2})(?:-[0-9a-f]{2})?\])?")
_LINES: Final = re.compile(r"[\s|\\+\-]*")
_MAX_TEXT: Final = 4 << 20
_WORDS: Final = (
    (re.compile(r"NVSwitch|Audio|USB|UCSI", re.IGNORECASE), None),
    (re.compile(r"NVIDIA Corporation|Instinct"), DeviceKind.GPU),
    (
        re.compile(r"ConnectX|BlueField|Mellanox|E8[12]0|NetXtreme-E|Elastic Fabric"),
        DeviceKind.ADAPTER,
    ),
    (re.compile(r"NVMe|Non-Volatile memory"), DeviceKind.NVME),
)


class _Bus(NamedTuple):
    """A bus: its number, the root it is below, and the bridges above it."""

    domain: str
    number: str
    root: str
    bridges: tuple[str, ...]


def parse_lspci(text: str, name: str = "lspci -tv") -> FoundMachine:
    """Build a host from the text of ``lspci -tv``; raise :class:`TopologyError`.

    GPUs, RDMA adapters and NVMe drives are known by the words of their descriptions.
    """
    if len(text) > _MAX_TEXT:
        raise TopologyError(f"{name}: {len(text)} characters; {_MAX_TEXT} are supported")
    functions = _numbered(list(_functions_in(text)))
    if not functions:
        raise TopologyError(
            f"{name}: no GPU, RDMA adapter or NVMe drive is in the tree; its names are those of -tv"
        )
    notes = [
        "lspci -tv does not show NUMA nodes: all host bridges are taken as of one node",
        "lspci -tv shows neither links nor NVLinks, ACS or the IOMMU",
    ]
    return FoundMachine(_machine(name, functions, _Ports({}, {}), Settings(socket_link="")), notes)


def _functions_in(text: str) -> Iterator[_Function]:
    """Yield the devices of the tree that are kept.

    Lines continue a bus at the column where its first device was written.
    """
    columns: dict[int, _Bus] = {}
    for line in text.splitlines():
        at = _LINES.match(line).end()  # type: ignore[union-attr]
        root = _BUS.match(line, at)
        if root:
            bus: _Bus | None = _Bus(root[1], root[2], f"pci{root[1]}:{root[2]}", ())
            at = _LINES.match(line, root.end()).end()  # type: ignore[union-attr]
        else:
            bus = columns.get(at)
        yield from _line(line, at, bus, columns)


def _line(line: str, at: int, bus: _Bus | None, columns: dict[int, _Bus]) -> Iterator[_Function]:
    """Read the devices of a line from column ``at``, the first one on this bus."""
    while bus is not None and (port := _PORT.match(line, at)):
        columns[at] = bus
        address = f"{bus.domain}:{bus.number}:{port[1]}"
        if port[2]:
            bus = _Bus(bus.domain, port[2], bus.root, (*bus.bridges, address))
            at = _LINES.match(line, port.end()).end()  # type: ignore[union-attr]
            continue
        words = line[port.end() :].strip()
        kind = next((kind for pattern, kind in _WORDS if pattern.search(words)), None)
        if kind is not None:
            yield _Function(Device("", kind, "", None, address, words), bus.root, bus.bridges)
        return
