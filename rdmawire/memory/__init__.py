"""Memory that adapters access by DMA: host pages, GPU memory, and the keys that protect them.

There are two address spaces. Applications use *virtual addresses*, of host memory or of a
GPU. Adapters put *bus addresses* on the bus. Host memory has the same address in both (there is
no IOMMU); GPU memory appears on the bus through an aperture, one GPU page at a time.

This package does not depend on packets or queue pairs; a QP number is an integer.
"""

from rdmawire.memory.address_space import AddressSpace, DoorbellPage, HostMemory
from rdmawire.memory.dmabuf import DmaBufFiles, DmaBufRange, reg_dmabuf_mr
from rdmawire.memory.fast_reg import FastRegistration, register_pages
from rdmawire.memory.key import Access, ProtectionDomain, next_variant
from rdmawire.memory.mr_table import WHOLE_SPACE, Extent, Limits, MemoryRegionTable, Rereg
from rdmawire.memory.mw import Bind, MemoryWindow, WindowType
from rdmawire.memory.page import PAGE_4K, Path, PathCounters
from rdmawire.memory.region import LockedMemory, Region

__all__ = [
    "PAGE_4K",
    "WHOLE_SPACE",
    "Access",
    "AddressSpace",
    "Bind",
    "DmaBufFiles",
    "DmaBufRange",
    "DoorbellPage",
    "Extent",
    "FastRegistration",
    "HostMemory",
    "Limits",
    "LockedMemory",
    "MemoryRegionTable",
    "MemoryWindow",
    "Path",
    "PathCounters",
    "ProtectionDomain",
    "Region",
    "Rereg",
    "WindowType",
    "next_variant",
    "reg_dmabuf_mr",
    "register_pages",
]
