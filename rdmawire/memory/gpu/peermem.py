"""nvidia-peermem: how ibv_reg_mr(3) takes a GPU address."""

from errno import EINVAL

from rdmawire.errors import VerbsError
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.gpu.table import DmaMapping, PageTable
from rdmawire.memory.page import PAGE_64K
from rdmawire.memory.region import PageList


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
    """The client that registrars ask whether an address is a GPU's.

    The default is the persistent client, which hears nothing of cudaFree: the region goes on with
    the old pages. The legacy client's regions are invalidated.
    """

    def __init__(self, driver: GpuDriver, *, persistent: bool = True) -> None:
        self._driver = driver
        self._persistent = persistent

    def claim(self, address: int, length: int, peer: object) -> GpuPages | None:
        """Pages for ``peer``, 64 KiB each; ``None`` for any failure to pin, and so not ours.

        Out of BAR1 is such a failure too: the registrar goes on to host memory, and users see
        "Bad address". ``VerbsError`` EINVAL for a GPU with pages of another size.
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
        """A trial: get, and put."""
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
    """Tells a region that its pages are gone; the table, which comes first, needs to know it."""

    backing: GpuPages | None = None

    def revoked(self) -> None:
        if self.backing is not None:
            self.backing.owner.invalidate()
