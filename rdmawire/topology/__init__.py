"""Hosts as peers on PCI Express see them: how near devices are, and what may reach what.

A :class:`Machine` is the tree of a host. It is described by hand, or read from ``nvidia-smi topo
-m``, ``lspci -tv`` or ``/sys/bus/pci``. This package does not depend on packets or queue pairs.
"""

from typing import TYPE_CHECKING

from rdmawire.lazy_names import lazy_names
from rdmawire.topology.advice import GpuAdvice, bounce_routes, gpu_advice
from rdmawire.topology.bus import Bus, BusRoute, LinkEnds, LinkUse
from rdmawire.topology.cost import (
    SOURCES,
    CopyKind,
    Costs,
    Flow,
    copy_time,
    finish_times,
    read_time,
    write_time,
)
from rdmawire.topology.iommu import (
    IOMMU_LIMITS,
    IOMMU_SOURCES,
    IommuLimits,
    RemappingUnit,
    TranslationCache,
    TranslationCounts,
)
from rdmawire.topology.machine import (
    Device,
    DeviceKind,
    HostBridge,
    Iommu,
    Machine,
    NumaNode,
    Settings,
    Switch,
)
from rdmawire.topology.matrix import parse_matrix, peer_matrix, topology_matrix
from rdmawire.topology.pci_tree import FoundMachine, parse_lspci, read_sysfs
from rdmawire.topology.pcie import PcieLink
from rdmawire.topology.registration import (
    PAGE_SIZES,
    CachedRegion,
    Lookup,
    RegisteredKind,
    Registrar,
    Registration,
    RegistrationCache,
    RegistrationMode,
    registration,
)
from rdmawire.topology.relation import (
    Capability,
    Level,
    PeerStatus,
    Relation,
    nearest,
    peer_status,
    relation,
)
from rdmawire.topology.route import (
    Route,
    Step,
    memory_route,
    nvlink_route,
    peer_route,
    scale_up_route,
    ualink_route,
)

if TYPE_CHECKING:
    from rdmawire.topology.calibration import (
        MEASURED,
        Calibration,
        Measurement,
        calibrate,
        parse_measurements,
    )

__all__ = [
    "IOMMU_LIMITS",
    "IOMMU_SOURCES",
    "MEASURED",
    "PAGE_SIZES",
    "SOURCES",
    "Bus",
    "BusRoute",
    "CachedRegion",
    "Calibration",
    "Capability",
    "CopyKind",
    "Costs",
    "Device",
    "DeviceKind",
    "Flow",
    "FoundMachine",
    "GpuAdvice",
    "HostBridge",
    "Iommu",
    "IommuLimits",
    "Level",
    "LinkEnds",
    "LinkUse",
    "Lookup",
    "Machine",
    "Measurement",
    "NumaNode",
    "PcieLink",
    "PeerStatus",
    "RegisteredKind",
    "Registrar",
    "Registration",
    "RegistrationCache",
    "RegistrationMode",
    "Relation",
    "RemappingUnit",
    "Route",
    "Settings",
    "Step",
    "Switch",
    "TranslationCache",
    "TranslationCounts",
    "bounce_routes",
    "calibrate",
    "copy_time",
    "finish_times",
    "gpu_advice",
    "memory_route",
    "nearest",
    "nvlink_route",
    "parse_lspci",
    "parse_matrix",
    "parse_measurements",
    "peer_matrix",
    "peer_route",
    "peer_status",
    "read_sysfs",
    "read_time",
    "registration",
    "relation",
    "scale_up_route",
    "topology_matrix",
    "ualink_route",
    "write_time",
]

_CALIBRATION = ("MEASURED", "Calibration", "Measurement", "calibrate", "parse_measurements")

# The calibration needs NumPy.
__getattr__ = lazy_names(__name__, {"calibration": _CALIBRATION})
