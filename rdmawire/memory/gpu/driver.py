"""The kernel driver of a host's GPUs, as other drivers use it: nvidia_p2p_*, and dma-bufs."""

from collections.abc import Callable
from errno import EBUSY, EINVAL, EIO, ENODEV
from random import Random
from typing import Final

from rdmawire.errors import ENOTSUPP, VerbsError
from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.dmabuf import DmaBuf
from rdmawire.memory.gpu.device import BLOCK, DmaMapping, Gpu, GpuProfile, PageTable, TableState
from rdmawire.memory.page import PAGE_4K, PAGE_64K, Path
from rdmawire.terminal import describe
from rdmawire.validate import check_int, check_type

_FIRST_BUS: Final = 1 << 45
_FIRST_ADDRESS: Final = 0x7000_0000_0000


def _aligned(address: int, size: int) -> int:
    """The next address, from ``address`` on, aligned to ``size`` rounded up to a power of two."""
    return address + -address % (1 << (size - 1).bit_length())


class GpuDriver:
    """The GPUs of one host, with their apertures in its address space.

    All refusals are ``VerbsError`` with the errno of the kernel's interface.
    """

    def __init__(self, space: AddressSpace) -> None:
        self.space = space
        self.gpus: list[Gpu] = []

    def add(self, profile: GpuProfile, random: Random | None = None) -> Gpu:
        """Add a GPU, at free addresses.

        The delays after which its posted writes become visible are drawn from ``random``; without
        it from ``Random(0)``.
        """
        check_type("profile", profile, GpuProfile)
        random = Random(0) if random is None else random  # noqa: S311 - repeatable
        check_type("random", random, Random)
        last = self.gpus[-1] if self.gpus else None
        base = last.end if last else _FIRST_ADDRESS
        bus = _aligned(last.aperture.end if last else _FIRST_BUS, profile.bar1)
        gpu = Gpu(profile, base + -base % BLOCK, bus, random)
        self.space.map(gpu.aperture)
        self.gpus.append(gpu)
        return gpu

    def gpu_at(self, address: int) -> Gpu | None:
        """The GPU that has this GPU address."""
        check_int("address", address)
        return next((gpu for gpu in self.gpus if gpu.base <= address < gpu.end), None)

    def get_pages(self, address: int, length: int, revoked: Callable[[], None] | None) -> PageTable:
        """nvidia_p2p_get_pages: pin pages until they are put or their owner frees them.

        EINVAL without a callback, for a range that is not a multiple of 64 KiB pages, or for memory
        that peers may not access; ENODEV for no GPU, EIO for a lost one, ENOMEM if BAR1 is full.
        """
        if not callable(revoked):
            raise VerbsError("pages need a callback unless they are persistent", EINVAL)
        return self._table(address, length, revoked)

    def get_pages_persistent(self, address: int, length: int) -> PageTable:
        """nvidia_p2p_get_pages_persistent: pin pages until they are put.

        Errors are those of ``get_pages``, and ENOTSUPP on MIG and vGPU.
        """
        gpu = self.gpu_at(address)
        if gpu is not None and gpu.profile.partitioned:
            raise VerbsError("no persistent pages on MIG or vGPU", ENOTSUPP)
        table = self._table(address, length, None)
        table.gpu.hold(table)
        return table

    def _table(self, address: int, length: int, revoked: Callable[[], None] | None) -> PageTable:
        gpu = self.gpu_at(address)
        if gpu is None:
            raise VerbsError(f"no GPU has address {address:#x}", ENODEV)
        check_pages(gpu, address, length, max(gpu.page_size, PAGE_64K))
        pages = range(address, address + length, gpu.page_size)
        table = PageTable(gpu, address, gpu.aperture.pin(pages), revoked)
        gpu.tables.append(table)
        return table

    def put_pages(self, table: PageTable) -> None:
        """nvidia_p2p_put_pages: no effect in the callback, EINVAL after it, EBUSY if mapped."""
        check_type("table", table, PageTable)
        if table.state is TableState.REVOKING:
            return
        if table.state is TableState.GONE:
            raise VerbsError("the pages are gone", EINVAL)
        if table.mappings:
            raise VerbsError(f"pages are mapped by {table.mappings} peers", EBUSY)
        table.state = TableState.GONE
        table.gpu.drop_table(table)
        if table.persistent:
            table.gpu.unhold(table)

    def dma_map_pages(self, table: PageTable, peer: object) -> DmaMapping:
        """nvidia_p2p_dma_map_pages, for this peer only. EINVAL for 4 KiB or revoked pages."""
        check_type("table", table, PageTable)
        if table.gpu.page_size == PAGE_4K:
            raise VerbsError("pages of 4 KiB cannot be mapped for DMA", EINVAL)
        if table.state is not TableState.LIVE:
            raise VerbsError("the pages are gone", EINVAL)
        return DmaMapping(table, peer)

    @staticmethod
    def dma_unmap_pages(mapping: DmaMapping) -> None:
        """nvidia_p2p_dma_unmap_pages."""
        check_type("mapping", mapping, DmaMapping)
        mapping.table.mappings -= 1


def check_pages(gpu: Gpu, address: int, length: int, granularity: int) -> None:
    """``VerbsError`` EINVAL for a range that cannot be pinned, EIO if the GPU is lost."""
    check_int("address", address)
    check_type("length", length, int)
    if length <= 0 or (address | length) % granularity:
        raise VerbsError(
            f"{describe(length)} bytes at {address:#x} are no pages of {granularity}", EINVAL
        )
    if gpu.aperture.lost:
        raise VerbsError("the GPU fell off the bus", EIO)
    if address + length > gpu.end or not gpu.resident(address, address + length):
        raise VerbsError(f"{describe(length)} bytes at {address:#x} are not all pinnable", EINVAL)


class GpuDmaBuf(DmaBuf):
    """GPU memory as a dma-buf, which keeps the memory alive after its owner freed it."""

    path = Path.GPU_DIRECT

    def __init__(self, gpu: Gpu, address: int, length: int) -> None:
        self.page_size = gpu.page_size
        super().__init__(length, address % gpu.page_size)
        self.address = address - self.skew
        self.end = address + length + -(address + length) % gpu.page_size
        self._gpu = gpu
        gpu.hold(self)

    def pin(self) -> tuple[int, ...]:
        return self._gpu.aperture.pin(range(self.address, self.end, self.page_size))

    def unpin(self) -> None:
        self._gpu.aperture.unpin(range(self.address, self.end, self.page_size))

    def dispose(self) -> None:
        self._gpu.unhold(self)


def export_dmabuf(driver: GpuDriver, address: int, length: int) -> GpuDmaBuf:
    """Export GPU memory as a dma-buf, as cuMemGetHandleForAddressRange does.

    ``VerbsError`` EINVAL unless it is pages of 4 KiB that peers may pin, ENODEV for no GPU.
    """
    check_type("driver", driver, GpuDriver)
    gpu = driver.gpu_at(address)
    if gpu is None:
        raise VerbsError(f"no GPU has address {address:#x}", ENODEV)
    check_pages(gpu, address, length, PAGE_4K)
    start = address - address % gpu.page_size
    end = address + length
    check_pages(gpu, start, end + -end % gpu.page_size - start, gpu.page_size)
    return GpuDmaBuf(gpu, address, length)
