"""Regions of GPU memory: nvidia-peermem for ibv_reg_mr(3), and staging without GPUDirect."""

from errno import EINVAL

from rdmawire.errors import VerbsError
from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.gpu.device import DmaMapping, Gpu, PageTable
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.key import ProtectionDomain
from rdmawire.memory.mr_table import Extent, MemoryRegionTable
from rdmawire.memory.page import PAGE_64K, Path, split
from rdmawire.memory.region import Backing, PageList, Region
from rdmawire.validate import BytesLike, check_type


class GpuPages(PageList):
    """Pages mapped for one adapter; linear addresses are GPU addresses. One entry per page."""

    lends_devices = True

    def __init__(self, driver: GpuDriver, mapping: DmaMapping) -> None:
        table = mapping.table
        super().__init__(driver.space, table.address, table.addresses, table.gpu.page_size)
        self.peer = mapping.peer
        self._driver = driver
        self._mapping = mapping

    def release(self) -> None:
        self._driver.dma_unmap_pages(self._mapping)
        self._driver.put_pages(self._mapping.table)


class Peermem:
    """The client of an adapter's region table that pins GPU addresses.

    The default is the persistent client, which is not notified of cudaFree: the region keeps the
    old pages. Regions of the legacy client are invalidated.
    """

    def __init__(self, driver: GpuDriver, *, persistent: bool = True) -> None:
        self._driver = driver
        self._persistent = persistent

    def claim(self, address: int, length: int, peer: object) -> GpuPages | None:
        """Pin pages of 64 KiB for ``peer``; ``None`` if they cannot be pinned.

        That includes a full BAR1: the region table then tries host memory, and users see
        "Bad address". ``VerbsError`` EINVAL for a GPU with another page size.
        """
        start = address - address % PAGE_64K
        size = address + length - start
        size += -size % PAGE_64K
        if not self._is_ours(start, size):
            return None
        pages = _Pages()
        table = self._get(start, size, pages)
        if table.gpu.page_size != PAGE_64K:
            self._driver.put_pages(table)
            raise VerbsError(f"GPU pages of {table.gpu.page_size}, not of {PAGE_64K}", EINVAL)
        pages.backing = GpuPages(self._driver, self._driver.dma_map_pages(table, peer))
        return pages.backing

    def _is_ours(self, start: int, size: int) -> bool:
        """Whether the pages can be pinned: pin them, and unpin them again."""
        try:
            table = self._get(start, size, _Pages())
        except VerbsError:
            return False
        self._driver.put_pages(table)
        return True

    def _get(self, start: int, size: int, pages: "_Pages") -> PageTable:
        if self._persistent:
            return self._driver.get_pages_persistent(start, size)
        return self._driver.get_pages(start, size, pages.revoked)


class _Pages:
    """The callback of a page table: invalidates the region, which is created after the table."""

    backing: GpuPages | None = None

    def revoked(self) -> None:
        if self.backing is not None:
            self.backing.owner.invalidate()


class BouncePages(Backing):
    """GPU memory accessed through a host staging buffer; linear addresses are GPU addresses.

    Each DMA takes an additional copy by the GPU's copy engine. Kernels need no flush to see it.
    """

    path = Path.BOUNCE
    page_size = PAGE_64K
    copies = 1

    def __init__(self, space: AddressSpace, gpu: Gpu) -> None:
        self._space = space
        self._gpu = gpu
        self._staging = space.allocate(PAGE_64K)

    def lend(self, address: int) -> None:  # noqa: ARG002
        """Return ``None``: every access is staged."""
        return

    def read(self, address: int, length: int) -> bytes:
        return b"".join(self._fetch(*part) for part in split(address, length, PAGE_64K))

    def _fetch(self, address: int, length: int) -> bytes:
        staging = self._staging
        staging.write(staging.base, self._gpu.read(address, length))
        return staging.read(staging.base, length)

    def write(self, address: int, data: BytesLike) -> None:
        self._gpu.check(address, len(data))
        staging, source = self._staging, memoryview(data)
        for start, size in split(address, len(data), PAGE_64K):
            staging.write(staging.base, source[start - address : start - address + size])
            self._gpu.write(start, staging.read(staging.base, size))

    def release(self) -> None:
        self._space.unmap(self._staging)


def reg_bounce_mr(
    registrar: MemoryRegionTable, gpu: Gpu, pd: ProtectionDomain, extent: Extent, access: int
) -> Region:
    """Register GPU memory that an adapter reaches through a staging buffer of the host.

    ``extent.address`` is a GPU address. Once the memory is freed, accesses raise ``MemoryFault``.
    """
    check_type("registrar", registrar, MemoryRegionTable)
    check_type("gpu", gpu, Gpu)
    return registrar.register(pd, extent, access, lambda: BouncePages(registrar.space, gpu))
