"""Checks of a host: whether GPUDirect RDMA works there, and how well."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rdmawire.doctor.finding import Check, Finding, Severity, Subject, findings
from rdmawire.topology import (
    Device,
    DeviceKind,
    Iommu,
    Level,
    Machine,
    PeerStatus,
    nearest,
    peer_status,
)
from rdmawire.topology.advice import DIRECT_LEVEL
from rdmawire.topology.relation import pcie_level, redirecting, through_root

SMALL_BAR1: Final = 1 << 28
"""BAR1 of a GPU without large BAR support, in bytes: 256 MiB."""
_DMABUF_KERNEL: Final = (5, 12)
_UNLIMITED: Final = resource.RLIM_INFINITY
_LITTLE_MEMLOCK: Final = 1 << 30


class LiveFacts(NamedTuple):
    """What is known of a running host beside its devices.

    ``modules`` are the loaded kernel modules, ``kernel`` the version of Linux. ``memlock`` is the
    number of bytes that this process may lock, ``None`` for no limit.
    """

    modules: frozenset[str]
    kernel: tuple[int, int]
    memlock: int | None


class HostFacts(NamedTuple):
    """A host: its devices, and what is known if it is this one."""

    machine: Machine
    live: LiveFacts | None = None


def read_live(root: Path = Path("/sys")) -> LiveFacts:
    """Read the facts of this host."""
    folder = root / "module"
    modules = frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    locks_all = limit == _UNLIMITED or os.geteuid() == 0
    major, minor, *_ = (*os.uname().release.split("."), "0")
    kernel = int(major), int("".join(filter(str.isdigit, minor)) or "0")
    return LiveFacts(modules, kernel, None if locks_all else limit)


def _pairs(machine: Machine) -> Iterator[tuple[Device, Device]]:
    """Yield each GPU with the adapter that is nearest to it."""
    for gpu in machine.gpus:
        if adapters := nearest(machine, gpu, DeviceKind.ADAPTER):
            yield gpu, adapters[0]


def _no_adapter(facts: HostFacts) -> Iterator[str]:
    if facts.machine.gpus and not facts.machine.adapters:
        yield "the host has GPUs, and no RDMA adapter"


def _peer_to_peer_off(facts: HostFacts) -> Iterator[str]:
    settings = facts.machine.settings
    if settings.peer_to_peer or settings.virtual:
        return
    for gpu, adapter in _pairs(facts.machine):
        if peer_status(facts.machine, adapter, gpu) is PeerStatus.CHIPSET:
            yield f"{adapter.name} and {gpu.name} have the root between them"


def _virtual(facts: HostFacts) -> Iterator[str]:
    if not facts.machine.settings.virtual:
        return
    for gpu, adapter in _pairs(facts.machine):
        if peer_status(facts.machine, adapter, gpu) is PeerStatus.CHIPSET:
            yield f"{adapter.name} and {gpu.name} are below no common switch of the guest"


def _acs(facts: HostFacts) -> Iterator[str]:
    for gpu, adapter in _pairs(facts.machine):
        for switch in redirecting(facts.machine, adapter, gpu):
            yield f"{switch} is between {adapter.name} and {gpu.name}, and has ACS"


def _iommu(facts: HostFacts) -> Iterator[str]:
    if facts.machine.settings.iommu is not Iommu.TRANSLATED:
        return
    for gpu, adapter in _pairs(facts.machine):
        if through_root(facts.machine, adapter, gpu):
            yield f"accesses of {adapter.name} to {gpu.name} pass the root"


def _other_socket(facts: HostFacts) -> Iterator[str]:
    for gpu, adapter in _pairs(facts.machine):
        level = pcie_level(facts.machine, adapter, gpu)
        if level is Level.SYS and not gpu.coherent:
            nodes = [facts.machine.node_of(one).shown for one in (gpu, adapter)]
            where = f"the nearest adapter, {adapter.name}, on node {nodes[1]}"
            yield f"{gpu.name} is on node {nodes[0]}, {where}"


def _far_adapter(facts: HostFacts) -> Iterator[str]:
    for gpu, adapter in _pairs(facts.machine):
        level = pcie_level(facts.machine, adapter, gpu)
        far = DIRECT_LEVEL < level < Level.SYS
        if far and not gpu.coherent and peer_status(facts.machine, adapter, gpu) is PeerStatus.OK:
            yield f"{gpu.name} and {adapter.name} are at {level.value}"


def _no_peer(facts: HostFacts) -> Iterator[str]:
    for gpu in facts.machine.gpus:
        if not gpu.peer_to_peer:
            yield f"{gpu.name}{f', {gpu.model}' if gpu.model else ''}"


def _small_bar1(facts: HostFacts) -> Iterator[str]:
    for gpu in facts.machine.gpus:
        if gpu.bar1 is not None and gpu.bar1 <= SMALL_BAR1 and gpu.peer_to_peer:
            yield f"BAR1 of {gpu.name} has {gpu.bar1 >> 20} MiB"


def _strict_order(facts: HostFacts) -> Iterator[str]:
    if not facts.machine.settings.relaxed_ordering and facts.machine.adapters:
        names = ", ".join(adapter.name for adapter in facts.machine.adapters)
        yield f"relaxed ordering is off, for writes of {names} too"


def _slow_slot(facts: HostFacts) -> Iterator[str]:
    for adapter in facts.machine.adapters:
        if adapter.link and adapter.rate and adapter.link.data_rate() < adapter.rate / 8:
            slot, port = adapter.link.data_rate() / 1e9, adapter.rate / 8e9
            rates = f"{slot:.1f} GB/s, its port {port:.1f} GB/s"
            yield f"{adapter.name}: {adapter.link} carries {rates}"


def _no_driver(facts: HostFacts) -> Iterator[str]:
    live = facts.live
    if live is None or not facts.machine.gpus or not facts.machine.adapters:
        return
    lacks = "nvidia" in live.modules and "nvidia_peermem" not in live.modules
    if lacks and live.kernel < _DMABUF_KERNEL:
        version = ".".join(map(str, live.kernel))
        yield f"nvidia_peermem is not loaded, and Linux {version} has no dma-buf for RDMA"


def _memlock(facts: HostFacts) -> Iterator[str]:
    live = facts.live
    if live is None or live.memlock is None or not facts.machine.adapters:
        return
    if live.memlock < _LITTLE_MEMLOCK:
        yield f"this process may lock {live.memlock >> 10} KiB (ulimit -l)"


_NCCL: Final = "NCCL, NCCL_NET_GDR_LEVEL"
_GUIDE: Final = "GPUDirect RDMA guide"
_HOST: Final = Subject.HOST
_ERROR, _WARNING = Severity.ERROR, Severity.WARNING

HOST_CHECKS: Final = (
    Check(
        "no-adapter", _HOST, _ERROR,
        "there is no RDMA adapter", "add one, below the same PCI Express switch as the GPUs",
        "the topology", _no_adapter,
    ),
    Check(
        "peer-to-peer-off", _HOST, _ERROR,
        "the firmware forbids peer-to-peer transfers through the root",
        "allow peer-to-peer in the firmware, or put GPU and adapter below one switch",
        _GUIDE, _peer_to_peer_off,
    ),
    Check(
        "virtual-machine", _HOST, _ERROR,
        "the guest sees no common switch of GPU and adapter, so accesses pass the host's IOMMU",
        "pass both through below one virtual switch, with ATS, or set NCCL_TOPO_FILE",
        "NCCL documentation, virtual machines", _virtual,
    ),
    Check(
        "acs", _HOST, _ERROR,
        "ACS sends peer-to-peer requests up to the root",
        "turn ACS off at these switches (setpci ECAP_ACS+0x6.w=0000, or in the firmware)",
        "NCCL documentation, PCI access control services", _acs,
    ),
    Check(
        "iommu", _HOST, _WARNING,
        "the IOMMU translates peer-to-peer addresses",
        "set the IOMMU to passthrough: iommu=pt as an option of the kernel",
        "NCCL documentation, PCI access control services", _iommu,
    ),
    Check(
        "other-socket", _HOST, _ERROR,
        "GPU and adapter are on different sockets",
        "move the adapter, or add one on the socket of the GPU; pin the process to that node",
        _NCCL, _other_socket,
    ),
    Check(
        "far-adapter", _HOST, _WARNING,
        "GPU and adapter have no common switch, so NCCL does not use GPUDirect RDMA by default",
        "set NCCL_NET_GDR_LEVEL=PHB if the root is fast enough, or move the adapter",
        _NCCL, _far_adapter,
    ),
    Check(
        "gpu-without-peer-to-peer", _HOST, _WARNING,
        "the GPU takes part in no peer-to-peer transfers",
        "take a data center GPU; data goes through host memory here",
        _GUIDE, _no_peer,
    ),
    Check(
        "small-bar1", _HOST, _WARNING,
        "BAR1 is small: more GPU memory cannot be registered",
        "enable resizable BAR (above 4G decoding) in the firmware, or register less at once",
        _GUIDE, _small_bar1,
    ),
    Check(
        "slow-slot", _HOST, _WARNING,
        "the slot of the adapter is slower than its port",
        "move it to a wider or newer slot; lspci -vv shows a link that trained low as downgraded",
        "PCIe Base 6.0, 4.2", _slow_slot,
    ),
    Check(
        "strict-ordering", _HOST, _WARNING,
        "the root keeps all writes of an adapter in order: one that is late delays all behind it",
        "enable relaxed ordering in the firmware, and register with IBV_ACCESS_RELAXED_ORDERING "
        "(NCCL_IB_PCI_RELAXED_ORDERING=1)",
        "PCIe Base 6.0, 2.4; NCCL environment variables", _strict_order,
    ),
    Check(
        "no-peer-memory-driver", _HOST, _ERROR,
        "no driver registers GPU memory: ibv_reg_mr of a GPU address says Bad address",
        "modprobe nvidia-peermem, or use Linux 5.12 or later with the open GPU kernel modules",
        "nvidia-peermem documentation", _no_driver,
    ),
    Check(
        "memlock", _HOST, _ERROR,
        "little memory may be locked: ibv_reg_mr says Cannot allocate memory",
        "ulimit -l unlimited: a line in /etc/security/limits.conf, LimitMEMLOCK=infinity of a "
        "service, --ulimit memlock=-1 of a container",
        "ibv_reg_mr(3)", _memlock,
    ),
)  # fmt: skip
"""Checks of a host."""


def examine_host(machine: Machine, live: LiveFacts | None = None) -> list[Finding]:
    """Return what is wrong with a host; ``live`` are the facts of this one, if it is it."""
    return findings(HOST_CHECKS, HostFacts(machine, live))
